// simulate: the command, its JSON, its pictures. (What it computes: tests/policies/sim.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include <nlohmann/json.hpp>

#include "policies/sim/trace.h"
#include "run_tierctl.h"
#include "terminal.h"

namespace tierctl {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

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
  const Ran ran = RunTierctl({"simulate", "-n", "4000", "--epochs", "6", "--ram", "25%,50%,100%", "-p", "lru,freeze,belady", "--goal", "90%"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("POLICY  KNOWS"));
  EXPECT_THAT(ran.out, ::testing::ContainsRegex("freeze +blind +0\\.110 GB +25\\.0% +0\\.2500"));
  EXPECT_THAT(ran.out, ::testing::ContainsRegex("belady +seeded +0\\.220 GB +50\\.0% +0\\.5000"));
  EXPECT_THAT(ran.out, ::testing::ContainsRegex("bound +- +0\\.220 GB +50\\.0% +0\\.5000"));
  EXPECT_THAT(ran.out, HasSubstr("90% of the best speed"));
  EXPECT_THAT(ran.out, HasSubstr("POLICY  KNOWS   LEAST OF"));
  EXPECT_THAT(ran.err, HasSubstr("seed 1"));
}

// A study takes seconds. A terminal shows how far it is and erases that at the end; a pipe gets the tables alone.
TEST_F(SimulateVerb, SaysOnATerminalHowItGetsOn) {
  const std::vector<std::string> study{"simulate", "-n", "400000", "--epochs", "8", "--ram", "25%,50%", "-p", "lru,belady"};
  const Drawn drawn = RunOnTerminal(study);
  EXPECT_EQ(drawn.exit_code, 0) << drawn.text;
  EXPECT_THAT(drawn.text, ::testing::ContainsRegex("\rsimulating (lru|belady), RAM [0-9.]+ [MG]iB: [0-9]+% of 12\\.8M reads, [0-9.]+ s to go"));
  ASSERT_FALSE(drawn.times.empty());
  EXPECT_GE(drawn.times.front(), .5);
  const double between = drawn.times.back() - drawn.times.front();
  EXPECT_LE(static_cast<double>(drawn.times.size()), 2 + 4 * between) << "four times a second at most";
  const std::size_t last = drawn.text.rfind("\rsimulating");
  EXPECT_THAT(drawn.text.substr(last + 1), HasSubstr("\r" + std::string(20, ' '))) << "erased";
  const Ran piped = RunTierctl(study);
  EXPECT_THAT(piped.err, Not(HasSubstr("simulating")));
  EXPECT_THAT(piped.err, Not(HasSubstr("\r")));
  const std::string table = piped.out.substr(piped.out.find("POLICY"));
  std::string shown = drawn.text.substr(drawn.text.find("POLICY"));
  std::erase(shown, '\r');
  EXPECT_EQ(shown, table);
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

// 4,000 samples of 110,000 bytes, one reader, an accelerator that takes 0.4 s for an epoch; the source gives 500 MB/s and bounds all else. At 80 % of the best speed,
// 0.5 s, it may be asked for 2,272 samples: 1,728 have to be kept. `freeze` and `belady` need exactly that, `lru` as much as f + (1-f) ln(1-f) = .432 says.
TEST_F(SimulateVerb, FindsTheLeastThatReachesAGoal) {
  const Ran ran = RunTierctl({"--json", "simulate", "-n", "4000", "--epochs", "6", "--ram", "25%,50%", "-p", "lru,freeze,belady", "--step-us", "100", "--goal", "80"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json document = json::parse(ran.out);
  EXPECT_NEAR(document["best_epoch_seconds"], 0.4, 1e-9);
  EXPECT_NEAR(document["goal_seconds"], 0.5, 1e-9);
  ASSERT_EQ(document["needs"].size(), 9u);
  constexpr double kSample = 110'000;
  for (const json& need : document["needs"]) {
    SCOPED_TRACE(need.dump());
    EXPECT_EQ(need["enough"], true);
    const double ram = need["ram_bytes"].get<double>() / kSample, ssd = need["ssd_bytes"].get<double>() / kSample;
    const bool of_ram = need["least_of"] == "ram";
    if (need["policy"] != "lru") {
      EXPECT_EQ(of_ram ? ram : ssd, of_ram ? 1728 : ram == 1000 ? 728 : 0);
    } else if (of_ram) {
      EXPECT_NEAR(ram, .77 * 4000, 40);
    }
  }
  const Ran slow = RunTierctl({"--json", "simulate", "-n", "1000", "--epochs", "3", "--ram", "0%", "-p", "freeze", "--goal", "100", "--ssd-bandwidth", "1 GB"});
  ASSERT_EQ(slow.exit_code, 0) << slow.err;
  EXPECT_NEAR(json::parse(slow.out)["needs"][0]["ram_bytes"].get<double>() / kSample, 975.5, 0.6) << "while RAM gives 1,000, at 20 GB/s, the source gives 25";
  EXPECT_EQ(json::parse(slow.out)["needs"][1]["enough"], false) << "and no SSD is as fast";
}

// Tags in pairs, one root, every attribute in quotes: what a browser asks of SVG. The number of elements of each name comes back.
std::map<std::string, int> Elements(const std::string& svg) {
  std::map<std::string, int> elements;
  std::vector<std::string> open;
  for (std::size_t at = 0; (at = svg.find('<', at)) != std::string::npos;) {
    const std::size_t end = svg.find('>', at);
    if (end == std::string::npos) return {};
    std::string tag = svg.substr(at + 1, end - at - 1);
    at = end;
    EXPECT_EQ(tag.find('<'), std::string::npos) << tag;
    EXPECT_EQ(std::count(tag.begin(), tag.end(), '"') % 2, 0) << tag;
    if (tag.starts_with('/')) {
      EXPECT_FALSE(open.empty());
      if (open.empty() || open.back() != tag.substr(1)) return {};
      open.pop_back();
      continue;
    }
    EXPECT_TRUE(!open.empty() || elements.empty()) << "one root";
    const std::string name = tag.substr(0, tag.find_first_of(" /"));
    ++elements[name + (tag.find("class=\"bound\"") != std::string::npos ? ".bound" : "")];
    if (!tag.ends_with('/')) open.push_back(name);
  }
  EXPECT_TRUE(open.empty());
  return elements;
}

TEST_F(SimulateVerb, DrawsCurvesAndTheBound) {
  const Ran ran = RunTierctl({"--json", "simulate", "-n", "1000", "--sigma", "1", "--nodes", "4", "--epochs", "12", "--ram", "10%,20%,30%", "-p", "lru,belady,freeze", "--svg", dir_ + "/c.svg"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const std::string svg = Slurp(dir_ + "/c.svg");
  std::map<std::string, int> elements = Elements(svg);
  EXPECT_EQ(elements["svg"], 1);
  EXPECT_EQ(elements["polyline"], 2 * 3) << "hit rate and time of three policies";
  EXPECT_EQ(elements["polyline.bound"], 2);
  EXPECT_EQ(elements["circle"], 2 * 3 * 3);
  EXPECT_THAT(svg, HasSubstr("Belady bound"));
  EXPECT_THAT(svg, ::testing::ContainsRegex("class=\"bound\"[^>]*points=\"[0-9.]+,[0-9.]+ [0-9.]+,[0-9.]+ [0-9.]+,[0-9.]+\"")) << "one point per capacity";
  const json document = json::parse(ran.out);
  ASSERT_EQ(document["bound"].size(), 3u);
  for (const json& curve : document["curves"]) {
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_LE(curve["points"][i]["hit_rate"], document["bound"][i]["hit_rate"]) << curve["policy"];
      EXPECT_GE(curve["points"][i]["epoch_seconds"], document["bound"][i]["epoch_seconds"]) << curve["policy"];
      EXPECT_GE(curve["points"][i]["source_bytes_per_epoch"], document["bound"][i]["source_bytes_per_epoch"]) << curve["policy"];
    }
  }
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
  EXPECT_EQ(Elements(svg)["polyline.bound"], 2);
  EXPECT_THAT(Slurp(dir_ + "/c.html"), HasSubstr("<td>belady"));
}

// Half of the reads went around what was watched: what is simulated may be another dataset.
TEST_F(SimulateVerb, ATraceThatLacksReadsIsNoResult) {
  for (const std::uint64_t lost : {std::uint64_t{2}, std::uint64_t{100}}) {
    std::string bytes;
    tierd::sim::TraceWriter writer(&bytes);
    writer.Object(0, {.bytes = 10});
    for (std::uint64_t i = 0; i < 100; ++i) writer.Access({.id = 0, .time_us = i});
    writer.Lost(lost);
    writer.Flush();
    std::ofstream(dir_ + "/t.trc", std::ios::binary) << bytes;
    const Ran ran = RunTierctl({"simulate", dir_ + "/t.trc", "-p", "lru"});
    EXPECT_EQ(ran.exit_code, lost == 2 ? 0 : 2) << ran.err;
    EXPECT_EQ(ran.err.find("the trace has 50.0% of what was read") != std::string::npos, lost == 100) << ran.err;
    const Ran document = RunTierctl({"--json", "simulate", dir_ + "/t.trc", "-p", "lru"});
    EXPECT_EQ(document.exit_code, ran.exit_code);
    EXPECT_NEAR(json::parse(document.out)["seen_ratio"].get<double>(), 100.0 / (100.0 + static_cast<double>(lost)), 1e-9);
  }
}

TEST_F(SimulateVerb, APictureOnStdoutIsAllThatIsThere) {
  const Ran svg = RunTierctl({"simulate", "-n", "500", "--svg", "-"});
  EXPECT_EQ(svg.exit_code, 0) << svg.err;
  EXPECT_TRUE(svg.out.starts_with("<svg ") && svg.out.ends_with("</svg>\n")) << svg.out.substr(0, 80);
  const Ran html = RunTierctl({"simulate", "-n", "500", "--html", "-"});
  EXPECT_TRUE(html.out.starts_with("<!DOCTYPE html>")) << html.out.substr(0, 80);
  EXPECT_FALSE(std::filesystem::exists("-"));
}

// The first epoch fills the cache and does not count; a trace of one has no other.
TEST_F(SimulateVerb, SaysThatEveryEpochCounts) {
  std::ofstream(dir_ + "/t.csv") << "object,bytes\na,10\nb,10\n";
  const Ran trace = RunTierctl({"simulate", dir_ + "/t.csv", "-p", "lru", "--skip", "3"});
  EXPECT_EQ(trace.exit_code, 0);
  EXPECT_THAT(trace.err, HasSubstr("--skip 3 would leave none of 1 epoch: all count"));
  EXPECT_THAT(RunTierctl({"simulate", "-n", "100", "--epochs", "1", "-p", "lru"}).err, HasSubstr("--skip 1 would leave none of 1 epoch: all count"));
  EXPECT_THAT(RunTierctl({"simulate", "-n", "100", "--epochs", "2", "-p", "lru"}).err, ::testing::Not(HasSubstr("--skip")));
}

// Whoever says what the job is like beside a trace would think that it was simulated. (--seed is also that of policies that draw.)
TEST_F(SimulateVerb, ATraceIsTheJob) {
  std::ofstream(dir_ + "/t.csv") << "object,bytes\na,10\nb,10\n";
  const std::vector<std::pair<std::string, std::string>> options = {{"-n", "100"}, {"--epochs", "3"}, {"--order", "same"}, {"--nodes", "2"}, {"--node", "0"}, {"--sigma", "1"}, {"--size", "1MB"}};
  for (const auto& [name, value] : options) {
    const Ran ran = RunTierctl({"simulate", dir_ + "/t.csv", name, value});
    EXPECT_EQ(ran.exit_code, 64) << name;
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, HasSubstr((name == "-n" ? "--samples" : name) + " is of a job that is made up; the trace"));
  }
  EXPECT_EQ(RunTierctl({"simulate", dir_ + "/t.csv", "--seed", "7", "-p", "random", "--skip", "0", "--ram", "50%", "--readers", "2"}).exit_code, 0);
}

TEST_F(SimulateVerb, SaysWhatIsWrong) {
  const struct {
    std::vector<std::string> arguments;
    int exit_code;
    std::string text;
  } rows[] = {
      {{"simulate", "-p", "nothing"}, 64, "no policy is named \"nothing\""},
      {{"simulate", "-p", "/no/such.so"}, 1, "/no/such.so"},
      {{"simulate", "--ram", "much"}, 64, "--ram: \"much\" is neither a size nor a share, such as 40GB or 25%"},
      {{"simulate", "--ram", "12"}, 64, "--ram: \"12\" is neither a size nor a share: a unit is missing, e.g. 12GB or 12%"},
      {{"simulate", "--ram", "25%,12"}, 64, "--ram: \"12\" is neither"},
      {{"simulate", "--ssd", "7.5"}, 64, "--ssd: \"7.5\" is neither a size nor a share: a unit is missing, e.g. 7.5GB or 7.5%"},
      {{"simulate", "--goal", "fast"}, 64, "--goal: \"fast\" is no share of the best speed from 1% to 100%, such as 95%"},
      {{"simulate", "--goal", "101%"}, 64, "--goal: \"101%\" is no share"},
      {{"simulate", "--goal", "0"}, 64, "--goal: \"0\" is no share"},
      {{"simulate", "--mode", "told"}, 64, "--mode"},
      {{"simulate", "--nodes", "4", "--node", "4"}, 64, "--node: \"4\" is no whole number from 0 to 3, with --nodes 4"},
      {{"simulate", "-n", "3", "--nodes", "4"}, 64, "--nodes: 4 nodes share 3 samples"},
      {{"simulate", "--node", "-1"}, 64, "--node: \"-1\" is no whole number from 0"},
      {{"simulate", "--seed", "x"}, 64, "--seed: \"x\" is no whole number from 0"},
      {{"simulate", "--order", "backwards"}, 64, "--order: backwards not in {distributed,same,sequential,replacement}"},
      {{"simulate", "--sigma", "5"}, 64, "--sigma: \"5\" is no number from 0 to 4"},
      {{"simulate", "--step-us", "-1"}, 64, "--step-us: \"-1\" is no number of 0 or more"},
      {{"simulate", "--readers", "0"}, 64, "--readers: \"0\" is no number above 0"},
      {{"simulate", "--source-concurrency", "inf"}, 64, "--source-concurrency: \"inf\" is no number above 0"},
      {{"simulate", "--source-bandwidth", "0"}, 64, "--source-bandwidth: \"0\" is no size above 0, such as 500MB"},
      {{"simulate", "--ssd-bandwidth", "1"}, 64, "--ssd-bandwidth: \"1\" is no size above 0: a unit is missing, such as in 2GB"},
      {{"simulate", "--ssd-bandwidth", "5%"}, 64, "--ssd-bandwidth: \"5%\" is no size above 0, such as 2GB"},
      {{"simulate", "--size", "0"}, 64, "--size: \"0\" is no size above 0"},
      {{"simulate", "--size", "5"}, 64, "--size: \"5\" is no size above 0 and at most 1 TB: a unit is missing, such as in 110KB"},
      {{"simulate", "--size", "2TB"}, 64, "--size: \"2TB\" is no size above 0 and at most 1 TB"},
      {{"trace", "start", "/x.trc", "--most", "1"}, 64, "--most: \"1\" is no size above 0: a unit is missing, such as in 10GB"},
      {{"simulate", "--skip", "12"}, 64, "--skip 12 leaves none of 12 epochs"},
      {{"simulate", dir_ + "/absent"}, 1, "absent"},
      {{"simulate", dir_}, 1, "cannot be read"},
      {{"--json", "simulate", "-n", "100", "--svg", "-"}, 64, "stdout"},
      {{"simulate", "-n", "100", "--svg", "-", "--html", "-"}, 64, "stdout"},
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
