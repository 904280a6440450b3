// kill -9 of the daemon (F22, F23, F25, F35) under two verifying readers: 0 wrong bytes, 0 failed reads, none slow, a warm restart each time. Half of the
// kills fall uniformly over the daemon's life, start and recovery included; half at the kill points compiled into test builds, each of which must be hit.
// On a machine with more to do than it can lives are shorter: the loop then goes on until the kills have met what they are for, twice as long at most.
//   TIERD_CRASH_KILLS  kills at least; default 100
//   TIERD_CRASH_HITS   hits of each kill point at least; default 1
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <random>
#include <string_view>

#include "tests/crash/verifying_reader.h"
#include "tests/e2e/daemon_process.h"
#include "tierd/base/kill_point.h"

namespace tierd::e2e {
namespace {

#ifdef TIERD_KILL_POINTS
constexpr bool kHaveKillPoints = true;
#else
constexpr bool kHaveKillPoints = false;
#endif
constexpr int kLifeMs = 900;        // longest life that ends at a random moment, counted from the start of the process
constexpr int kPointMs = 10'000;     // so long is waited for a kill point
constexpr int kRecoverMs = 30'000;

int FromEnvironment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

bool Has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

struct Point {
  std::string name;
  int hits = 0;
  int tries = 0;
};

class CrashLoop : public testing::Test {
 protected:
  void SetUp() override {
    source = scratch.path() + "/data";
    tally = static_cast<Tally*>(::mmap(nullptr, sizeof(Tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(tally, MAP_FAILED);
    WriteCrashFiles(source, tally);
    options.source = source;
    options.ram = "16 MiB";
    options.ssd_capacity = "256 MiB";
    options.more = {"--policy", "lru", "--set", "source.warm=off", "--set", "source.racy_window=0s", "--set", "source.ttl=" + std::to_string(kCrashTtlMs) + "ms",
                    "--set", "ssd.region_size=8 MiB"};
    if (kHaveKillPoints)
      for (const char* name : KillPointNames()) points.push_back({name});
  }
  void TearDown() override { ::munmap(tally, sizeof(Tally)); }

  // Writes the SSD tier full once, so that from the first life on regions are reclaimed.
  void FillTheTier() {
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
    for (int round = 0; round < 8; ++round) {
      ASSERT_TRUE(daemon.Prefetch(source, "ssd").is_object()) << daemon.output();  // partial, once regions are being reclaimed
      if (round < 7) (void)daemon.Control("POST", "/v1/evict", nlohmann::json{{"paths", {source}}}.dump());
    }
  }
  void StartReaders() {
    for (unsigned reader = 0; reader < kCrashReaders; ++reader) {
      readers.push_back(::fork());
      if (readers.back() == 0) ReadAndVerify(source, daemon.socket(), tally, reader);
    }
  }
  void StopReaders() {
    tally->stop = true;
    for (const pid_t reader : readers) {
      int status = 0;
      ::waitpid(reader, &status, 0);
      EXPECT_EQ(status, 0);
    }
  }

  // Objects on the SSD; nothing while it recovers, or when there is nobody to ask.
  std::optional<std::uint64_t> SsdObjects() const {
    const auto status = daemon.Status();
    if (!status.is_object() || status["tiers"]["ssd"]["state"] != "ok") return std::nullopt;
    return status["tiers"]["ssd"]["objects"].get<std::uint64_t>();
  }
  // A kill costs what was still in region buffers, and what the readers dropped; never the tier.
  void ExpectWarm(std::uint64_t objects) {
    if (!expect_warm) {
      expect_warm = objects > kCrashFiles * 2 / 3;  // full again after its dataset was declared changed
      return;
    }
    ++warm_lives;
    fewest_objects = std::min(fewest_objects, objects);
    EXPECT_GE(objects, kCrashFiles / 4u) << "kill " << kills << ": a cold restart " << daemon.output();
  }

  void RestartWarm() {
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
    std::optional<std::uint64_t> objects;
    ASSERT_TRUE(Eventually(kRecoverMs, [&] { return (objects = SsdObjects()).has_value(); })) << daemon.output();
    ExpectWarm(*objects);
  }

  // SIGKILL, by us or at a kill point: no life ends in another way.
  void Kill() {
    if (daemon.running()) daemon.Kill(SIGKILL);
    EXPECT_EQ(daemon.exit_code(), 128 + SIGKILL) << "life " << kills << ": " << daemon.output();
    ++kills;
  }

  void KillAtRandom() {
    daemon.Launch(options);
    SleepMs(static_cast<int>(random() % kLifeMs));
    if (const auto objects = SsdObjects()) ExpectWarm(*objects);
    Kill();
  }

  // A life that ends itself at a kill point; whether it came by.
  bool KillAt(Point& point) {
    ++point.tries;
    const bool at_start = Has(point.name, "recover") || Has(point.name, "superblock");
    if (Has(point.name, "rebuild")) std::filesystem::remove_all(daemon.ssd_directory() + "/index");  // F25 as well
    const auto count = at_start ? 1 : 1 + random() % 3;
    ::setenv("TIERD_KILL_POINT", (point.name + ":" + std::to_string(count)).c_str(), 1);
    daemon.Launch(options);
    ::unsetenv("TIERD_KILL_POINT");
    if (Has(point.name, "invalidate")) {
      for (int turn = 0; turn < 3 && daemon.AwaitReady() && !daemon.Ended(); ++turn)
        (void)daemon.Control("POST", "/v1/evict", nlohmann::json{{"paths", {source + "/d0"}}, {"invalidate", true}}.dump());
      expect_warm = false;
    }
    const bool ended = Eventually(kPointMs, [&] { return !daemon.running() || daemon.Ended(); });
    Kill();
    point.hits += ended ? 1 : 0;
    return ended;
  }

  // The point hit least often, of those tried least often.
  Point& NextPoint() {
    return *std::min_element(points.begin(), points.end(), [](const Point& a, const Point& b) { return std::pair(a.hits, a.tries) < std::pair(b.hits, b.tries); });
  }
  bool AllHit(int times) const {
    return std::all_of(points.begin(), points.end(), [&](const Point& point) { return point.hits >= times; });
  }

  // What a run of so many kills must have met, or it says nothing.
  struct Least {
    int kills = FromEnvironment("TIERD_CRASH_KILLS", 100);
    int hits = FromEnvironment("TIERD_CRASH_HITS", 1);  // of each point
    int warm_lives = kills / 3;
    std::uint64_t reads = 100 * static_cast<std::uint64_t>(kills);
    double ram = .3, ssd = .2, from_source = .1;  // of all reads, those past the cache among them
  };
  double Share(int origin) const { return static_cast<double>(tally->reads[origin]) / static_cast<double>(std::max<std::uint64_t>(1, tally->all())); }
  bool HasMet(const Least& least) const {
    return kills >= least.kills && AllHit(least.hits) && warm_lives >= least.warm_lives && tally->all() >= least.reads && Share(TIER_FROM_RAM) >= least.ram &&
           Share(TIER_FROM_SSD) >= least.ssd && Share(TIER_FROM_SOURCE) >= least.from_source;
  }

  ScratchDir scratch;
  DaemonProcess daemon{scratch.path()};
  DaemonProcess::Options options;
  std::string source;
  Tally* tally = nullptr;
  std::vector<pid_t> readers;
  std::vector<Point> points;
  std::mt19937 random;
  int kills = 0;
  bool expect_warm = true;
  int warm_lives = 0;
  std::uint64_t fewest_objects = kCrashFiles;
};

TEST_F(CrashLoop, NoWrongByteAndNoFailedRead) {
  const Least least;
  const unsigned seed = std::random_device{}();
  std::printf("crash loop seed=%u kills=%d\n", seed, least.kills);
  random.seed(seed);
  ASSERT_NO_FATAL_FAILURE(FillTheTier());
  StartReaders();
  SleepMs(500);
  Kill();
  for (int turn = 0; !HasMet(least) && kills < 2 * least.kills + 40; ++turn) {
    if (turn % 2 == 0 || points.empty()) {
      KillAtRandom();
    } else {
      Point& point = NextPoint();
      // F23: what dies while it recovers dies there a second time.
      if (KillAt(point) && Has(point.name, "recover")) KillAt(point);
    }
    if (turn % 4 != 3) continue;  // most lives follow upon another kill; each fourth shows that the tier is still warm, and feeds it
    ASSERT_NO_FATAL_FAILURE(RestartWarm());
    SleepMs(static_cast<int>(random() % kLifeMs));
    Kill();
  }
  ASSERT_NO_FATAL_FAILURE(RestartWarm());
  StopReaders();

  std::printf("kills=%d reads=%llu ram=%.3f ssd=%.3f source=%.3f bypass=%.3f rewrites=%llu slowest_ms=%llu warm_lives=%d fewest_objects=%llu\n", kills,
              static_cast<unsigned long long>(tally->all()), Share(TIER_FROM_RAM), Share(TIER_FROM_SSD), Share(TIER_FROM_SOURCE), Share(TIER_FROM_BYPASS),
              static_cast<unsigned long long>(tally->rewrites), static_cast<unsigned long long>(tally->slowest_ms), warm_lives, static_cast<unsigned long long>(fewest_objects));
  for (const Point& point : points) {
    std::printf("  %-32s hits=%d tries=%d\n", point.name.c_str(), point.hits, point.tries);
    EXPECT_GE(point.hits, least.hits) << point.name << " was not hit";
  }
  EXPECT_EQ(tally->wrong, 0u);
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(tally->wrong, Tally::kKept); ++i) {
    const Tally::Wrong& wrong = tally->first_wrong[i];
    std::printf("wrong: reader %u, file %d (of reader %d), origin %u, %llu bytes, version %llu; newest %llu, for %lld ms; connected %lld ms ago\n", wrong.reader, wrong.file,
                wrong.file % kCrashReaders, wrong.origin, static_cast<unsigned long long>(wrong.bytes), static_cast<unsigned long long>(wrong.version),
                static_cast<unsigned long long>(wrong.newest), static_cast<long long>(wrong.age_ms), static_cast<long long>(wrong.connected_ms));
  }
  EXPECT_EQ(tally->failed, 0u);
  EXPECT_EQ(tally->slow, 0u);
  EXPECT_GE(warm_lives, least.warm_lives);
  EXPECT_GE(tally->all(), least.reads);
  EXPECT_GE(Share(TIER_FROM_RAM), least.ram);
  EXPECT_GE(Share(TIER_FROM_SSD), least.ssd);
  EXPECT_GE(Share(TIER_FROM_SOURCE), least.from_source);
}

}  // namespace
}  // namespace tierd::e2e
