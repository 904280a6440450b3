#include "tierd/source/engine_trial.h"

#include <cstdio>
#include <utility>

namespace tierd::source {
namespace {
// The other engine must be clearly better: a change costs a ramp-up, and measurements are noisy.
constexpr double kNeeded = 1.1;
}  // namespace

const char* EngineKindName(io::EngineKind kind) { return kind == io::EngineKind::kUring ? "io_uring" : "threads"; }

io::EngineKind EngineTrial::Other() const {
  return preferred_ == io::EngineKind::kUring ? io::EngineKind::kThreads : io::EngineKind::kUring;
}

void EngineTrial::Start(std::uint32_t window) {
  if (running_ || decided_) return;
  running_ = true;
  turn_ = 0;
  spent_ns_ = {};
  BeginTurn(window);
}

void EngineTrial::BeginTurn(std::uint32_t window) {
  skip_ = window;
  current_ = turn_ % 2 == 0 ? preferred_ : Other();
  seen_ = 0;
}

void EngineTrial::OnComplete(io::EngineKind kind, std::int64_t now_ns, std::uint32_t window) {
  if (!running_ || kind != current_) return;
  if (window == 0) {
    // The engine had nothing to do for a while: the trial starts over when there is work again.
    running_ = false;
    current_ = preferred_;
    return;
  }
  ++seen_;
  if (seen_ == skip_) started_ns_ = now_ns;
  if (seen_ < skip_ + kMeasured) return;
  spent_ns_[turn_ % 2] += now_ns - started_ns_;
  if (++turn_ == kTurns) {
    Decide();
  } else {
    BeginTurn(window);
  }
}

void EngineTrial::Decide() {
  const auto preferred_ns = static_cast<double>(spent_ns_[0] + 1);
  const auto other_ns = static_cast<double>(spent_ns_[1] + 1);
  current_ = preferred_ns > other_ns * kNeeded ? Other() : preferred_;
  constexpr double kRequests = kMeasured * (kTurns / 2) * 1e9;
  char text[128];
  std::snprintf(text, sizeof text, "measured: %s %.0f/s, %s %.0f/s", EngineKindName(preferred_), kRequests / preferred_ns,
                EngineKindName(Other()), kRequests / other_ns);
  why_ = text;
  running_ = false;
  decided_ = true;
}

void EngineTrial::Abort(std::string why) {
  running_ = false;
  decided_ = true;
  current_ = preferred_;
  why_ = std::move(why);
}

std::string EngineTrial::Report() const { return why_; }

}  // namespace tierd::source
