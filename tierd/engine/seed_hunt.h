// Looks for the seed of an observed epoch on a thread of its own: niced, and at most so much of a core (SeedSearch: a second for small seeds, minutes of processor
// time for all of them).
//
// Owner: Observer. Started, asked and ended by the loop thread; destruction ends the search within a slice (milliseconds).
#pragma once

#include <atomic>
#include <optional>
#include <thread>

#include "policies/orders/observation.h"
#include "policies/orders/seed_search.h"

namespace tierd::engine {

class SeedHunt {
 public:
  SeedHunt(orders::Observation observation, orders::SeedSearch::Options options, double share_of_core);
  ~SeedHunt();
  SeedHunt(const SeedHunt&) = delete;
  SeedHunt& operator=(const SeedHunt&) = delete;

  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // Once it has ended: what was found.
  const std::optional<orders::RecoveredOrder>& result() const { return result_; }

 private:
  void Run(orders::Observation observation, const orders::SeedSearch::Options& options, double share);

  std::atomic<bool> stop_ = false;
  std::atomic<bool> ended_ = false;
  std::optional<orders::RecoveredOrder> result_;  // written before ended_
  std::thread thread_;                            // last
};

}  // namespace tierd::engine
