// SIGTERM at any moment: within two seconds, exit 0, readers go on with right bytes.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"
#include "tests/pfs_sim/rig.h"

namespace tierd::e2e {
namespace {

constexpr int kFiles = 1500;
constexpr std::size_t kBytes = 100'000;

class StopTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string("io_uring") && !IoUringIsAllowed()) GTEST_SKIP() << "io_uring is refused here";
  }
  void MakeFiles(const std::string& directory) {
    for (int i = 0; i < kFiles; ++i) Write(directory + Name(i), Content(Name(i), kBytes));
  }
  static std::string Name(int i) { return "/c" + std::to_string(i % 8) + "/f" + std::to_string(i); }
  DaemonProcess::Options Options() const {
    DaemonProcess::Options options;
    options.source = source;
    options.ram = "96 MiB";
    options.ssd_capacity = "256 MiB";
    options.more = {"--set", "ssd.min_free=1 MiB", "--set", std::string("source.engine=") + GetParam(), "--set", std::string("ssd.engine=") + GetParam()};
    return options;
  }
  // A process that reads at random until it is told to end; exit 1 when a byte was wrong.
  pid_t StartReader(unsigned seed) const {
    const pid_t reader = ::fork();
    if (reader != 0) return reader;
    static volatile std::sig_atomic_t stop = 0;
    ::signal(SIGUSR1, [](int) { stop = 1; });
    std::mt19937 random(seed);
    Client client(daemon.socket(), 0);
    bool right = true;
    while (stop == 0 && right) {
      const int i = static_cast<int>(random() % kFiles);
      right = Get(client.get(), source + Name(i)).bytes == Content(Name(i), kBytes);
    }
    ::_exit(right ? 0 : 1);
  }
  // Fills for `ms`, stops, and returns how long that took.
  double FillAndStop(int ms, unsigned seed) {
    EXPECT_TRUE(daemon.Start(Options())) << daemon.output();
    const pid_t reader = StartReader(seed);
    EXPECT_TRUE(daemon.Control("POST", "/v1/prefetch", R"({"paths":[")" + source + R"("]})").contains("job"));
    SleepMs(ms);
    if (at_stop) at_stop();
    const auto begin = std::chrono::steady_clock::now();
    // Where the reader hangs in a read at the source, the daemon may hang in the kernel behind it (opening that file): then it ends with the source's answer, late.
    std::atomic<bool> ended = false;
    std::thread source_answers([&] {
      if (!Eventually(8000, [&] { return ended.load(); }) && before_end) before_end();
    });
    EXPECT_EQ(daemon.Stop(), 0) << daemon.output();
    ended = true;
    source_answers.join();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (before_end) before_end();
    ::kill(reader, SIGUSR1);
    int status = 0;
    ::waitpid(reader, &status, 0);
    EXPECT_EQ(status, 0) << "a reader saw a wrong byte";
    EXPECT_FALSE(std::filesystem::exists(daemon.socket())) << "the socket is gone with its daemon";
    return seconds;
  }

  ScratchDir scratch;
  std::string source = scratch.path() + "/data";
  DaemonProcess daemon{scratch.path()};
  std::function<void()> at_stop;
  std::function<void()> before_end;
};

TEST_P(StopTest, StopsInTheMiddleOfAFill) {
  MakeFiles(source);
  std::mt19937 random(7);
  std::vector<double> seconds;
  for (int round = 0; round < 7; ++round) {
    seconds.push_back(FillAndStop(static_cast<int>(random() % 400), static_cast<unsigned>(round)));
    if (round % 3 == 2) std::filesystem::remove_all(daemon.ssd_directory());
  }
  // Of a busy machine one may be longer.
  std::sort(seconds.begin(), seconds.end());
  EXPECT_LT(seconds[seconds.size() / 2], 2.0) << daemon.output();
}

TEST_P(StopTest, StopsWithASlowSourceAndWithAHungOne) {
  std::string why;
  const auto rig = pfs_sim::Rig::Start({.latency_us = 2000, .bandwidth = 50'000'000}, &why);
  if (rig == nullptr) GTEST_SKIP() << why;
  source = rig->mount();
  MakeFiles(rig->backing());
  EXPECT_LT(std::min(FillAndStop(300, 1), FillAndStop(300, 2)), 2.0) << daemon.output();
  at_stop = [&] {
    rig->Control("fault add op=read path=* errno=hang");
    EXPECT_TRUE(Eventually(5000, [&] { return rig->Counters().hung > 5; }));
  };
  before_end = [&] {
    rig->Control("fault clear");
    rig->Control("release");
  };
  EXPECT_LT(std::min(FillAndStop(300, 3), FillAndStop(300, 4)), 2.0) << daemon.output();
}

INSTANTIATE_TEST_SUITE_P(Engines, StopTest, testing::Values("io_uring", "threads"), [](const auto& kind) { return std::string(kind.param); });

}  // namespace
}  // namespace tierd::e2e
