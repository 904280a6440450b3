#include "policies/orders/plan_follower.h"

#include <algorithm>
#include <utility>

namespace tierd::orders {
namespace {

constexpr std::size_t kHeads = 16;             // so many first entries of the next epoch say that it has begun
// What workers have in hand: 16 of them two batches of 512 each, at least 2 with batches of 4, and the batch that the slowest is at.
constexpr std::uint32_t kWindowMost = 1 << 15;

void AddTo(OrderFollower::Counts* sum, const OrderFollower::Counts& part) {
  sum->expected += part.expected;
  sum->repeated += part.repeated;
  sum->early += part.early;
  sum->foreign += part.foreign;
  sum->missed += part.missed;
}

}  // namespace

std::uint32_t PlanFollower::WindowFor(std::size_t entries) {
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(entries / 4, kWindowLeast, kWindowMost));
}

std::optional<PlanFollower::Epoch> PlanFollower::Prepare(PlanOrders orders) {
  const std::uint64_t number = orders.epoch();
  std::vector<std::uint32_t> order;
  if (!orders.Next(&order)) return std::nullopt;
  // Workers run ahead of one another in what is left of an epoch as they do in a whole one.
  const std::uint64_t before = number == orders.plan().epoch ? orders.plan().position : 0;
  const std::uint32_t window = WindowFor(before + order.size());
  const auto samples = static_cast<std::uint32_t>(orders.plan().samples);
  auto follower = std::make_shared<OrderFollower>(samples, std::move(order), window);
  return Epoch{number, std::move(follower), std::move(orders)};
}

std::uint64_t PlanFollower::Add(std::optional<Epoch> epoch) {
  asked_ = false;
  if (!epoch) {
    ended_ = true;
    held_.clear();
    return 0;
  }
  orders_ = epoch->following;
  next_ = std::move(epoch->follower);
  next_number_ = epoch->number;
  next_following_ = std::move(epoch->following);
  if (now_ == nullptr) Turn();
  for (const SampleAccess& access : std::exchange(read_before_, {})) {
    const ReaderTag reader{.tag = TagOf(access.stream), .own = true};
    if (now_->Expects(access.index, reader)) now_->Observe(access.index, reader);
  }
  recent_.fill(UINT32_MAX);  // what was kept is new
  std::uint64_t expected = 0;
  for (const Access& access : std::exchange(held_, {})) expected += Observe(access.sample, access.reader) == Verdict::kExpected ? 1 : 0;
  return expected;
}

bool PlanFollower::Expects(std::uint32_t sample, ReaderTag reader) const {
  if (now_ == nullptr) return false;
  return now_->Expects(sample, reader) || (last_ != nullptr && last_->Expects(sample, reader)) || (NearEnd(reader) && next_ != nullptr && next_->Expects(sample, reader));
}

PlanFollower::Verdict PlanFollower::Observe(std::uint32_t sample, ReaderTag reader) {
  if (now_ == nullptr) return Hold({sample, reader});
  const bool just_read = std::find(recent_.begin(), recent_.end(), sample) != recent_.end();
  const bool at_once = recent_[(recent_at_ + recent_.size() - 1) % recent_.size()] == sample;
  recent_[recent_at_++ % recent_.size()] = sample;
  // What another reader leaves of the last epoch comes behind what this one begins with.
  const bool late = last_ != nullptr && !now_->HasRead(reader) && last_->GoesOnWith(sample, reader);
  if (!late && now_->Expects(sample, reader) && !HasTurned(sample, reader)) {
    const bool shared = now_->Observe(sample, reader) == OrderFollower::Verdict::kShared;
    Vote(-1);
    if (last_ != nullptr && IsOver(*last_)) {
      AddTo(&before_, last_->counts());
      last_.reset();
    }
    return shared ? Verdict::kShared : Verdict::kExpected;
  }
  if (last_ != nullptr && last_->Expects(sample, reader)) return last_->Observe(sample, reader) == OrderFollower::Verdict::kShared ? Verdict::kShared : Verdict::kExpected;
  // What was read a moment ago is opened twice; or it was among the epoch's last, and is among the next one's first.
  opens_twice_ |= at_once && !now_->finished();
  const bool fresh = !just_read || (now_->finished() && (!at_once || !opens_twice_));
  if (fresh && next_ == nullptr && !ended_ && NearEnd(reader)) return Hold({sample, reader});
  if (fresh && next_ != nullptr && next_->Expects(sample, reader)) {
    const bool near_end = NearEnd(reader);
    if (near_end) next_->Observe(sample, reader);
    else if (heads_.size() < kHeld) heads_.push_back({sample, reader});
    Vote(1);
    const std::size_t enough = std::min<std::size_t>(kHeads, std::max<std::size_t>(1, next_->order().size() / 4));
    if (now_->finished() || votes_ >= enough) {
      Turn();
      return Verdict::kExpected;
    }
    if (near_end) return Verdict::kExpected;
  } else if (!just_read) {
    Vote(-4);  // of a wrong plan, some accesses are among the next epoch's first by chance
  }
  if (just_read && !reader.own) return Verdict::kRepeated;
  switch (now_->Observe(sample, reader)) {
    case OrderFollower::Verdict::kExpected: return Verdict::kExpected;
    case OrderFollower::Verdict::kFound: return Verdict::kFound;
    // Of a wrong plan nearly everything is expected or repeated, once most of its epoch has been read.
    case OrderFollower::Verdict::kRepeated: return just_read ? Verdict::kRepeated : Verdict::kAgain;
    default: return Verdict::kWrong;
  }
}

// So much of the present epoch has been read that nothing more comes of the last one: of a small one, workers that are heard of late may have half of it left.
bool PlanFollower::IsOver(const OrderFollower& last) const {
  const std::size_t behind = last.finished() ? 0 : std::min<std::size_t>(now_->order().size() / 2, OrderFollower::kBurst);
  return now_->counts().expected > now_->window() + behind;
}

PlanFollower::Verdict PlanFollower::Hold(Access access) {
  if (held_.size() < kHeld) held_.push_back(access);
  return Verdict::kHeld;
}

// For the next epoch, or against it.
void PlanFollower::Vote(int votes) {
  votes_ = votes < 0 ? votes_ - std::min(votes_, static_cast<std::size_t>(-votes)) : votes_ + static_cast<std::size_t>(votes);
  if (votes_ == 0) heads_.clear();
}

// The next epoch becomes the present one.
void PlanFollower::Turn() {
  if (last_ != nullptr) AddTo(&before_, last_->counts());
  last_ = std::exchange(now_, std::exchange(next_, nullptr));
  number_ = next_number_;
  following_ = std::move(next_following_);
  ++begun_;
  votes_ = 0;
  for (const Access& access : std::exchange(heads_, {})) now_->Observe(access.sample, access.reader);
}

OrderFollower::Counts PlanFollower::counts() const {
  OrderFollower::Counts sum = before_;
  if (last_ != nullptr) AddTo(&sum, last_->counts());
  if (now_ != nullptr) AddTo(&sum, now_->counts());
  return sum;
}

}  // namespace tierd::orders
