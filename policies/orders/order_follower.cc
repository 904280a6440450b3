#include "policies/orders/order_follower.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tierd::orders {
namespace {

constexpr std::size_t kEarlyKept = 32;
constexpr double kLogChance = -16;  // 10^-7
constexpr double kWidest = 0.54;    // share of an epoch on which not even kEarlyKept accesses say anything

// Whether accesses in this order go forward, though workers take turns: a reversed order is close together as well.
bool Rises(std::span<const std::uint32_t> entries) {
  const std::size_t half = entries.size() / 2;
  const auto sum = [](std::span<const std::uint32_t> part) { return std::accumulate(part.begin(), part.end(), std::uint64_t{0}); };
  return sum(entries.last(half)) > sum(entries.first(half));
}

}  // namespace

double OrderFollower::Counts::recall() const {
  const std::uint64_t all = expected + repeated + early + foreign;
  return all == 0 ? 0 : static_cast<double>(expected) / static_cast<double>(all);
}
double OrderFollower::Counts::precision() const {
  const std::uint64_t foretold = expected + missed;
  return foretold == 0 ? 0 : static_cast<double>(expected) / static_cast<double>(foretold);
}

OrderFollower::OrderFollower(std::uint32_t samples, std::vector<std::uint32_t> order, std::uint32_t window)
    : order_(std::move(order)),
      window_(std::max(window, 1u)),
      step_(1.0 / std::clamp<std::uint32_t>(window_ / 4, 16, 256)),
      entry_of_(samples, kAbsent),
      read_(order_.size()),
      guest_(order_.size()) {
  last_.fill(kAbsent);
  for (std::uint32_t entry = 0; entry < order_.size(); ++entry) {
    if (order_[entry] < samples && entry_of_[order_[entry]] == kAbsent) {
      entry_of_[order_[entry]] = entry;
    } else {
      read_[entry] = true;  // cannot be waited for
    }
  }
  Advance();
}

OrderFollower::Verdict OrderFollower::Observe(std::uint32_t index, ReaderTag reader) {
  const Verdict verdict = Judge(index, reader);
  const bool wrong = verdict == Verdict::kEarly || verdict == Verdict::kForeign;
  wrong_ += step_ * ((wrong ? 1.0 : 0.0) - wrong_);
  if (verdict == Verdict::kExpected || verdict == Verdict::kFound) {
    went_back_[reader.tag] = went_back_[reader.tag] || (HasRead(reader) && entry_of_[index] < last_[reader.tag]);
    last_[reader.tag] = entry_of_[index];
  }
  if (verdict == Verdict::kExpected) early_.clear();
  if (verdict == Verdict::kFound) wrong_ = 0;
  return verdict;
}

OrderFollower::Verdict OrderFollower::Judge(std::uint32_t index, ReaderTag reader) {
  const std::uint32_t entry = index < entry_of_.size() ? entry_of_[index] : kAbsent;
  if (entry == kAbsent) {
    ++counts_.foreign;
    return Verdict::kForeign;
  }
  if (read_[entry] && Shared(entry, reader)) {
    guest_[entry] = 0;
    return Verdict::kShared;
  }
  if (read_[entry]) {
    ++counts_.repeated;
    return Verdict::kRepeated;
  }
  // Readers do not run a window ahead of an entry that they still mean to read: most of a window behind it has come, so it will not.
  while (entry >= std::uint64_t{frontier_} + window_ && std::uint64_t{4} * Behind() >= std::uint64_t{3} * window_) {
    ++counts_.missed;
    ++frontier_;
    Admit();
    Advance();
  }
  if (entry >= frontier_ && entry - frontier_ >= window_ && !GoesOn(entry, reader)) {
    const bool found = FoundBy(entry);
    ++(found ? counts_.expected : counts_.early);
    return found ? Verdict::kFound : Verdict::kEarly;
  }
  read_[entry] = true;
  guest_[entry] = reader.own ? 0 : reader.tag;
  ++counts_.expected;
  if (entry < frontier_) {  // passed by, and read after all
    if (counts_.missed > 0) --counts_.missed;
    return Verdict::kExpected;
  }
  ++ahead_;
  Advance();
  return Verdict::kExpected;
}

void OrderFollower::Advance() {
  while (frontier_ < order_.size() && read_[frontier_]) {
    ++frontier_;
    if (ahead_ > 0) --ahead_;
  }
}

// Entries read behind the frontier, up to two windows: where many were read before anybody looked, what is left of one is not enough to pass them by.
std::uint32_t OrderFollower::Behind() const {
  const std::uint64_t end = std::uint64_t{frontier_} + 2 * std::uint64_t{window_};
  return ahead_ + static_cast<std::uint32_t>(std::count_if(early_.begin(), early_.end(), [end](std::uint32_t at) { return at < end; }));
}

// Early accesses that are in the window now have been read.
void OrderFollower::Admit() {
  std::erase_if(early_, [this](std::uint32_t at) {
    if (at >= std::uint64_t{frontier_} + window_) return false;
    ahead_ += read_[at] || at < frontier_ ? 0 : 1;
    read_[at] = true;
    return true;
  });
}

// Where nothing is known of the order, k accesses span no more than the share s of an epoch with a probability below k s^(k-1) (the range of k uniform variates;
// David and Nagaraja, Order Statistics, section 2.3). Four accesses decide in a large epoch, a dozen in one of a hundred entries.
bool OrderFollower::FoundBy(std::uint32_t entry) {
  if (std::find(early_.begin(), early_.end(), entry) != early_.end()) return false;
  if (early_.size() == kEarlyKept) early_.erase(early_.begin());
  early_.push_back(entry);
  std::uint32_t low = entry, high = entry;
  for (std::size_t k = 2; k <= early_.size(); ++k) {
    const std::uint32_t at = early_[early_.size() - k];
    low = std::min(low, at);
    high = std::max(high, at);
    const double share = (high - low + 1.0) / static_cast<double>(order_.size());
    if (share > kWidest) return false;  // of a wrong plan, nearly always after a few
    if (std::log(static_cast<double>(k)) + static_cast<double>(k - 1) * std::log(share) > kLogChance || !Rises(std::span(early_).last(k))) continue;
    MoveTo(low);
    return true;
  }
  return false;
}

void OrderFollower::MoveTo(std::uint32_t entry) {
  frontier_ = entry;
  ahead_ = 0;
  for (const std::uint32_t at : early_) {
    read_[at] = true;
    ahead_ += at >= frontier_ ? 1 : 0;
  }
  early_.clear();
  Advance();
}

}  // namespace tierd::orders
