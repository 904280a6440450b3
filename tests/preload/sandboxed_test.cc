// Processes that shut themselves in (sandboxed.c): what the kernel refuses them from then on, the cache does not give them, and the library makes no call that would end them.
#include <gtest/gtest.h>

#include "tests/preload/preload_fixture.h"

namespace tierd::e2e {
namespace {

class PreloadSandboxedTest : public PreloadTest {
 protected:
  void SetUp() override {
    PreloadTest::SetUp();
    Both("numbers", Words(0, 100'000));
    StartDaemon();
  }
  // False: there is no such way here.
  bool Run(const std::string& way, JobResult& served) {
    SCOPED_TRACE(way);
    constexpr int kSkipped = 77;
    const JobResult bare = RunJob({PRELOAD_SANDBOXED, Twin("numbers"), way}, bare_);
    if (bare.code == kSkipped) return false;
    EXPECT_EQ(bare.code, 0) << "bare: " << bare.output;
    served = RunJob({PRELOAD_SANDBOXED, Of("numbers"), way}, job_);
    EXPECT_EQ(served.code, 0) << served.output << served.report.dump();
    return true;
  }
};

TEST_F(PreloadSandboxedTest, ByLandlockReadTheSource) {
  JobResult served;
  if (!Run("landlock", served)) GTEST_SKIP() << "this kernel has no Landlock";
  EXPECT_EQ(served.report.value("opened", 0u), 2u) << served.report.dump();
  EXPECT_EQ(served.Of("conversions", "changed"), 1u) << served.report.dump();
}

TEST_F(PreloadSandboxedTest, ByAFilterOfSystemCallsMakeNoneOfOurs) {
  Both("numbers.cold", Words(0, 100'000));
  for (const char* way : {"prctl", "by_hand_prctl", "by_hand"}) {
    JobResult served;
    if (!Run(way, served)) continue;
    EXPECT_EQ(served.report.value("opened", 0u), 2u) << way << served.report.dump();
    EXPECT_EQ(served.Of("conversions", "changed"), 1u) << way << served.report.dump();
  }
}

TEST_F(PreloadSandboxedTest, ByTheStrictModeReadWhatIsOpen) {
  JobResult served;
  if (!Run("strict", served)) GTEST_SKIP() << "there is a filter here";
  EXPECT_EQ(served.report.value("opened", 0u), 1u) << served.report.dump();
}

}  // namespace
}  // namespace tierd::e2e
