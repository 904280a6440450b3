// A rate limit: tokens come at a fixed rate and are taken by those who want to send. Pure; not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tierd::source {

class TokenBucket {
 public:
  // `per_second` 0: no limit. The bucket holds what comes in 100 ms.
  explicit TokenBucket(std::uint64_t per_second) { SetRate(per_second); }
  void SetRate(std::uint64_t per_second) {
    rate_ = static_cast<double>(per_second);
    tokens_ = std::min(tokens_, Capacity());
  }

  void Refill(std::int64_t now_ns) {
    if (last_ns_ != 0 && now_ns > last_ns_) {
      tokens_ = std::min(Capacity(), tokens_ + rate_ * static_cast<double>(now_ns - last_ns_) * 1e-9);
    }
    if (now_ns > last_ns_) last_ns_ = now_ns;
  }
  // Whether something may be sent now: any token will do (large requests go into debt and pay later), but the
  // low-priority leave the last quarter of the bucket to demand.
  bool Allows(bool low_priority) const { return rate_ == 0 || tokens_ > (low_priority ? Capacity() * kReserved : 0); }
  // A negative amount gives back what was not used.
  void Take(std::int64_t amount) {
    if (rate_ != 0) tokens_ = std::min(Capacity(), tokens_ - static_cast<double>(amount));
  }
  // When Allows() turns true, at the time of the last Refill.
  std::int64_t AllowedAt(bool low_priority) const {
    if (Allows(low_priority)) return last_ns_;
    const double missing = (low_priority ? Capacity() * kReserved : 0) - tokens_;
    return last_ns_ + 1 + static_cast<std::int64_t>(missing / rate_ * 1e9);
  }

 private:
  static constexpr double kBurstSeconds = 0.1;
  static constexpr double kReserved = 0.25;
  // At least one token, else low rates would never send.
  double Capacity() const { return std::max(1.0, rate_ * kBurstSeconds); }

  double rate_ = 0;
  double tokens_ = 0;
  std::int64_t last_ns_ = 0;
};

}  // namespace tierd::source
