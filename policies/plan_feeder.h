// Tells a policy the future, some epochs ahead of where its consumers are: plans are kept as recipes, epochs are computed when their turn
// comes. Several consumers are merged by time of use: one merged epoch holds an epoch of each, and an entry's time is the share of
// its consumer's epoch that lies before it, over that consumer's speed.
//
// Owner: the host of one policy instance. One thread; Advance computes whole epochs (15 ms for 1.28 M samples).
// Memory: 2.5 KB per consumer, nothing per epoch: what is declared lies in the policy (belady: 4 bytes per sample and epoch).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policies/orders/plan_orders.h"
#include "policies/policy_instance.h"

namespace tierd::policies {

// Orders of several consumers as one, by time of use. A sample that two of them read comes twice. `speeds`: samples per second of each,
// relative to one another; empty: all finish their epoch together.
std::vector<std::uint32_t> MergeByNextUse(std::span<const std::vector<std::uint32_t>> orders, std::span<const double> speeds);

class PlanFeeder {
 public:
  // ids of the policy are indices of the plans' samples. lookahead: epochs declared beyond the one that is being read.
  PlanFeeder(std::vector<orders::PlanOrders> consumers, std::uint32_t lookahead);

  // The consumers begin epoch number `epoch` (0 is the first that the plans give): declares up to epoch + lookahead.
  void Advance(std::uint32_t epoch, PolicyInstance& policy);

 private:
  std::vector<orders::PlanOrders> consumers_;
  const std::uint32_t lookahead_;
  std::uint32_t declared_ = 0;
};

}  // namespace tierd::policies
