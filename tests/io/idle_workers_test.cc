// The end of a thread pool that has nothing to do: its loop waits for none of the workers, and they leave in their own time.
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

#include "tests/io/engine_test_base.h"

namespace tierd::io {
namespace {

constexpr int kWorkers = 128;

std::atomic<bool> held = false;
std::atomic<int> holding = 0;

void Hold(int) {
  ++holding;
  while (held) ::usleep(1000);
  --holding;
}

// Takes down who the workers are, and lets the signal through to them.
class Census final : public EngineFaults {
 public:
  long Outcome(Step, long result) override {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    ::pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
    workers[count++ % kWorkers] = ::pthread_self();
    gate.Pass();
    return result;
  }
  unsigned SubmitLimit(unsigned pending) override { return pending; }
  unsigned CompletionEntries() override { return 0; }

  std::array<pthread_t, kWorkers> workers{};
  std::atomic<unsigned> count = 0;
  Gate gate;
};

using IdleWorkers = EngineTest;

TEST_F(IdleWorkers, AreNotWaitedForAtTheEnd) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer keeps a signal back while a thread sleeps";
#endif
  struct sigaction hold {};
  hold.sa_handler = &Hold;
  struct sigaction before;
  ::sigaction(SIGUSR1, &hold, &before);
  WriteContent("file", 10);
  const std::size_t threads = Threads();
  const std::size_t descriptors = OpenDescriptors();
  Census census;
  MakeEngineOrSkip(EngineKind::kThreads, {.workers = kWorkers, .faults = &census});
  for (int i = 0; i < kWorkers; ++i) {
    StatRequest request;
    request.root_fd = root();
    request.path = "file";
    engine_->SubmitStat(std::move(request), [](const StatResult&) {});
  }
  engine_->Flush();
  census.gate.AwaitWaiting(kWorkers);
  ASSERT_EQ(census.count, static_cast<unsigned>(kWorkers));
  census.gate.Open();
  Drain();
  held = true;
  for (const pthread_t worker : census.workers) ::pthread_kill(worker, SIGUSR1);
  ASSERT_TRUE(Becomes([] { return holding == kWorkers; }));

  rusage begin{};
  rusage end{};
  ::getrusage(RUSAGE_THREAD, &begin);
  engine_.reset();
  ::getrusage(RUSAGE_THREAD, &end);
  EXPECT_EQ(end.ru_nvcsw, begin.ru_nvcsw) << "it waited";
  EXPECT_EQ(holding, kWorkers);

  held = false;
  EXPECT_TRUE(Becomes([&] { return Threads() <= threads; }));
  EXPECT_TRUE(Becomes([&] { return OpenDescriptors() <= descriptors; }));
  ::sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace
}  // namespace tierd::io
