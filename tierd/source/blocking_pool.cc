#include "tierd/source/blocking_pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tierd/base/mailbox.h"

namespace tierd::source {
namespace {
// How long the destructor waits for workers that are not known to hang: a local call ends in far less.
constexpr std::chrono::milliseconds kFarewell{500};
// How long a worker rests for a token. Shorter: many workers wake for one token. Longer: a walk that is cancelled, or a budget that is
// raised, is noticed late. The bucket holds the tokens of 100 ms, so none are lost.
constexpr std::int64_t kShortestRestNs = 5'000'000;
constexpr std::int64_t kLongestRestNs = 100'000'000;
}  // namespace

struct BlockingPool::Shared {
  struct Waiting {
    std::uint64_t tag;
    Task task;
  };
  struct Worker {
    std::uint64_t tag = 0;
    std::int64_t started_ns = 0;  // 0: idle or paused
    bool busy = false;
    bool hung = false;
  };

  Shared(const Clock& pool_clock, const PoolOptions& pool_options) : clock(&pool_clock), options(pool_options) {}

  // Constant after construction.
  const Clock* clock;  // not touched once `stopping` is set: it may be gone
  const PoolOptions options;

  Mailbox posted;  // guards itself
  std::mutex mutex;
  std::condition_variable work;      // tasks or stopping
  std::condition_variable tokens;    // stopping, for those that rest until there are some
  std::condition_variable farewell;  // a worker left
  // Guarded by `mutex`.
  std::deque<Waiting> waiting;
  std::unordered_map<std::uint64_t, Worker> workers;
  std::uint64_t last_worker = 0;
  std::size_t idle = 0;
  std::size_t hung = 0;
  std::atomic<bool> stopping{false};

  static bool MaybeStartWorker(const std::shared_ptr<Shared>& shared);
  static void Run(const std::shared_ptr<Shared>& shared, std::uint64_t number);
  bool Next(std::unique_lock<std::mutex>& lock, std::uint64_t number, Waiting* next);
  // It waits for the loop from here on, or has done with that. False: stopping.
  bool Pause(std::uint64_t number, bool pause);
};

bool BlockingPool::Shared::Pause(std::uint64_t number, bool pause) {
  const std::lock_guard lock(mutex);
  if (stopping) return false;
  workers[number].started_ns = pause ? 0 : clock->MonotonicNs();
  return true;
}

// With the mutex held. False: no worker exists and none could be started.
bool BlockingPool::Shared::MaybeStartWorker(const std::shared_ptr<Shared>& shared) {
  const std::size_t limit = shared->options.threads + std::min<std::size_t>(shared->hung, shared->options.max_replacements);
  if (shared->idle >= shared->waiting.size() || shared->workers.size() >= limit) return true;
  const std::uint64_t number = ++shared->last_worker;
  // Signals belong to the loop thread.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    shared->workers.emplace(number, Worker());
    std::thread([shared, number] { Run(shared, number); }).detach();
  } catch (const std::exception&) {  // no thread, or no memory for one
    shared->workers.erase(number);
    started = !shared->workers.empty();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

// Waits for a task. False: leave.
bool BlockingPool::Shared::Next(std::unique_lock<std::mutex>& lock, std::uint64_t number, Waiting* next) {
  ++idle;
  work.wait(lock, [this] { return stopping || !waiting.empty(); });
  --idle;
  if (stopping) return false;
  *next = options.newest_first ? std::move(waiting.back()) : std::move(waiting.front());
  options.newest_first ? waiting.pop_back() : waiting.pop_front();
  Worker& worker = workers[number];
  worker.tag = next->tag;
  worker.busy = true;
  worker.started_ns = clock->MonotonicNs();
  return true;
}

void BlockingPool::Shared::Run(const std::shared_ptr<Shared>& shared, std::uint64_t number) {
  std::unique_lock lock(shared->mutex);
  Waiting next;
  while (shared->Next(lock, number, &next)) {
    lock.unlock();
    TaskContext context(shared, number);
    // What a task owes to others it makes good itself (blocking_pool.h); the thread lives on.
    try {
      next.task(context);
    } catch (const std::bad_alloc&) {
    }
    next.task = nullptr;  // what it holds dies outside the lock
    lock.lock();
    Worker& worker = shared->workers[number];
    worker.busy = false;
    worker.started_ns = 0;
    if (worker.hung) {
      worker.hung = false;
      --shared->hung;
      // A replacement does its work now.
      if (shared->workers.size() > shared->options.threads) break;
    }
  }
  shared->workers.erase(number);
  shared->farewell.notify_all();
}

BlockingPool::BlockingPool(const Clock& clock, const PoolOptions& options)
    : shared_(std::make_shared<Shared>(clock, options)) {
}

BlockingPool::~BlockingPool() {
  std::deque<Shared::Waiting> waiting;
  std::unique_lock lock(shared_->mutex);
  shared_->stopping = true;
  waiting.swap(shared_->waiting);
  shared_->work.notify_all();
  shared_->tokens.notify_all();
  shared_->posted.Close();
  shared_->farewell.wait_for(lock, kFarewell, [this] { return shared_->workers.size() <= shared_->hung; });
  lock.unlock();
}

Status BlockingPool::Submit(std::uint64_t tag, Task task) {
  const std::lock_guard lock(shared_->mutex);
  shared_->waiting.push_back(Shared::Waiting{tag, std::move(task)});
  if (!Shared::MaybeStartWorker(shared_)) {
    shared_->waiting.pop_back();
    return Status(Code::kNoSpace, "no worker thread could be started", EAGAIN);
  }
  shared_->work.notify_one();
  return Status::Ok();
}

void BlockingPool::Post(std::function<void()> closure) { shared_->posted.Post(std::move(closure)); }

std::size_t BlockingPool::Poll(std::size_t budget) { return shared_->posted.Run(budget); }

void BlockingPool::Tick(std::int64_t now_ns) {
  const std::lock_guard lock(shared_->mutex);
  for (auto& [number, worker] : shared_->workers) {
    if (!worker.busy || worker.hung || worker.started_ns == 0) continue;
    if (now_ns - worker.started_ns < shared_->options.hung_after_ns) continue;
    worker.hung = true;
    ++shared_->hung;
  }
  if (shared_->hung > 0) {
    for (std::size_t i = 0; i < shared_->waiting.size() && Shared::MaybeStartWorker(shared_) &&
                            i < shared_->options.max_replacements; ++i) {
    }
  }
}

int BlockingPool::event_fd() const { return shared_->posted.fd(); }

std::size_t BlockingPool::pending() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->waiting.size() + static_cast<std::size_t>(std::count_if(shared_->workers.begin(), shared_->workers.end(),
                                                                          [](const auto& w) { return w.second.busy; }));
}

std::size_t BlockingPool::hung() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->hung;
}

