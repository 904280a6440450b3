// What tierctl draws on a terminal, and that a pipe gets the same text without colours.
#include "terminal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "fake_control.h"
#include "run_tierctl.h"
#include "tierctl/terminal/palette.h"

namespace tierctl {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

json Status(std::uint64_t reads) {
  return {{"version", "0.1.0"}, {"pid", 5}, {"state", "degraded"}, {"uptime_s", 5.0},
          {"tiers", {{"ram", {{"state", "ok"}, {"allowed_bytes", 10}, {"capacity_bytes", 10}}}, {"ssd", {{"state", "out"}, {"allowed_bytes", 10}, {"capacity_bytes", 10}}}}},
          {"sources", {{{"name", "d"}, {"path", "/d"}, {"state", "slow"}, {"read_bytes", reads * 1000}}}},
          {"reads", {{"ram", {{"count", reads * 3}, {"bytes", 0}}}, {"source", {{"count", reads}, {"bytes", 0}}}}},
          {"fallback", {{"no_frame", 3}}}, {"integrity_failures", 1}, {"option_notes", {"ram.capacity 99 TB: too large"}}};
}

// What is drawn, without line ends of a terminal and without colours.
std::string Plain(std::string text) {
  std::erase(text, '\r');
  return std::regex_replace(text, std::regex("\033\\[[0-9]*m"), "");
}

class TerminalTest : public testing::Test {
 protected:
  TerminalTest() {
    for (std::uint64_t look = 0; look < 8; ++look) fake_.Reply("GET /v1/status", Status(1000 * look));
    fake_.Reply("GET /v1/jobs", {{"jobs", json::array()}});
  }
  std::vector<std::string> Arguments(std::vector<std::string> more) const {
    more.insert(more.begin(), {"--socket", fake_.socket()});
    return more;
  }
  FakeControl fake_;
};

TEST_F(TerminalTest, StatusIsColouredByWhatAStateMeans) {
  const Drawn drawn = RunOnTerminal(Arguments({"status"}));
  EXPECT_EQ(drawn.exit_code, 0);
  for (const char* part : {"\033[31mdegraded\033[0m", "\033[32mok\033[0m", "\033[31mout\033[0m", "\033[33mslow\033[0m", "\033[1mTIER\033[0m",
                           "\033[33mbypass, by reason: no room 3\033[0m", "\033[31mintegrity failures", "\033[33mram.capacity 99 TB: too large\033[0m"})
    EXPECT_THAT(drawn.text, HasSubstr(part));
}

TEST_F(TerminalTest, APipeGetsTheSameTextWithoutColours) {
  FakeControl fake;
  fake.Reply("GET /v1/status", Status(7));
  const Drawn drawn = RunOnTerminal({"--socket", fake.socket(), "status"});
  const Ran piped = RunTierctl({"--socket", fake.socket(), "status"}, {"TERM=xterm"});
  EXPECT_THAT(piped.out, Not(HasSubstr("\033")));
  EXPECT_EQ(Plain(drawn.text), piped.out);
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "--color", "always", "status", "--json"}).out.find('\033'), std::string::npos);
}

TEST_F(TerminalTest, ColoursAreMutedByVariablesAndByTheOption) {
  const auto is_coloured = [&](const std::vector<std::string>& variables, std::vector<std::string> arguments) {
    return RunOnTerminal(Arguments(std::move(arguments)), variables).text.find("\033[") != std::string::npos;
  };
  EXPECT_TRUE(is_coloured({}, {"status"}));
  EXPECT_TRUE(is_coloured({"NO_COLOR="}, {"status"}));
  EXPECT_FALSE(is_coloured({"NO_COLOR=1"}, {"status"}));
  EXPECT_FALSE(is_coloured({"TERM=dumb"}, {"status"}));
  EXPECT_FALSE(is_coloured({}, {"status", "--color", "never"}));
  EXPECT_TRUE(is_coloured({"NO_COLOR=1"}, {"status", "--color=always"}));
  EXPECT_THAT(RunTierctl(Arguments({"status", "--color", "always"})).out, HasSubstr("\033[31mdegraded"));
  EXPECT_EQ(RunTierctl({"--color", "red", "status"}).exit_code, 64);
}

