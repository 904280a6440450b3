#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run_tierctl.h"

namespace tierctl {
namespace {

using ::testing::HasSubstr;

TEST(Usage, WrongCommandLinesAreOneLineAnd64) {
  const struct {
    std::vector<std::string> arguments;
    std::string line;
  } rows[] = {
      {{}, "tierctl: no command given (tierctl --help)\n"},
      {{"prefech", "/x"}, "tierctl: unknown command \"prefech\"; did you mean prefetch? (tierctl --help)\n"},
      {{"--json", "statsu"}, "tierctl: unknown command \"statsu\"; did you mean status? (tierctl --help)\n"},
      {{"--socket", "/s", "xyzzy"}, "tierctl: unknown command \"xyzzy\" (tierctl --help)\n"},
      {{"--sockt", "/s"}, "tierctl: unknown option --sockt; did you mean --socket? (tierctl --help)\n"},
      {{"--jsn"}, "tierctl: unknown option --jsn; did you mean --json? (tierctl --help)\n"},
      {{"prefetch", "--wiat", "/x"}, "tierctl: prefetch: unknown option --wiat; did you mean --wait? (tierctl prefetch --help)\n"},
      {{"prefetch"}, "tierctl: prefetch: name paths, or a list with -f (tierctl prefetch --help)\n"},
      {{"prefetch", "--tier", "tape", "/x"}, "tierctl: prefetch: --tier: tape not in {ram,ssd} (tierctl prefetch --help)\n"},
      {{"status", "extra"}, "tierctl: status: unexpected argument \"extra\" (tierctl status --help)\n"},
      {{"ls"}, "tierctl: ls: path is required (tierctl ls --help)\n"},
      {{"wait", "soon"}, "tierctl: wait: job: \"soon\" is no number of a job (tierctl wait --help)\n"},
      {{"cancel", "-3"}, "tierctl: cancel: job: \"-3\" is no number of a job (tierctl cancel --help)\n"},
      {{"config"}, "tierctl: config needs one of: get, set, reload (tierctl config --help)\n"},
      {{"config", "gte"}, "tierctl: unknown command \"gte\"; did you mean get? (tierctl config --help)\n"},
      {{"config", "set", "ram.capacity"}, "tierctl: set: value is required (tierctl config set --help)\n"},
  };
  for (const auto& row : rows) {
    const Ran ran = RunTierctl(row.arguments);
    EXPECT_EQ(ran.exit_code, 64) << row.line;
    EXPECT_EQ(ran.out, "");
    EXPECT_EQ(ran.err, row.line);
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
  for (const char* verb : {"status", "ls", "stat", "du", "prefetch", "evict", "pin", "unpin", "verify", "explain", "config", "doctor", "version", "jobs", "wait", "cancel"}) {
    EXPECT_THAT(help, HasSubstr(std::string("  ") + verb)) << verb;
  }
  EXPECT_THAT(RunTierctl({"--version"}).out, HasSubstr("tierctl 0."));
}

}  // namespace
}  // namespace tierctl
