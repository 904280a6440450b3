#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "run_tierctl.h"

namespace tierctl {
namespace {

using ::testing::HasSubstr;

// What the line says is in the golden files (error_golden_test).
TEST(Usage, WrongCommandLinesAreOneLineAnd64) {
  const std::vector<std::vector<std::string>> rows = {{}, {"prefech", "/x"}, {"--jsn"}, {"prefetch"}, {"ls"}, {"wait", "soon"}, {"config"}, {"config", "set", "ram.capacity"}, {"bench", "--readers", "0"}, {"top", "-d", "nan"}, {"run", "--ram", "", "--", "true"}, {"run", "--source", "", "--", "true"}};
  for (const auto& row : rows) {
    const Ran ran = RunTierctl(row);
    EXPECT_EQ(ran.exit_code, 64) << ran.err;
    EXPECT_EQ(ran.out, "");
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  }
}

// "$DIR" of a script in which DIR is not set: not the working directory.
TEST(Usage, AnEmptyPathIsNone) {
  for (const std::vector<std::string>& row : std::vector<std::vector<std::string>>{{"evict", ""}, {"evict", "/x", ""}, {"pin", ""}, {"unpin", ""}, {"prefetch", ""}, {"prefetch", "-f", "", "/x"}, {"verify", ""}, {"ls", ""},
        {"stat", ""}, {"du", ""}, {"explain", ""}, {"trace", "start", ""}, {"bench", ""}, {"plan", "sequential", ""}, {"plan", "tell", "", "/x"}, {"simulate", ""}, {"policy", "prioritize", ""}, {"metrics", "-o", ""},
        {"debug", "bundle", "-o", ""}, {"--socket", "", "status"}, {"status", "--socket", ""}}) {
    const Ran ran = RunTierctl(row);
    EXPECT_EQ(ran.exit_code, 64) << row[0] << ": " << ran.err;
    EXPECT_THAT(ran.err, HasSubstr("is empty"));
    EXPECT_EQ(ran.out, "");
  }
}

TEST(Usage, NoOptionIsIgnored) {
  for (const std::vector<std::string>& row : std::vector<std::vector<std::string>>{{"policy", "try", "--stop"}, {"policy", "try", "--parameters", "k=1"}, {"plan", "sequential", "--batch-drop-last", "/x"},
        {"plan", "torch-distributed", "--batch-drop-last", "/x"}, {"bench", "--seconds", "nan"}, {"simulate", "--step-us", "nan"}, {"simulate", "--readers", "inf"}, {"simulate", "--source-latency-ms", "nan"},
        {"simulate", "--source-concurrency", "nan"}, {"simulate", "--sigma", "nan"}}) {
    const Ran ran = RunTierctl(row);
    EXPECT_EQ(ran.exit_code, 64) << row[0] << " " << row[1] << ": " << ran.err;
    EXPECT_EQ(ran.out, "");
  }
}

TEST(Usage, HelpGoesToStdout) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{{"--help"}, {"prefetch", "--help"}, {"config", "set", "--help"}, {"doctor", "-h"}}) {
    const Ran ran = RunTierctl(arguments);
    EXPECT_EQ(ran.exit_code, 0) << arguments[0];
    EXPECT_EQ(ran.err, "");
    EXPECT_NE(ran.out, "");
  }
  const std::string help = RunTierctl({"--help"}).out;
  for (const char* verb : {"status", "ls", "stat", "du", "prefetch", "evict", "pin", "unpin", "verify", "explain", "config", "doctor", "version", "jobs", "wait", "cancel", "bench", "gc"}) {
    EXPECT_THAT(help, HasSubstr(std::string("  ") + verb)) << verb;
  }
  EXPECT_THAT(RunTierctl({"--version"}).out, HasSubstr("tierctl 0."));
}

}  // namespace
}  // namespace tierctl
