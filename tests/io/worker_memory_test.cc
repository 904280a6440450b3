// Memory that runs out where a worker is started, on the loop or on another worker: those that live go on, and the next turn starts it (FAULTS F16).
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/io/engine_test_base.h"
#include "tests/support/failing_memory.h"

namespace tierd::io {
namespace {

thread_local bool on_loop = false;
thread_local bool in_flush = false;
constexpr int kWorkers = 8;

class GatedFaults final : public EngineFaults {
 public:
  long Outcome(Step, long result) override {
    ++at_gate;
    gate.Pass();
    return result;
  }
  unsigned SubmitLimit(unsigned pending) override { return pending; }
  unsigned CompletionEntries() override { return 0; }
  Gate gate;
  std::atomic<int> at_gate = 0;
};

class WorkerMemory : public EngineTest {
 protected:
  WorkerMemory() {
    on_loop = true;
    WriteContent("file", 10);
  }
  ~WorkerMemory() override { engine_.reset(); }
  void Make() {
    faults_ = std::make_unique<GatedFaults>();
    submitted_ = ended_ = 0;
    MakeEngineOrSkip(EngineKind::kThreads, {.workers = kWorkers, .faults = faults_.get()});
  }
  void Submit() {
    StatRequest request;
    request.root_fd = root();
    request.path = "file";
    engine_->SubmitStat(std::move(request), [this](const StatResult& result) { ended_ += result.error == 0 ? 1 : 0; });
    ++submitted_;
  }
  void Flush() {
    in_flush = true;
    engine_->Flush();
    in_flush = false;
  }
  void SubmitUntilAtGate(int count) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
    while (faults_->at_gate < count && std::chrono::steady_clock::now() < limit) {
      Submit();
      Flush();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(faults_->at_gate, count);
  }
  void Finish() {
    faults_->gate.Open();
    Drain();
    EXPECT_EQ(ended_, submitted_);
    engine_.reset();
  }
  std::unique_ptr<GatedFaults> faults_;
  int submitted_ = 0;
  int ended_ = 0;
};

TEST_F(WorkerMemory, AWorkerCannotStartTheNext) {
  test::allocations_count_here = [] { return !on_loop; };
  for (long nth = 1; nth < kWorkers - 1; ++nth) {
    Make();
    for (int i = 0; i < 2 * kWorkers; ++i) Submit();
    {
      const test::FailingMemory failing(nth);
      Flush();
      faults_->gate.AwaitWaiting(static_cast<int>(nth));  // the last of these could not start another
      SubmitUntilAtGate(kWorkers);
      EXPECT_GE(test::allocations, nth);
    }
    Finish();
  }
}

TEST_F(WorkerMemory, TheLoopCannotStartOne) {
  sigset_t before;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  test::allocations_count_here = [] { return in_flush; };
  Make();
  {
    const test::FailingMemory failing(1);
    SubmitUntilAtGate(kWorkers);
    EXPECT_GE(test::allocations, 2);
  }
  sigset_t after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int number = 1; number < SIGRTMIN; ++number) EXPECT_EQ(::sigismember(&after, number), ::sigismember(&before, number)) << number;
  Finish();
}

}  // namespace
}  // namespace tierd::io
