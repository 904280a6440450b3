// Programs whose C library is not glibc: the preload library loads into them and does nothing but
// say so.
#include "tests/preload/run_fixture.h"

namespace tierd::e2e {
namespace {

class OtherLibcTest : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
#ifndef PRELOAD_OTHER_LIBC
    GTEST_SKIP() << "no musl-gcc at build time (tools/deps.sh installs it: musl-tools)";
#else
    program_ = PRELOAD_OTHER_LIBC;
    bare_ = RunJob({program_, source_}, job_);
    ASSERT_EQ(bare_.code, 11) << bare_.output;
    for (const char* line : {"ring: 42\n", "popen: 2816\n"}) ASSERT_NE(bare_.output.find(line), std::string::npos) << bare_.output;
#endif
  }

  static constexpr int kPrograms = 6;  // the first, and what it spawns, executes and becomes
  std::string program_;
  JobResult bare_;
};

TEST_F(OtherLibcTest, ExitCodeAndBytesAreAsBareUnderPlainPreload) {
  job_.environment.emplace_back("LD_PRELOAD", TIERD_PRELOAD_LIBRARY);
  const JobResult preloaded = RunJob({program_, source_}, job_);
  EXPECT_EQ(preloaded.code, bare_.code);
  EXPECT_EQ(preloaded.output, bare_.output);
}

TEST_F(OtherLibcTest, ExitCodeAndBytesAreAsBareUnderTierctlRunWhichCountsThem) {
  const std::string report = scratch_.path() + "/report.json";
  const JobResult result = RunIt({"--report", report}, {program_, source_});
  EXPECT_EQ(result.code, bare_.code);
  EXPECT_EQ(result.output, bare_.output);
  EXPECT_TRUE(IsAsTheSchemaSays(report));
  EXPECT_EQ(ReadJson(report)["other_libc"], kPrograms);
  EXPECT_EQ(ReadJson(report)["processes"], 0);
  EXPECT_NE(ReadJson(report).value("advice", "").find("is not glibc"), std::string::npos) << ReadJson(report)["advice"];
  EXPECT_TRUE(LeftOver().empty());
}

TEST_F(OtherLibcTest, AProgramWithGlibcBesideThemIsServed) {
  const std::string report = scratch_.path() + "/report.json";
  const JobResult result = RunIt({"--report", report}, {"/bin/sh", "-c", program_ + " " + source_ + " child; cat " + source_ + "/file " + source_ + "/file | wc -c"});
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_NE(result.output.find("200000"), std::string::npos) << result.output;
  EXPECT_EQ(ReadJson(report)["other_libc"], 1);
  EXPECT_EQ(ReadJson(report)["opened"], 2);
  const JobResult said = RunIt({}, {program_, source_, "child"});
  EXPECT_NE(said.output.find("1 process whose C library is not glibc"), std::string::npos) << said.output;
}

}  // namespace
}  // namespace tierd::e2e
