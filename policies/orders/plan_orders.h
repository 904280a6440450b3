// The orders of a plan, epoch by epoch, computed when they are asked for: a recipe instead of a list.
//
// Owner: whoever follows a consumer; copyable, so that one copy can look ahead while another one is where the consumer is (a copy
// costs the state of the generator, 2.5 KB; with rule in_place 4 bytes per sample more). One thread at a time. An epoch of 1.28 M samples
// takes some 15 ms: not for a turn of the loop.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "policies/orders/plan.h"

namespace tierd::orders {

class PlanOrders {
 public:
  // kInvalid as CheckPlan.
  static Result<PlanOrders> Create(const Plan& plan);

  // The number of the epoch that Next gives.
  std::uint64_t epoch() const { return epoch_; }
  const Plan& plan() const { return plan_; }
  // Replaces *order by the indices that this consumer reads in that epoch, in order (in the plan's first epoch without those it has read
  // already), and goes on to the next epoch. False, and *order empty, when the plan says no more.
  bool Next(std::vector<std::uint32_t>* order);
  // The plan of what Next has not given yet, of the kinds torch.random and torch.distributed with set_epoch. Empty: of other kinds, and when there is nothing left.
  std::optional<Plan> Rest() const;

 private:
  explicit PlanOrders(const Plan& plan) : plan_(plan), epoch_(plan.epoch) {}

  void TorchRandom(std::vector<std::uint32_t>* order);
  void TorchDistributed(std::vector<std::uint32_t>* order);
  void Strided(std::vector<std::uint32_t>* order) const;
  void Block(std::vector<std::uint32_t>* order, std::uint64_t shard) const;
  void Seeded(std::vector<std::uint32_t>* order);
  void Dali(std::vector<std::uint32_t>* order);
  void DrawEpoch(std::vector<std::uint32_t>* order, Mt19937& engine) const;
  // One permutation by the library of plan_.kind, on what `order` holds.
  void Shuffle(std::vector<std::uint32_t>& order);
  void Reseed(std::int64_t seed);

  Plan plan_;
  std::uint64_t epoch_;
  std::variant<std::monostate, Mt19937, Pcg64> engine_;
  std::vector<std::uint32_t> kept_;  // in_place: what the last epoch left
};

}  // namespace tierd::orders
