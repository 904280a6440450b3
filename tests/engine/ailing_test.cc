// An SSD tier that takes nothing for the time being (its directory has gone): nobody waits for it and nothing is tried again and again; once it is
// well, it gets what it missed. The directory is moved away and back.
#include <filesystem>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class AilingTest : public EngineTest {
 protected:
  AilingTest() {
    UseSsd();
    options_.ram.min_available_bytes = 1 << 20;  // plenty of memory: it is rarely looked at
  }
  void TakeDirectory() {
    std::filesystem::rename(options_.ssd.directory, options_.ssd.directory + ".away");
    ASSERT_TRUE(RunUntil([&] { return engine().ssd()->ailing(); }));
    EXPECT_FALSE(engine().ssd()->status().writable);
  }
  void GiveDirectoryBack() { std::filesystem::rename(options_.ssd.directory + ".away", options_.ssd.directory); }
  void ReadAll(const std::vector<std::string>& names) {
    for (const std::string& name : names) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame) << name;
  }
  std::uint64_t Refused() {
    const ssd::SsdCounters counters = engine().ssd()->counters();
    return counters.appends_refused_busy + counters.appends_refused_health + counters.appends_refused_no_space;
  }
};

TEST_F(AilingTest, IsNotAskedAgainAndAgain) {
  const auto names = MakeFiles(20, 4096);
  StartEngine();
  TakeDirectory();
  ReadAll(names);
  (void)HandlersIn(1500);
  const std::uint64_t refused = Refused();
  EXPECT_GE(refused, names.size());
  EXPECT_LE(HandlersIn(2000), 8u) << "an idle daemon with an SSD tier (idle_test)";
  EXPECT_EQ(Refused(), refused);
}

TEST_F(AilingTest, GetsWhatItMissedOnceItIsWell) {
  const auto names = MakeFiles(20, 4096);
  StartEngine();
  TakeDirectory();
  ReadAll(names);
  for (const std::string& name : names) EXPECT_FALSE(OnSsd(name)) << name;
  GiveDirectoryBack();
  EXPECT_TRUE(RunUntil([&] { return std::all_of(names.begin(), names.end(), [&](const std::string& name) { return OnSsd(name); }); }));
}

// A device that does not answer for some seconds is one that has much to write: what is prefetched to it comes later, and all of it.
TEST_F(AilingTest, APrefetchOutlastsAStall) {
  for (const bool ssd_only : {true, false}) {
    options_.ssd.capacity_bytes = 512 << 20;
    options_.ram.capacity_bytes = ssd_only ? 64 << 20 : 2 << 20;
    options_.ram.segment_bytes = 2 << 20;
    const auto names = MakeFiles(130, 600'000);  // more than the tier's buffers hold
    StartEngine();
    ssd_io_.Hold(io::Step::kWritev);
    const std::uint64_t job = engine().jobs().Prefetch({{&unit(), ""}}, {.ssd_only = ssd_only});
    ASSERT_TRUE(RunUntil([&] { return engine().ssd()->stalls(); }));
    (void)HandlersIn(300);
    EXPECT_EQ(engine().jobs().Find(job)->files_no_room, 0u);
    EXPECT_LT(engine().jobs().Find(job)->files_done, names.size());
    ssd_io_.Release();
    const JobStatus status = WaitForJob(job);
    EXPECT_EQ(status.state, JobState::kDone) << status.error;
    EXPECT_EQ(status.files_done, names.size());
    EXPECT_EQ(status.files_no_room, 0u);
    StopEngine();
    std::filesystem::remove_all(options_.ssd.directory);
  }
}

// Nor is it waited for without end.
TEST_F(AilingTest, APrefetchGivesUpOnALongStall) {
  options_.ssd.capacity_bytes = 512 << 20;
  (void)MakeFiles(130, 600'000);  // more than the tier's buffers hold
  StartEngine();
  ssd_io_.Hold(io::Step::kWritev);
  const std::uint64_t job = engine().jobs().Prefetch({{&unit(), ""}}, {.ssd_only = true});
  ASSERT_TRUE(RunUntil([&] { return engine().ssd()->stalls(); }));
  (void)HandlersIn(100);
  clock_.ahead_ns += 61'000'000'000;
  ASSERT_TRUE(RunUntil([&] { return engine().jobs().Find(job)->files_no_room != 0; }));
  EXPECT_NE(engine().jobs().Find(job)->error.find("does not answer"), std::string::npos);
  ssd_io_.Release();
  EXPECT_EQ(WaitForJob(job).state, JobState::kPartial);
}

// Records that no reader waits for, and a device that does not give them: in each turn it is asked again, for a minute.
TEST_F(AilingTest, AVerificationGivesUpOnALongStall) {
  const auto names = MakeFiles(20, 40'000);
  StartEngine();
  ASSERT_EQ(WaitForJob(engine().jobs().Prefetch({{&unit(), ""}}, {.ssd_only = true})).verified_files, names.size());
  StopEngine();
  StartEngine();
  ssd_io_.Hold(io::Step::kReadv);
  const std::uint64_t job = engine().jobs().VerifyRecords({});
  engine().EndTurn();
  ASSERT_TRUE(RunUntil([&] { return engine().ssd()->stalls(); }));
  (void)HandlersIn(100);
  EXPECT_EQ(engine().jobs().Find(job)->ended_ns, 0);
  clock_.ahead_ns += 61'000'000'000;
  const JobStatus status = WaitForJob(job);
  EXPECT_EQ(status.state, JobState::kPartial);
  EXPECT_EQ(status.error, "the SSD tier answers no more: 20 records were not read (tierctl status)");
  ssd_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return engine().ssd()->status().reads_in_flight == 0; }));
  for (const std::string& name : names) EXPECT_TRUE(OnSsd(name)) << name;
}

