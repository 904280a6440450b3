// Waiting no longer than was asked for, not waiting at all, and what a disconnected client keeps.
#include <malloc.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/client/client_rig.h"

namespace tierd::testing {
namespace {

class DeadlineTest : public ClientRig {
 protected:
  void SetUp() override {
    ClientRig::SetUp();
    for (const char* name : {"a", "b", "c"}) Write(name, ContentOf(name, 50'000));
  }
  static std::size_t Sockets() {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code ignored;
      count += std::filesystem::read_symlink(entry.path(), ignored).string().starts_with("socket:");
    }
    return count;
  }
};

TEST_F(DeadlineTest, ATimeoutOfTenMillisecondsIsKept) {
  StartDaemon();
  std::int64_t shortest_us = 1'000'000;
  for (int i = 0; i < 8; ++i) {
    daemon_->mischief = Mischief::kNone;
    Client(0, 10);
    Get(Path("b"));  // a session
    const bool calm = Fallbacks(abi::Fallback::kTimeout) == 0;
    daemon_->mischief = Mischief::kSilent;
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(ContentOf("a", 50'000), Get(Path("a"), TIER_FROM_BYPASS));
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin).count();
    if (calm && Fallbacks(abi::Fallback::kTimeout) == 1) shortest_us = std::min<std::int64_t>(shortest_us, us);
    tier_disconnect(client_);
    client_ = nullptr;
  }
  EXPECT_GE(shortest_us, 10'000);
  EXPECT_LT(shortest_us, 40'000) << "a receive may sleep for 50 ms";
}

// A daemon that needs half of the time for each chunk, and a file of six.
TEST_F(DeadlineTest, ALongReadMayTakeAsLongAsItsChunks) {
  options_.chunk_bytes = 16 << 10;
  const std::string content = ContentOf("large", 90'000);
  Write("large", content);
  Write("other", content);
  StartDaemon();
  Client(0, 300);
  Get(Path("a"));  // a session
  daemon_->late_ms = 140;
  daemon_->mischief = Mischief::kLate;
  std::string buffer(content.size(), '\0');
  EXPECT_EQ(static_cast<ssize_t>(content.size()), tier_read_file(client_, Path("large").c_str(), buffer.data(), buffer.size(), nullptr, 0));
  EXPECT_TRUE(content == buffer);
  EXPECT_TRUE(content == Get(Path("other")));
  EXPECT_EQ(0u, Fallbacks(abi::Fallback::kTimeout));
  EXPECT_EQ(0u, Fallbacks(abi::Fallback::kHung));
  EXPECT_EQ(0u, Stats().reads[TIER_FROM_BYPASS]);
}

// The first question of a call leaves the second one no time: that says nothing about the daemon.
TEST_F(DeadlineTest, AnAnswerThatHadNoTimeIsNotHeldAgainstTheDaemon) {
  options_.chunk_bytes = 16 << 10;
  const std::string content = ContentOf("large", 90'000);
  Write("large", content);
  StartDaemon();
  daemon_->Cache("b");
  Client(0, 300);
  EXPECT_EQ(ContentOf("b", 50'000), Get(Path("b")));
  daemon_->late_ms = 220;
  daemon_->mischief = Mischief::kLate;
  char buffer[1000];
  ASSERT_EQ(1000, tier_pread(client_, Path("large").c_str(), buffer, sizeof buffer, 40'000, 0));
  EXPECT_TRUE(content.substr(40'000, 1000) == std::string(buffer, sizeof buffer));
  EXPECT_EQ(1u, Fallbacks(abi::Fallback::kTimeout));
  daemon_->mischief = Mischief::kNone;
  EXPECT_EQ(ContentOf("c", 50'000), Get(Path("c"), TIER_FROM_SOURCE));
  EXPECT_EQ(0u, Fallbacks(abi::Fallback::kHung));
}

TEST_F(DeadlineTest, WhoNeverWaitsFindsWhatIsInRam) {
  StartDaemon();
  daemon_->Cache("a");
  Client(TIER_REQUIRE_DAEMON);
  EXPECT_EQ(ContentOf("a", 50'000), Get(Path("a"), TIER_FROM_RAM, TIER_NOWAIT)) << "the first use of its segment";
  EXPECT_EQ(ContentOf("a", 50'000), Get(Path("a"), TIER_FROM_RAM, TIER_NOWAIT));
  EXPECT_EQ(1u, daemon_->segments_sent);
  tier_view view;
  EXPECT_EQ(-ENODATA, tier_get(client_, Path("b").c_str(), &view, TIER_NOWAIT));
  EXPECT_EQ(0u, daemon_->fetches);
  // The index has moved.
  daemon_->Cache("b");
  daemon_->Grow();
  EXPECT_EQ(ContentOf("b", 50'000), Get(Path("b"), TIER_FROM_RAM, TIER_NOWAIT));
  EXPECT_EQ(0u, daemon_->fetches);
}

TEST_F(DeadlineTest, WhoNeverWaitsDoesNotWaitForADaemonThatIsStopped) {
  process_ = std::make_unique<FakeDaemonProcess>(options_);
  Client(TIER_REQUIRE_DAEMON);  // a session, and no segment
  process_->Pause();
  tier_view view;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(-ENODATA, tier_get(client_, Path("a").c_str(), &view, TIER_NOWAIT));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(500)) << "the patience of others is a second";
  process_->Resume();
  EXPECT_EQ(ContentOf("a", 50'000), Get(Path("a"), TIER_FROM_RAM)) << "nothing is held against the daemon";
}

TEST_F(DeadlineTest, WhoNeverWaitsDoesNotWaitForAGreetingEither) {
  process_ = std::make_unique<FakeDaemonProcess>(options_);
  Client();  // no session as yet
  process_->Pause();
  tier_view view;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(-ENODATA, tier_get(client_, Path("a").c_str(), &view, TIER_NOWAIT));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(500)) << "the patience of others is a second";
  process_->Resume();
  EXPECT_EQ(ContentOf("a", 50'000), Get(Path("a")));
  EXPECT_EQ(1u, Stats().connected) << "nothing is held against the daemon";
}

// F24: a process that begins while the daemon is stopped. All of its threads wait for the first greeting, and one for each further one, each time after a longer pause.
TEST_F(DeadlineTest, AProcessThatBeginsWhileTheDaemonIsStopped) {
  using Clock = std::chrono::steady_clock;
  process_ = std::make_unique<FakeDaemonProcess>(options_);
  process_->Pause();
  Client();
  std::atomic<double> longest{0};
  std::atomic<int> stalls{0};
  const auto start = Clock::now();
  const auto seconds_since = [](Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); };
  const auto read = [&] {
    while (seconds_since(start) < 3) {
      const auto begin = Clock::now();
      EXPECT_EQ(ContentOf("a", 50'000), Get(Path("a")));
      const double took = seconds_since(begin);
      if (took > 0.2) ++stalls;
      for (double most = longest; took > most && !longest.compare_exchange_weak(most, took);) {
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(read);
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(longest, 0.9) << "a read goes on within a second";
  EXPECT_LE(stalls, 6);
  EXPECT_GE(Fallbacks(abi::Fallback::kTimeout), 1u) << "there is a daemon, and it does not answer";
  process_->Resume();
  for (int tries = 0; tries < 800 && Stats().connected == 0; ++tries, std::this_thread::sleep_for(std::chrono::milliseconds(10))) Get(Path("a"));
  EXPECT_EQ(1u, Stats().connected);
  EXPECT_NE(0u, Stats().reads[TIER_FROM_SOURCE] + Stats().reads[TIER_FROM_RAM]);
}

TEST_F(DeadlineTest, ADisconnectedClientEndsWithItsLastView) {
  StartDaemon();
  daemon_->CacheAll();
  Client();
  tier_view first, second;
  ASSERT_EQ(0, tier_get(client_, Path("a").c_str(), &first, 0));
  ASSERT_EQ(0, tier_get(client_, Path("b").c_str(), &second, 0));
  ASSERT_EQ(static_cast<std::uint32_t>(TIER_FROM_RAM), second.origin);
  tier_disconnect(client_);
  client_ = nullptr;
  EXPECT_EQ(2u, daemon_->Leases()) << "views last as long as they are held";
  EXPECT_EQ(0, std::memcmp(first.data, ContentOf("a", 50'000).data(), first.size));
  tier_release(&first);
  EXPECT_EQ(0u, daemon_->page(0)->left.load());
  EXPECT_EQ(0, std::memcmp(second.data, ContentOf("b", 50'000).data(), second.size));
  const std::size_t sockets = Sockets();
  tier_release(&second);
  EXPECT_EQ(1u, daemon_->page(0)->left.load());
  EXPECT_LT(Sockets(), sockets);
}

std::size_t Mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t lines = 0;
  for (std::string line; std::getline(maps, line);) ++lines;
  return lines;
}

// 65,530 mappings are all that a process may have, threads and malloc included.
TEST_F(DeadlineTest, AProgramMayConnectAsOftenAsItLikes) {
  StartDaemon();
  daemon_->CacheAll();
  const auto use_one = [&] {
    Client();
    EXPECT_EQ(ContentOf("a", 50'000), Get(Path("a"), TIER_FROM_RAM));
    tier_disconnect(std::exchange(client_, nullptr));
  };
  for (int i = 0; i < 4; ++i) use_one();
  const std::size_t mappings = Mappings();
  const std::size_t heap = ::mallinfo2().uordblks;
  constexpr int kTimes = 200;
  for (int i = 0; i < kTimes; ++i) use_one();
  // The fake daemon is in this process, and keeps the page and some words of each session.
  EXPECT_LE(Mappings(), mappings + kTimes + 4);
  EXPECT_LT(::mallinfo2().uordblks, heap + kTimes * 1024);
}

// The handlers of a fork look at all sessions without a lock.
TEST_F(DeadlineTest, ClientsEndWhileThreadsFork) {
  StartDaemon();
  daemon_->CacheAll();
  std::atomic<bool> stop{false};
  std::thread forks([&] {
    while (!stop) {
      const pid_t child = ::fork();
      if (child == 0) ::_exit(0);
      int status = 0;
      EXPECT_EQ(child, ::waitpid(child, &status, 0));
      EXPECT_EQ(0, status);
    }
  });
  for (int i = 0; i < 300; ++i) {
    Client();
    EXPECT_EQ(ContentOf("a", 50'000), Get(Path("a")));
    tier_disconnect(std::exchange(client_, nullptr));
  }
  stop = true;
  forks.join();
}

}  // namespace
}  // namespace tierd::testing
