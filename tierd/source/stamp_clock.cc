#include "tierd/source/stamp_clock.h"

#include <algorithm>

namespace tierd::source {

void StampClock::NoteChange(std::int64_t seen_ns, std::int64_t now_ns, std::int64_t ctime_ns) {
  if (now_ns < seen_ns || now_ns - seen_ns > window_ns_ || ctime_ns < -kFarNs || ctime_ns > kFarNs) return;
  const std::int64_t low = ctime_ns - now_ns;
  const std::int64_t high = ctime_ns - seen_ns;
  if (known_ && low <= high_ns_ && high >= low_ns_) {
    low_ns_ = std::max(low_ns_, low);
    high_ns_ = std::min(high_ns_, high);
    return;
  }
  // First sight, or a clock was set: what we knew is void.
  known_ = true;
  low_ns_ = low;
  high_ns_ = high;
}

bool StampClock::IsYoung(const io::FileStat& stat, std::int64_t now_ns, std::int64_t window_ns) const {
  if (window_ns == 0) return false;
  const std::int64_t source_now = now_ns + (known_ ? std::min<std::int64_t>(low_ns_, 0) : 0);
  const std::int64_t latest_now = now_ns + (known_ ? std::max<std::int64_t>(high_ns_, 0) : 0);
  if (stat.ctime_ns > source_now - window_ns) return true;
  return stat.mtime_ns > source_now - window_ns && stat.mtime_ns < latest_now + window_ns;
}

}  // namespace tierd::source
