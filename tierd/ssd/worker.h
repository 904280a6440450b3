// Threads that take closures, and the mailbox through which they answer the loop thread.
//
// Owner: SsdTier's parts. LoopMailbox::Post and Worker::Post are thread-safe; LoopMailbox::Run belongs to the loop thread.
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

#include "tierd/base/unique_fd.h"

namespace tierd::ssd {

using Job = std::function<void()>;

class LoopMailbox {
 public:
  LoopMailbox();
  // Readable while something waits.
  int fd() const { return fd_.get(); }
  void Post(Job job);
  // Like Post, but waits while `limit` jobs are there already (backpressure for scans). False after Close().
  bool PostBounded(Job job, std::size_t limit);
  // Runs at most `budget` jobs.
  std::size_t Run(std::size_t budget);
  bool empty() const;
  // Wakes every PostBounded; from then on posts are dropped.
  void Close();

 private:
  UniqueFd fd_;
  mutable std::mutex mutex_;
  std::condition_variable room_;
  std::deque<Job> jobs_;  // guarded by mutex_
  bool closed_ = false;   // guarded by mutex_
};

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
