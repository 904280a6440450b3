// What was brought ahead of use for one source, in bytes, what became of it, and whether more of it is worth having.
//
// Owner: SourceUnit has the account, Forerunner the gate. Loop thread only. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tierd::engine {

// Read-ahead in a file, warm-up, prefetch jobs and plans alike.
struct LookAhead {
  std::uint64_t brought = 0;
  std::uint64_t used = 0;    // of these: a reader came while they were there
  std::uint64_t unused = 0;  // left both tiers before anybody read them
  // Still there, and nobody has read them.
  std::uint64_t waiting() const { return brought - std::min(brought, used + unused); }
};

// Bytes of a source since the start.
struct Traffic {
  std::uint64_t read = 0;         // by readers, from wherever
  std::uint64_t from_source = 0;  // by the daemon, and by readers around it
};

// Look-ahead by plan rests where the policy lets most of it leave again: it costs the source more than it spares the reader. Each time that kJudged bytes were used or
// left, their used share is looked at. Below kLeastUsed nothing more is brought until readers have read kPause times as much, and twice as long after each further
// failure. It also rests while the source gives more than readers read, by one percent and kSpare, if what left unused is as much.
class LookAheadGate {
 public:
  static constexpr std::uint64_t kJudged = 1 << 20;
  static constexpr std::uint64_t kSpare = 1 << 20;
  static constexpr double kLeastUsed = .75;
  static constexpr std::uint64_t kPause = 16, kLongestPause = 1024;

  bool MayBring(const LookAhead& ahead, const Traffic& traffic) {
    const std::uint64_t used = ahead.used - used_, unused = ahead.unused - unused_, judged = used + unused;
    if (rests_until_ > traffic.read) return Rest();
    if (IsBadBargain(ahead, traffic)) return Rest();
    if (resting_ || judged >= kJudged) {
      if (!resting_) used_share_ = static_cast<double>(used) / static_cast<double>(judged);
      used_ = ahead.used, unused_ = ahead.unused;
      if (!resting_ && used_share_ < kLeastUsed) {
        rests_until_ = traffic.read + pause_ * judged;
        pause_ = std::min(2 * pause_, kLongestPause);
        return Rest();
      }
      if (!resting_) pause_ = kPause;
      resting_ = false;
    }
    return true;
  }
  bool resting() const { return resting_; }
  // Of the last that was judged.
  double used_share() const { return used_share_; }

 private:
  bool Rest() {
    resting_ = true;
    return false;
  }
  static bool IsBadBargain(const LookAhead& ahead, const Traffic& traffic) {
    const std::uint64_t settled = traffic.from_source - std::min(traffic.from_source, ahead.waiting());
    const std::uint64_t limit = traffic.read + traffic.read / 100 + kSpare;
    return settled > limit && ahead.unused > traffic.read / 100 + kSpare;
  }

  std::uint64_t used_ = 0, unused_ = 0;  // that were judged
  std::uint64_t rests_until_ = 0;        // so much has been read
  std::uint64_t pause_ = kPause;
  double used_share_ = 1;
  bool resting_ = false;
};

}  // namespace tierd::engine
