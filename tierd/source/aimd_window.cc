#include "tierd/source/aimd_window.h"

#include <algorithm>

namespace tierd::source {
namespace {

// Mean latency over base latency. Below kGrowBelow the source is not busy; above kCutAbove requests mostly wait for one
// another; in between the window stays. A pipe needs about 1 to be full, 2 to be full in spite of jitter.
constexpr double kGrowBelow = 2.5;
constexpr double kCutAbove = 5.0;
constexpr double kCutFactor = 0.75;
// One stuck request must not decide a round.
constexpr double kRatioLimit = 32.0;
// A cut is wrong if it cost more than this share of the best recent throughput.
constexpr double kKeepRate = 0.90;
// The best throughput fades, so that a source that got slower for good is judged anew.
constexpr double kRateDecay = 0.99;
constexpr std::int64_t kEpochNs = 30'000'000'000;
// A round that shows an idle source may be short, so that the window grows fast; whether to cut takes more evidence.
constexpr std::uint32_t kMinRound = 8;
constexpr std::uint32_t kMinJudgement = 96;
// Requests sent one after the other to see the base.
constexpr std::uint32_t kQuietRequests = 16;

std::size_t ClassOf(std::size_t bytes) {
  if (bytes <= 64u << 10) return 0;
  if (bytes <= 512u << 10) return 1;
  return bytes <= 2u << 20 ? 2 : 3;
}

}  // namespace

AimdWindow::AimdWindow(std::uint32_t min, std::uint32_t start, std::uint32_t max) : min_(min), max_(max), size_(start) {}

std::int64_t AimdWindow::Base::Get() const {
  if (current_ns == 0) return previous_ns;
  return previous_ns == 0 ? current_ns : std::min(current_ns, previous_ns);
}

void AimdWindow::BeginEpoch(std::int64_t now_ns, bool backlog) {
  const bool first = epoch_started_ns_ == 0;
  epoch_started_ns_ = now_ns;
  if (first) return;
  for (Base& base : base_) {
    base.previous_ns = base.current_ns;
    base.current_ns = 0;
  }
  base_factor_ = std::max(1.0, base_factor_ / 2);
  // Those in flight end first, then a few that meet no queue of ours.
  if (backlog && size_ > kQuietSize) quiet_ = size_ + kQuietRequests;
  round_ = Round();
  after_cut_ = 0;
}

void AimdWindow::OnComplete(std::size_t bytes, std::int64_t latency_ns, std::int64_t now_ns, bool backlog) {
  latency_ns = std::max<std::int64_t>(latency_ns, 1);
  if (now_ns - epoch_started_ns_ >= kEpochNs) BeginEpoch(now_ns, backlog);
  Base& base = base_[ClassOf(bytes)];
  if (base.current_ns == 0 || latency_ns < base.current_ns) base.current_ns = latency_ns;
  if (quiet_ > 0) {
    --quiet_;
    return;
  }
  const double expected = static_cast<double>(base.Get()) * base_factor_;
  if (round_.started_ns == 0) round_.started_ns = now_ns - latency_ns;
  ++round_.completions;
  round_.backlog = round_.backlog && backlog;
  round_.base_ns += expected;
  round_.latency_ns += std::min(static_cast<double>(latency_ns), expected * kRatioLimit);
  const bool idle = round_.latency_ns < round_.base_ns * kGrowBelow && after_cut_ == 0;
  if (round_.completions >= std::max(size_, idle ? kMinRound : kMinJudgement)) EndRound(now_ns);
}

void AimdWindow::EndRound(std::int64_t now_ns) {
  const Round round = round_;
  round_ = Round();
  if (!round.backlog) {
    after_cut_ = 0;
    return;
  }
  round_.started_ns = now_ns;
  // What ends in the first round after a cut was sent before it.
  if (after_cut_ == 1) {
    after_cut_ = 2;
    return;
  }
  const double ratio = round.latency_ns / round.base_ns;
  const double rate = round.base_ns / static_cast<double>(std::max<std::int64_t>(now_ns - round.started_ns, 1));
  if (after_cut_ == 2) {
    after_cut_ = 0;
    if (rate < best_rate_ * kKeepRate) {
      size_ = size_before_cut_;
      base_factor_ *= std::max(1.0, ratio_before_cut_ / kGrowBelow);
      best_rate_ = 0;  // measured in units of the old base
      return;
    }
  }
  best_rate_ = std::max(best_rate_ * kRateDecay, rate);
  if (ratio > kCutAbove) {
    ratio_before_cut_ = ratio;
    Cut();
  } else if (ratio < kGrowBelow) {
    Grow();
  }
}

void AimdWindow::Grow() {
  const std::uint32_t step = doubling_ ? size_ : std::max<std::uint32_t>(4, size_ / 8);
  size_ = std::min(max_, size_ + step);
}

void AimdWindow::Cut() {
  doubling_ = false;
  if (size_ == min_) return;
  size_before_cut_ = size_;
  size_ = std::max(min_, static_cast<std::uint32_t>(size_ * kCutFactor));
  after_cut_ = 1;
  ++cuts_;
}

}  // namespace tierd::source