class DeadDevice final : public io::EngineFaults {
 public:
  long Outcome(io::Step step, long result) override { return dead && (step == io::Step::kReadv || step == io::Step::kWritev) ? -EIO : result; }
  unsigned SubmitLimit(unsigned pending) override { return pending; }
  unsigned CompletionEntries() override { return 0; }
  std::atomic<bool> dead = false;
};

class DeadDeviceTest : public AilingTest {
 protected:
  DeadDeviceTest() { options_.ssd_faults = &device; }
  ~DeadDeviceTest() override { StopEngine(); }
  DeadDevice device;
};

TEST_F(DeadDeviceTest, AVerificationGivesUpOnADeviceThatIsOut) {
  for (const bool comes_back : {true, false}) {
    const auto names = MakeFiles(40, 40'000);
    StartEngine();
    ASSERT_EQ(WaitForJob(engine().jobs().Prefetch({{&unit(), ""}}, {.ssd_only = true})).verified_files, names.size());
    StopEngine();
    StartEngine();
    device.dead = true;
    const std::uint64_t job = engine().jobs().VerifyRecords({});
    engine().EndTurn();
    ASSERT_TRUE(RunUntil([&] { return engine().ssd()->health() == ssd::SsdHealth::kOut; }));
    (void)HandlersIn(100);
    EXPECT_EQ(engine().jobs().Find(job)->ended_ns, 0);
    if (comes_back) device.dead = false;
    else clock_.ahead_ns += 61'000'000'000;
    const JobStatus status = WaitForJob(job);
    EXPECT_EQ(status.state, JobState::kPartial);
    const std::uint64_t left = status.expected_files - status.verified_files - status.files_failed;
    const std::string gave_up = "the SSD tier answers no more: " + std::to_string(left) + " records were not read (tierctl status)";
    EXPECT_EQ(status.error.find(gave_up) == std::string::npos, comes_back) << status.error;
    EXPECT_EQ(left > 0, !comes_back);
    StopEngine();
    device.dead = false;
    std::filesystem::remove_all(options_.ssd.directory);
  }
}

TEST_F(AilingTest, APrefetchDoesNotWaitForIt) {
  (void)MakeFiles(20, 4096);
  StartEngine();
  TakeDirectory();
  const JobStatus job = WaitForJob(engine().jobs().Prefetch({{&unit(), ""}}, {}));
  EXPECT_EQ(job.verified_files, 20u) << "in RAM";
}

}  // namespace
}  // namespace tierd::engine
