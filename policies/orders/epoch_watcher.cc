#include "policies/orders/epoch_watcher.h"

#include <algorithm>
#include <cmath>

namespace tierd::orders {
namespace {

constexpr std::size_t kRepeats = 8;       // so many of the latest are looked at
constexpr std::size_t kLatest = 1 << 13;  // accesses that a boundary may lie back
constexpr double kUnlikely = 1e-9;        // chance of such a burst at the rate so far; each access asks again
constexpr std::size_t kCompared = 256;    // first samples of two epochs that are compared
constexpr double kAlike = 0.8;
constexpr double kJump = 5;
// Where earlier epochs ended, less will do.
constexpr double kNear = 0.02;
constexpr double kUnlikelyThere = 1e-3;
// Times the dataset, without a boundary: what was left of an epoch when the watcher came, or put its boundary too early, is read again all over the next one, and hides where that one ends. From
// another place on it will not: no multiple of 1/2, 1/3 ..., so that ranks are not met at the same place again.
constexpr double kHidden = 1.3;

// Chance of `count` events or more where `mean` are expected (Poisson).
double TailOf(double mean, std::size_t count) {
  double term = std::exp(-mean);
  double below = 0;
  for (std::size_t i = 0; i < count; ++i) {
    below += term;
    term *= mean / static_cast<double>(i + 1);
  }
  return std::max(0.0, 1 - below);
}

}  // namespace

SeedRule RuleOf(std::span<const std::uint32_t> seeds) {
  if (seeds.size() < 2) return SeedRule::kUnknown;
  const auto steps = [&](std::uint32_t step) {
    for (std::size_t i = 1; i < seeds.size(); ++i) {
      if (seeds[i] - seeds[i - 1] != step) return false;
    }
    return true;
  };
  return steps(1) ? SeedRule::kPerEpoch : steps(0) ? SeedRule::kSame : SeedRule::kFresh;
}

EpochWatcher::EpochWatcher(std::uint32_t samples) : samples_(samples), read_(samples) { first_.samples = samples; }

bool EpochWatcher::Observe(SampleAccess access) {
  if (access.index >= samples_) return false;
  const bool repeated = read_[access.index];
  latest_.push_back(access);
  if (latest_.size() > kLatest) latest_.pop_front();
  ++accesses_;
  if (!repeated) {
    read_[access.index] = true;
    Keep(access);
    return false;
  }
  repeats_.push_back({accesses_ - 1});
  if (repeats_.size() > kRepeats) {
    repeats_.pop_front();
    ++repeats_before_;
  }
  if (!IsBoundary()) {
    Keep(access);
    if (static_cast<double>(accesses_) > kHidden * samples_) Forget();
    return false;
  }
  Begin(repeats_.front().at);
  return true;
}

// A burst of repeats that the rate before it does not explain. What lies before the burst is dropped from repeats_.
bool EpochWatcher::IsBoundary() {
  for (std::size_t from = 0; from + 3 <= repeats_.size(); ++from) {
    const std::uint64_t start = repeats_[from].at;
    const std::size_t burst = repeats_.size() - from;
    // Drawn with replacement, repeats become more frequent all the time: their rate is twice its average.
    const double rate = (2 * static_cast<double>(repeats_before_ + from) + 0.5) / static_cast<double>(start + 1);
    const double mean = rate * static_cast<double>(accesses_ - start);
    const bool usual = length_ > 0 && std::abs(static_cast<double>(start) - static_cast<double>(length_)) <= kNear * static_cast<double>(length_) + 8;
    // At a boundary repeats do not become a little more frequent.
    if (static_cast<double>(burst) < kJump * static_cast<double>(repeats_before_ + from) / static_cast<double>(start + 1) * static_cast<double>(accesses_ - start)) continue;
    if (TailOf(mean, burst) > (usual ? kUnlikelyThere : kUnlikely)) continue;
    if (accesses_ - start > latest_.size()) continue;
    repeats_.erase(repeats_.begin(), repeats_.begin() + static_cast<std::ptrdiff_t>(from));
    return true;
  }
  return false;
}

// The epoch that began `at` accesses after the last one: those of it that have come already are read again.
void EpochWatcher::Begin(std::uint64_t at) {
  CompareOrders();
  const auto back = static_cast<std::ptrdiff_t>(accesses_ - at);
  const std::vector<SampleAccess> begun(latest_.end() - back, latest_.end());
  ++epoch_;
  length_ = at;
  previous_.clear();
  for (std::size_t i = 0; i < std::min(first_.accesses.size(), kCompared); ++i) previous_.push_back(first_.accesses[i].index);
  compared_ = false;
  Forget();
  for (const SampleAccess& access : begun) {
    ++accesses_;
    latest_.push_back(access);
    read_[access.index] = true;
    Keep(access);
  }
}

// What has been read of the present epoch.
void EpochWatcher::Forget() {
  first_.accesses.clear();
  std::fill(read_.begin(), read_.end(), false);
  latest_.clear();
  repeats_.clear();
  repeats_before_ = 0;
  accesses_ = 0;
}

void EpochWatcher::Keep(SampleAccess access) {
  if (first_.accesses.size() < kKept) first_.accesses.push_back(access);
  if (!compared_ && first_.accesses.size() >= std::min<std::size_t>(kCompared, samples_ / 4)) CompareOrders();
}

// Does this epoch begin with the samples that the last one began with? (As sets: workers take turns in other orders.)
void EpochWatcher::CompareOrders() {
  if (compared_ || epoch_ == 0) return;
  compared_ = true;
  // Of a small dataset the first samples of any epoch are much of the whole.
  const std::size_t count = std::min({kCompared, previous_.size(), first_.accesses.size(), static_cast<std::size_t>(samples_ / 4)});
  if (count < 8) return;
  std::vector<std::uint32_t> before(previous_.begin(), previous_.begin() + static_cast<std::ptrdiff_t>(count));
  std::sort(before.begin(), before.end());
  std::size_t alike = 0;
  std::size_t rising = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t index = first_.accesses[i].index;
    alike += std::binary_search(before.begin(), before.end(), index) ? 1 : 0;
    rising += i > 0 && index > first_.accesses[i - 1].index ? 1 : 0;
  }
  const bool shuffled = static_cast<double>(rising) < 0.75 * static_cast<double>(count);
  same_ = shuffled && static_cast<double>(alike) >= kAlike * static_cast<double>(count) ? same_ + 1 : 0;
}

}  // namespace tierd::orders
