// The requests per second that one source may be asked for, by whoever asks: its reader, its walkers and its resolver take from the
// same tokens. Demand comes first: the others leave it the last quarter (token_bucket.h).
//
// Shared (owners: all of those, and workers of theirs that hang and outlive them). Guards itself: any thread may call.
// It does not wait: the loop looks again when a token is due, a worker rests meanwhile (TaskContext::Draw).
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "tierd/source/token_bucket.h"

namespace tierd::source {

class RequestBudget {
 public:
  // `per_second` 0: no limit.
  explicit RequestBudget(std::uint64_t per_second) : limited_(per_second != 0), bucket_(per_second) {}

  void SetRate(std::uint64_t per_second) {
    const std::lock_guard lock(mutex_);
    bucket_.SetRate(per_second);
    limited_ = per_second != 0;
  }
  bool limited() const { return limited_; }

  // When a request may be sent, as seen at `now_ns` (PreciseNs): `now_ns` itself, or later.
  std::int64_t AllowedAt(std::int64_t now_ns, bool low_priority) {
    if (!limited_) return now_ns;
    const std::lock_guard lock(mutex_);
    return AllowedAtLocked(now_ns, low_priority);
  }
  // Counts a request, allowed or not: what is too much is paid for later.
  void Take() {
    if (!limited_) return;
    const std::lock_guard lock(mutex_);
    bucket_.Take(1);
  }
  // Counts a request if it may be sent now. Returns what AllowedAt() does.
  std::int64_t TakeIfAllowed(std::int64_t now_ns, bool low_priority) {
    if (!limited_) return now_ns;
    const std::lock_guard lock(mutex_);
    const std::int64_t at_ns = AllowedAtLocked(now_ns, low_priority);
    if (at_ns == now_ns) bucket_.Take(1);
    return at_ns;
  }

 private:
  std::int64_t AllowedAtLocked(std::int64_t now_ns, bool low_priority) {
    bucket_.Refill(now_ns);
    return bucket_.Allows(low_priority) ? now_ns : bucket_.AllowedAt(low_priority);
  }

  std::atomic<bool> limited_;  // without a limit nobody locks
  std::mutex mutex_;
  TokenBucket bucket_;  // guarded by `mutex_`
};

}  // namespace tierd::source
