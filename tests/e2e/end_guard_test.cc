// A daemon whose loop never turns again, because a policy of the user's does not return.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"

namespace tierd::e2e {
namespace {

class EndGuardTest : public testing::Test {
 protected:
  void SetUp() override {
    Write(source + "/a", Content("a", 100'000));
    std::filesystem::create_directories(policies);
    std::filesystem::copy_file(TIERD_LOOPING_POLICY, policies + "/looping.so");
  }
  bool Start(const std::vector<std::string>& more = {}, const std::string& policy = "looping") {
    DaemonProcess::Options options;
    options.source = source;
    options.ssd = "off";
    options.more = kTrustStamps;
    options.more.insert(options.more.end(), {"--set", "policy.directory=" + policies, "--policy", policy});
    options.more.insert(options.more.end(), more.begin(), more.end());
    return daemon.Start(options);
  }
  // The second read is a hit, of which the policy is told.
  void MakeItLoop() {
    Client client(daemon.socket());
    for (int i = 0; i < 2; ++i) EXPECT_EQ(Get(client.get(), source + "/a").bytes, Content("a", 100'000));
    const long before = ProcessorTicks();
    constexpr long kLoops = 50;  // half a second of a processor: an idle daemon takes next to none
    EXPECT_TRUE(Eventually(20'000, [&] { return ProcessorTicks() >= before + kLoops; }));
  }
  long ProcessorTicks() const {
    std::ifstream stat("/proc/" + std::to_string(daemon.pid()) + "/stat");
    std::string word;
    long ticks = 0;
    for (int field = 1; stat >> word; ++field)
      if (field == 14 || field == 15) ticks += std::stol(word);
    return ticks;
  }

  ScratchDir scratch;
  std::string source = scratch.path() + "/data";
  std::string policies = scratch.path() + "/home/tierd/policies";
  DaemonProcess daemon{scratch.path()};
};

TEST_F(EndGuardTest, ADaemonWhoseLoopHangsEndsAtASignal) {
  ASSERT_TRUE(Start()) << daemon.output();
  MakeItLoop();
  ::kill(daemon.pid(), SIGTERM);
  EXPECT_TRUE(Eventually(20'000, [&] { return daemon.Ended(); }));
  EXPECT_NE(daemon.output().find("has not ended for 10 s"), std::string::npos) << daemon.output();
}

TEST_F(EndGuardTest, ADaemonWhoseLoopHangsEndsAfterItsJob) {
  int job[2];
  ASSERT_EQ(::pipe2(job, O_CLOEXEC), 0);
  ::fcntl(job[0], F_SETFD, 0);
  const bool started = Start({"--lifeline", std::to_string(job[0])});
  ::close(job[0]);
  ASSERT_TRUE(started) << daemon.output();
  MakeItLoop();
  SleepMs(4000);
  EXPECT_FALSE(daemon.Ended()) << "its job is not over";
  ::close(job[1]);
  EXPECT_TRUE(Eventually(20'000, [&] { return daemon.Ended(); }));
  EXPECT_NE(daemon.output().find("its loop hangs"), std::string::npos) << daemon.output();
}

TEST_F(EndGuardTest, ADaemonWithAClientOutlivesItsJob) {
  int job[2];
  ASSERT_EQ(::pipe2(job, O_CLOEXEC), 0);
  ::fcntl(job[0], F_SETFD, 0);
  const bool started = Start({"--lifeline", std::to_string(job[0])}, "lru");
  ::close(job[0]);
  ASSERT_TRUE(started) << daemon.output();
  auto client = std::make_unique<Client>(daemon.socket());
  ::close(job[1]);
  SleepMs(5000);
  EXPECT_FALSE(daemon.Ended());
  client.reset();
  EXPECT_TRUE(Eventually(10'000, [&] { return daemon.Ended(); }));
  EXPECT_EQ(daemon.Stop(), 0);
}

// As a user meets it: nothing of the run is left a few seconds after it.
TEST_F(EndGuardTest, TierctlRunLeavesNoDaemonBehind) {
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);  // the daemon becomes ours when tierctl ends
  const pid_t run = ::fork();
  if (run == 0) {
    ::setenv("XDG_CONFIG_HOME", (scratch.path() + "/home").c_str(), 1);
    ::setenv("TMPDIR", scratch.path().c_str(), 1);
    ::unsetenv("SLURM_TMPDIR");
    ::unsetenv("TIERD_SOCKET");
    const std::string file = source + "/a";
    ::execl(TIERCTL_BINARY, "tierctl", "run", "--source", source.c_str(), "--policy", "looping", "--", "/bin/sh", "-c",
            ("cat " + file + " > /dev/null; cat " + file + " > /dev/null").c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(run, &status, 0), run);
  EXPECT_EQ(status, 0);
  const bool none = Eventually(15'000, [] { return ::waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD; });
  EXPECT_TRUE(none) << "the daemon is still there";
  std::ifstream children("/proc/self/task/" + std::to_string(::getpid()) + "/children");
  for (pid_t left = 0; children >> left;) ::kill(left, SIGKILL);
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

}  // namespace
}  // namespace tierd::e2e
