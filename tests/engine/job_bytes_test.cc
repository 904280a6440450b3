// The bytes of a job count as its chunks land: never less than a moment before, never more than is known to come, exact at the end.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <set>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

constexpr std::size_t kChunk = 64 << 10;
constexpr std::size_t kSize = 64 * kChunk - 100;

// Reads of the source go on one by one, as a test permits.
class PermittedReads final : public io::EngineFaults {
 public:
  long Outcome(io::Step step, long result) override {
    if (step != io::Step::kRead) return result;
    std::unique_lock<std::mutex> lock(mutex_);
    ++waiting;
    permitted_.wait(lock, [&] { return permits_ != 0; });
    --waiting;
    --permits_;
    ++passed;
    return fail ? -EIO : result;
  }
  unsigned SubmitLimit(unsigned pending) override { return pending; }
  unsigned CompletionEntries() override { return 0; }
  void Permit(std::uint64_t reads) {
    const std::lock_guard<std::mutex> lock(mutex_);
    permits_ = reads;
    permitted_.notify_all();
  }
  std::atomic<std::uint64_t> waiting = 0, passed = 0;
  std::atomic<bool> fail = false;

 private:
  std::mutex mutex_;
  std::condition_variable permitted_;
  std::uint64_t permits_ = 0;
};

class JobBytesTest : public EngineTest {
 protected:
  JobBytesTest() {
    options_.source_faults = &reads_;
    source_options().chunk_bytes = kChunk;
    source_options().ahead = false;
    source_options().max_inflight = 4;
  }
  ~JobBytesTest() override {
    reads_.Permit(~std::uint64_t{0});
    StopEngine();
  }

  void Begin(const std::string& path) {
    StartEngine();
    job_ = engine().jobs().Prefetch({{&unit(), path}}, {});
    engine().EndTurn();
  }
  const JobStatus& status() { return *engine().jobs().Find(job_); }
  // The condition, looked for at each turn, and at each whether the count is one.
  template <typename Condition>
  bool Until(Condition condition) {
    return RunUntil([&] {
      const JobStatus& now = status();
      EXPECT_GE(now.bytes_done, last_) << "it fell";
      EXPECT_LE(now.bytes_done, now.bytes_known);
      EXPECT_LE(now.files_sized, now.files_total);
      last_ = now.bytes_done;
      seen_.insert(last_);
      return condition();
    });
  }
  bool over() { return status().ended_ns != 0; }
  // All that the source is asked for stands at its read.
  bool AllWait() { return reads_.waiting > 0 && unit().reader->counters().in_flight == reads_.waiting; }
  // Lets reads go on, one after the other, until so many bytes count.
  void ReadOn(std::uint64_t bytes) {
    ASSERT_TRUE(Until([&] { return AllWait() || over(); }));
    while (last_ < bytes && !over()) {
      const std::uint64_t passed = reads_.passed;
      reads_.Permit(1);
      ASSERT_TRUE(Until([&] { return (reads_.passed > passed && AllWait()) || over(); }));
    }
  }
  void ReadToTheEnd() { ReadOn(~std::uint64_t{0}); }
  void Link(const std::string& name, const std::string& target) const { ASSERT_EQ(::symlink(target.c_str(), (tree_ / name).c_str()), 0); }
  std::size_t SeenBetween(std::uint64_t low, std::uint64_t high) const {
    return static_cast<std::size_t>(std::count_if(seen_.begin(), seen_.end(), [&](std::uint64_t bytes) { return bytes > low && bytes < high; }));
  }

  PermittedReads reads_;
  std::uint64_t job_ = 0;
  std::uint64_t last_ = 0;
  std::set<std::uint64_t> seen_;
};

TEST_F(JobBytesTest, ALargeFileCountsWhileItComes) {
  Write("large", Bytes("large", kSize));
  Begin("");
  ASSERT_TRUE(Until([&] { return reads_.waiting > 0; }));
  EXPECT_FALSE(status().sizes_known());
  EXPECT_EQ(status().bytes_done, 0u);
  ReadOn(1);
  EXPECT_EQ(status().bytes_done, kChunk);
  EXPECT_EQ(status().bytes_known, kSize) << "its first chunk tells its size";
  EXPECT_EQ(status().files_sized, 1u);
  EXPECT_EQ(status().files_done, 0u);
  EXPECT_TRUE(status().sizes_known());
  ReadToTheEnd();
  EXPECT_EQ(status().state, JobState::kDone);
  EXPECT_GE(SeenBetween(0, kSize), 8u) << "some at a time";
  EXPECT_EQ(status().bytes_done, kSize);
  EXPECT_EQ(status().bytes_known, kSize);
  EXPECT_EQ(status().verified_bytes, kSize);
  EXPECT_EQ(status().files_sized, 1u);
}

TEST_F(JobBytesTest, WhatIsThereAlreadyCountsOnce) {
  Write("d/large", Bytes("large", kSize));
  Write("d/small", Bytes("small", 1000));
  Begin("d");
  ReadToTheEnd();
  EXPECT_EQ(status().bytes_done, kSize + 1000);
  EXPECT_EQ(status().files_sized, 2u);
  last_ = 0;
  job_ = engine().jobs().Prefetch({{&unit(), "d"}, {&unit(), "d/large"}}, {});
  engine().EndTurn();
  ReadToTheEnd();
  EXPECT_EQ(status().bytes_done, kSize + 1000);
  EXPECT_EQ(status().bytes_known, kSize + 1000);
}

