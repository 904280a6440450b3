#include "tierd/base/clock.h"

#include <ctime>

namespace tierd {
namespace {
std::int64_t Read(clockid_t id) {
  timespec ts{};
  clock_gettime(id, &ts);
  return std::int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}
}  // namespace

std::int64_t SystemClock::MonotonicNs() const { return Read(CLOCK_MONOTONIC_COARSE); }
std::int64_t SystemClock::RealtimeNs() const { return Read(CLOCK_REALTIME); }
std::int64_t SystemClock::PreciseNs() const { return Read(CLOCK_MONOTONIC); }
std::int64_t SystemClock::AsleepNs() const {
  const std::int64_t since_start = Read(CLOCK_BOOTTIME);  // first: a thread that is put off in between makes it less, not more
  return since_start - Read(CLOCK_MONOTONIC);
}

}  // namespace tierd
