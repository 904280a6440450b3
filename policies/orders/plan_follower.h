// Follows one consumer through the epochs of its plan: judges each access, says where it stands, and notices by itself that the next epoch has begun.
//
// Around the turn of an epoch accesses of both come mixed (worker processes are looked at one after the other): the last epoch's stragglers still count, and
// the next one begins once enough of its first entries were read, whatever was left out of the last.
//
// Owner: whoever follows a consumer. One thread at a time. An epoch is prepared elsewhere (Prepare; 30 ms per million samples): until it is there, accesses
// that belong to it are kept, at most kHeld. Memory: that of an OrderFollower for this epoch, the next one, and for a while the last one.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "policies/orders/observation.h"
#include "policies/orders/order_follower.h"
#include "policies/orders/plan_orders.h"

namespace tierd::orders {

class PlanFollower {
 public:
  struct Epoch {
    std::uint64_t number = 0;
    std::shared_ptr<OrderFollower> follower;  // shared with a worker, which reads order() alone
    PlanOrders following;                     // the epochs behind it
  };
  // The first epoch of `orders`; empty when the plan says no more. Any thread.
  static std::optional<Epoch> Prepare(PlanOrders orders);

  // Nothing is expected before the first Add.
  explicit PlanFollower(PlanOrders orders) : orders_(std::move(orders)) { recent_.fill(UINT32_MAX); }

  // What has been read of the first epoch before anybody followed: where it begins. Before the first Add; what is not of that epoch is left out.
  void HasBeenRead(std::vector<SampleAccess> accesses) { read_before_ = std::move(accesses); }
  // By which a reader is told from others, of whatever number.
  static std::uint8_t TagOf(std::uint32_t reader) { return static_cast<std::uint8_t>(reader % 255 + 1); }

  // An epoch has to be prepared, from these orders; its result goes to Add.
  bool WantsEpoch() const { return !asked_ && !ended_ && next_ == nullptr; }
  PlanOrders Ask() {
    asked_ = true;
    return orders_;
  }
  // How many of the accesses that were kept for it were as expected.
  std::uint64_t Add(std::optional<Epoch> epoch);

  enum class Verdict : std::uint8_t {
    kExpected,  // it was foretold
    kShared,    // it was foretold, and a reader that is not known to be this consumer's has read it before
    kRepeated,  // has just been read: a file that is opened twice
    kAgain,     // was read earlier in this epoch: by a stranger, or the plan is wrong
    kWrong,     // of another place in the order, or of none
    kFound,     // that too, but the latest accesses say that it is the consumer's place: it was not foretold, what follows is
    kHeld,      // maybe of the next epoch, which is not known yet
  };
  Verdict Observe(std::uint32_t sample, ReaderTag reader = {});
  // Whether Observe would say kExpected or kShared. Changes nothing.
  bool Expects(std::uint32_t sample, ReaderTag reader = {}) const;

  // A hint: it will be asked about soon.
  void Soon(std::uint32_t sample) const {
    if (now_ != nullptr) now_->Soon(sample);
  }

  // The epoch that is being read; null before the first one is there.
  const std::shared_ptr<OrderFollower>& current() const { return now_; }
  std::uint64_t epoch() const { return number_; }
  // What follows the present epoch. Only with current().
  const PlanOrders& following() const { return *following_; }
  // Everything that the plan says has been read.
  bool over() const { return ended_ && next_ == nullptr && now_ != nullptr && now_->finished(); }
  bool trusted() const { return now_ == nullptr || now_->trusted(); }
  // Of all epochs.
  OrderFollower::Counts counts() const;
  std::uint64_t epochs_begun() const { return begun_; }

  static constexpr std::size_t kHeld = 1 << 16;
  static constexpr std::uint32_t kWindowLeast = 32;
  // How far the workers of a consumer are taken to run ahead of one another, in an epoch of so many entries.
  static std::uint32_t WindowFor(std::size_t entries);

 private:
  struct Access {
    std::uint32_t sample;
    ReaderTag reader;
  };
  bool NearEnd(ReaderTag reader) const { return now_->NearEnd(reader); }
  Verdict Hold(Access access);
  // It has read to the end of the present epoch, and this is behind it: of the next one, though another reader's part of this one may have it, too.
  bool HasTurned(std::uint32_t sample, ReaderTag reader) const {
    return NearEnd(reader) && now_->GoesForward(reader) && now_->GoesBack(sample, reader) && (next_ != nullptr ? next_->Expects(sample, reader) : !ended_);
  }
  bool IsOver(const OrderFollower& last) const;
  void Vote(int votes);
  void Turn();

  PlanOrders orders_;  // of the epoch to be prepared next
  std::optional<PlanOrders> following_;
  std::optional<PlanOrders> next_following_;
  std::shared_ptr<OrderFollower> last_, now_, next_;
  std::uint64_t number_ = 0;
  std::uint64_t next_number_ = 0;
  std::uint64_t begun_ = 0;
  std::vector<SampleAccess> read_before_;
  std::deque<Access> held_;             // for an epoch that is not there yet
  // Accesses that the next epoch begins with, and this one has no use for; by chance, unless there are many. (Near the end of this one they are the next one's.)
  std::vector<Access> heads_;
  std::size_t votes_ = 0;               // of these, less the accesses in between that are not
  std::array<std::uint32_t, 16> recent_;  // the latest accesses: a file that is opened twice; the worker processes take turns
  std::size_t recent_at_ = 0;
  bool opens_twice_ = false;              // the program has opened a file twice within an epoch
  OrderFollower::Counts before_;        // of epochs that are over
  bool asked_ = false;
  bool ended_ = false;
};

}  // namespace tierd::orders
