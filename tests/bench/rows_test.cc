// Which rows a benchmark prints, and what tools/bench.sh answers when something that was asked for has not been measured.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/harness.h"
#include "tests/config/temp_dir.h"

namespace bench {
namespace {

class RowsTest : public testing::Test {
 protected:
  void SetUp() override { ::setenv("TIERD_BENCH_DIR", scratch_.path().c_str(), 1); }

  // The ids of the rows that come out when these are emitted.
  std::vector<std::string> Printed(const std::string& only, const std::vector<nlohmann::json>& rows) {
    std::string name = "bench", flag = "--only", list = only;
    char* arguments[] = {name.data(), flag.data(), list.data()};
    Bench bench(only.empty() ? 1 : 3, arguments);
    testing::internal::CaptureStdout();
    for (const nlohmann::json& row : rows) bench.Emit(row);
    printed_ = testing::internal::GetCapturedStdout();
    std::vector<std::string> ids;
    std::istringstream lines(printed_);
    for (std::string line; std::getline(lines, line);) ids.push_back(nlohmann::json::parse(line)["id"]);
    return ids;
  }

  // The exit code of the table of what was printed last.
  int TableOf(const std::string& ids) const {
    scratch_.Write("rows", printed_);
    return Shell(TIERD_BENCH_TABLE " " + scratch_.path() + "/rows " + ids);
  }

  static nlohmann::json Measured(const std::string& id, double value = 1) { return ValueRow({id, "what", "s"}, {{value}}, Bar::kAtMost, 2); }
  static nlohmann::json Skipped(const std::string& id) { return SkippedRow({id, "what", "s"}, "not to be had here"); }

  tierd::config::TempDir scratch_;
  std::string printed_;
};

using Ids = std::vector<std::string>;

TEST_F(RowsTest, PrintsWhatWasAskedFor) {
  const std::vector<nlohmann::json> rows = {Measured("A1.1r"), Measured("A1.1r.p50"), Measured("A10.one")};
  EXPECT_EQ(Printed("", rows), (Ids{"A1.1r", "A1.1r.p50", "A10.one"}));
  EXPECT_EQ(Printed("A1", rows), (Ids{"A1.1r", "A1.1r.p50"}));
  EXPECT_EQ(Printed("A1.1r.p50", rows), (Ids{"A1.1r.p50"}));
}

TEST_F(RowsTest, PrintsASkippedRowForThoseBelowIt) {
  EXPECT_EQ(Printed("B6.large,A5.loop.110k.1r", {Skipped("B6"), Skipped("A5.loop.110k"), Skipped("B7")}), (Ids{"B6", "A5.loop.110k"}));
}

// On a rig that could not keep up a figure would be the rig's.
TEST_F(RowsTest, NothingIsMeasuredOnASlowRig) {
  ::setenv("TIERD_BENCH_RIG", "slow", 1);
  for (const auto& [program, only] : std::vector<std::pair<std::string, std::string>>{
           {"first_epoch", "A6"}, {"prefetch", "A7"}, {"plans", "C6"}, {"epochs", "C9"}, {"loaders", "B6,B7"}}) {
    const std::string binary = TIERD_BENCH_PROGRAMS "/bench_" + program, file = scratch_.path() + "/" + program;
    if (::access(binary.c_str(), X_OK) != 0) continue;  // a build without the preload library has no loaders
    EXPECT_EQ(Shell("exec '" + binary + "' --only " + only + " >'" + file + "'"), 0) << program;
    std::ifstream lines(file);
    int rows = 0;
    for (std::string line; std::getline(lines, line); ++rows) {
      const auto row = nlohmann::json::parse(line);
      EXPECT_TRUE(row["met"].is_null() && row["ours"].is_null()) << line;
      EXPECT_NE(line.find("the rig's self-test failed"), std::string::npos) << line;
    }
    EXPECT_GT(rows, 0) << program;
  }
  ::unsetenv("TIERD_BENCH_RIG");
}

TEST_F(RowsTest, EverythingMeasuredIsSuccessWhateverTheBars) {
  Printed("", {Measured("A1.1r"), Measured("A3.10k", 9)});
  EXPECT_EQ(TableOf("A1,A3.10k,"), 0);
}

TEST_F(RowsTest, ASkippedRowIsFailure) {
  Printed("B6.large", {Measured("B6.large"), Skipped("B6")});
  EXPECT_EQ(TableOf("B6.large"), 1);
}

TEST_F(RowsTest, ARowOfWhichASideFailedIsFailure) {
  Printed("", {RatioRow({"A1.1r", "what", "s"}, {}, Bar::kAtLeast, 1)});
  EXPECT_EQ(TableOf("A1"), 1);
}

TEST_F(RowsTest, AnIdWithoutARowIsFailure) {
  Printed("", {Measured("A1.1r")});
  EXPECT_EQ(TableOf("A1.nonsense"), 1);
  EXPECT_EQ(TableOf("A1,A10"), 1);
}

}  // namespace
}  // namespace bench
