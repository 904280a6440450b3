// Looks for the order of an observed epoch on a thread of its own: niced, and at most so much of a core. First among the epochs of plans that are guessed, then by the
// seed (SeedSearch: a second for small seeds, minutes of processor time for all of them).
//
// Owner: Observer. Started, asked and ended by the loop thread. Destruction waits for the search, which ends within a slice (milliseconds; of guesses, an epoch) and a
// rest (0.2 s): who cannot wait stops it first, and destroys it when it has ended.
#pragma once

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "policies/orders/observation.h"
#include "policies/orders/plan_location.h"
#include "policies/orders/seed_search.h"

namespace tierd::engine {

class SeedHunt {
 public:
  struct Found {
    std::optional<orders::PlanSearch> guess;      // the one that is right, its plan from the observed epoch on
    std::optional<orders::RecoveredOrder> order;  // or an order from a seed
  };

  SeedHunt(orders::Observation observation, orders::SeedSearch::Options options, std::vector<orders::PlanSearch> guesses, double share_of_core);
  ~SeedHunt();
  SeedHunt(const SeedHunt&) = delete;
  SeedHunt& operator=(const SeedHunt&) = delete;

  void Stop() { stop_ = true; }
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // Once it has ended: what was found.
  const Found& result() const { return result_; }

 private:
  void Run(orders::Observation observation, const orders::SeedSearch::Options& options, const std::vector<orders::PlanSearch>& guesses);
  bool TryGuesses(const orders::Observation& observation, const std::vector<orders::PlanSearch>& guesses);
  void Rest();

  const double share_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> ended_ = false;
  double worked_ = 0;   // processor seconds of the thread at the end of its last rest
  Found result_;        // written before ended_
  std::thread thread_;  // last
};

}  // namespace tierd::engine
