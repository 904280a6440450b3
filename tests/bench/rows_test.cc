// Which rows a benchmark prints, and what tools/bench.sh answers when something that was asked for has not been measured.
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <string>
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