TEST_F(TerminalTest, DoctorColoursItsVerdicts) {
  const Drawn drawn = RunOnTerminal({"--socket", "/none/control.sock", "doctor", "--no-speed", "--config", "/none.toml"});
  EXPECT_THAT(drawn.text, HasSubstr("\033[32mOK  \033[0m  "));
  EXPECT_THAT(drawn.text, HasSubstr("\033[31mFAIL\033[0m  configuration"));
}

TEST_F(TerminalTest, TopHasAHistoryThatFits80Columns) {
  const Drawn drawn = RunOnTerminal(Arguments({"top", "-n", "4", "-d", "0.2"}), {"LANG=C.UTF-8"});
  EXPECT_EQ(drawn.exit_code, 0) << drawn.text;
  const std::string last = drawn.text.substr(drawn.text.rfind("\033[H"));
  EXPECT_THAT(last, ::testing::ContainsRegex("HIT SHARE  \\|.*▆\\| 75\\.0%"));
  EXPECT_THAT(last, ::testing::ContainsRegex("SOURCE     \\|.*█?\\| [0-9.]+ [KM]iB/s of [0-9.]+ [KM]iB/s"));
  EXPECT_THAT(last, HasSubstr("\033[1mREADS/S"));
  std::istringstream lines(std::regex_replace(last, std::regex("\033\\[[0-9?]*[A-Za-z]|\r"), ""));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(Columns(line), 80u) << line;
  const Drawn ascii = RunOnTerminal(Arguments({"top", "-n", "3", "-d", "0.2"}), {"LANG=C"});
  EXPECT_THAT(ascii.text, ::testing::ContainsRegex("HIT SHARE  \\|[ _.:=+*#-]+\\| "));
  // In batch the list of screens is the history.
  const Ran batch = RunTierctl(Arguments({"top", "-b", "-n", "2", "-d", "0.1"}));
  EXPECT_THAT(batch.out, Not(HasSubstr("HIT SHARE")));
  EXPECT_THAT(batch.out, Not(HasSubstr("\033")));
}

TEST_F(TerminalTest, ARunSaysThatItWaitsForItsDaemon) {
  const std::string slow = fake_.directory() + "/slow";
  std::ofstream(slow) << "#!/bin/sh\nsleep 1.2\nexit 1\n";
  std::filesystem::permissions(slow, std::filesystem::perms::owner_all);
  const Drawn drawn = RunOnTerminal({"run", "-q", "--no-preload", "--", "echo", "begun"},
                                    {"TIERD_BINARY=" + slow, "TMPDIR=" + fake_.directory(), "HOME=" + fake_.directory(), "TIERD_LEDGER=" + fake_.directory()});
  EXPECT_EQ(drawn.exit_code, 0) << drawn.text;
  EXPECT_THAT(drawn.text, ::testing::ContainsRegex("\rrun: starting tierd\r +\r")) << "drawn, and erased";
  EXPECT_GT(drawn.text.find("begun\r\n"), drawn.text.rfind("starting tierd"));
}

// A run beside a daemon that is there: the advice has a colour, and stdout is the command's.
TEST_F(TerminalTest, TheAdviceOfARunIsColoured) {
  const Drawn drawn = RunOnTerminal({"run", "--no-preload", "--", "true"}, {"TIERD_BINARY=/bin/false", "TMPDIR=" + fake_.directory(), "HOME=" + fake_.directory(), "TIERD_LEDGER=" + fake_.directory()});
  EXPECT_EQ(drawn.exit_code, 0) << drawn.text;
  EXPECT_THAT(drawn.text, HasSubstr("\033[33mtierd: without a cache: "));
}

}  // namespace
}  // namespace tierctl
