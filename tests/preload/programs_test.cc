// Programs that the library cannot or must not serve: uncached, and correct.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/preload/preload_fixture.h"

namespace tierd::e2e {
namespace {

class PreloadProgramsTest : public PreloadTest {
 protected:
  void SetUp() override {
    PreloadTest::SetUp();
    Both("numbers", Words(0, 100'000));
    StartDaemon();
  }
};

TEST_F(PreloadProgramsTest, ThoseThatCallTheKernelByHandReadTheSource) {
  for (const char* program : {PRELOAD_RAW_CALLS, PRELOAD_RAW_CALLS_STATIC}) {
    const JobResult bare = RunJob({program, Twin("numbers")}, bare_);
    const JobResult served = RunJob({program, Of("numbers")}, job_);
    EXPECT_EQ(bare.code, 0);
    EXPECT_EQ(served.code, 0);
    EXPECT_EQ(served.output, bare.output);
    EXPECT_EQ(served.report.value("opened", 0u), 0u);
  }
}

#ifdef PRELOAD_RINGS
TEST_F(PreloadProgramsTest, ThoseWithRingsHaveRealDescriptors) {
  if (!IoUringIsAllowed()) GTEST_SKIP() << "no io_uring here";
  const JobResult linked = BareThenServed({PRELOAD_RINGS, Of("numbers"), "now"});
  EXPECT_EQ(linked.report.value("opened", 0u), 0u) << linked.report.dump();
  const JobResult late = BareThenServed({PRELOAD_RINGS_LATE, Of("numbers"), "late"});
  EXPECT_EQ(late.report.value("opened", 0u), 1u) << late.report.dump();
  EXPECT_EQ(late.Of("conversions", "io_uring"), 1u) << late.report.dump();
}
#endif

// FAULTS T13: the environment counts for nothing in a program that has more rights than its caller.
TEST_F(PreloadProgramsTest, ThoseWithMoreRightsThanTheirCallerAreLeftAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to make a set-user-id program";
  const std::string program = scratch_.path() + "/secure";
  std::filesystem::copy_file(PRELOAD_SECURE, program);
  const auto run = [&](bool as_another) {
    JobOptions options = job_;
    options.preload = false;
    return RunJob(as_another ? std::vector<std::string>{"setpriv", "--reuid=65534", "--clear-groups", program, Of("numbers")} : std::vector<std::string>{program, Of("numbers")}, options);
  };
  const JobResult plain = run(false);
  EXPECT_EQ(plain.code, 0) << plain.output;
  EXPECT_EQ(plain.report.value("opened", 0u), 1u) << plain.output << plain.report.dump();
  ASSERT_EQ(::chmod(program.c_str(), 04755), 0);
  for (std::filesystem::path at = scratch_.path(); at != at.root_path(); at = at.parent_path()) {
    struct stat st;
    if (::stat(at.c_str(), &st) == 0 && (st.st_mode & 1) == 0 && at == scratch_.path()) ::chmod(at.c_str(), 0711);
  }
  const JobResult secure = run(true);
  if (secure.output.find(" 1\n") == std::string::npos) GTEST_SKIP() << "no set-user-id programs here: " << secure.output;
  EXPECT_EQ(secure.code, 0) << secure.output;
  EXPECT_EQ(secure.report.size(), 0u) << secure.report.dump();
  EXPECT_LT(std::stoi(secure.output), 100) << secure.output;
}

}  // namespace
}  // namespace tierd::e2e