TEST_F(JobBytesTest, OfACancelledJobWhatHadCome) {
  Write("large", Bytes("large", kSize));
  Begin("");
  ReadOn(2 * kChunk);
  const std::uint64_t had_come = status().bytes_done;
  EXPECT_LT(had_come, kSize);
  ASSERT_TRUE(engine().jobs().Cancel(job_));
  reads_.Permit(~std::uint64_t{0});
  ASSERT_TRUE(Until([&] { return engine().fetcher().idle() && engine().jobs().idle(); }));
  EXPECT_EQ(status().bytes_done, had_come) << "a job that is over";
  EXPECT_EQ(status().bytes_known, kSize);
}

TEST_F(JobBytesTest, OfAFileThatFailsWhatHadCome) {
  Write("large", Bytes("large", kSize));
  Begin("");
  ReadOn(2 * kChunk);
  const std::uint64_t had_come = status().bytes_done;
  reads_.fail = true;
  ReadToTheEnd();
  EXPECT_EQ(status().state, JobState::kPartial);
  EXPECT_EQ(status().files_failed, 1u);
  EXPECT_EQ(status().bytes_done, had_come);
  EXPECT_EQ(status().bytes_known, had_come) << "no more of it is to come";
  EXPECT_EQ(status().files_sized, 0u);
}

// What had come of it is worth nothing.
TEST_F(JobBytesTest, AFileThatBecomesAnotherCountsFromTheStart) {
  Write("d/large", Bytes("large", kSize));
  Begin("d");
  ReadOn(2 * kChunk);
  const std::uint64_t had_come = status().bytes_done;
  Write("d/large", Bytes("large", 2 * kSize, 2));
  ReadToTheEnd();
  EXPECT_EQ(SeenBetween(had_come, 2 * kSize), 0u) << "of a version that nobody has a size of";
  const bool ended_well = status().files_done == 1;  // else "it changes all the time": several reads have seen that
  EXPECT_EQ(status().bytes_done, ended_well ? 2 * kSize : had_come);
  EXPECT_EQ(status().bytes_known, status().bytes_done);
}

TEST_F(JobBytesTest, AFileThatShrinksNeverCountsAsMoreThanIsKnown) {
  Write("large", Bytes("large", kSize));
  Begin("");
  ReadOn(2 * kChunk);
  Write("large", Bytes("large", 100, 2));
  ReadToTheEnd();
  EXPECT_LT(status().bytes_done, kSize);
}

TEST_F(JobBytesTest, AFileThatSeveralLinksLeadToCountsOnce) {
  Write("real/large", Bytes("large", kSize));
  Write("farm/small", Bytes("small", 10));
  for (const char* name : {"farm/a", "farm/b", "farm/c"}) Link(name, "../real/large");
  Begin("farm");
  ReadToTheEnd();
  EXPECT_EQ(status().state, JobState::kDone) << status().error;
  EXPECT_EQ(status().files_total, 2u);
  EXPECT_EQ(status().files_sized, 2u);
  EXPECT_EQ(status().bytes_done, kSize + 10);
  EXPECT_EQ(status().bytes_known, kSize + 10);
  EXPECT_GE(SeenBetween(kChunk, kSize), 2u) << "some at a time";
}

TEST_F(JobBytesTest, AFileThatTheWalkAndALinkLeadToCountsOnce) {
  Write("real/large", Bytes("large", kSize));
  Link("a", "real/large");
  Link("b", "real");
  Begin("");
  ReadToTheEnd();
  EXPECT_EQ(status().files_total, 1u);
  EXPECT_EQ(status().bytes_done, kSize);
  EXPECT_EQ(status().bytes_known, kSize);
}

// The link to the file counts, until the one to its directory is found to come by it.
TEST_F(JobBytesTest, AFileThatALaterWalkComesByCountsOnce) {
  Write("real/large", Bytes("large", kSize));
  Link("real/also", "large");
  Write("farm/small", Bytes("small", 10));
  Link("farm/a", "../real/large");
  Link("farm/b", "../real");
  Begin("farm");
  ReadOn(kChunk);
  ReadToTheEnd();
  EXPECT_EQ(status().state, JobState::kDone) << status().error;
  EXPECT_EQ(status().files_total, 2u);
  EXPECT_EQ(status().bytes_done, kSize + 10);
  EXPECT_EQ(status().bytes_known, kSize + 10);
}

// As a loop that looks ahead asks: it pushes out its own finished jobs, and not the one that a person waits for.
TEST_F(JobBytesTest, FinishedJobsOfProgramsLeaveThoseOfUsers) {
  Write("f", Bytes("f", 1000));
  reads_.Permit(~std::uint64_t{0});
  StartEngine();
  const auto prefetch = [&](JobOwner owner) {
    const std::uint64_t id = engine().jobs().Prefetch({{&unit(), "f"}}, {.owner = owner, .pid = 4711});
    engine().EndTurn();
    EXPECT_EQ(WaitForJob(id).state, JobState::kDone);
    return id;
  };
  const std::uint64_t user = prefetch(JobOwner::kUser);
  const std::uint64_t first = prefetch(JobOwner::kProgram);
  for (std::size_t i = 0; i < Jobs::kRememberedJobs; ++i) (void)prefetch(JobOwner::kProgram);
  EXPECT_EQ(engine().jobs().Find(first), nullptr);
  const JobStatus* const job = engine().jobs().Find(user);
  ASSERT_NE(job, nullptr);
  EXPECT_EQ(job->owner, JobOwner::kUser);
  EXPECT_EQ(job->path, tree_.path() + "/f");
  EXPECT_EQ(job->paths, 1u);
}

}  // namespace
}  // namespace tierd::engine
