// Answers requests at their due time: latency, one byte-rate limit for all reads, a concurrency limit.
//
// Model: a request waits until fewer than `concurrency` requests are in service, is then served for its
// latency, and a read's bytes pass one after the other through a link of `bandwidth` bytes/s (a token
// bucket without burst). Replies may be late by timer slack and load, never early.
// Thread rule: Submit and the setters from any thread; replies go out on the scheduler's own thread, or
// within Submit when nothing delays them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <queue>
#include <thread>
#include <vector>

#include "tests/pfs_sim/reply.h"

namespace pfs_sim {

class Scheduler {
 public:
  using Clock = std::chrono::steady_clock;

  Scheduler(int dev_fd, Counters& counters);
  ~Scheduler();  // stops the thread; what is not yet due is dropped
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // `link_bytes` is what the reply will carry over the limited link (0 for all but reads).
  // `inline_writer` belongs to the calling thread and is used when the reply is due at once.
  void Submit(std::unique_ptr<Reply> reply, std::chrono::microseconds latency, uint64_t link_bytes,
              ReplyWriter& inline_writer);

  void SetBandwidth(uint64_t bytes_per_s);  // 0: unlimited
  void SetConcurrency(uint32_t limit);      // 0: unlimited
  uint64_t bandwidth() const;
  uint32_t concurrency() const;

 private:
  struct Waiting {
    std::unique_ptr<Reply> reply;
    std::chrono::microseconds latency;
    uint64_t link_bytes;
  };
  struct Due {
    Clock::time_point when;
    uint64_t order;  // first in, first out among equals
    std::unique_ptr<Reply> reply;
    bool in_service;
  };
  struct Later {
    bool operator()(const Due& a, const Due& b) const {
      return a.when != b.when ? a.when > b.when : a.order > b.order;
    }
  };

  void Run();
  void Start(Waiting waiting, Clock::time_point now);
  void StartWaiting(Clock::time_point now);
  void TakeDue(Clock::time_point now, std::vector<Due>* batch);

  Counters& counters_;
  ReplyWriter writer_;  // the scheduler thread's
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  // Guarded by mutex_.
  std::vector<Due> heap_;
  std::deque<Waiting> waiting_;
  Clock::time_point link_free_{};
  Clock::time_point sleeping_until_ = Clock::time_point::max();
  uint64_t bandwidth_ = 0;
  uint64_t next_order_ = 0;
  uint32_t concurrency_ = 0;
  uint32_t in_service_ = 0;
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace pfs_sim
