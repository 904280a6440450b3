// A job says why a file could not be read, and does not fail for what passes by itself.
#include <sys/stat.h>

#include <cerrno>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

// Runs the test's function at every step of a read of the source.
class CalledFaults final : public io::EngineFaults {
 public:
  long Outcome(io::Step step, long result) override { return outcome ? outcome(step, result) : result; }
  unsigned SubmitLimit(unsigned pending) override { return pending; }
  unsigned CompletionEntries() override { return 0; }
  std::function<long(io::Step, long)> outcome;  // set before the engine starts; called by its workers
};

class JobErrorTest : public EngineTest {
 protected:
  JobErrorTest() { options_.source_faults = &faults_; }
  ~JobErrorTest() override { StopEngine(); }
  JobStatus PrefetchAll() {
    const std::uint64_t job = engine().jobs().Prefetch({{&unit(), ""}}, {});
    engine().EndTurn();
    return WaitForJob(job);
  }
  CalledFaults faults_;
};

TEST_F(JobErrorTest, TheSourcesErrno) {
  Write("d/file", Bytes("d/file", 1000));
  faults_.outcome = [](io::Step step, long result) { return step == io::Step::kRead ? -EIO : result; };
  StartEngine();
  const JobStatus status = PrefetchAll();
  EXPECT_EQ(status.state, JobState::kPartial);
  EXPECT_EQ(status.files_failed, 1u);
  EXPECT_NE(status.error.find("could not read " + tree_.path() + "/d/file"), std::string::npos) << status.error;
  EXPECT_NE(status.error.find("Input/output error"), std::string::npos) << status.error;
}

TEST_F(JobErrorTest, AFileThatChangesAllTheTime) {
  Write("file", Bytes("file", 1000));
  std::atomic<std::size_t> size = 1000;
  faults_.outcome = [&](io::Step step, long result) {
    if (step == io::Step::kRead) tree_.Write("file", std::string(++size, 'x'));
    return result;
  };
  StartEngine();
  const JobStatus status = PrefetchAll();
  EXPECT_EQ(status.files_failed, 1u);
  EXPECT_NE(status.error.find("/file: it changes all the time"), std::string::npos) << status.error;
}

// Names come faster than the index grows: what was read meanwhile waits for its place.
TEST_F(JobErrorTest, AnIndexThatGrowsIsNoError) {
  options_.source_faults = &source_io_;
  const auto names = MakeFiles(8, 3000);
  StartEngine();
  source_io_.Hold(io::Step::kRead);
  const std::uint64_t job = engine().jobs().Prefetch({{&unit(), ""}}, {});
  engine().EndTurn();
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting == 8; }));
  io::FileStat stat;
  stat.mode = S_IFREG | 0644;
  stat.size = 100;
  for (stat.ino = 1'000'000; engine().fetcher().Observe(unit(), "walked/" + std::to_string(stat.ino), stat, 1) == Fetcher::Observed::kKnown;) ++stat.ino;
  source_io_.Release();
  const JobStatus status = WaitForJob(job);
  EXPECT_EQ(status.files_failed, 0u) << status.error;
  EXPECT_EQ(status.files_done, names.size());
  for (const std::string& name : names) EXPECT_TRUE(InRam(name)) << name;
}

}  // namespace
}  // namespace tierd::engine
