#include "tierd/ssd/worker.h"

#include <pthread.h>

#include <utility>

namespace tierd::ssd {
namespace {

constexpr std::chrono::milliseconds kMemoryPause{1};

// False: memory ran out.
bool Try(const Job& job) {
  try {
    job();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace

Worker::Worker(const std::string& name, unsigned threads) {
  for (unsigned i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { Run(); });
    ::pthread_setname_np(threads_.back().native_handle(), name.substr(0, 15).c_str());
  }
}

Worker::~Worker() { Stop(); }

void Worker::Post(Job job) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    jobs_.push_back(std::move(job));
  }
  work_.notify_one();
}

std::size_t Worker::pending() const {
  std::lock_guard lock(mutex_);
  return jobs_.size() + running_;
}

void Worker::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    jobs_.clear();
  }
  work_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void Worker::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    ++running_;
    lock.unlock();
    while (!Try(job)) {
      std::this_thread::sleep_for(kMemoryPause);
      lock.lock();
      const bool leave = stopping_;
      lock.unlock();
      if (leave) break;
    }
    job = nullptr;  // what the job holds dies before it counts as done
    lock.lock();
    --running_;
  }
}

}  // namespace tierd::ssd
