#include "tierd/server/descriptor_closer.h"

#include <signal.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace tierd::server {

struct DescriptorCloser::Shared {
  mutable std::mutex mutex;
  std::condition_variable work;
  // Guarded by `mutex`.
  std::deque<UniqueFd> waiting;
  std::size_t threads = 0;
  std::size_t idle = 0;
  bool ended = false;
};

namespace {

// A thread must not take a signal that the loop waits for.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~AllSignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

template <typename Shared>
void CloseAll(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  for (;;) {
    while (shared->waiting.empty() && !shared->ended) {
      ++shared->idle;
      shared->work.wait(lock);
      --shared->idle;
    }
    if (shared->waiting.empty()) return;
    UniqueFd fd = std::move(shared->waiting.front());
    shared->waiting.pop_front();
    lock.unlock();
    fd.Reset();
    lock.lock();
  }
}

}  // namespace

DescriptorCloser::DescriptorCloser() : shared_(std::make_shared<Shared>()) {}

DescriptorCloser::~DescriptorCloser() {
  const std::scoped_lock lock(shared_->mutex);
  shared_->ended = true;
  shared_->work.notify_all();
}

void DescriptorCloser::Close(UniqueFd fd) {
  const std::scoped_lock lock(shared_->mutex);
  try {
    shared_->waiting.emplace_back();
    shared_->waiting.back() = std::move(fd);
    if (shared_->idle < shared_->waiting.size() && shared_->threads < kMostThreads) {
      const AllSignalsBlocked blocked;
      std::thread([shared = shared_] { CloseAll(shared); }).detach();
      ++shared_->threads;
    }
  } catch (const std::exception&) {
    (void)fd.Release();  // a no-op if it waits; the next call tries to start a thread again
  }
  shared_->work.notify_one();
}

std::size_t DescriptorCloser::waiting() const {
  const std::scoped_lock lock(shared_->mutex);
  return shared_->waiting.size();
}

}  // namespace tierd::server
