#include "policies/orders/order_follower.h"

#include <algorithm>

namespace tierd::orders {
namespace {
constexpr std::size_t kAnchor = 32;  // so many early accesses close to one another say where the consumer is
}

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
  if (verdict != Verdict::kEarly) early_.clear();
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
  while (entry >= std::uint64_t{frontier_} + window_ && std::uint64_t{4} * ahead_ >= std::uint64_t{3} * window_) {
    ++counts_.missed;
    ++frontier_;
    Advance();
  }
  if (entry >= frontier_ && entry - frontier_ >= window_) {
    ++counts_.early;
    NoteEarly(entry);
    return Verdict::kEarly;
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

void OrderFollower::NoteEarly(std::uint32_t entry) {
  early_.push_back(entry);
  if (early_.size() < kAnchor) return;
  const auto [low, high] = std::minmax_element(early_.begin(), early_.end());
  if (*high - *low < 2 * window_ + kAnchor) MoveTo(*low);
  early_.clear();
}

void OrderFollower::MoveTo(std::uint32_t entry) {
  frontier_ = entry;
  for (const std::uint32_t seen : early_) read_[seen] = true;
  ahead_ = static_cast<std::uint32_t>(early_.size());
  Advance();
}

}  // namespace tierd::orders
