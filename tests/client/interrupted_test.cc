// What comes amid a call that makes a client: signal handlers, which must not wait for its locks, and cancellation, which must not leave them locked.
#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/client/client_rig.h"

namespace tierd::testing {
namespace {

constexpr int kNothing = 4711;

class InterruptedTest : public ClientRig {
 protected:
  // A daemon that does not greet, and a thread that waits for its greeting.
  void SetUp() override {
    ClientRig::SetUp();
    StartDaemon();
    daemon_->mischief = Mischief::kSilent;
    Client();
    idle_client = client_;
    path_ = Path("f");
    invalidated = path_.c_str();
    told = connected = kNothing;
    ::alarm(60);  // who waits for its own lock waits for ever
  }
  void TearDown() override {
    ::alarm(0);
    ClientRig::TearDown();
  }
  void StartConnecting() {
    socket = options_.socket.c_str();
    ASSERT_EQ(0, ::pthread_create(&thread_, nullptr, &Connect, this));
    while (daemon_->sessions() == 0) std::this_thread::yield();
  }
  static void* Connect(void* rig) {
    tier_options options{};
    options.size = sizeof options;
    options.socket = static_cast<InterruptedTest*>(rig)->socket;
    options.flags = TIER_REQUIRE_DAEMON;
    tier_client* made = nullptr;
    static_cast<InterruptedTest*>(rig)->outcome = tier_connect(&options, &made);
    ::pthread_testcancel();
    return nullptr;
  }
  static void OnSignal(int) {
    tier_client* made = nullptr;
    told = static_cast<int>(tier_invalidate(idle_client, &invalidated, 1, 0));
    connected = tier_connect(nullptr, &made);
  }

  static inline tier_client* idle_client = nullptr;
  static inline const char* invalidated = nullptr;
  static inline std::atomic<int> told, connected;  // what the handler's calls gave
  std::atomic<int> outcome{kNothing};
  const char* socket = nullptr;
  std::string path_;
  pthread_t thread_{};
};

TEST_F(InterruptedTest, AHandlerAmidAConnectIsTurnedAway) {
  struct sigaction action{}, before{};
  action.sa_handler = &OnSignal;
  ASSERT_EQ(0, ::sigaction(SIGUSR1, &action, &before));
  ASSERT_NO_FATAL_FAILURE(StartConnecting());
  ASSERT_EQ(0, ::pthread_kill(thread_, SIGUSR1));
  ASSERT_EQ(0, ::pthread_join(thread_, nullptr));
  EXPECT_EQ(-ETIMEDOUT, outcome);
  EXPECT_EQ(-EDEADLK, told);
  EXPECT_EQ(-EDEADLK, connected);
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST_F(InterruptedTest, AConnectEndsBeforeItsThreadIsCancelled) {
  ASSERT_NO_FATAL_FAILURE(StartConnecting());
  ASSERT_EQ(0, ::pthread_cancel(thread_));
  void* result = nullptr;
  ASSERT_EQ(0, ::pthread_join(thread_, &result));
  EXPECT_EQ(PTHREAD_CANCELED, result);
  EXPECT_EQ(-ETIMEDOUT, outcome);
}

}  // namespace
}  // namespace tierd::testing
