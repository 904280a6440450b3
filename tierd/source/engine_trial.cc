#include "tierd/source/engine_trial.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace tierd::source {
namespace {
// The other engine must be clearly better: equal ones measure up to 1.3 apart on a quiet machine. Beside other work it is 3, but that
// seldom comes and goes with the turns of two trials.
constexpr double kNeeded = 1.25;
}  // namespace

const char* EngineKindName(io::EngineKind kind) { return kind == io::EngineKind::kUring ? "io_uring" : "threads"; }

io::EngineKind EngineTrial::Other() const {
  return preferred_ == io::EngineKind::kUring ? io::EngineKind::kThreads : io::EngineKind::kUring;
}

void EngineTrial::Start(std::uint32_t window) {
  if (running_ || decided_) return;
  running_ = true;
  turn_ = 0;
  turns_ = {};
  window_ = window;
  BeginTurn();
}

void EngineTrial::BeginTurn() {
  current_ = turn_ == 1 || turn_ == 2 ? Other() : preferred_;
  seen_ = 0;
}

void EngineTrial::StartOver() {
  running_ = false;
  current_ = preferred_;
}

void EngineTrial::OnComplete(io::EngineKind kind, std::size_t bytes, std::int64_t now_ns, std::uint32_t window) {
  if (decided_) return;
  const bool large = bytes >= kLargeBytes;
  in_a_row_ = large ? 0 : in_a_row_ + 1;
  if (!running_) return;
  if (large || window != window_) return StartOver();  // whoever had sent it: all share the source
  if (kind != current_) return;
  ++seen_;
  if (seen_ == window_) started_ns_ = now_ns;
  if (seen_ > window_) turns_[turn_].bytes += bytes;
  if (seen_ < window_ + kMeasured) return;
  turns_[turn_].spent_ns = now_ns - started_ns_;
  if (++turn_ == kTurns) {
    Decide();
  } else {
    BeginTurn();
  }
}

bool EngineTrial::OtherWins(std::size_t preferred_turn, std::size_t other_turn) const {
  const Turn& preferred = turns_[preferred_turn];
  const Turn& other = turns_[other_turn];
  // In whose turn the smaller files came has the advantage in requests, and the other in bytes.
  const double by_requests = static_cast<double>(preferred.spent_ns + 1) / static_cast<double>(other.spent_ns + 1);
  const double by_bytes = by_requests * static_cast<double>(other.bytes + 1) / static_cast<double>(preferred.bytes + 1);
  return std::min(by_requests, by_bytes) > kNeeded;
}

void EngineTrial::Decide() {
  const bool other_wins = OtherWins(0, 1) && OtherWins(3, 2);
  in_a_row_ = 0;
  StartOver();
  if (other_wins && !std::exchange(other_won_, true)) return;
  if (other_wins) current_ = Other();
  decided_ = true;
  const auto preferred_ns = static_cast<double>(turns_[0].spent_ns + turns_[3].spent_ns + 1);
  const auto other_ns = static_cast<double>(turns_[1].spent_ns + turns_[2].spent_ns + 1);
  constexpr double kRequests = kMeasured * (kTurns / 2) * 1e9;
  char text[128];
  std::snprintf(text, sizeof text, "measured: %s %.0f/s, %s %.0f/s", EngineKindName(preferred_), kRequests / preferred_ns,
                EngineKindName(Other()), kRequests / other_ns);
  why_ = text;
}

void EngineTrial::Abort(std::string why) {
  running_ = false;
  decided_ = true;
  current_ = preferred_;
  why_ = std::move(why);
}

std::string EngineTrial::Report() const { return why_; }

}  // namespace tierd::source
