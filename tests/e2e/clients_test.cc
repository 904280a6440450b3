// Many clients, and few descriptors for them (F15, F52): all are served, from the cache as far as it goes, from the source beyond.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <array>
#include <random>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/exposition.h"
#include "tests/e2e/reading.h"
#include "tests/pfs_sim/rig.h"

namespace tierd::e2e {
namespace {

constexpr int kFiles = 20;
constexpr std::size_t kLargeBytes = 2'500'000;

class ClientsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < kFiles; ++i) Write(Path(i), Content(Path(i), 3000 + static_cast<std::size_t>(i) * 100));
    options.source = source;
    options.more = kTrustStamps;
    ASSERT_EQ(::pipe2(done, O_CLOEXEC), 0);
    ASSERT_EQ(::pipe2(go, O_CLOEXEC), 0);
  }
  void TearDown() override {
    CloseGo();
    for (const int fd : {done[0], done[1], go[0]}) ::close(fd);
    for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  }
  std::string Path(int i) const { return source + "/f" + std::to_string(i); }
  void CloseGo() {
    if (go[1] >= 0) ::close(go[1]);
    go[1] = -1;
  }

  // A client process that reads, says how many reads were wrong, and stays until all may go. Whom a busy daemon answers late goes on without it; with `attempts` it connects anew
  // first, so often at most.
  void AddClient(int number, int attempts = 0) {
    children.push_back(::fork());
    if (children.back() != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(go[1]);
    std::unique_ptr<Client> client;
    do client = std::make_unique<Client>(daemon.socket(), attempts > 0 ? TIER_REQUIRE_DAEMON : 0);
    while (client->error() != 0 && attempts-- > 0);
    std::uint8_t wrong = 0;
    for (int k = 0; k < 4; ++k) {
      const std::string path = Path((number * 7 + k * 5) % kFiles);
      wrong = static_cast<std::uint8_t>(wrong + (Get(client->get(), path).bytes != Plain(path).bytes));
    }
    (void)!::write(done[1], &wrong, 1);
    char end = 0;
    (void)!::read(go[0], &end, 1);
    ::_exit(0);
  }
  // Waits for the word of `count` clients; how many had wrong reads.
  int Collect(int count) {
    int bad = 0;
    for (int i = 0; i < count; ++i) {
      pollfd ready{done[0], POLLIN, 0};
      std::uint8_t wrong = 0;
      if (::poll(&ready, 1, 60'000) != 1 || ::read(done[0], &wrong, 1) != 1) return -1;
      bad += wrong != 0;
    }
    return bad;
  }

  ScratchDir scratch;
  std::string source = scratch.path() + "/data";
  DaemonProcess daemon{scratch.path()};
  DaemonProcess::Options options;
  // Of the daemon's table.
  std::string DescriptorSlots() const {
    std::ifstream in("/proc/" + std::to_string(daemon.pid()) + "/status");
    std::string line;
    while (std::getline(in, line) && line.rfind("FDSize:", 0) != 0) {
    }
    return line;
  }
  std::vector<pid_t> children;
  int done[2] = {-1, -1}, go[2] = {-1, -1};
};

TEST_F(ClientsTest, AThousandAtOnceAreAllServed) {  // F52
  constexpr int kClients = 1000;
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  const std::string slots = DescriptorSlots();
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const bool for_all = limit.rlim_max >= 4096;
  for (int i = 0; i < kClients; ++i) AddClient(i, for_all ? 20 : 0);
  EXPECT_EQ(Collect(kClients), 0);
  EXPECT_EQ(DescriptorSlots(), slots) << "beside threads each growth of the table costs the loop a grace period of the kernel";
  const auto status = daemon.Status();
  ASSERT_TRUE(status.is_object()) << "the control plane answers";
  // Two descriptors each; those for whom there are none read the source.
  const int sessions = status["sessions"];
  EXPECT_GE(sessions, for_all ? kClients : static_cast<int>(limit.rlim_max / 4)) << status.dump();
  CloseGo();
  EXPECT_TRUE(Eventually(10'000, [&] { return daemon.Status()["sessions"] == 0 && daemon.Status()["leases"] == 0; })) << daemon.Status().dump();
  EXPECT_EQ(daemon.Stop(), 0) << daemon.output();
}

TEST_F(ClientsTest, SixtyFourDescriptorsAreEnoughToGoOn) {  // F15
  const std::string script = scratch.path() + "/tierd-64";
  Write(script, std::string("#!/bin/sh\nulimit -n 64\nexec ") + TIERD_BINARY + " \"$@\"\n");
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  options.binary = script;
  options.more.insert(options.more.end(), {"--set", "source.warm=off"});
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  constexpr int kClients = 60;
  for (int i = 0; i < kClients; ++i) AddClient(i);
  EXPECT_EQ(Collect(kClients), 0);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(daemon.Status().is_object()) << "the control plane has descriptors of its own";
  const int sessions = daemon.Status()["sessions"];
  EXPECT_GT(sessions, 0) << "tierd itself has some 50 of the 64, and keeps 10 free for the disk and the control plane";
  EXPECT_LT(sessions, kClients) << "there are not descriptors for all";
  EXPECT_GT(ParseExposition(daemon.Metrics()).Value("tierd_sessions_refused_total"), 0);
  CloseGo();
  EXPECT_TRUE(Eventually(5000, [&] { return daemon.Status()["sessions"] == 0; })) << daemon.Status().dump();
  // Later clients find room again.
  Client client(daemon.socket());
  EXPECT_EQ(client.error(), 0);
  EXPECT_EQ(Get(client.get(), Path(0)).bytes, Plain(Path(0)).bytes);
  EXPECT_EQ(Get(client.get(), Path(0)).origin, static_cast<std::uint32_t>(TIER_FROM_RAM));
  EXPECT_EQ(daemon.Stop(), 0) << daemon.output();
}

TEST_F(ClientsTest, LeasesOfAKilledClientEndWithinASecond) {  // F50
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  const pid_t holder = ::fork();
  if (holder == 0) {
    Client client(daemon.socket());
    tier_view views[5] = {};
    int got = 0;
    for (int i = 0; i < 5; ++i) got += tier_get(client.get(), Path(i).c_str(), &views[i], 0) == 0 && views[i].origin != TIER_FROM_BYPASS;
    const auto all = static_cast<std::uint8_t>(got);
    (void)!::write(done[1], &all, 1);
    for (;;) ::pause();
  }
  EXPECT_EQ(Collect(1), 1);  // it has them
  EXPECT_TRUE(Eventually(1000, [&] { return daemon.Status()["leases"] == 5; })) << daemon.Status().dump();
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  EXPECT_TRUE(Eventually(1000, [&] { return daemon.Status()["leases"] == 0 && daemon.Status()["sessions"] == 0; })) << daemon.Status().dump();
}

// Reads in every way, without end. For a child that is killed in the middle.
[[noreturn]] void ReadInEveryWay(const std::string& socket, const std::vector<std::string>& paths, unsigned seed) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::mt19937 random(seed);
  Client client(socket, 0);
  std::array<tier_view, 8> held{};
  std::string copy(kLargeBytes, '\0');
  for (;;) {
    const std::string& path = paths[random() % paths.size()];
    tier_view& view = held[random() % held.size()];
    tier_file* file = nullptr;
    switch (random() % 4) {
      case 0:
        tier_release(&view);
        (void)tier_get(client.get(), path.c_str(), &view, 0);
        break;
      case 1: (void)tier_read_file(client.get(), path.c_str(), copy.data(), copy.size(), nullptr, 0); break;
      case 2:
        if (tier_open(client.get(), path.c_str(), &file, 0) == 0) (void)tier_file_pread(file, copy.data(), copy.size() / 2, 1000);
        tier_close(file);
        break;
      default: {
        std::array<const char*, 16> some{};
        for (const char*& one : some) one = paths[random() % paths.size()].c_str();
        std::array<tier_view, 16> views{};
        (void)tier_get_batch(client.get(), some.data(), some.size(), views.data(), nullptr, 0);
        for (tier_view& one : views) tier_release(&one);
      }
    }
  }
}

TEST_F(ClientsTest, WhatReadersHadThatAreKilledAtAnyMomentIsFreeWithinASecond) {  // F50
  constexpr int kReaders = 50, kRigFiles = 300;
  std::string why;
  const auto rig = pfs_sim::Rig::Start({.latency_us = 3000}, &why);
  if (rig == nullptr) GTEST_SKIP() << why;
  std::vector<std::string> paths;
  for (int i = 0; i < kRigFiles; ++i) {
    const std::string name = "/f" + std::to_string(i);
    Write(rig->backing() + name, Content(name, i % 30 == 0 ? kLargeBytes : 90'000));
    paths.push_back(rig->mount() + name);
  }
  options.source = rig->mount();
  options.ram = "16 MiB";  // a third of it: there are misses to the end
  options.more.insert(options.more.end(), {"--policy", "lru", "--set", "source.warm=off", "--set", "source.chunk_size=1 MiB"});
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  const unsigned seed = std::random_device{}();
  std::printf("seed=%u\n", seed);
  std::mt19937 random(seed);
  const auto free = [&] {
    const auto status = daemon.Status();
    return status["sessions"] == 0 && status["leases"] == 0;
  };
  for (int reader = 0; reader < kReaders; ++reader) {
    const pid_t child = ::fork();
    if (child == 0) ReadInEveryWay(daemon.socket(), paths, seed + static_cast<unsigned>(reader));
    SleepMs(static_cast<int>(random() % 150));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ASSERT_TRUE(Eventually(1000, free)) << "reader " << reader << ": " << daemon.Status().dump();
  }
  // Nor is any of its memory: all of it can be had, and holds what it should.
  EXPECT_GT(ParseExposition(daemon.Metrics()).Value("tierd_evictions_total{tier=\"ram\",cause=\"capacity\"}"), 0);
  EXPECT_TRUE(Eventually(10'000, [&] {
    daemon.Control("POST", "/v1/evict", nlohmann::json{{"paths", {rig->mount()}}}.dump());
    return ParseExposition(daemon.Metrics()).Value("tierd_tier_used_bytes{tier=\"ram\"}") == 0;
  }));
  Client client(daemon.socket());
  for (int i = 0; i < kRigFiles; ++i) EXPECT_EQ(Get(client.get(), paths[static_cast<std::size_t>(i)]).bytes, Plain(paths[static_cast<std::size_t>(i)]).bytes) << i;
  EXPECT_EQ(daemon.Stop(), 0) << daemon.output();
}

}  // namespace
}  // namespace tierd::e2e
