// Threads that take closures, and answer the loop thread through a mailbox.
//
// Owner: SsdTier's parts. Worker::Post is thread-safe.
// Jobs carry values: they touch nothing that the loop thread owns.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "tierd/base/mailbox.h"

namespace tierd::ssd {

using Job = std::function<void()>;

// Until there is memory for it, again and again; for worker threads, which may wait. `work` can be done twice.
template <typename Work>
void Insist(Work&& work) {
  for (;;) {
    try {
      work();
      return;
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

// `threads` threads over one FIFO. Where memory runs out in a job it is run once more a little later: whatever the worker owes the loop comes. So a job
// hands over its result last, and what it does before that can be done twice.
class Worker {
 public:
  Worker(const std::string& name, unsigned threads);
  // Jobs not yet started are dropped; the running ones are waited for.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void Post(Job job);
  // Jobs waiting or running.
  std::size_t pending() const;
  // Drops what has not started and joins. Idempotent.
  void Stop();

 private:
  void Run();

  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::deque<Job> jobs_;  // guarded by mutex_
  std::size_t running_ = 0;  // guarded by mutex_
  bool stopping_ = false;    // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace tierd::ssd
