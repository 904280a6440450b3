// What a service manager hears (Type=notify, WatchdogSec), at a socket of the test's.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <chrono>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"
#include "tierd/base/unique_fd.h"

namespace tierd::e2e {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class Notify : public testing::Test {
 protected:
  Notify() {
    std::filesystem::create_directories(source);
    Listen(scratch.path() + "/notify");
  }
  // A path, or '@' and a name that no file has.
  void Listen(const std::string& address) {
    listener = UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    address.copy(to.sun_path, sizeof to.sun_path - 1);
    if (address[0] == '@') to.sun_path[0] = '\0';
    ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&to), static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size())), 0);
    notify_socket = address;
  }
  // tierd as a manager starts it: `environment` is shell words, $$ is the daemon's pid.
  void Start(const std::string& environment = "") {
    Write(scratch.path() + "/start", "#!/bin/sh\nNOTIFY_SOCKET=" + notify_socket + " " + environment + " exec " TIERD_BINARY " \"$@\"\n");
    std::filesystem::permissions(scratch.path() + "/start", std::filesystem::perms::owner_all);
    DaemonProcess::Options options;
    options.source = source;
    options.ssd = "off";
    options.binary = scratch.path() + "/start";
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  }
  // What comes within `time`; "" if nothing does.
  std::string Next(milliseconds time = milliseconds(3000)) const {
    char text[256];
    ssize_t n = -1;
    Eventually(static_cast<int>(time.count()), [&] { return (n = ::recv(listener.get(), text, sizeof text, MSG_DONTWAIT)) > 0; });
    return n > 0 ? std::string(text, static_cast<std::size_t>(n)) : "";
  }
  int SignsWithin(milliseconds time) const {
    int signs = 0;
    for (const auto end = steady_clock::now() + time; steady_clock::now() < end;) signs += Next(milliseconds(10)) == "WATCHDOG=1" ? 1 : 0;
    return signs;
  }
  void Drain() const {
    while (!Next(milliseconds(0)).empty()) {
    }
  }

  ScratchDir scratch;
  std::string source = scratch.path() + "/data";
  UniqueFd listener;
  std::string notify_socket;
  DaemonProcess daemon{scratch.path()};
};

TEST_F(Notify, ReadyReloadStop) {
  Start();
  EXPECT_EQ(Next(), "READY=1");
  ::kill(daemon.pid(), SIGHUP);
  EXPECT_EQ(Next().rfind("RELOADING=1\nMONOTONIC_USEC=", 0), 0u);
  EXPECT_EQ(Next(), "READY=1");
  EXPECT_EQ(Next(milliseconds(300)), "") << "no watchdog was asked for";
  EXPECT_EQ(daemon.Stop(), 0);
  EXPECT_EQ(Next(), "STOPPING=1");
}

TEST_F(Notify, TheSocketMayBeANameWithoutAFile) {
  Listen("@tierd-notify-test-" + std::to_string(::getpid()));
  Start();
  EXPECT_EQ(Next(), "READY=1");
}

TEST_F(Notify, AManagerThatIsGoneIsNoHarm) {
  notify_socket = scratch.path() + "/nobody";
  Start("WATCHDOG_USEC=100000");
  EXPECT_EQ(daemon.Status()["state"], "ok");
  EXPECT_EQ(daemon.Stop(), 0);
}

TEST_F(Notify, SignsOfLifeComeFourTimesAsOftenAsTheyMust) {
  Start("WATCHDOG_USEC=800000 WATCHDOG_PID=$$");
  EXPECT_EQ(Next(), "READY=1");
  EXPECT_EQ(Next(), "WATCHDOG=1");
  const int signs = SignsWithin(milliseconds(2000));  // 10 if nobody is late
  EXPECT_GE(signs, 5);
  EXPECT_LE(signs, 11);
  ::kill(daemon.pid(), SIGTERM);
  std::string last;
  for (std::string word = Next(); !word.empty(); word = Next(milliseconds(500))) last = word;
  EXPECT_EQ(last, "STOPPING=1");
}

TEST_F(Notify, AWatchdogOfAnotherProcessHearsNothing) {
  Start("WATCHDOG_USEC=100000 WATCHDOG_PID=1");
  EXPECT_EQ(Next(), "READY=1");
  EXPECT_EQ(SignsWithin(milliseconds(400)), 0);
}

TEST_F(Notify, AStoppedDaemonGivesNoSign) {
  Start("WATCHDOG_USEC=200000");
  ASSERT_EQ(Next(), "READY=1");
  ::kill(daemon.pid(), SIGSTOP);
  SleepMs(50);
  Drain();
  EXPECT_EQ(SignsWithin(milliseconds(600)), 0);
  ::kill(daemon.pid(), SIGCONT);
  EXPECT_GE(SignsWithin(milliseconds(1000)), 3);
}

// The loop alone: what other threads do is no sign of its life.
TEST_F(Notify, ALoopThatHangsGivesNoSign) {
  Start("WATCHDOG_USEC=200000");
  ASSERT_EQ(Next(), "READY=1");
  if (::ptrace(PTRACE_ATTACH, daemon.pid(), nullptr, nullptr) != 0) GTEST_SKIP() << "may not trace";
  int status = 0;
  ASSERT_EQ(::waitpid(daemon.pid(), &status, __WALL), daemon.pid());
  Drain();
  EXPECT_EQ(SignsWithin(milliseconds(600)), 0);
  ASSERT_EQ(::ptrace(PTRACE_DETACH, daemon.pid(), nullptr, nullptr), 0);
  EXPECT_GE(SignsWithin(milliseconds(1000)), 3);
}

}  // namespace
}  // namespace tierd::e2e
