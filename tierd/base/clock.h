// Time as an object, so that tests own it. All values are nanoseconds. Implementations are thread-safe.
#pragma once

#include <cstdint>

namespace tierd {

class Clock {
 public:
  virtual ~Clock() = default;
  // CLOCK_MONOTONIC_COARSE: what deadlines in shared memory are compared with (HAZARDS 2.11). Resolution 1-4 ms.
  virtual std::int64_t MonotonicNs() const = 0;
  // CLOCK_REALTIME: only to judge how young a file's stamps are (HAZARDS 2.12) and for humans.
  virtual std::int64_t RealtimeNs() const = 0;
  // CLOCK_MONOTONIC, full resolution: latencies.
  virtual std::int64_t PreciseNs() const = 0;
  // For how long the machine has been suspended since it was started: none of the above but RealtimeNs counts that.
  virtual std::int64_t AsleepNs() const { return 0; }
};

class SystemClock final : public Clock {
 public:
  std::int64_t MonotonicNs() const override;
  std::int64_t RealtimeNs() const override;
  std::int64_t PreciseNs() const override;
  std::int64_t AsleepNs() const override;
};

// Stands still until told; for tests and the simulator.
class ManualClock final : public Clock {
 public:
  std::int64_t MonotonicNs() const override { return monotonic_ns; }
  std::int64_t RealtimeNs() const override { return realtime_ns; }
  std::int64_t PreciseNs() const override { return monotonic_ns; }
  void Advance(std::int64_t ns) {
    monotonic_ns += ns;
    realtime_ns += ns;
  }
  std::int64_t monotonic_ns = 1'000'000'000;
  std::int64_t realtime_ns = 1'700'000'000'000'000'000;
};

}  // namespace tierd
