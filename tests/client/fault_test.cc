// Daemons that are slow, hung, dead, hostile, or not there at all: reads go on, right and in time.
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <thread>

#include "client_lib/src/arena.h"
#include "client_lib/src/clock.h"
#include "client_lib/src/process.h"
#include "tests/client/client_rig.h"

namespace tierd::testing {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::size_t OpenDescriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

class FaultTest : public ClientRig {
 protected:
  void SetUp() override {
    ClientRig::SetUp();
    for (int i = 0; i < 20; ++i) Write(Name(i), ContentOf(Name(i), 3000));
  }
  static std::string Name(int i) { return "f" + std::to_string(i); }
  void GetAll(int from, int to, int origin = -1) {
    for (int i = from; i < to; ++i) EXPECT_EQ(ContentOf(Name(i), 3000), Get(Path(Name(i)), origin));
  }
};

TEST_F(FaultTest, NoDaemon) {
  Client();
  GetAll(0, 20, TIER_FROM_BYPASS);
  EXPECT_EQ(20u, Fallbacks(abi::Fallback::kNoDaemon));
  EXPECT_EQ(0u, Stats().connected);
  tier_options options{};
  options.size = sizeof options;
  options.socket = options_.socket.c_str();
  options.flags = TIER_REQUIRE_DAEMON;
  tier_client* other = nullptr;
  EXPECT_EQ(-ECONNREFUSED, tier_connect(&options, &other));
  EXPECT_EQ(nullptr, other);
}

// F56: a daemon that comes later is found, and looked for no more often than every 5 s.
TEST_F(FaultTest, IsLookedForEveryFiveSeconds) {
  const auto start = Clock::now();
  Client();
  GetAll(0, 1, TIER_FROM_BYPASS);
  StartDaemon();
  while (SecondsSince(start) < 4.5) {
    GetAll(0, 20);
    const auto sessions = Stats().sessions;
    ASSERT_TRUE(sessions == 0 || SecondsSince(start) > 4.9) << "after " << SecondsSince(start) << " s";
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  while (SecondsSince(start) < 9 && Stats().connected == 0) {
    GetAll(0, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(1u, Stats().connected);
  EXPECT_EQ(1u, Stats().sessions);
}

TEST_F(FaultTest, CountsFromBeforeTheDaemonReachIt) {
  options_.staleness = abi::Staleness::kTtl;
  Client();
  GetAll(0, 5, TIER_FROM_BYPASS);
  tier_disconnect(client_);
  client_ = nullptr;
  StartDaemon();
  Client();
  GetAll(0, 5, TIER_FROM_SOURCE);
  EXPECT_EQ(5u, daemon_->page(0)->counters.reads[static_cast<int>(abi::Tier::kSource)].load());
}

TEST_F(FaultTest, DisabledByTheEnvironment) {
  StartDaemon();
  ::setenv("TIERD_DISABLE", "1", 1);
  Client();
  ::unsetenv("TIERD_DISABLE");
  GetAll(0, 3, TIER_FROM_BYPASS);
  EXPECT_EQ(3u, Fallbacks(abi::Fallback::kDisabled));
  EXPECT_EQ(0u, daemon_->sessions());
}

TEST_F(FaultTest, PrefixesLimitTheCache) {
  Write("in/a", ContentOf("a", 100));
  Write("inside/b", ContentOf("b", 100));
  StartDaemon();
  ::setenv("TIERD_PREFIX", ("/nowhere:" + Path("in") + "/").c_str(), 1);
  Client();
  ::unsetenv("TIERD_PREFIX");
  EXPECT_EQ(ContentOf("a", 100), Get(Path("in/a"), TIER_FROM_SOURCE));
  EXPECT_EQ(ContentOf("a", 100), Get(Path("in/a"), TIER_FROM_RAM));
  EXPECT_EQ(ContentOf("b", 100), Get(Path("inside/b"), TIER_FROM_BYPASS));
  // What is changed is told, whatever this process reads through the cache.
  const std::string beside = Path("inside/b");
  const char* paths[] = {beside.c_str()};
  EXPECT_EQ(1, tier_invalidate(client_, paths, 1, 0));
  tier_disconnect(client_);
  ::setenv("TIERD_PREFIX", "/nowhere", 1);
  Client();
  ::unsetenv("TIERD_PREFIX");
  EXPECT_EQ(ContentOf("b", 100), Get(beside, TIER_FROM_BYPASS));
  EXPECT_EQ(1, tier_invalidate(client_, paths, 1, 0));
  EXPECT_EQ(2u, daemon_->invalidations);
}

TEST_F(FaultTest, SocketDirectoryMustBeOurs) {
  StartDaemon();
  ::chmod((base_ + "/run").c_str(), 0755);
  Client();
  GetAll(0, 2, TIER_FROM_BYPASS);
  EXPECT_EQ(0u, daemon_->sessions());
  ::chmod((base_ + "/run").c_str(), 0700);
  std::filesystem::create_directory_symlink(base_ + "/run", base_ + "/link");
  options_.socket = base_ + "/link/tierd.sock";
  tier_disconnect(client_);
  Client();
  GetAll(0, 2, TIER_FROM_BYPASS);
  EXPECT_EQ(0u, daemon_->sessions());
}

TEST_F(FaultTest, LongSocketPath) {
  const std::string directory = base_ + "/" + std::string(120, 'd');
  std::filesystem::create_directory(directory);
  ::chmod(directory.c_str(), 0700);
  options_.socket = directory + "/tierd.sock";
  StartDaemon();
  Client();
  GetAll(0, 2, TIER_FROM_SOURCE);
}

TEST_F(FaultTest, RefusedAndWrongVersion) {
  options_.refuse = EMFILE;
  StartDaemon();
  Client();
  GetAll(0, 2, TIER_FROM_BYPASS);
  tier_disconnect(client_);
  daemon_.reset();
  options_.refuse = 0;
  options_.answer_version = 9;
  StartDaemon();
  tier_options options{};
  options.size = sizeof options;
  options.socket = options_.socket.c_str();
  options.flags = TIER_REQUIRE_DAEMON;
  EXPECT_EQ(-EPROTO, tier_connect(&options, &client_));
}

TEST_F(FaultTest, SilentDaemonCostsOneTimeout) {
  StartDaemon();
  daemon_->CacheAll();
  Client(0, 200);
  GetAll(0, 10, TIER_FROM_RAM);
  for (int i = 10; i < 20; ++i) daemon_->Evict(Name(i));
  daemon_->mischief = Mischief::kSilent;
  const auto start = Clock::now();
  GetAll(10, 20, TIER_FROM_BYPASS);
  EXPECT_LT(SecondsSince(start), 0.9);
  EXPECT_GE(Fallbacks(abi::Fallback::kTimeout), 1u);
  EXPECT_GE(Fallbacks(abi::Fallback::kHung), 5u);
  GetAll(0, 10, TIER_FROM_RAM);
  daemon_->mischief = Mischief::kNone;
  // The breaker tries again by itself.
  for (int tries = 0; tries < 200 && Stats().reads[TIER_FROM_SOURCE] == 0; ++tries) {
    Get(Path(Name(15)));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  GetAll(15, 16, TIER_FROM_RAM);
  EXPECT_EQ(0u, daemon_->Leases());
}

TEST_F(FaultTest, SilentAtTheGreeting) {
  StartDaemon();
  daemon_->mischief = Mischief::kSilent;
  Client(0, 100);
  const auto start = Clock::now();
  GetAll(0, 20, TIER_FROM_BYPASS);
  EXPECT_LT(SecondsSince(start), 0.5);
}

// The daemon keeps the session of a page that was not left for as long as the process lives, and takes 64 of them.
TEST_F(FaultTest, WhoGivesUpAtTheGreetingLeavesItsPage) {
  StartDaemon();
  daemon_->mischief = Mischief::kNoSources;
  Client(0, 100);
  GetAll(0, 2, TIER_FROM_BYPASS);
  ASSERT_EQ(1u, daemon_->sessions());
  EXPECT_EQ(1u, daemon_->page(0)->left);
}

TEST_F(FaultTest, LateRepliesAreDropped) {
  StartDaemon();
  Client(0, 100);
  GetAll(0, 1, TIER_FROM_SOURCE);
  daemon_->mischief = Mischief::kLate;
  daemon_->late_ms = 250;
  GetAll(1, 2, TIER_FROM_BYPASS);
  daemon_->Evict(Name(1));
  EXPECT_EQ(0u, daemon_->Recycle());  // nobody holds a lease for the answer that is on its way
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  daemon_->mischief = Mischief::kStrangerFirst;
  GetAll(1, 8);
  EXPECT_EQ(0u, daemon_->Leases());
}

TEST_F(FaultTest, HungByItsHeartbeat) {
  StartDaemon();
  for (int i = 0; i < 5; ++i) daemon_->Cache(Name(i));
  Client();
  GetAll(0, 5, TIER_FROM_RAM);
  daemon_->heartbeat = false;
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  const auto start = Clock::now();
  GetAll(0, 5, TIER_FROM_RAM);
  GetAll(5, 20, TIER_FROM_BYPASS);
  EXPECT_LT(SecondsSince(start), 0.2);
  EXPECT_EQ(15u, Fallbacks(abi::Fallback::kHung));
  EXPECT_EQ(1u, Stats().hung);
  daemon_->heartbeat = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  GetAll(5, 20, TIER_FROM_SOURCE);
}

// A question is under way when the heart stops: nobody waits for its answer longer than for the next beat.
TEST_F(FaultTest, AnAnswerIsNotWaitedForWithoutAHeartbeat) {
  StartDaemon();
  Client(0, 1000);
  GetAll(0, 5, TIER_FROM_SOURCE);
  daemon_->mischief = Mischief::kSilent;
  daemon_->heartbeat = false;
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // of the 0.8 s that it may stand still
  const auto start = Clock::now();
  GetAll(5, 6, TIER_FROM_BYPASS);
  EXPECT_LT(SecondsSince(start), 0.8) << "that is not the second that an answer may take";
  EXPECT_EQ(1u, Stats().hung);
}

// What a client met while it was idle: the old table's heart has not beaten since, and only the new one tells whether the daemon lives.
TEST_F(FaultTest, TheHeartOfARetiredIndexIsNoEvidence) {
  StartDaemon();
  for (int i = 0; i < 5; ++i) daemon_->Cache(Name(i));
  Client();
  GetAll(0, 5, TIER_FROM_RAM);
  daemon_->Grow();
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  EXPECT_EQ(0u, Stats().hung);
  GetAll(0, 5, TIER_FROM_RAM);
  GetAll(5, 20, TIER_FROM_SOURCE);
  EXPECT_EQ(0u, Fallbacks(abi::Fallback::kHung));
}

TEST_F(FaultTest, StoppedDaemon) {
  process_ = std::make_unique<FakeDaemonProcess>(options_);
  Client();
  GetAll(0, 20, TIER_FROM_RAM);
  for (int i = 20; i < 60; ++i) Write(Name(i), ContentOf(Name(i), 3000));
  process_->Pause();
  const auto start = Clock::now();
  GetAll(0, 20, TIER_FROM_RAM);
  GetAll(20, 60, TIER_FROM_BYPASS);
  EXPECT_LT(SecondsSince(start), 1.6) << "one wait, not one per file";
  process_->Resume();
}

TEST_F(FaultTest, DeadDaemonAndSuccessor) {
  options_.ttl_ms = 60'000;
  process_ = std::make_unique<FakeDaemonProcess>(options_);
  Client();
  GetAll(0, 20, TIER_FROM_RAM);
  tier_view held;
  ASSERT_EQ(0, tier_get(client_, Path(Name(3)).c_str(), &held, 0));
  process_->Kill();
  for (int i = 20; i < 24; ++i) Write(Name(i), ContentOf(Name(i), 3000));
  const auto start = Clock::now();
  GetAll(20, 24, TIER_FROM_BYPASS);
  EXPECT_LT(SecondsSince(start), 0.05);
  GetAll(0, 20, TIER_FROM_RAM);  // unexpired
  EXPECT_EQ(0u, Stats().connected);
  process_ = std::make_unique<FakeDaemonProcess>(options_);
  // Looked for every 5 s.
  for (int tries = 0; tries < 700 && Stats().connected == 0; ++tries) {
    GetAll(20, 24);  // not in the index of the first
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(1u, Stats().connected);
  EXPECT_EQ(2u, Stats().sessions);
  GetAll(0, 20, TIER_FROM_RAM);
  EXPECT_EQ(ContentOf(Name(3), 3000), std::string(static_cast<const char*>(held.data), held.size));
  tier_release(&held);
}

TEST_F(FaultTest, HitsAloneNoticeADeadDaemon) {
  options_.staleness = abi::Staleness::kImmutable;
  process_ = std::make_unique<FakeDaemonProcess>(options_);
  Client();
  GetAll(0, 20, TIER_FROM_RAM);
  process_->Kill();
  Write(Name(1), ContentOf(Name(1), 3000, 2));
  process_ = std::make_unique<FakeDaemonProcess>(options_);  // knows the new version: as after an invalidation there
  const auto start = Clock::now();
  while (SecondsSince(start) < 6 && Get(Path(Name(1))) != ContentOf(Name(1), 3000, 2)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_LT(SecondsSince(start), 3);  // 0.8 s without a heartbeat, looked at every 0.5 s, and a busy machine
  EXPECT_EQ(ContentOf(Name(1), 3000, 2), Get(Path(Name(1)), TIER_FROM_RAM));
  EXPECT_EQ(2u, Stats().sessions);
}

TEST_F(FaultTest, StoppedDaemonAndASegmentNotMappedYet) {
  process_ = std::make_unique<FakeDaemonProcess>(options_);
  Client(0, 400);
  tier_attr attr{};
  attr.size = sizeof attr;
  ASSERT_EQ(0, tier_stat(client_, Path(Name(0)).c_str(), &attr, 0));  // a session, and nothing mapped
  process_->Pause();
  GetAll(0, 1, TIER_FROM_BYPASS);
  EXPECT_EQ(1u, Fallbacks(abi::Fallback::kTimeout));
  const auto start = Clock::now();
  GetAll(1, 2, TIER_FROM_BYPASS);
  EXPECT_LT(SecondsSince(start), 0.3);
  EXPECT_EQ(1u, Stats().sessions);
  process_->Resume();
  for (int tries = 0; tries < 500 && Stats().mapped_bytes == 0; ++tries, std::this_thread::sleep_for(std::chrono::milliseconds(10))) GetAll(1, 2);
  GetAll(0, 20, TIER_FROM_RAM);
  EXPECT_EQ(1u, Stats().sessions);
}

// A daemon whose segments come and go for long enough: what the library has seen of them fills its table.
TEST_F(FaultTest, MoreSegmentsThanAnArenaTakes) {
  StartDaemon();
  Client();
  GetAll(0, 1);
  abi::Fallback why;
  client::Session* const session = client::ClientOf(client_).Acquire(client::CoarseNs(), &why);
  ASSERT_NE(nullptr, session);
  void* const page = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(MAP_FAILED, page);
  client::Arena& arena = *session->arena;
  // Serials of the past; all places but those where the daemon's next segments belong are taken by the first round.
  std::uint32_t serial = client::Arena::kEntries * 8;
  const auto fill = [&] {
    for (std::uint32_t i = 0; i < client::Arena::kEntries; ++i, ++serial) {
      if (!arena.Knows(serial)) (void)arena.Add(serial, {static_cast<const std::byte*>(page), 4096});
    }
  };
  fill();
  fill();
  ASSERT_TRUE(arena.full());
  const std::uint64_t sessions = Stats().sessions;
  tier_view held;
  ASSERT_EQ(0, tier_get(client_, Path(Name(0)).c_str(), &held, 0));
  const std::string large = ContentOf("large", 1 << 20);
  for (int i = 0; i < 12; ++i) {  // more than the first segment takes
    Write("large" + std::to_string(i), large);
    daemon_->Cache("large" + std::to_string(i));
  }
  EXPECT_TRUE(large == Get(Path("large11"), TIER_FROM_BYPASS)) << "no place for its segment";
  EXPECT_TRUE(large == Get(Path("large11"), TIER_FROM_RAM)) << "a new session";
  EXPECT_EQ(sessions + 1, Stats().sessions);
  GetAll(0, 1, TIER_FROM_RAM);
  EXPECT_EQ(0, std::memcmp(held.data, ContentOf(Name(0), 3000).data(), 3000)) << "what the old session has lent stays";
  tier_release(&held);
}

TEST_F(FaultTest, LocationsBeyondTheEndOfTheirSegment) {
  const std::uint8_t instance[16] = {1};
  client::Arena* const arena = client::Arena::Create(instance);
  ASSERT_NE(nullptr, arena);
  alignas(64) static const std::byte segment[4096] = {};
  ASSERT_TRUE(arena->Add(3, {segment, sizeof segment}));
  EXPECT_EQ(segment + 64, arena->Find({3, 64, 1}, 4032));
  EXPECT_EQ(nullptr, arena->Find({3, 64, 1}, 4033));
  EXPECT_EQ(nullptr, arena->Find({3, 64, 1}, ~std::uint64_t{0}));
  EXPECT_EQ(nullptr, arena->Find({3, 64, 1}, ~std::uint64_t{0} - 63));
  EXPECT_EQ(nullptr, arena->Find({3, 8192, 1}, 0));
  EXPECT_EQ(nullptr, arena->Find({4, 0, 1}, 0));
}

class HostileTest : public FaultTest, public ::testing::WithParamInterface<Mischief> {};

TEST_P(HostileTest, EndsTheConversationOrTheRequest) {
  StartDaemon();
  Client();
  GetAll(0, 1, TIER_FROM_SOURCE);
  const std::size_t before = OpenDescriptors();
  daemon_->mischief = GetParam();
  GetAll(1, 6);
  EXPECT_GE(before, OpenDescriptors());
  EXPECT_GT(Stats().reads[TIER_FROM_BYPASS], 0u);
  EXPECT_EQ(0u, daemon_->Leases());
}

INSTANTIATE_TEST_SUITE_P(All, HostileTest,
                         ::testing::Values(Mischief::kShortMessage, Mischief::kWrongLength, Mischief::kWrongMagic, Mischief::kTooMany, Mischief::kSurplusFd,
                                           Mischief::kManyFds, Mischief::kUnknownType, Mischief::kBadLocation, Mischief::kNoSegment));

TEST_F(FaultTest, ApplicationClosesAllDescriptors) {
  StartDaemon();
  for (int i = 0; i < 10; ++i) daemon_->Cache(Name(i));
  Client();
  tier_view held;
  ASSERT_EQ(0, tier_get(client_, Path(Name(0)).c_str(), &held, 0));
  const pid_t child = ::fork();  // a process of its own, since this one has others' descriptors
  if (child == 0) {
    GetAll(0, 3, TIER_FROM_RAM);
    tier_view own;
    if (tier_get(client_, Path(Name(1)).c_str(), &own, 0) != 0) ::_exit(2);
    ::close_range(3, ~0u, 0);
    std::vector<int> files;
    for (int i = 0; i < 2000; ++i) {
      const int fd = ::open(Path(Name(19)).c_str(), O_RDONLY);  // takes whatever number our socket had
      if (fd < 0) break;
      files.push_back(fd);
    }
    if (files.size() > 100) ::close(files[50]);
    for (int i = 0; i < 19; ++i) {
      if (Get(Path(Name(i))) != ContentOf(Name(i), 3000)) ::_exit(3);
    }
    if (std::string(static_cast<const char*>(own.data), own.size) != ContentOf(Name(1), 3000)) ::_exit(4);
    for (const int fd : files) {
      if (fd != files[50] && ::fcntl(fd, F_GETFD) < 0) ::_exit(5);  // we closed somebody else's descriptor
    }
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(child, ::waitpid(child, &status, 0));
  EXPECT_EQ(0, status) << WEXITSTATUS(status);
  tier_release(&held);
}

TEST_F(FaultTest, RevokedSessionServesNoCopies) {
  StartDaemon();
  daemon_->CacheAll();
  Client();
  GetAll(0, 3, TIER_FROM_RAM);
  daemon_->CloseAllSockets(true);
  char buffer[4000];
  EXPECT_EQ(3000, tier_read_file(client_, Path(Name(1)).c_str(), buffer, sizeof buffer, nullptr, 0));
  EXPECT_EQ(ContentOf(Name(1), 3000), std::string(buffer, 3000));
  EXPECT_EQ(1u, Fallbacks(abi::Fallback::kRevoked));
  // The next one finds the daemon again.
  EXPECT_EQ(3000, tier_read_file(client_, Path(Name(1)).c_str(), buffer, sizeof buffer, nullptr, 0));
  EXPECT_EQ(3000, tier_read_file(client_, Path(Name(1)).c_str(), buffer, sizeof buffer, nullptr, 0));
  EXPECT_EQ(2u, Stats().sessions);
}

}  // namespace
}  // namespace tierd::testing
