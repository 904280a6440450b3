// The screen of `top` from two looks, and the verb by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "fake_control.h"
#include "run_tierctl.h"
#include "tierd/base/unique_fd.h"
#include "tierctl/top_screen.h"

namespace tierctl {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

json Reads(std::uint64_t ram, std::uint64_t source) {
  return {{"ram", {{"count", ram}, {"bytes", ram * 100'000}}}, {"ssd", {{"count", 0}, {"bytes", 0}}}, {"source", {{"count", source}, {"bytes", source * 100'000}}}, {"bypass", {{"count", 0}, {"bytes", 0}}}};
}

json StatusAt(std::uint64_t ram, std::uint64_t source, std::uint64_t timeouts) {
  return {{"version", "0.1.0"}, {"pid", 4711}, {"state", "ok"}, {"uptime_s", 125.0}, {"sessions", 8}, {"leases", 3}, {"reads", Reads(ram, source)},
          {"tiers",
           {{"ram", {{"state", "ok"}, {"used_bytes", 6'000'000'000}, {"allowed_bytes", 8'000'000'000}, {"objects", 60'000}, {"pinned_bytes", 0}}},
            {"ssd", {{"state", "off"}}}}},
          {"sources", {{{"name", "imagenet"}, {"state", "up"}, {"policy", "freeze"}, {"requests", source}, {"read_bytes", source * 100'000}, {"in_flight", 12}, {"window", 64}, {"hung", 0}, {"files", 1'281'167}}}},
          {"fallback", {{"timeout", timeouts}}}, {"real_reads", {{"count", 0}, {"bytes", 0}}}, {"integrity_failures", 0}};
}

TEST(TopScreen, ShowsRatesBetweenTwoLooks) {
  const json jobs = {JobJson(7, "prefetch", "running", {{"files_total", 60'000}, {"files_done", 1'200}, {"bytes_done", 120'000'000}, {"bytes_total", 300'000'000}}), JobJson(6, "walk", "done")};
  const json before = StatusAt(1'000'000, 500, 5), now = StatusAt(1'090'000, 10'500, 25), were = {JobJson(7, "prefetch", "running", {{"bytes_done", 20'000'000}})};
  EXPECT_EQ(TopScreen({before, were}, {now, jobs}, 10, {}),
            "tierd 0.1.0 pid 4711: ok, up 2:05 min, 8 clients, 3 leases\n"
            "\n"
            "READS/S  FROM    SHARE  BYTES/S     SINCE START\n"
            "   9000  ram     90.0%  858 MiB/s   1090000, 102 GiB\n"
            "      0  ssd     0%     0 B/s       0, 0 B\n"
            "   1000  source  10.0%  95.4 MiB/s  10500, 0.98 GiB\n"
            "      0  bypass  0%     0 B/s       0, 0 B\n"
            "\n"
            "TIER  STATE  FULL          USED      MAY HOLD  OBJECTS  PINNED\n"
            "ram   ok     [#######...]  5.59 GiB  7.45 GiB  60000    0 B\n"
            "ssd   off\n"
            "\n"
            "SOURCE    STATE  POLICY  REQ/S  BYTES/S     IN FLIGHT  HUNG  FILES\n"
            "imagenet  up     freeze  1000   95.4 MiB/s  12/64      0     1281167\n"
            "\n"
            "JOB  KIND      STATE    FILES       BYTES            BYTES/S\n"
            "  7  prefetch  running  1200/60000  114 MiB/286 MiB  9.54 MiB/s\n"
            "\n"
            "bypass now: timeout 2.0/s\n");
}

TEST(TopScreen, HasNoRatesAtTheFirstLookAndFitsTheScreen) {
  const json nothing = json::object(), none = json::array(), now = StatusAt(10, 5, 1);
  const std::string first = TopScreen({nothing, none}, {now, none}, 0, {});
  EXPECT_THAT(first, HasSubstr("      -  ram     -      -"));
  EXPECT_THAT(first, Not(HasSubstr("bypass now")));
  const std::string small = TopScreen({nothing, none}, {now, none}, 0, {.columns = 40, .rows = 5});
  EXPECT_EQ(std::count(small.begin(), small.end(), '\n'), 5);
  std::istringstream lines(small);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 40u) << line;
}

TEST(TopScreen, TakesADaemonThatWasStartedAnewAndOneThatSaysLittle) {
  const json none = json::array(), before = StatusAt(1000, 500, 5), now = StatusAt(30, 10, 0), little = {{"pid", 1}, {"sources", {{{"name", "x"}}}}};
  EXPECT_THAT(TopScreen({before, none}, {now, none}, 10, {}), HasSubstr("    3.0  ram     75.0%"));
  EXPECT_THAT(TopScreen({little, none}, {little, none}, 1, {}), HasSubstr("x  "));
}

TEST(TopVerb, IsAListOfScreensWithoutATerminal) {
  FakeControl fake;
  fake.Reply("GET /v1/status", StatusAt(0, 0, 0));
  fake.Reply("GET /v1/status", StatusAt(1000, 0, 0));
  fake.Reply("GET /v1/jobs", {{"jobs", json::array()}});
  const Ran ran = RunTierctl({"--socket", fake.socket(), "top", "-n", "2", "-d", "0.2"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("\n\ntierd 0.1.0 pid 4711"));
  EXPECT_THAT(ran.out, HasSubstr("100%"));
  EXPECT_THAT(ran.out, Not(HasSubstr("\033")));
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "top", "-d", "0"}).exit_code, 64);
  EXPECT_EQ(RunTierctl({"--socket", "/nowhere/control.sock", "top", "-n", "1"}).exit_code, 3);
}

// On a terminal: the other screen, and q gives the old one back.
TEST(TopVerb, GivesTheTerminalBack) {
  FakeControl fake;
  fake.Reply("GET /v1/status", StatusAt(5, 0, 0));
  fake.Reply("GET /v1/jobs", {{"jobs", json::array()}});
  const std::string command = std::string(TIERCTL_BINARY) + " --socket " + fake.socket() + " top -d 60";
  const Ran ran = RunProgram({"/bin/sh", "-c", "command -v script >/dev/null || exit 77; (sleep 0.5; printf q) | timeout 10 script -qec '" + command + "' /dev/null"}, {}, "");
  if (ran.exit_code == 77) GTEST_SKIP() << "no script(1) here";
  EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("\033[?1049h"));
  EXPECT_THAT(ran.out, HasSubstr("tierd 0.1.0 pid 4711: ok"));
  EXPECT_THAT(ran.out, HasSubstr("\033[?1049l"));
}

// As by q: whoever ends it finds the terminal as it was, and the exit status says what ended it.
TEST(TopVerb, GivesTheTerminalBackWhenItIsEnded) {
  FakeControl fake;
  fake.Reply("GET /v1/status", StatusAt(5, 0, 0));
  fake.Reply("GET /v1/jobs", {{"jobs", json::array()}});
  const std::string socket = fake.socket();
  for (const int number : {SIGTERM, SIGHUP, SIGINT}) {
    int master = -1, slave = -1;
    ASSERT_EQ(::openpty(&master, &slave, nullptr, nullptr, nullptr), 0);
    const tierd::UniqueFd ours(master), terminal(slave);
    termios before{}, after{};
    ASSERT_EQ(::tcgetattr(slave, &before), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      for (int fd = 0; fd <= 2; ++fd) ::dup2(slave, fd);
      ::execl(TIERCTL_BINARY, "tierctl", "--socket", socket.c_str(), "top", "-d", "60", nullptr);
      ::_exit(127);
    }
    std::string seen;
    const auto read_until = [&](const char* text) {
      char buffer[4096];
      pollfd input{master, POLLIN, 0};
      while (seen.find(text) == std::string::npos && ::poll(&input, 1, 10'000) > 0) {
        const ssize_t n = ::read(master, buffer, sizeof buffer);
        if (n <= 0) return;
        seen.append(buffer, static_cast<std::size_t>(n));
      }
    };
    read_until("pid 4711");
    ::kill(pid, number);
    int status = 0;
    ::waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == number) << status;
    EXPECT_EQ(::tcgetattr(slave, &after), 0);
    EXPECT_EQ(after.c_lflag, before.c_lflag) << number;
    pollfd rest{master, POLLIN, 0};
    if (::poll(&rest, 1, 0) > 0) read_until("\033[?1049l");
    EXPECT_THAT(seen, HasSubstr("\033[?1049l"));
  }
}

}  // namespace
}  // namespace tierctl
