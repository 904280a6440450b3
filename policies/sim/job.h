// A training job that does not exist: so many samples of such sizes, read in the orders that a loader would draw (policies/orders).
//
// Values, and an iterator over epochs that belongs to one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "policies/orders/plan_orders.h"
#include "tierd/base/status.h"

namespace tierd::sim {

struct JobOptions {
  std::uint64_t samples = 20'000;
  double bytes_mean = 110'000;    // of a sample
  double bytes_sigma = 0;         // of the logarithm of the sizes; 0: all alike
  std::uint64_t seed = 1;         // of the orders and of the sizes
  std::uint32_t nodes = 1;        // k: the samples of an epoch are dealt out to so many
  std::uint32_t node = 0;         // of which this is one
  std::uint32_t epochs = 12;
  // distributed: a permutation per epoch by seed + epoch; same: the same one every epoch; sequential; replacement: as many draws.
  std::string order = "distributed";
};

class Job {
 public:
  // kInvalid names the field.
  static Result<Job> Create(const JobOptions& options);

  const JobOptions& options() const { return options_; }
  const std::vector<std::uint64_t>& sizes() const { return sizes_; }
  std::uint64_t bytes() const { return bytes_; }  // of the dataset
  // Of what one epoch of this node reads, about.
  double epoch_bytes() const { return static_cast<double>(bytes_) / options_.nodes; }
  // A fresh iterator over the epochs of this node.
  orders::PlanOrders Orders() const { return orders_; }

 private:
  Job(const JobOptions& options, orders::PlanOrders orders);

  JobOptions options_;
  orders::PlanOrders orders_;
  std::vector<std::uint64_t> sizes_;
  std::uint64_t bytes_ = 0;
};

}  // namespace tierd::sim
