// Memory runs short (F17, F18), in a memory cgroup that daemon and trainer share, as in a batch job. Needs root for the cgroup.
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "tests/e2e/memory_cgroup.h"
#include "tests/e2e/reading.h"

namespace tierd::e2e {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

class MemoryTest : public testing::Test {
 protected:
  std::string Path(int i) const { return source + "/f" + std::to_string(i); }
  void MakeFiles(int count, std::size_t bytes) {
    files = count;
    for (int i = 0; i < count; ++i) Write(Path(i), Content(Path(i), bytes));
  }
  void StartIn(const MemoryCgroup& cgroup, const std::string& ram, const std::vector<std::string>& more) {
    DaemonProcess::Options options;
    options.source = source;
    options.ram = ram;
    options.binary = cgroup.Launcher(scratch.path(), TIERD_BINARY);
    options.more = kTrustStamps;
    options.more.insert(options.more.end(), {"--set", "source.warm=off", "--set", "ram.segment_size=8 MiB", "--policy", "lru"});
    // Where no tmpfs can be had, sealed memory comes back by whole segments, too late for a trainer.
    options.more.insert(options.more.end(), {"--set", "ram.seal=shrink"});
    options.more.insert(options.more.end(), more.begin(), more.end());
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
    ASSERT_TRUE(Eventually(10'000, [&] { return daemon.Status()["tiers"]["ssd"]["state"] == "ok"; })) << daemon.output();
  }
  // Every file once; the longest read in seconds.
  double ReadAll(const Client& client, std::map<std::uint32_t, int>* origins = nullptr) {
    double longest = 0;
    for (int i = 0; i < files; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      const Got got = Get(client.get(), Path(i));
      longest = std::max(longest, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
      EXPECT_EQ(got.error, 0) << Path(i);
      EXPECT_TRUE(got.bytes == Content(Path(i), got.bytes.size()) && !got.bytes.empty()) << Path(i);
      if (origins != nullptr) ++(*origins)[got.origin];
    }
    return longest;
  }
  std::uint64_t TierBytes() const { return daemon.Status()["tiers"]["ram"]["allocated_bytes"]; }

  ScratchDir scratch;
  std::string source = scratch.path() + "/data";
  DaemonProcess daemon{scratch.path()};
  int files = 0;
};

// A process in the cgroup that takes memory in steps and keeps it, until it is told by the pipe's end to go.
class Trainer {
 public:
  Trainer(const MemoryCgroup& cgroup, std::uint64_t bytes, std::uint64_t step_bytes, int pause_ms) {
    (void)!::pipe2(pipe_, O_CLOEXEC);
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!cgroup.Enter(::getpid())) ::_exit(2);
    for (std::uint64_t taken = 0; taken < bytes; taken += step_bytes) {
      void* memory = ::mmap(nullptr, step_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) ::_exit(3);
      std::memset(memory, 0x5a, step_bytes);
      SleepMs(pause_ms);
    }
    char done = 1;
    (void)!::write(pipe_[1], &done, 1);
    for (;;) ::pause();
  }
  ~Trainer() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::close(pipe_[0]);
    ::close(pipe_[1]);
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  // It has all it wanted.
  bool Satisfied() const {
    int ready = 0;
    (void)::ioctl(pipe_[0], FIONREAD, &ready);
    return ready > 0;
  }
  bool Alive() const {
    siginfo_t ended{};
    return ::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == 0;
  }

 private:
  int pipe_[2] = {-1, -1};
  pid_t pid_ = -1;
};

// Memory that runs out faster than the tier can give way ends the daemon, though the trainer has more of it. (The kernel may end that, too: it takes the daemon's memory for free a little before it is.)
TEST_F(MemoryTest, AnOomKilledDaemonCostsReadersNoSecondAndComesBackWarm) {  // F17
  const MemoryCgroup cgroup(320 * kMiB);
  if (!cgroup.ok()) GTEST_SKIP() << cgroup.reason();
  MakeFiles(100, 500'000);
  ASSERT_NO_FATAL_FAILURE(StartIn(cgroup, "128 MiB", {"--set", "ram.min_available=0 MiB"}));
  ASSERT_EQ(daemon.Prefetch(source)["files_verified"], 100);
  Client client(daemon.socket());
  ASSERT_EQ(client.error(), 0);
  ReadAll(client);
  {
    // Too much beside the daemon's own memory (70 MiB and more), which is what goes with it, and not beside the tier, which clients still map.
    const std::uint64_t room = 320 * kMiB - TierBytes();
    const Trainer trainer(cgroup, room - 35 * kMiB, 5 * kMiB, 0);
    double longest = 0;
    EXPECT_TRUE(Eventually(20'000, [&] {
      longest = std::max(longest, ReadAll(client));
      return daemon.Ended();
    })) << cgroup.used();
    for (int round = 0; round < 3; ++round) longest = std::max(longest, ReadAll(client));
    EXPECT_LT(longest, 1.0);
    EXPECT_GE(cgroup.oom_kills(), 1u);
  }
  daemon.Kill(SIGKILL);
  ASSERT_NO_FATAL_FAILURE(StartIn(cgroup, "128 MiB", {"--set", "ram.min_available=0 MiB"}));
  Client fresh(daemon.socket());
  std::map<std::uint32_t, int> origins;
  ReadAll(fresh, &origins);
  EXPECT_EQ(origins[TIER_FROM_SSD] + static_cast<int>(daemon.SlowSsdReads()), 100) << "a warm restart";
  EXPECT_TRUE(Eventually(8000, [&] { return Get(client.get(), Path(0)).origin == TIER_FROM_RAM; })) << "the old client finds the new daemon";
  EXPECT_EQ(daemon.Stop(), 0);
}

TEST_F(MemoryTest, TheTierGivesWayToATrainerInItsCgroup) {  // F18
  const MemoryCgroup cgroup(448 * kMiB);
  if (!cgroup.ok()) GTEST_SKIP() << cgroup.reason();
  MakeFiles(400, 500'000);
  ASSERT_NO_FATAL_FAILURE(StartIn(cgroup, "240 MiB", {"--set", "ram.min_available=96 MiB"}));
  Client client(daemon.socket());
  ASSERT_EQ(client.error(), 0);
  for (int round = 0; round < 2; ++round) ReadAll(client);
  EXPECT_GT(TierBytes(), 160 * kMiB) << daemon.Status()["tiers"]["ram"].dump();
  {
    // Takes 320 MiB of the 448, in steps as large as three quarters of what is always left free.
    const Trainer trainer(cgroup, 320 * kMiB, 64 * kMiB, 400);
    EXPECT_TRUE(Eventually(30'000, [&] {
      ReadAll(client);
      return trainer.Satisfied() || !trainer.Alive();
    }));
    EXPECT_TRUE(trainer.Alive());
    EXPECT_TRUE(Eventually(5000, [&] { return TierBytes() <= 64 * kMiB; })) << daemon.Status()["tiers"]["ram"].dump();
    ReadAll(client);
    EXPECT_EQ(cgroup.oom_kills(), 0u);
    EXPECT_FALSE(daemon.Ended());
  }
  // And takes its room back when the trainer is gone.
  EXPECT_TRUE(Eventually(20'000, [&] {
    ReadAll(client);
    return TierBytes() > 160 * kMiB;
  })) << daemon.Status()["tiers"]["ram"].dump();
  EXPECT_EQ(cgroup.oom_kills(), 0u);
  EXPECT_EQ(daemon.Stop(), 0);
}

// A daemon that nobody asks anything sees it in time, too: others may take four times what is always left to them in a second.
TEST_F(MemoryTest, AnIdleDaemonGivesWayToATrainerInItsCgroup) {  // F18
  const MemoryCgroup cgroup(500'000'000);
  if (!cgroup.ok()) GTEST_SKIP() << cgroup.reason();
  MakeFiles(240, 500'000);
  ASSERT_NO_FATAL_FAILURE(StartIn(cgroup, "auto", {}));  // an eighth of the limit is left to others
  constexpr std::uint64_t kFloor = 500'000'000 / 8;
  Client client(daemon.socket());
  ASSERT_EQ(client.error(), 0);
  for (const std::uint64_t floors_per_s : {1, 2, 4}) {
    EXPECT_TRUE(Eventually(20'000, [&] {
      ReadAll(client);
      return TierBytes() > 90 * kMiB;
    })) << daemon.Status()["tiers"]["ram"].dump();
    SleepMs(3000);
    constexpr std::uint64_t kSteps = 25;  // a second
    const std::uint64_t rest = 500'000'000 - cgroup.used() + 60 * kMiB;  // of the cgroup's, and of the tier's
    const Trainer trainer(cgroup, rest, kFloor * floors_per_s / kSteps, 1000 / kSteps);
    Eventually(30'000, [&] { return trainer.Satisfied() || !trainer.Alive(); });
    EXPECT_TRUE(trainer.Alive()) << floors_per_s << " times " << kFloor << " a second";
    EXPECT_EQ(cgroup.oom_kills(), 0u);
    ASSERT_FALSE(daemon.Ended());
  }
  EXPECT_EQ(daemon.Stop(), 0);
}

// What is left to others is a part of a small limit, not all of it: the SSD tier's files are served.
TEST_F(MemoryTest, TheTiersServeInASmallCgroup) {
  const MemoryCgroup cgroup(400'000'000);
  if (!cgroup.ok()) GTEST_SKIP() << cgroup.reason();
  MakeFiles(500, 500'000);
  ASSERT_NO_FATAL_FAILURE(StartIn(cgroup, "auto", {}));
  EXPECT_GE(daemon.Status()["tiers"]["ram"]["capacity_bytes"], 90 * kMiB);
  Client client(daemon.socket());
  ASSERT_EQ(client.error(), 0);
  ReadAll(client);
  SleepMs(3000);  // it has looked at the memory
  std::map<std::uint32_t, int> origins;
  for (int round = 0; round < 2; ++round) ReadAll(client, &origins);
  EXPECT_GE(origins[TIER_FROM_RAM] + origins[TIER_FROM_SSD] + static_cast<int>(daemon.SlowSsdReads()), 950) << daemon.Status()["tiers"].dump();
  EXPECT_GT(TierBytes(), 40 * kMiB) << daemon.Status()["tiers"]["ram"].dump();
  EXPECT_EQ(cgroup.oom_kills(), 0u);
  EXPECT_EQ(daemon.Stop(), 0);
}

// A trainer that takes more than what should be left to others, yet not all: a segment stays for what the SSD tier has. Then it takes all, and the segment goes, too.
TEST_F(MemoryTest, TheLastSegmentStaysForTheSsdWhileThereIsMemory) {
  const MemoryCgroup cgroup(400 * kMiB);
  if (!cgroup.ok()) GTEST_SKIP() << cgroup.reason();
  MakeFiles(200, 500'000);
  ASSERT_NO_FATAL_FAILURE(StartIn(cgroup, "96 MiB", {"--set", "ram.min_available=160 MiB"}));
  Client client(daemon.socket());
  ASSERT_EQ(client.error(), 0);
  ASSERT_EQ(daemon.Prefetch(source, "ssd")["files_verified"], 200);
  ReadAll(client);
  const auto grow = [&](std::uint64_t left) { return 400 * kMiB - cgroup.used() - left; };
  const Trainer trainer(cgroup, grow(64 * kMiB), 8 * kMiB, 150);
  EXPECT_TRUE(Eventually(30'000, [&] { return trainer.Satisfied(); }));
  EXPECT_TRUE(Eventually(5000, [&] { return TierBytes() == 16 * kMiB; })) << daemon.Status()["tiers"]["ram"].dump();
  std::map<std::uint32_t, int> origins;
  ReadAll(client, &origins);
  EXPECT_GE(origins[TIER_FROM_RAM] + origins[TIER_FROM_SSD] + static_cast<int>(daemon.SlowSsdReads()), 190) << daemon.Status()["tiers"].dump();
  {
    const Trainer more(cgroup, grow(20 * kMiB), 4 * kMiB, 150);
    EXPECT_TRUE(Eventually(30'000, [&] { return more.Satisfied(); }));
    EXPECT_TRUE(Eventually(5000, [&] { return TierBytes() == 0; })) << daemon.Status()["tiers"]["ram"].dump();
    ReadAll(client);
    EXPECT_TRUE(more.Alive());
  }
  EXPECT_TRUE(Eventually(10'000, [&] {
    ReadAll(client);
    return TierBytes() >= 16 * kMiB;
  })) << daemon.Status()["tiers"]["ram"].dump();
  EXPECT_TRUE(trainer.Alive());
  EXPECT_EQ(cgroup.oom_kills(), 0u);
  EXPECT_EQ(daemon.Stop(), 0);
}

// Where there was plenty the daemon looks every few seconds; a trainer takes nearly all of it in between.
TEST_F(MemoryTest, TheTierDoesNotGrowIntoWhatATrainerHasTakenAtOnce) {  // F18
  const MemoryCgroup cgroup(448 * kMiB);
  if (!cgroup.ok()) GTEST_SKIP() << cgroup.reason();
  MakeFiles(400, 500'000);
  ASSERT_NO_FATAL_FAILURE(StartIn(cgroup, "240 MiB", {"--set", "ram.min_available=8 MiB"}));
  Client client(daemon.socket());
  ASSERT_EQ(client.error(), 0);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(Get(client.get(), Path(i)).error, 0);
  SleepMs(3000);  // it has looked
  const std::uint64_t rest = 448 * kMiB - cgroup.used() - 32 * kMiB;
  ASSERT_GT(rest, 200 * kMiB);
  const Trainer trainer(cgroup, rest, rest, 0);
  ASSERT_TRUE(Eventually(10'000, [&] { return trainer.Satisfied(); }));
  for (int round = 0; round < 2; ++round) ReadAll(client);
  EXPECT_EQ(cgroup.oom_kills(), 0u);
  EXPECT_TRUE(trainer.Alive());
  EXPECT_FALSE(daemon.Ended());
  EXPECT_EQ(daemon.Stop(), 0);
}

}  // namespace
}  // namespace tierd::e2e
