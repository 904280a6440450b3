// Times of files as slots, records and messages hold them: int64 nanoseconds since 1970, from
// 1677-09-21 to 2262-04-11. File systems know earlier and later ones. These become one of two
// values that stand for no time, and a file with such a time is not served: its stat is the
// source's.
#pragma once

#include <cstdint>
#include <limits>

namespace tierd::abi {

inline constexpr std::int64_t kTooEarlyNs = std::numeric_limits<std::int64_t>::min();
inline constexpr std::int64_t kTooLateNs = std::numeric_limits<std::int64_t>::max();

// Of a timespec or a statx_timestamp.
template <typename Timestamp>
constexpr std::int64_t TimeNs(const Timestamp& time) {
  const std::int64_t seconds = time.tv_sec;
  std::int64_t ns = 0;
  const bool fits = !__builtin_mul_overflow(seconds, std::int64_t{1'000'000'000}, &ns) &&
                    !__builtin_add_overflow(ns, static_cast<std::int64_t>(time.tv_nsec), &ns);
  if (fits) return ns;
  return seconds < 0 ? kTooEarlyNs : kTooLateNs;
}

constexpr bool IsTime(std::int64_t ns) { return ns != kTooEarlyNs && ns != kTooLateNs; }

}  // namespace tierd::abi
