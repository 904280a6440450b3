// kill -9 of the daemon at any moment under two verifying readers: 0 wrong bytes, 0 failed reads, a warm restart each time. TIERD_CRASH_KILLS kills
// (default 100), spread over the daemon's life; every fourth at a kill point (compiled in with TIERD_KILL_POINTS).
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"
#include "tierd/base/kill_point.h"

namespace tierd::e2e {
namespace {

constexpr int kFiles = 700;  // 26 MB
constexpr int kReaders = 2;

// Shared with the reader processes.
struct Tally {
  std::atomic<std::uint64_t> reads[TIER_FROM_BYPASS + 1];
  std::atomic<std::uint64_t> wrong;
  std::atomic<std::uint64_t> failed;
  std::atomic<std::uint64_t> slow;  // took longer than 1.5 s
  std::atomic<bool> stop;
};

std::string PathOf(const std::string& source, int i) { return source + "/d" + std::to_string(i % 7) + "/f" + std::to_string(i); }

[[noreturn]] void Read(const std::string& source, const std::string& socket, Tally* tally, unsigned seed) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // A client looks for a new daemon every 5 s; a fresh one at once. Lives of daemons are shorter here, so clients are changed often.
  std::unique_ptr<Client> client;
  std::mt19937 random(seed);
  for (std::uint64_t round = 0; !tally->stop; ++round) {
    if (round % 256 == 0) client = std::make_unique<Client>(socket, 0);
    const int i = static_cast<int>(random() % kFiles);
    const std::string path = PathOf(source, i);
    const char* dropped = path.c_str();
    if (random() % 10 == 0) (void)tier_evict(client->get(), &dropped, 1, 0);  // so that the source is read as well
    timespec begin{}, end{};
    clock_gettime(CLOCK_MONOTONIC, &begin);
    const Got got = Get(client->get(), path);
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (got.error != 0) ++tally->failed;
    else if (got.bytes != Content(path, 20'000 + static_cast<std::size_t>(i) * 50)) ++tally->wrong;
    ++tally->reads[got.origin];
    if (got.origin == TIER_FROM_BYPASS) SleepMs(2);  // plain reads while no daemon is there are fast: they would outnumber the rest
    if (static_cast<double>(end.tv_sec - begin.tv_sec) + static_cast<double>(end.tv_nsec - begin.tv_nsec) * 1e-9 > 1.5) ++tally->slow;
  }
  ::_exit(0);
}

TEST(CrashLoop, NoWrongByteAndNoFailedRead) {
  const char* text = std::getenv("TIERD_CRASH_KILLS");
  const int kills = text != nullptr ? std::atoi(text) : 100;
  ScratchDir scratch;
  const std::string source = scratch.path() + "/data";
  for (int i = 0; i < kFiles; ++i) Write(PathOf(source, i), Content(PathOf(source, i), 20'000 + static_cast<std::size_t>(i) * 50));
  DaemonProcess daemon(scratch.path());
  auto* tally = static_cast<Tally*>(::mmap(nullptr, sizeof(Tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(tally, MAP_FAILED);
  DaemonProcess::Options options;
  options.source = source;
  options.ram = "16 MiB";         // a third of the data: reads come from RAM, SSD and source
  options.ssd_capacity = "256 MiB";
  options.more = {"--policy", "lru", "--set", "source.warm=off"};
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  std::vector<pid_t> readers;
  for (unsigned r = 0; r < kReaders; ++r) {
    readers.push_back(::fork());
    if (readers.back() == 0) Read(source, daemon.socket(), tally, r + 1);
  }
  const unsigned seed = std::random_device{}();
  std::printf("crash loop seed=%u kills=%d\n", seed, kills);
  std::mt19937 random(seed);
  int warm = 0, at_kill_points = 0;
  const std::span<const char* const> points = KillPointNames();
  for (int kill = 0; kill < kills; ++kill) {
    if (kill % 4 == 3 && !points.empty()) {
      // Ends by itself at the chosen point, or is killed like the others when it does not come by.
      const bool ended = Eventually(700, [&] { return ::waitpid(daemon.pid(), nullptr, WNOHANG | WNOWAIT) == daemon.pid() || !daemon.Status().is_object(); });
      at_kill_points += ended ? 1 : 0;
    } else {
      SleepMs(100 + static_cast<int>(random() % 700));
    }
    daemon.Kill(SIGKILL);
    if (kill % 10 == 9) std::filesystem::remove_all(scratch.path() + "/ssd/index");  // F25 on top
    const bool next_at_point = (kill + 1) % 4 == 3 && !points.empty();
    if (next_at_point) ::setenv("TIERD_KILL_POINT", (std::string(points[static_cast<std::size_t>(kill / 4) % points.size()]) + ":" + std::to_string(1 + random() % 8)).c_str(), 1);
    const bool started = daemon.Start(options);
    ::unsetenv("TIERD_KILL_POINT");
    if (!started) {
      // A kill point on the way up is a kill as well; without one the daemon must come up.
      ASSERT_TRUE(next_at_point) << daemon.output();
      ASSERT_TRUE(daemon.Start(options)) << daemon.output();
      ++at_kill_points;
      ++kill;
    }
    warm += Eventually(2000, [&] {
      const auto status = daemon.Status();
      return status.is_object() && status["tiers"]["ssd"]["objects"].get<std::uint64_t>() > 0;
    });
  }
  tally->stop = true;
  for (const pid_t reader : readers) {
    int status = 0;
    ::waitpid(reader, &status, 0);
    EXPECT_EQ(status, 0);
  }
  const double all = static_cast<double>(tally->reads[0] + tally->reads[1] + tally->reads[2] + tally->reads[3]);
  std::printf("reads=%.0f ram=%.3f ssd=%.3f source=%.3f bypass=%.3f warm_starts=%d at_kill_points=%d slow=%llu\n", all, tally->reads[0] / all, tally->reads[1] / all,
              tally->reads[2] / all, tally->reads[3] / all, warm, at_kill_points, static_cast<unsigned long long>(tally->slow.load()));
  EXPECT_EQ(tally->wrong, 0u);
  EXPECT_EQ(tally->failed, 0u);
  EXPECT_EQ(tally->slow, 0u);
  // Otherwise the run says nothing: the kills must have met all three kinds of reads.
  EXPECT_GT(all, 10'000);
  EXPECT_GE(tally->reads[TIER_FROM_RAM] / all, 0.30);
  EXPECT_GE(tally->reads[TIER_FROM_SSD] / all, 0.20);
  EXPECT_GE((tally->reads[TIER_FROM_SOURCE] + tally->reads[TIER_FROM_BYPASS]) / all, 0.10);
  EXPECT_GE(warm, kills / 2);
}

}  // namespace
}  // namespace tierd::e2e
