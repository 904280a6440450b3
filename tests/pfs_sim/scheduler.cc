#include "tests/pfs_sim/scheduler.h"

#include <algorithm>
#include <utility>

namespace pfs_sim {
namespace {

// Replies taken per turn of the lock: bounds how long a burst keeps the receiver waiting.
constexpr size_t kBatch = 64;

}  // namespace

Scheduler::Scheduler(int dev_fd, Counters& counters)
    : counters_(counters), writer_(dev_fd, counters), thread_([this] { Run(); }) {}

Scheduler::~Scheduler() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Scheduler::Submit(std::unique_ptr<Reply> reply, std::chrono::microseconds latency,
                       uint64_t link_bytes, ReplyWriter& inline_writer) {
  const bool limited = IsCosted(reply->op);
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    const bool slow = latency.count() > 0 || (limited && concurrency_ > 0) ||
                      (link_bytes > 0 && bandwidth_ > 0);
    if (slow) {
      Waiting waiting{std::move(reply), latency, link_bytes};
      if (limited && concurrency_ > 0 && in_service_ >= concurrency_) {
        waiting_.push_back(std::move(waiting));
      } else {
        Start(std::move(waiting), Clock::now());
      }
      wake = !heap_.empty() && heap_.front().when < sleeping_until_;
      if (wake) sleeping_until_ = heap_.front().when;  // one wake-up is enough
    }
  }
  if (wake) wake_.notify_one();
  if (reply != nullptr) inline_writer.Send(*reply);
}

// mutex_ is held. Puts the request in service and its reply on the heap.
void Scheduler::Start(Waiting waiting, Clock::time_point now) {
  auto when = now + waiting.latency;
  counters_.latency_us[Index(waiting.reply->op)] += static_cast<uint64_t>(waiting.latency.count());
  if (bandwidth_ > 0 && waiting.link_bytes > 0) {
    const auto transfer = std::chrono::nanoseconds(
        static_cast<int64_t>(static_cast<double>(waiting.link_bytes) * 1e9 /
                             static_cast<double>(bandwidth_)));
    link_free_ = std::max(link_free_, now) + transfer;
    when = std::max(when, link_free_);
  }
  const bool in_service = IsCosted(waiting.reply->op);
  if (in_service) ++in_service_;
  heap_.push_back({when, next_order_++, std::move(waiting.reply), in_service});
  std::push_heap(heap_.begin(), heap_.end(), Later{});
}

// mutex_ is held.
void Scheduler::StartWaiting(Clock::time_point now) {
  while (!waiting_.empty() && (concurrency_ == 0 || in_service_ < concurrency_)) {
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    Start(std::move(next), now);
  }
}

// mutex_ is held.
void Scheduler::TakeDue(Clock::time_point now, std::vector<Due>* batch) {
  while (!heap_.empty() && heap_.front().when <= now && batch->size() < kBatch) {
    std::pop_heap(heap_.begin(), heap_.end(), Later{});
    batch->push_back(std::move(heap_.back()));
    heap_.pop_back();
  }
}

void Scheduler::Run() {
  std::vector<Due> batch;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const auto now = Clock::now();
    TakeDue(now, &batch);
    if (!batch.empty()) {
      lock.unlock();
      for (Due& due : batch) writer_.Send(*due.reply);
      uint32_t served = 0;
      for (const Due& due : batch) served += due.in_service ? 1 : 0;
      batch.clear();
      lock.lock();
      in_service_ -= served;
      StartWaiting(Clock::now());
      continue;
    }
    if (heap_.empty()) {
      sleeping_until_ = Clock::time_point::max();
      wake_.wait(lock);
    } else {
      sleeping_until_ = heap_.front().when;
      wake_.wait_until(lock, sleeping_until_);
    }
    sleeping_until_ = Clock::time_point::min();  // awake: no notification needed
  }
}

void Scheduler::SetBandwidth(uint64_t bytes_per_s) {
  const std::lock_guard lock(mutex_);
  bandwidth_ = bytes_per_s;
  link_free_ = {};
}

void Scheduler::SetConcurrency(uint32_t limit) {
  {
    const std::lock_guard lock(mutex_);
    concurrency_ = limit;
    StartWaiting(Clock::now());
    sleeping_until_ = Clock::time_point::min();
  }
  wake_.notify_one();
}

uint64_t Scheduler::bandwidth() const {
  const std::lock_guard lock(mutex_);
  return bandwidth_;
}

uint32_t Scheduler::concurrency() const {
  const std::lock_guard lock(mutex_);
  return concurrency_;
}

}  // namespace pfs_sim
