// simulate: the command, its JSON, its pictures. (What it computes: tests/policies/sim.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "run_tierctl.h"

namespace tierctl {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class SimulateVerb : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "tierctl_simulate_" + std::to_string(::getpid());
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  static std::string Slurp(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string dir_;
};

TEST_F(SimulateVerb, PrintsATableAndAnswersHowMuchIsNeeded) {
  const Ran ran = RunTierctl({"simulate", "-n", "4000", "--epochs", "6", "--ram", "25%,50%,100%", "-p", "lru,freeze,belady", "--target", "90"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("POLICY  KNOWS"));
  EXPECT_THAT(ran.out, ::testing::ContainsRegex("freeze +blind +0\\.110 GB +25\\.0% +0\\.2500"));
  EXPECT_THAT(ran.out, ::testing::ContainsRegex("belady +seeded +0\\.220 GB +50\\.0% +0\\.5000"));
  EXPECT_THAT(ran.out, HasSubstr("freeze: needs "));
  EXPECT_THAT(ran.err, HasSubstr("seed 1"));
}

TEST_F(SimulateVerb, JsonHasEveryPoint) {
  const Ran ran = RunTierctl({"--json", "simulate", "-n", "2000", "--nodes", "4", "--epochs", "10", "--ram", "25%", "-p", "freeze,belady", "--mode", "blind", "--seed", "9"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json document = json::parse(ran.out);
  EXPECT_EQ(document["seed"], 9);
  EXPECT_EQ(document["objects"], 2000);
  EXPECT_EQ(document["accesses"], 2 * 10 * 500);
  ASSERT_EQ(document["curves"].size(), 2u);
  EXPECT_EQ(document["curves"][1]["mode"], "blind");
  EXPECT_EQ(document["curves"][0]["points"][0]["hit_rate"], document["curves"][1]["points"][0]["hit_rate"]) << "without its plan belady does as freeze";
}

TEST_F(SimulateVerb, DrawsAndReplaysATrace) {
  std::ofstream(dir_ + "/t.csv") << "object,bytes\na<b,10\nc,10\na<b,10\nc,10\n";
  const Ran ran = RunTierctl({"simulate", dir_ + "/t.csv", "--ram", "50%,100%", "-p", "lru,belady", "--svg", dir_ + "/c.svg", "--html", dir_ + "/c.html"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, ::testing::ContainsRegex("belady +seeded +0\\.000 GB +100\\.0% +0\\.5000"));
  const std::string svg = Slurp(dir_ + "/c.svg");
  EXPECT_TRUE(svg.starts_with("<svg ")) << svg.substr(0, 80);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_THAT(Slurp(dir_ + "/c.html"), HasSubstr("<td>belady"));
}

TEST_F(SimulateVerb, SaysWhatIsWrong) {
  const struct {
    std::vector<std::string> arguments;
    int exit_code;
    std::string text;
  } rows[] = {
      {{"simulate", "-p", "nothing"}, 1, "no policy is named \"nothing\""},
      {{"simulate", "-p", "/no/such.so"}, 1, "/no/such.so"},
      {{"simulate", "--ram", "much"}, 64, "\"much\" is neither a size nor a share"},
      {{"simulate", "--mode", "told"}, 64, "--mode"},
      {{"simulate", "--nodes", "4", "--node", "4"}, 1, "node 4 of 4"},
      {{"simulate", "--order", "backwards"}, 1, "backwards"},
      {{"simulate", dir_ + "/absent"}, 1, "absent"},
      {{"simulate", "-n", "100", "--svg", dir_ + "/no/dir.svg"}, 1, "cannot be written"},
  };
  for (const auto& row : rows) {
    const Ran ran = RunTierctl(row.arguments);
    EXPECT_EQ(ran.exit_code, row.exit_code) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(row.text));
  }
}

}  // namespace
}  // namespace tierctl
