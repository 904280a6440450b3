// A process that has a session reads what is cached without one system call that names the source,
// whatever becomes of the daemon meanwhile. A source that hangs would show any such call: it waits.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"
#include "tests/pfs_sim/rig.h"

namespace tierd::e2e {
namespace {

constexpr int kFiles = 20;
constexpr std::size_t kBytes = 20'000;
constexpr double kSeconds = 4;

// Reads and stats each file again and again; between the two marks nothing may name the source.
constexpr char kReader[] = R"(
import os, sys, time
root, go, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
paths = [f"{root}/f{i}" for i in range(20)]
def read_all():
    longest = 0
    for path in paths:
        begin = time.monotonic()
        with open(path, "rb") as file:
            data = file.read()
        assert len(data) == 20000 and os.stat(path).st_size == 20000, path
        longest = max(longest, time.monotonic() - begin)
    return longest
for _ in range(3):
    read_all()
open(go + ".ready", "w").close()
while not os.path.exists(go):
    time.sleep(0.01)
os.path.exists("/mark-begin")
end, longest, rounds = time.monotonic() + seconds, 0, 0
while time.monotonic() < end:
    longest, rounds = max(longest, read_all()), rounds + 1
os.path.exists("/mark-end")
print(longest, rounds)
)";

class EstablishedSessionTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    rig = pfs_sim::Rig::Start({}, &why);
    if (rig == nullptr) GTEST_SKIP() << why;
    if (::access("/usr/bin/strace", X_OK) != 0) GTEST_SKIP() << "no strace";
    for (int i = 0; i < kFiles; ++i) Write(rig->backing() + "/f" + std::to_string(i), Content(std::to_string(i), kBytes));
    options.source = rig->mount();
    options.ssd = "off";
    options.more = kTrustStamps;
    options.more.insert(options.more.end(), {"--set", "source.ttl=1h", "--set", "source.warm=off"});
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  }
  void TearDown() override {
    if (rig == nullptr) return;
    rig->Control("fault clear");
    rig->Control("release");
  }
  // `meanwhile` runs while the source hangs and the reader reads.
  template <typename Meanwhile>
  void ExpectNoCallWhile(Meanwhile meanwhile) {
    const std::string log = scratch.path() + "/strace", out = scratch.path() + "/out", go = scratch.path() + "/go";
    const std::string script = scratch.path() + "/reader.py";
    std::ofstream(script) << kReader;
    const pid_t reader = ::fork();
    if (reader == 0) {
      const std::string preload = "LD_PRELOAD=" TIERD_PRELOAD_LIBRARY, socket = "TIERD_SOCKET=" + daemon.socket();
      (void)!::freopen(out.c_str(), "w", stdout);
      ::execl("/usr/bin/strace", "strace", "-f", "-s", "200", "-e", "trace=file", "-o", log.c_str(), "-E", preload.c_str(), "-E", socket.c_str(),
              "/usr/bin/python3", script.c_str(), rig->mount().c_str(), go.c_str(), std::to_string(kSeconds).c_str(), nullptr);
      ::_exit(127);
    }
    ASSERT_TRUE(Eventually(30'000, [&] { return std::filesystem::exists(go + ".ready"); })) << "strace is not permitted?";
    rig->Control("fault add errno=hang every=1");
    std::ofstream(go) << "";
    meanwhile();
    const bool ended = Eventually(20'000, [&] { return ::waitpid(reader, nullptr, WNOHANG) == reader; });
    ::kill(daemon.pid(), SIGCONT);
    rig->Control("fault clear");
    rig->Control("release");
    if (!ended) ::waitpid(reader, nullptr, 0);
    EXPECT_TRUE(ended) << "the reader hangs";
    std::ifstream lines(log);
    bool between = false, both = false;
    int calls = 0;
    std::string first;
    for (std::string line; std::getline(lines, line);) {
      between |= line.find("/mark-begin") != std::string::npos;
      if (line.find("/mark-end") != std::string::npos) both = true, between = false;
      if (!between || line.find(rig->mount()) == std::string::npos) continue;
      if (calls++ == 0) first = line;
    }
    EXPECT_TRUE(both);
    EXPECT_EQ(calls, 0) << first;
    double longest = 1e9;
    int rounds = 0;
    std::ifstream(out) >> longest >> rounds;
    EXPECT_LT(longest, 1);
    EXPECT_GT(rounds, 5);
  }
  // Of the whole process, again and again.
  void Stall(int stopped_ms, int running_ms, int times) const {
    for (int i = 0; i < times; ++i) {
      ::kill(daemon.pid(), SIGSTOP);
      SleepMs(stopped_ms);
      ::kill(daemon.pid(), SIGCONT);
      SleepMs(running_ms);
    }
  }

  ScratchDir scratch;
  std::unique_ptr<pfs_sim::Rig> rig;
  DaemonProcess daemon{scratch.path()};
  DaemonProcess::Options options;
};

TEST_F(EstablishedSessionTest, ReadsHitsWhileTheSourceHangs) {
  ExpectNoCallWhile([] {});
}

TEST_F(EstablishedSessionTest, ReadsHitsWhileOthersMountAndUnmount) {
  const std::string other = scratch.path() + "/other";
  std::filesystem::create_directory(other);
  int mounts = 0;
  ExpectNoCallWhile([&] {
    for (int i = 0; i < 10; ++i, SleepMs(300)) {
      mounts += ::mount("none", other.c_str(), "tmpfs", 0, "size=64k") == 0;
      ::umount(other.c_str());
    }
  });
  if (mounts == 0) GTEST_SKIP() << "no mount: " << std::strerror(errno);
}

TEST_F(EstablishedSessionTest, ReadsHitsWhileTheDaemonIsStopped) {
  ExpectNoCallWhile([&] { ::kill(daemon.pid(), SIGSTOP); });
}

TEST_F(EstablishedSessionTest, ReadsHitsAfterTheDaemonStoodForTwoSeconds) {
  ExpectNoCallWhile([&] { Stall(2000, 0, 1); });
}

TEST_F(EstablishedSessionTest, ReadsHitsWhileTheDaemonStallsEachSecond) {
  ExpectNoCallWhile([&] { Stall(100, 900, 4); });
}

TEST_F(EstablishedSessionTest, ReadsHitsWhileTheDaemonHasATenthOfACore) {
  const bool one = std::filesystem::exists("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  const std::string group = (one ? "/sys/fs/cgroup/cpu/tierd-test-" : "/sys/fs/cgroup/tierd-test-") + std::to_string(::getpid());
  std::error_code error;
  std::filesystem::create_directory(group, error);
  if (error) GTEST_SKIP() << "cannot make a cgroup: " << error.message();
  const auto put = [&](const std::string& file, const std::string& text) {
    std::ofstream out(group + file);
    out << text;
    return bool(out.flush());
  };
  const bool limited = (one ? put("/cpu.cfs_quota_us", "10000") : put("/cpu.max", "10000 100000")) && put("/cgroup.procs", std::to_string(daemon.pid()));
  if (limited) ExpectNoCallWhile([] {});
  daemon.Kill(SIGKILL);
  Eventually(5000, [&] { return std::filesystem::remove(group, error) || !std::filesystem::exists(group); });
  if (!limited) GTEST_SKIP() << "no quota of processor time here";
}

// One that comes while nobody answers waits for a greeting, and then reads the source.
TEST_F(EstablishedSessionTest, ANewOneWaitsAtMostASecondForAStoppedDaemon) {
  ::kill(daemon.pid(), SIGSTOP);
  const auto begin = std::chrono::steady_clock::now();
  {
    Client client(daemon.socket(), 0);
    const Got got = Get(client.get(), rig->mount() + "/f1");
    EXPECT_EQ(got.bytes, Content("1", kBytes));
    EXPECT_EQ(got.origin, static_cast<std::uint32_t>(TIER_FROM_BYPASS));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(1500));
  ::kill(daemon.pid(), SIGCONT);
}

}  // namespace
}  // namespace tierd::e2e
