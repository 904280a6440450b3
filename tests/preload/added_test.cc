// The memory that the library adds to processes has a budget per process and per job (added.c).
// Those in a memory cgroup need root.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>

#include "tests/e2e/exposition.h"
#include "tests/e2e/memory_cgroup.h"
#include "tests/preload/preload_fixture.h"

namespace tierd::e2e {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kJobBudget = 64 * kMiB;          // of a tier of 1 GiB or less
constexpr std::uint64_t kProcessLimit = kJobBudget / 4;  // of one process, whoever else there is
constexpr std::uint64_t kOptional =
    kProcessLimit / 4 * 3;  // for what could be the source's as well

class PreloadAddedTest : public PreloadTest {
 protected:
  void SetUp() override {
    PreloadTest::SetUp();
    for (std::uint32_t i = 0; i < 8; ++i)
      Write(Of("file" + std::to_string(i)), Words(i, 1'000'000));
    Write(Of("small"), Words(8, 60'000));
    Write(Of("large"), Words(9, 10'000'000));
    const timespec long_ago[2] = {{1'500'000'000, 0}, {1'500'000'000, 0}};
    for (std::uint32_t i = 0; i < 32; ++i) {
      Write(Of("old" + std::to_string(i)), Words(10 + i, 1'000'000));
      ASSERT_EQ(::utimensat(AT_FDCWD, Of("old" + std::to_string(i)).c_str(), long_ago, 0), 0);
    }
    StartDaemon("192 MiB");
  }
  JobResult Served(const std::string& check) {
    const JobResult served = RunJob({PRELOAD_ADDED, source_, check}, job_);
    EXPECT_EQ(served.code, 0) << served.output;
    return served;
  }
  // In a cgroup of so much memory, which is less than a copy each would take. The daemon is
  // outside.
  JobResult ServedWithin(const MemoryCgroup& cgroup, const std::string& check) {
    const JobResult served =
        RunShell("echo $$ > " + cgroup.path() + "/cgroup.procs && exec " PRELOAD_ADDED " " +
                     source_ + " " + check,
                 job_);
    EXPECT_EQ(served.code, 0) << served.output;
    EXPECT_EQ(cgroup.oom_kills(), 0u);
    return served;
  }
};

// 600 files of 1 MB.
TEST_F(PreloadAddedTest, ReadOnlyMappingsFitIntoAJobOf160MB) {
  const MemoryCgroup cgroup(160 * kMiB);
  if (!cgroup.ok()) GTEST_SKIP() << cgroup.reason();
  for (const char* check : {"private", "shared"}) {
    SCOPED_TRACE(check);
    const JobResult served = ServedWithin(cgroup, check);
    EXPECT_GT(served.report.value("maps", 0u), 30u) << served.report.dump();
    EXPECT_EQ(served.Of("real_opens", "not_cached"), 0u)
        << "mappings leave nothing of the pin cap: " << served.report.dump();
    EXPECT_LE(served.Of("memory_added", "peak"), kOptional + kMiB) << served.report.dump();
  }
}

TEST_F(PreloadAddedTest, WritablePrivateMappingsFitIntoAJobOf160MB) {
  const MemoryCgroup cgroup(160 * kMiB);
  if (!cgroup.ok()) GTEST_SKIP() << cgroup.reason();
  const JobResult served = ServedWithin(cgroup, "writable");
  EXPECT_GT(served.report.value("maps", 0u), 8u) << served.report.dump();
  EXPECT_GT(served.Of("source_uses", "mmap"), 500u) << served.report.dump();
  EXPECT_GT(served.Of("memory_refused", "budget"), 500u) << served.report.dump();
}

TEST_F(PreloadAddedTest, MappingsOfSmallFilesFitIntoAJobOf96MB) {
  const MemoryCgroup cgroup(96 * kMiB);
  if (!cgroup.ok()) GTEST_SKIP() << cgroup.reason();
  const JobResult served = ServedWithin(cgroup, "small");
  EXPECT_LE(served.Of("memory_added", "maps"), kOptional) << served.report.dump();
  EXPECT_GT(served.Of("memory_added", "maps"), kOptional - kMiB) << served.report.dump();
}

TEST_F(PreloadAddedTest, CopiesAtAForkFitIntoAJobOf30MB) {
  const MemoryCgroup cgroup(30 * kMiB);
  if (!cgroup.ok()) GTEST_SKIP() << cgroup.reason();
  const JobResult served = ServedWithin(cgroup, "forks");
  EXPECT_GT(served.report.value("memory_copies", 0u), 8u) << served.report.dump();
  EXPECT_LT(served.report.value("memory_copies", 0u), 16u) << served.report.dump();
  EXPECT_EQ(served.Of("conversions", "fork"), 32u) << served.report.dump();
  EXPECT_EQ(served.Of("conversions", "failed"), 0u) << served.report.dump();
}

TEST_F(PreloadAddedTest, CopiesOfAForkComeBackWithTheirLastNumber) {
  const JobResult served = Served("forks_again");
  EXPECT_EQ(served.report.value("memory_copies", 0u), 60u) << served.report.dump();
  EXPECT_EQ(served.Of("memory_refused", "budget"), 0u) << served.report.dump();
}

TEST_F(PreloadAddedTest, CopiesOfMappingsComeBackWithTheirLastPage) {
  const JobResult served = Served("given_back");
  EXPECT_EQ(served.Of("memory_refused", "budget"), 0u) << served.report.dump();
  EXPECT_LE(served.Of("memory_added", "maps"), 2 * kMiB) << served.report.dump();
  EXPECT_GE(served.report.value("maps", 0u), 500u) << served.report.dump();
}

TEST_F(PreloadAddedTest, KeptMappingsAddTheirPageTables) {
  const JobResult served = Served("kept");
  EXPECT_EQ(served.Of("memory_refused", "budget"), 0u) << served.report.dump();
  EXPECT_LE(served.Of("memory_added", "kept_mappings"), 16 * 32 * 1024u) << served.report.dump();
  utsname kernel{};
  int major = 0, minor = 0;
  ASSERT_EQ(::uname(&kernel), 0);
  ASSERT_EQ(std::sscanf(kernel.release, "%d.%d", &major, &minor), 2);
  if (major > 6 ||
      (major == 6 &&
       minor >= 11)) {  // older ones cannot be asked what a mapping shows, and nothing is kept
    EXPECT_GE(served.Of("memory_added", "kept_mappings"), 20'000u) << served.report.dump();
  }
}

TEST_F(PreloadAddedTest, AChildHasTheWholeBudgetForItself) {
  const JobResult served = Served("inherited");
  EXPECT_GT(served.report.value("maps", 0u), 8u) << served.report.dump();
}

// Ten processes at a time, each of which would take all that one may have.
TEST_F(PreloadAddedTest, ProcessesOfAJobShareItsBudget) {
  JobOptions options = job_;
  options.environment.emplace_back("ADDED_HOLD", "1500");
  const JobResult served = RunShell(
      "for i in 0 1 2 3 4 5 6 7 8 9; do " PRELOAD_ADDED " " + source_ + " few & done; wait",
      options);
  EXPECT_EQ(served.code, 0) << served.output;
  EXPECT_EQ(served.report.value("opened", 0u), 400u) << served.report.dump();
  EXPECT_LE(served.Of("memory_added", "maps"), kJobBudget) << served.report.dump();
  EXPECT_GT(served.Of("memory_added", "maps"), kJobBudget / 4) << served.report.dump();
}

TEST_F(PreloadAddedTest, TheDaemonTellsWhatClientsHaveAdded) {
  JobOptions options = job_;
  options.environment.emplace_back("ADDED_HOLD", "4000");
  const auto added = [this] {
    return ParseExposition(daemon_.Metrics()).Value("tierd_added_bytes");
  };
  EXPECT_EQ(added(), 0);
  const pid_t job = ::fork();
  if (job == 0) {
    (void)RunJob({PRELOAD_ADDED, source_, "few"}, options);
    ::_exit(0);
  }
  EXPECT_TRUE(Eventually(15'000, [&] { return added() > 8.0 * kMiB; })) << added();
  EXPECT_EQ(ParseExposition(daemon_.Metrics()).Value("tierd_added_limit_bytes"),
            static_cast<double>(kJobBudget));
  ::waitpid(job, nullptr, 0);
  EXPECT_TRUE(Eventually(5'000, [&] { return added() == 0; })) << added();
}

}  // namespace
}  // namespace tierd::e2e
