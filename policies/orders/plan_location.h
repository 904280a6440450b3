// Where in a plan an observed epoch lies: of a plan that is known to be right, or is guessed, while nobody has counted its epochs. Epochs that are counted from
// what is read may be off by one (readers come and go, boundaries are noticed late); what an epoch begins with says which it is.
//
// Pure, no thread rule. An epoch costs what computing it costs, 15 ms at 1.28 M samples: not for a turn of the loop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "policies/orders/observation.h"
#include "policies/orders/order_fit.h"
#include "policies/orders/plan.h"

namespace tierd::orders {

struct PlanSearch {
  Plan plan;                 // of kind torch.random, or torch.distributed with set_epoch and one rank: the whole permutation
  OrderFit like;             // which part of it is read: this stride and these offsets
  std::uint64_t from = 0;    // the first of its epochs that is compared with what was observed
  std::uint64_t epochs = 1;  // and how many are drawn, from its very first one on
};

// The plan from the observed epoch on: that begins it, and nothing of it has been read. Empty: the observation is of none of these epochs, or does not say so yet.
// log_tried: logarithm of the number of permutations that are tried for this observation, all together. go_on: asked before each epoch; false: no more.
std::optional<Plan> Locate(const PlanSearch& search, const Observation& observation, double log_tried, const std::function<bool()>& go_on);

}  // namespace tierd::orders
