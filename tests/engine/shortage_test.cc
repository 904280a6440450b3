// Reads of the SSD tier for which there is no memory, or no thread, just now: nobody is at fault, and every record stays.
#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class ShortageTest : public EngineTest {
 protected:
  static constexpr std::size_t kBytes = 40'000;
  ShortageTest() { UseSsd(); }
  // Of a life before, so that none is in a buffer; compared with the source since.
  std::vector<std::string> FilesOnSsd(int count) {
    const auto names = MakeFiles(count, kBytes);
    StartEngine();
    EXPECT_EQ(WaitForJob(engine().jobs().Prefetch({{&unit(), ""}}, {.ssd_only = true})).verified_files, names.size());
    StopEngine();
    StartEngine();
    for (const std::string& name : names) EXPECT_EQ(Fetch(name, abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
    ssd_io_.Hold(io::Step::kReadv);
    ssd_io_.released_with = ENOMEM;
    return names;
  }
  void ExpectNobodyAtFault() {
    EXPECT_EQ(engine().counters().ssd_read_errors + engine().counters().integrity_ssd, 0u);
    EXPECT_EQ(engine().ssd()->counters().read_errors, 0u);
    EXPECT_EQ(engine().ssd()->health(), ssd::SsdHealth::kHealthy);
  }
};

TEST_F(ShortageTest, TheReaderHasTheSourcesBytesAndTheRecordStays) {
  const auto names = FilesOnSsd(4);
  std::vector<std::uint64_t> asked;
  for (const std::string& name : names) asked.push_back(Ask(name));
  ASSERT_TRUE(RunUntil([&] { return ssd_io_.waiting == 4; }));
  const std::uint64_t opens = source_io_.count(io::Step::kOpen);
  ssd_io_.Release();
  for (std::size_t i = 0; i < names.size(); ++i) {
    ASSERT_TRUE(RunUntil([&] { return answers().contains(asked[i]); }));
    EXPECT_TRUE(answers()[asked[i]].bytes == Bytes(names[i], kBytes)) << names[i];
    EXPECT_TRUE(OnSsd(names[i])) << names[i];
  }
  EXPECT_EQ(source_io_.count(io::Step::kOpen), opens + 4);
  ExpectNobodyAtFault();
}

TEST_F(ShortageTest, AVerificationReadsTheRecordLater) {
  const auto names = FilesOnSsd(4);
  const std::uint64_t job = engine().jobs().VerifyRecords({});
  engine().EndTurn();
  ASSERT_TRUE(RunUntil([&] { return ssd_io_.waiting == 4; }));
  ssd_io_.Release();
  const JobStatus status = WaitForJob(job);
  EXPECT_EQ(status.state, JobState::kDone) << status.error;
  EXPECT_EQ(status.verified_files, names.size());
  EXPECT_EQ(status.expected_files, names.size());
  for (const std::string& name : names) EXPECT_TRUE(OnSsd(name)) << name;
  ExpectNobodyAtFault();
}

class NoMemory final : public io::EngineFaults {
 public:
  long Outcome(io::Step step, long result) override { return step == io::Step::kReadv && ++reads > 0 ? -ENOMEM : result; }
  unsigned SubmitLimit(unsigned pending) override { return pending; }
  unsigned CompletionEntries() override { return 0; }
  std::atomic<int> reads = 0;
};

class LongShortageTest : public ShortageTest {
 protected:
  ~LongShortageTest() override { StopEngine(); }
  NoMemory no_memory;
};

// Nor is it waited for without end, or asked without a pause.
TEST_F(LongShortageTest, AVerificationGivesUp) {
  const auto names = FilesOnSsd(4);
  StopEngine();
  options_.ssd_faults = &no_memory;
  StartEngine();
  const std::uint64_t job = engine().jobs().VerifyRecords({});
  engine().EndTurn();
  (void)HandlersIn(450);
  EXPECT_EQ(engine().jobs().Find(job)->ended_ns, 0);
  EXPECT_LE(no_memory.reads, 4 * 6);
  clock_.ahead_ns += 61'000'000'000;
  const JobStatus status = WaitForJob(job);
  EXPECT_EQ(status.state, JobState::kPartial);
  EXPECT_EQ(status.error, "there is no memory to read the SSD tier: 4 records were not read (tierctl status)");
  for (const std::string& name : names) EXPECT_TRUE(OnSsd(name)) << name;
}

}  // namespace
}  // namespace tierd::engine
