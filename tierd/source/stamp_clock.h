// Judges whether a file's stamps are so young that a later write might leave them as they are (HAZARDS 2.12). Stamps are made by
// the source's clock, which may run behind or ahead of ours; every change that we see happen bounds the difference.
// Pure; owner: one SourceReader; loop thread only.
#pragma once

#include <cstdint>
#include <optional>

#include "tierd/io/io_engine.h"

namespace tierd::source {

class StampClock {
 public:
  // `window_ns` 0: nothing is ever young.
  explicit StampClock(std::int64_t window_ns) : window_ns_(window_ns) {}

  // A file had another ctime at local time `seen_ns` and has `ctime_ns` at `now_ns` (both CLOCK_REALTIME): the change lies
  // between. Spans longer than the window say too little and are ignored.
  void NoteChange(std::int64_t seen_ns, std::int64_t now_ns, std::int64_t ctime_ns);
  // ctime in the future counts as young; mtime only if it is near (programs set it to anything).
  bool IsYoung(const io::FileStat& stat, std::int64_t now_ns) const { return IsYoung(stat, now_ns, window_ns_); }
  // So young that it may well be written to at this moment: 2 s, or the window if that is shorter.
  bool IsInTheMaking(const io::FileStat& stat, std::int64_t now_ns) const { return IsYoung(stat, now_ns, window_ns_ < kMakingNs ? window_ns_ : kMakingNs); }
  // Source clock minus ours, lower bound; nullopt before the first change was seen.
  std::optional<std::int64_t> offset_ns() const { return known_ ? std::optional(low_ns_) : std::nullopt; }

 private:
  static constexpr std::int64_t kMakingNs = 2'000'000'000;
  static constexpr std::int64_t kFarNs = std::int64_t{1} << 62;  // more than a century from now: no clock's time, and its difference to ours might not fit
  bool IsYoung(const io::FileStat& stat, std::int64_t now_ns, std::int64_t window_ns) const;

  std::int64_t window_ns_;
  bool known_ = false;
  std::int64_t low_ns_ = 0;   // the difference lies in [low, high]
  std::int64_t high_ns_ = 0;
};

}  // namespace tierd::source