std::size_t BlockingPool::CountHung(std::uint64_t tag) const {
  const std::lock_guard lock(shared_->mutex);
  return static_cast<std::size_t>(std::count_if(shared_->workers.begin(), shared_->workers.end(), [tag](const auto& w) {
    return w.second.hung && w.second.tag == tag;
  }));
}

void TaskContext::PostSurely(const std::function<void()>& closure) {
  for (;;) {
    try {
      Post(closure);
      return;
    } catch (const std::bad_alloc&) {
      if (stopping()) return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool TaskContext::Post(std::function<void()> closure) {
  if (!shared_->Pause(worker_, true) || !shared_->posted.PostBounded(std::move(closure), shared_->options.max_posted)) return false;
  return shared_->Pause(worker_, false);
}

void TaskContext::Alive() { (void)shared_->Pause(worker_, false); }

bool TaskContext::Draw(RequestBudget& budget, bool low_priority) {
  if (!budget.limited()) return !stopping();
  std::unique_lock lock(shared_->mutex);
  if (shared_->stopping) return false;
  const std::int64_t now_ns = shared_->clock->PreciseNs();
  const std::int64_t rest_ns = budget.TakeIfAllowed(now_ns, low_priority) - now_ns;
  if (rest_ns > 0) {
    shared_->workers[worker_].started_ns = 0;
    shared_->tokens.wait_for(lock, std::chrono::nanoseconds(std::clamp(rest_ns, kShortestRestNs, kLongestRestNs)), [this] { return shared_->stopping.load(); });
    if (shared_->stopping) return false;
  }
  shared_->workers[worker_].started_ns = shared_->clock->MonotonicNs();
  return rest_ns <= 0;
}

bool TaskContext::Rest() {
  std::unique_lock lock(shared_->mutex);
  if (shared_->stopping) return false;
  shared_->workers[worker_].started_ns = 0;
  shared_->tokens.wait_for(lock, std::chrono::nanoseconds(kLongestRestNs), [this] { return shared_->stopping.load(); });
  if (shared_->stopping) return false;
  shared_->workers[worker_].started_ns = shared_->clock->MonotonicNs();
  return true;
}

void TaskContext::Submit(std::uint64_t tag, Task task) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->stopping) return;
  shared_->waiting.push_back(BlockingPool::Shared::Waiting{tag, std::move(task)});
  // The submitting worker itself takes it later if no other can be started.
  [[maybe_unused]] const bool started = BlockingPool::Shared::MaybeStartWorker(shared_);
  shared_->work.notify_one();
}

bool TaskContext::stopping() const { return shared_->stopping; }

}  // namespace tierd::source
