// Forks (F53, HAZARDS 2.6): children have sessions of their own, views they inherited stay what they were, also when the parent lets go or dies first.
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>

#include <cstring>
#include <functional>

#include "tests/client/client_rig.h"

namespace tierd::testing {
namespace {

// What a test does in a thread that forks, after the library has counted the leases and before the child has its copy of the memory: handlers are called
// in the reverse order of their registration, and this one is here before the first client.
std::function<void()> while_forking;
const int kInstalled = ::pthread_atfork([] { if (while_forking) while_forking(); }, nullptr, nullptr);

class ForkTest : public ClientRig {
 protected:
  void SetUp() override {
    ClientRig::SetUp();
    for (int i = 0; i < 10; ++i) Write(Name(i), ContentOf(Name(i), 90'000));
  }
  static std::string Name(int i) { return "f" + std::to_string(i); }

  // Runs `body` in a child; its result is the exit code.
  static pid_t Child(const std::function<int()>& body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body());
    return child;
  }
  static int ExitCode(pid_t child) {
    int status = 0;
    EXPECT_EQ(child, ::waitpid(child, &status, 0));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  bool Right(const tier_view& view, int i) const {
    return view.size == 90'000 && std::memcmp(view.data, ContentOf(Name(i), 90'000).data(), view.size) == 0;
  }
};

TEST_F(ForkTest, ChildOpensItsOwnSession) {
  StartDaemon();
  daemon_->CacheAll();
  Client();
  Get(Path(Name(0)), TIER_FROM_RAM);
  const pid_t child = Child([&] {
    if (Get(Path(Name(1)), TIER_FROM_RAM) != ContentOf(Name(1), 90'000)) return 1;
    const tier_statistics s = Stats();
    return s.reads[TIER_FROM_RAM] == 1 && s.sessions == 1 ? 0 : 2;
  });
  EXPECT_EQ(0, ExitCode(child));
  EXPECT_EQ(2u, daemon_->sessions());
  EXPECT_EQ(1u, daemon_->page(0)->counters.reads[0].load());  // the child never wrote the parent's page
  EXPECT_EQ(1u, daemon_->page(1)->counters.reads[0].load());
  Get(Path(Name(2)), TIER_FROM_RAM);
  EXPECT_EQ(1u, Stats().sessions);
}

TEST_F(ForkTest, InheritedViewOutlivesTheParentsRelease) {
  StartDaemon();
  daemon_->CacheAll();
  Client();
  tier_view view;
  ASSERT_EQ(0, tier_get(client_, Path(Name(0)).c_str(), &view, 0));
  int go[2];
  ASSERT_EQ(0, ::pipe(go));
  const pid_t child = Child([&] {
    char c;
    if (::read(go[0], &c, 1) != 1) return 1;
    if (!Right(view, 0)) return 2;
    if (Get(Path(Name(1)), TIER_FROM_RAM) != ContentOf(Name(1), 90'000)) return 3;
    tier_release(&view);
    return Right(view, 0) ? 4 : 0;
  });
  EXPECT_EQ(1u, Stats().frozen_leases);
  tier_release(&view);
  EXPECT_EQ(1u, daemon_->Leases());  // frozen: the child still looks at it
  daemon_->Evict(Name(0));
  EXPECT_EQ(1u, daemon_->Recycle());
  ASSERT_EQ(1, ::write(go[1], "g", 1));
  EXPECT_EQ(0, ExitCode(child));
  ::close(go[0]);
  ::close(go[1]);
}

TEST_F(ForkTest, ParentExitsFirst) {
  StartDaemon();
  daemon_->CacheAll();
  Client();
  int result[2];
  ASSERT_EQ(0, ::pipe(result));
  // A middle process takes the view, forks, and is gone before its child reads.
  const pid_t middle = Child([&] {
    tier_view view;
    if (tier_get(client_, Path(Name(0)).c_str(), &view, 0) != 0) return 1;
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child != 0) return child > 0 ? 0 : 2;
    while (::getppid() == parent) ::usleep(1000);
    ::usleep(50'000);  // eviction and recycling happen now
    char verdict = 'r';
    for (int i = 0; i < 50 && verdict == 'r'; ++i, ::usleep(2000)) verdict = Right(view, 0) ? 'r' : 'w';
    (void)!::write(result[1], &verdict, 1);
    ::_exit(0);
  });
  EXPECT_EQ(0, ExitCode(middle));
  EXPECT_EQ(1u, daemon_->Leases());
  daemon_->Evict(Name(0));
  EXPECT_EQ(1u, daemon_->Recycle());
  char verdict = 'x';
  ASSERT_EQ(1, ::read(result[0], &verdict, 1));
  EXPECT_EQ('r', verdict);
  ::close(result[0]);
  ::close(result[1]);
}

TEST_F(ForkTest, SocketStaysOpenWithInheritedViewsOnly) {
  StartDaemon();
  daemon_->CacheAll();
  Client();
  Get(Path(Name(0)));
  const auto sockets = [] {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      if (std::filesystem::read_symlink(entry, error).string().rfind("socket:", 0) == 0) ++count;
    }
    return count;
  };
  const std::size_t before = sockets();
  EXPECT_EQ(0, ExitCode(Child([&] { return sockets() == before - 1 ? 0 : 1; })));
  tier_view view;
  ASSERT_EQ(0, tier_get(client_, Path(Name(0)).c_str(), &view, 0));
  EXPECT_EQ(0, ExitCode(Child([&] { return sockets() == before ? 0 : 1; })));
  tier_release(&view);
}

TEST_F(ForkTest, OpenFilesInTheChild) {
  options_.chunk_bytes = 64 << 10;
  Write("large", ContentOf("large", 4'000'000));
  StartDaemon();
  daemon_->CacheAll();
  Client();
  tier_file* small = nullptr;
  tier_file* large = nullptr;
  ASSERT_EQ(0, tier_open(client_, Path(Name(0)).c_str(), &small, 0));
  ASSERT_EQ(0, tier_open(client_, Path("large").c_str(), &large, 0));  // too many chunks to hold: a descriptor
  const pid_t child = Child([&] {
    std::string buffer(100'000, '\0');
    if (tier_file_pread(small, buffer.data(), 1000, 500) != 1000 || buffer.substr(0, 1000) != ContentOf(Name(0), 90'000).substr(500, 1000)) return 1;
    if (tier_file_pread(large, buffer.data(), 100'000, 3'000'000) != 100'000) return 2;
    if (buffer != ContentOf("large", 4'000'000).substr(3'000'000, 100'000)) return 3;
    tier_view view;
    if (tier_file_pin(small, 0, 60'000, &view) != 0 || view.size != 60'000) return 4;  // a range within a chunk is pinned whole
    if (std::memcmp(view.data, ContentOf(Name(0), 90'000).data(), view.size) != 0) return 7;
    tier_release(&view);
    if (tier_file_pin(large, 0, 90'000, &view) != 0) return 5;
    tier_release(&view);
    tier_close(small);
    tier_close(large);
    return Disturbed() || Stats().reads[TIER_FROM_BYPASS] == 0 ? 0 : 6;
  });
  EXPECT_EQ(0, ExitCode(child));
  tier_close(small);
  tier_close(large);
}

// The socket tells the daemon that the child still looks at its views: nothing that the parent does may end it.
TEST_F(ForkTest, DisconnectLeavesTheSocketToTheChild) {
  StartDaemon();
  daemon_->CacheAll();
  Client();
  tier_view view;
  ASSERT_EQ(0, tier_get(client_, Path(Name(0)).c_str(), &view, 0));
  int go[2];
  ASSERT_EQ(0, ::pipe(go));
  const pid_t child = Child([&] {
    char c;
    if (::read(go[0], &c, 1) != 1) return 1;
    return Right(view, 0) ? 0 : 2;
  });
  tier_release(&view);
  tier_disconnect(client_);
  client_ = nullptr;
  EXPECT_EQ(1u, daemon_->page(0)->left.load());
  daemon_->Evict(Name(0));
  for (int i = 0; i < 20; ++i, ::usleep(2000)) EXPECT_EQ(1u, daemon_->Recycle());
  EXPECT_EQ(0u, daemon_->page(0)->revoked.load()) << "the daemon saw the end of the conversation";
  ASSERT_EQ(1, ::write(go[1], "g", 1));
  EXPECT_EQ(0, ExitCode(child));
  for (int i = 0; i < 2000 && daemon_->page(0)->revoked == 0; ++i) ::usleep(1000);
  EXPECT_EQ(1u, daemon_->page(0)->revoked.load());
  ::close(go[0]);
  ::close(go[1]);
}

TEST_F(ForkTest, ViewsTakenWhileAForkIsUnderWayAreFrozen) {
  ASSERT_EQ(0, kInstalled);
  StartDaemon();
  daemon_->CacheAll();
  Client();
  Get(Path(Name(1)));
  tier_view view;
  while_forking = [&] { ASSERT_EQ(0, tier_get(client_, Path(Name(0)).c_str(), &view, 0)); };
  int go[2];
  ASSERT_EQ(0, ::pipe(go));
  const pid_t child = Child([&] {
    char c;
    if (::read(go[0], &c, 1) != 1) return 1;
    return Right(view, 0) ? 0 : 2;
  });
  while_forking = nullptr;
  tier_release(&view);
  EXPECT_EQ(1u, daemon_->Leases());
  tier_disconnect(client_);
  client_ = nullptr;
  daemon_->Evict(Name(0));
  EXPECT_EQ(1u, daemon_->Recycle());
  ::usleep(20'000);
  EXPECT_EQ(0u, daemon_->page(0)->revoked.load()) << "the child has a view, and keeps the socket";
  ASSERT_EQ(1, ::write(go[1], "g", 1));
  EXPECT_EQ(0, ExitCode(child));
  ::close(go[0]);
  ::close(go[1]);
}

TEST_F(ForkTest, ManyGenerations) {
  StartDaemon();
  daemon_->CacheAll();
  Client();
  std::function<int(int)> generation = [&](int depth) {
    tier_view view;
    if (tier_get(client_, Path(Name(depth)).c_str(), &view, 0) != 0 || !Right(view, depth)) return 1;
    if (depth < 6) {
      const int below = ExitCode(Child([&] { return generation(depth + 1); }));
      if (below != 0) return below;
    }
    if (!Right(view, depth)) return 2;
    tier_release(&view);
    return 0;
  };
  EXPECT_EQ(0, generation(0));
  EXPECT_EQ(7u, daemon_->sessions());
}

TEST_F(ForkTest, RawCloneIsNoticed) {
  StartDaemon();
  daemon_->CacheAll();
  Client();
  Get(Path(Name(0)), TIER_FROM_RAM);
  tier_view view;
  ASSERT_EQ(0, tier_get(client_, Path(Name(3)).c_str(), &view, 0));
  const auto child = static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));  // runs no atfork handler
  if (child == 0) {
    tier_view own;
    if (tier_get(client_, Path(Name(1)).c_str(), &own, 0) != 0 || !Right(own, 1)) ::_exit(1);
    tier_release(&own);
    tier_release(&view);
    ::_exit(0);
  }
  EXPECT_EQ(0, ExitCode(child));
  EXPECT_EQ(2u, daemon_->sessions());
  EXPECT_EQ(1u, daemon_->Leases());  // the child did not touch the parent's
  tier_release(&view);
  EXPECT_EQ(0u, daemon_->Leases());
}

TEST_F(ForkTest, EpochsOfWorkersLeaveNothing) {
  StartDaemon();
  daemon_->CacheAll();
  Client();
  Get(Path(Name(0)));
  for (int epoch = 0; epoch < 20; ++epoch) {
    const pid_t child = Child([&] {
      for (int i = 0; i < 10; ++i) {
        if (Get(Path(Name(i)), TIER_FROM_RAM) != ContentOf(Name(i), 90'000)) return 1;
      }
      return 0;
    });
    ASSERT_EQ(0, ExitCode(child));
  }
  EXPECT_EQ(0u, daemon_->Leases());
  EXPECT_EQ(0u, Stats().frozen_leases);
}

}  // namespace
}  // namespace tierd::testing
