#include "tierd/source/aimd_window.h"

#include <algorithm>

namespace tierd::source {
namespace {

// Mean latency over base latency. Below kGrowBelow the source is not busy; above kCutAbove requests mostly wait for one
// another; in between the window only grows by what brings throughput. A pipe needs about 1 to be full, 2 to be full in spite
// of jitter.
constexpr double kGrowBelow = 2.5;
constexpr double kCutAbove = 5.0;
constexpr double kCutFactor = 0.75;
// One stuck request must not decide a round.
constexpr double kRatioLimit = 32.0;
// A cut is wrong if it costs more than a tenth of the throughput, as seen for so long before and after it.
constexpr double kKeepRate = 0.90;
constexpr std::int64_t kCutEvidenceNs = 50'000'000;
// So many in a row say that the base is too low; one that was right, that it was corrected too much.
constexpr std::uint32_t kWrongCuts = 3;
constexpr double kFactorBack = 1.5;
// Of throughput; older rounds count half, and so on.
constexpr std::int64_t kSeenNs = 400'000'000;
// Up to here the window grows as long as latency is low; else throughput must grow by a quarter of what the window did.
constexpr std::uint32_t kFreeGrowth = 64;
constexpr double kGrowthYield = 0.25;
constexpr std::uint32_t kHoldRounds = 32;
constexpr std::int64_t kEpochNs = 30'000'000'000;
// A round that shows an idle source may be short, so that the window grows fast; what is judged takes more evidence.
constexpr std::uint32_t kMinRound = 8;
constexpr std::uint32_t kMinJudgement = 96;
// Requests sent one after the other to see the base.
constexpr std::uint32_t kQuietRequests = 16;

std::size_t ClassOf(std::size_t bytes) {
  if (bytes <= 64u << 10) return 0;
  if (bytes <= 512u << 10) return 1;
  if (bytes <= 2u << 20) return 2;
  return bytes <= 8u << 20 ? 3 : 4;
}

}  // namespace

AimdWindow::AimdWindow(std::uint32_t min, std::uint32_t start, std::uint32_t max) : min_(min), max_(max), size_(start) {}

std::int64_t AimdWindow::Base::Get() const {
  if (current_ns == 0) return previous_ns;
  return previous_ns == 0 ? current_ns : std::min(current_ns, previous_ns);
}

void AimdWindow::Seen::Add(const Seen& more) {
  work_ns += more.work_ns;
  span_ns += more.span_ns;
  if (span_ns < kSeenNs) return;
  work_ns /= 2;
  span_ns /= 2;
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
  seen_ = Seen();
  after_change_ = 0;
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
  const bool idle = round_.latency_ns < round_.base_ns * kGrowBelow && after_change_ == 0 && size_ < kFreeGrowth;
  if (round_.completions < std::max(size_, idle ? kMinRound : kMinJudgement)) return;
  const bool judges_cut = after_change_ == 2 && size_ < size_before_;
  if (!judges_cut || now_ns - round_.started_ns >= kCutEvidenceNs) EndRound(now_ns);
}

void AimdWindow::EndRound(std::int64_t now_ns) {
  const Round round = round_;
  round_ = Round();
  if (!round.backlog) {
    after_change_ = 0;
    seen_ = Seen();
    return;
  }
  round_.started_ns = now_ns;
  // What ends in the first round after a change was sent before it.
  if (after_change_ == 1) {
    after_change_ = 2;
    return;
  }
  ratio_ = round.latency_ns / round.base_ns;
  const std::int64_t span_ns = std::max<std::int64_t>(now_ns - round.started_ns, 1);
  const Seen seen{round.base_ns, span_ns};
  if (after_change_ == 2) JudgeChange(seen);
  else seen_.Add(seen);
  if (hold_ > 0) --hold_;
  if (ratio_ > kCutAbove && size_ > min_) {
    if (seen_.span_ns < kCutEvidenceNs) return;
    doubling_ = false;
    ++cuts_;
    ChangeTo(std::max(min_, static_cast<std::uint32_t>(size_ * kCutFactor)));
  } else if (ratio_ <= kCutAbove && size_ < max_ && hold_ == 0) {
    const std::uint32_t step = doubling_ ? size_ : std::max<std::uint32_t>(4, size_ / 8);
    if (ratio_ < kGrowBelow && size_ < kFreeGrowth) {
      size_ = std::min({max_, size_ + step, kFreeGrowth});
      seen_ = Seen();
    } else if (seen_.span_ns > 0) {
      ChangeTo(std::min(max_, size_ + step));
    }
  }
}

void AimdWindow::OnShortage() {
  ++cuts_;
  size_ = std::max(min_, size_ / 2);
  doubling_ = false;
  hold_ = kHoldRounds;
  after_change_ = 0;
  round_ = Round();
  seen_ = Seen();
}

// Makes a change that the round after the next one judges.
void AimdWindow::ChangeTo(std::uint32_t size) {
  size_before_ = size_;
  rate_before_ = seen_.rate();
  ratio_before_ = ratio_;
  size_ = size;
  after_change_ = 1;
}

void AimdWindow::JudgeChange(const Seen& seen) {
  after_change_ = 0;
  seen_ = Seen();
  if (size_ < size_before_) {
    if (seen.rate() >= rate_before_ * kKeepRate) {
      wrong_cuts_ = 0;
      base_factor_ = std::max(1.0, base_factor_ / kFactorBack);
      return;
    }
    ratio_ = kGrowBelow;
    if (++wrong_cuts_ >= kWrongCuts) {
      // The source was not busy: latencies like these are its usual ones.
      base_factor_ *= std::max(1.0, ratio_before_ / kGrowBelow);
      wrong_cuts_ = 0;
    }
  } else {
    const double growth = static_cast<double>(size_) / size_before_ - 1;
    if (seen.rate() >= rate_before_ * (1 + growth * kGrowthYield)) {
      seen_ = seen;
      return;
    }
    doubling_ = false;
    hold_ = kHoldRounds;
  }
  size_ = size_before_;
}

}  // namespace tierd::source
