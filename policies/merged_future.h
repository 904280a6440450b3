// The future of several consumers as one order, by time of use, epoch after epoch: what a policy is told for TIERD_CONSUMER_ALL. Each consumer goes on at
// its own pace, from where it is; one that is alone is just itself.
//
// Owner: the host of a policy, which moves it to a worker and back. One thread at a time; Next computes whole epochs (15 ms for 1.28 M samples).
// Memory: one epoch of each consumer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "policies/orders/order_follower.h"
#include "policies/orders/plan_orders.h"

namespace tierd::policies {

class MergedFuture {
 public:
  struct Consumer {
    std::shared_ptr<const orders::OrderFollower> now;  // its present epoch; order() alone is read
    std::uint32_t from = 0;                            // of that: what comes before has been read
    orders::PlanOrders following;
    double pace = 0;                                   // samples per second, or 0: unknown. Then all finish their epochs together
    std::shared_ptr<const std::vector<std::uint32_t>> names;  // of its samples; the same name may be of samples of several consumers
  };
  explicit MergedFuture(std::vector<Consumer> consumers);

  // A piece of one merged epoch, which is one of the first consumer.
  struct Slice {
    std::uint32_t epoch = 0;
    std::uint32_t first = 0;            // how many of this epoch earlier slices gave
    std::vector<std::uint32_t> names;   // in the order of use
  };
  // The next piece, at most `most` entries. Empty: nobody's plan says more.
  Slice Next(std::size_t most);

 private:
  struct Head {
    explicit Head(Consumer the_consumer) : consumer(std::move(the_consumer)), at(consumer.from) {}
    Consumer consumer;
    std::vector<std::uint32_t> order;  // once `now` is used up
    std::size_t at;
    double time = 0;                   // of its next entry
    double step = 0;
    bool over = false;
    const std::vector<std::uint32_t>& Names() const { return *consumer.names; }
  };
  std::size_t Length(const Head& head) const;
  std::uint32_t Sample(const Head& head) const;
  // Goes on to the next epoch when this one is used up.
  void Refill(Head* head);

  std::vector<Head> heads_;
  std::uint32_t epoch_ = 0;
  std::uint32_t given_ = 0;
};

}  // namespace tierd::policies
