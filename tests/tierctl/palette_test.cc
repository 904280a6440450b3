// Colours: when, which, and that nothing is laid out by them. And the history of `top`.
#include "tierctl/terminal/palette.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tierctl/terminal/output.h"
#include "tierctl/top_history.h"

namespace tierctl {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

bool IsOn(Color color, bool is_terminal, const std::map<std::string, std::string>& variables) {
  return Palette::For(color, is_terminal, [&](const char* name) -> std::optional<std::string> {
           const auto found = variables.find(name);
           return found == variables.end() ? std::nullopt : std::optional(found->second);
         }).on();
}

TEST(Palette, IsOnForATerminalThatTheUserHasNotMuted) {
  EXPECT_TRUE(IsOn(Color::kAuto, true, {{"TERM", "xterm"}}));
  EXPECT_TRUE(IsOn(Color::kAuto, true, {{"TERM", "xterm"}, {"NO_COLOR", ""}})) << "an empty value is none";
  EXPECT_FALSE(IsOn(Color::kAuto, true, {{"TERM", "xterm"}, {"NO_COLOR", "0"}})) << "any value counts";
  EXPECT_FALSE(IsOn(Color::kAuto, true, {{"TERM", "dumb"}}));
  EXPECT_FALSE(IsOn(Color::kAuto, true, {}));
  EXPECT_FALSE(IsOn(Color::kAuto, false, {{"TERM", "xterm"}}));
  EXPECT_TRUE(IsOn(Color::kAlways, false, {{"NO_COLOR", "1"}}));
  EXPECT_FALSE(IsOn(Color::kNever, true, {{"TERM", "xterm"}}));
}

TEST(Palette, StatesHaveTheColourOfWhatTheyMean) {
  const Palette palette(true);
  EXPECT_EQ(palette.State("up"), "\033[32mup\033[0m");
  EXPECT_EQ(palette.State("slow"), "\033[33mslow\033[0m");
  EXPECT_EQ(palette.State("hung"), "\033[31mhung\033[0m");
  EXPECT_EQ(palette.State("off"), "off");
  EXPECT_EQ(Palette().State("hung"), "hung");
}

TEST(Palette, TablesAreAlignedByWhatIsSeen) {
  const auto text = [](const Palette& palette) {
    Table table(1);
    table.Head({"N", "STATE", "X"}, palette);
    table.Row({"1000", palette.State("up"), "a"});
    table.Row({"1", palette.State("recovering"), "b"});
    return table.Text();
  };
  std::string painted = text(Palette(true));
  EXPECT_NE(painted, text(Palette()));
  for (const char* code : {"\033[1m", "\033[32m", "\033[33m", "\033[0m"}) {
    for (std::size_t at; (at = painted.find(code)) != std::string::npos;) painted.erase(at, std::string(code).size());
  }
  EXPECT_EQ(painted, text(Palette()));
}

TEST(Palette, TextIsCutByColumnsAndItsColourClosed) {
  EXPECT_EQ(Columns("\033[31mab\033[0m\u2581c"), 4u);
  EXPECT_EQ(FirstColumns("\033[31mabc\033[0md", 2), "\033[31mab\033[0m");
  EXPECT_EQ(FirstColumns("\u2581\u2582\u2583", 2), "\u2581\u2582");
  EXPECT_EQ(FirstColumns("abc", 5), "abc");
}

json StatusAt(std::uint64_t ram, std::uint64_t source, std::uint64_t bypass, std::uint64_t read_bytes) {
  return {{"reads", {{"ram", {{"count", ram}}}, {"source", {{"count", source}}}, {"bypass", {{"count", bypass}, {"bytes", bypass * 1'000'000}}}}},
          {"sources", {{{"read_bytes", read_bytes}}}}};
}

TEST(TopHistory, ShowsSharesAndTheSourceOfTheLastMinute) {
  TopHistory history;
  EXPECT_EQ(history.Text(true), "");
  json before = StatusAt(0, 0, 0, 0);
  std::uint64_t ram = 0, source = 0;
  // Half a minute in which nothing hits, then half a minute in which all does.
  for (int second = 0; second < 60; ++second) {
    (second < 30 ? source : ram) += 100;
    const json now = StatusAt(ram, source, 0, source * 10'000);
    history.Add(before, now, 1);
    before = now;
  }
  EXPECT_EQ(history.Text(false), "HIT SHARE  |" + std::string(20, '_') + std::string(20, '#') + "| 100%\n" +
                                     "SOURCE     |" + std::string(20, '#') + std::string(20, '_') + "| 0 B/s of 977 KiB/s\n");
  EXPECT_THAT(history.Text(true), HasSubstr("\u2581\u2588"));
  for (const bool unicode : {false, true}) EXPECT_LE(Columns(history.Text(unicode).substr(0, history.Text(unicode).find('\n'))), 80u);
  // What is older is forgotten, whatever the steps; where nobody reads there is no share.
  for (int i = 0; i < 2; ++i) history.Add(before, before, 30);
  EXPECT_EQ(history.Text(false), "HIT SHARE  |" + std::string(40, ' ') + "| -\nSOURCE     |" + std::string(40, '_') + "| 0 B/s of 0 B/s\n");
}

TEST(TopHistory, CountsBypassedBytesAndADaemonThatWasStartedAnew) {
  TopHistory history;
  history.Add(StatusAt(1000, 0, 50, 900'000'000), StatusAt(30, 0, 10, 5'000'000), 1);
  EXPECT_THAT(history.Text(false), HasSubstr("| 75.0%\n"));
  EXPECT_THAT(history.Text(false), HasSubstr("| 14.3 MiB/s of 14.3 MiB/s\n"));
}

TEST(TopHistory, ABlockIsDrawnOnlyWhereTheLocaleHasIt) {
  EXPECT_TRUE(IsUtf8("", "", "en_US.UTF-8"));
  EXPECT_TRUE(IsUtf8("C.utf8", "", "C"));
  EXPECT_FALSE(IsUtf8("C", "en_US.UTF-8", "en_US.UTF-8")) << "LC_ALL wins";
  EXPECT_FALSE(IsUtf8("", "", ""));
}

}  // namespace
}  // namespace tierctl
