// A job holds nobody up (HAZARDS 5): neither one that is cancelled, nor one that is asked for thousands of paths, nor one that finds nothing left to do.
#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class CancelTest : public EngineTest {
 protected:
  // A prefetch whose names have all been found and hardly any asked for.
  std::uint64_t PrefetchThatStands(int files) {
    (void)MakeFiles(files, 10);
    StartEngine();
    source_io_.Hold(io::Step::kOpen);
    const std::uint64_t job = engine().jobs().Prefetch({{&unit(), ""}}, {});
    engine().EndTurn();
    EXPECT_TRUE(RunUntil([&] { return !engine().jobs().Find(job)->walking; }));
    EXPECT_GT(engine().jobs().names_waiting(), static_cast<std::size_t>(files) / 2);
    return job;
  }
};

TEST_F(CancelTest, ItsNamesGoSomeAtATurn) {
  const std::uint64_t job = PrefetchThatStands(12'000);
  const std::size_t waiting = engine().jobs().names_waiting();
  ASSERT_TRUE(engine().jobs().Cancel(job));
  std::size_t left = engine().jobs().names_waiting();
  EXPECT_EQ(left, waiting);
  while (left > 0) {
    EXPECT_FALSE(engine().jobs().idle()) << "or nobody would come by";
    (void)engine().jobs().Pump();
    const std::size_t now = engine().jobs().names_waiting();
    ASSERT_LT(now, left);
    EXPECT_LE(left - now, 4096u);
    left = now;
  }
  EXPECT_TRUE(engine().jobs().idle());
}

TEST_F(CancelTest, AndByThemselves) {
  const std::uint64_t job = PrefetchThatStands(6'000);
  ASSERT_TRUE(engine().jobs().Cancel(job));
  EXPECT_TRUE(RunUntil([&] { return engine().jobs().names_waiting() == 0 && engine().jobs().idle(); }));
  EXPECT_EQ(engine().jobs().Find(job)->state, JobState::kCancelled);
}

// What is on the SSD is compared with each of the paths.
TEST_F(CancelTest, ManyPathsToVerifyAreLookedForSomeAtATurn) {
  UseSsd();
  const std::vector<std::string> names = MakeFiles(40, 3000);
  StartEngine();
  for (const std::string& name : names) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  for (const std::string& name : names) ASSERT_TRUE(OnSsd(name));
  std::vector<Jobs::Item> items;
  for (int i = 0; i < 1024; ++i) items.push_back({&unit(), "elsewhere/" + std::to_string(i)});
  items.push_back({&unit(), ""});
  const std::uint64_t job = engine().jobs().VerifyRecords(std::move(items));
  std::uint64_t seen = 0;
  int turns = 1;
  for (; engine().jobs().Find(job)->walking && turns < 1000; ++turns) {
    const std::uint64_t now = engine().jobs().Find(job)->files_total;
    EXPECT_LE(now - seen, 4u);
    seen = now;
    (void)engine().jobs().Pump();
  }
  EXPECT_GE(turns, 10);
  EXPECT_EQ(WaitForJob(job).verified_files, names.size());
}

// All is evicted while the first of its records are being read.
TEST_F(CancelTest, RecordsThatHaveLeftArePassedOverSomeAtATurn) {
  constexpr std::uint64_t kRecords = 9000;
  UseSsd();
  source_options().chunk_bytes = 4096;
  const std::string name = Write("large", Bytes("large", kRecords * 4096));
  StartEngine();
  ASSERT_EQ(WaitForJob(engine().jobs().Prefetch({{&unit(), name}}, {.ssd_only = true})).verified_files, 1u);
  ssd_io_.Hold(io::Step::kReadv);
  const std::uint64_t job = engine().jobs().VerifyRecords({});
  const JobStatus& status = *engine().jobs().Find(job);
  while (status.walking) (void)engine().jobs().Pump();
  ASSERT_EQ(status.expected_files, kRecords);
  Advise(abi::AdviseOp::kEvict, name);
  ssd_io_.Release();
  for (std::uint64_t left = status.expected_files; status.ended_ns == 0; left = status.expected_files) {
    engine().EndTurn();
    engine().ssd()->Poll(256);
    (void)engine().jobs().Pump();
    ASSERT_LE(left - status.expected_files, 4096u + 8);
  }
  EXPECT_EQ(status.expected_files, status.verified_files) << "the first of them";
  EXPECT_EQ(status.state, JobState::kDone) << status.error;
}

}  // namespace
}  // namespace tierd::engine
