// The two clocks of the library. No system call: both are read through the vDSO.
#pragma once

#include <time.h>

#include <cstdint>

namespace tierd::client {

inline std::int64_t ReadClock(clockid_t id) {
  timespec t;
  ::clock_gettime(id, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// Deadlines of slots, ring entries, probes: 4 ns to read, 4 ms steps.
inline std::int64_t CoarseNs() { return ReadClock(CLOCK_MONOTONIC_COARSE); }
// Latencies and waits.
inline std::int64_t PreciseNs() { return ReadClock(CLOCK_MONOTONIC); }

}  // namespace tierd::client
