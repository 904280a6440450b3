// Finds out, from the first accesses of an epoch, which permutation is being read: by which recipe and from which seed, and which part of
// it. In slices, so that its owner decides how much of a core it may have.
//
//   SeedSearch search(observation, options);
//   while (search.Advance(1000) == SeedSearch::State::kSearching) { ... }   // a unit is some 10 microseconds
//
// In this order: 0..n-1 itself; seeds below 2^16 in each recipe (half a second); all 2^32 seeds of a fresh generator (some 4 minutes with AVX2, 8 without).
// What is observed decides how many accesses are enough (evidence.h; some 16 do where streams read in order): nothing is tried that it cannot tell. The last part expects
// the true beginning of the epoch (the first access of one of the streams is the first sample of the permutation that its rank reads); kExhausted with fewer accesses may
// become kFound with more.
//
// Owner: one observed consumer. One thread at a time; a worker, not the loop: a slice may compute a whole permutation (15 ms at 1.28 M).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "policies/orders/order_fit.h"
#include "policies/orders/order_screen.h"
#include "policies/orders/permutation_prefix.h"
#include "policies/orders/seed_scan.h"

namespace tierd::orders {

// How an epoch's permutation comes from a seed.
enum class Recipe : std::uint8_t {
  kIdentity,   // not at all: 0..n-1
  kFresh,      // randperm of a generator seeded with it: DistributedSampler (seed + epoch), RandomSampler (a new one each epoch)
  kGenerator,  // the first epoch of DataLoader(shuffle=True, generator=g), g seeded with it: one 64-bit draw is taken before
  kGlobal,     // the first epoch of DataLoader(shuffle=True) after torch.manual_seed of it: the second 64-bit draw seeds the permutation
};

// The whole permutation.
std::vector<std::uint32_t> PermutationOf(Recipe recipe, std::uint32_t seed, std::uint32_t samples);

struct RecoveredOrder {
  Recipe recipe = Recipe::kIdentity;
  std::uint32_t seed = 0;
  OrderFit fit;
};

class SeedSearch {
 public:
  struct Options {
    // Ranks 0 to this - 1 of the permutation may be among the observed. 0: as many as cost little (8 with AVX2, 2 without).
    std::uint32_t ranks = 0;
    // How many accesses of each stream may be its first: 1 if streams read in order. Each costs time with small datasets.
    std::uint32_t heads = 1;
    bool all_seeds = true;  // false: stop after those below 2^16
    ScanCode code = ScanCode::kBest;
  };
  enum class State : std::uint8_t { kSearching, kFound, kExhausted };

  SeedSearch(Observation observation, const Options& options);

  // Works for about `units` units of 10 microseconds.
  State Advance(std::uint64_t units);
  // Valid when found.
  const RecoveredOrder& result() const { return *result_; }
  // Logarithm of the number of permutations that are tried: among seeds below 2^16 in all recipes, or 2^32.
  static double LogTried(bool all_seeds);
  // Small seeds gone through.
  std::uint32_t tried() const { return small_; }
  // Seeds gone through, of the 2^32.
  std::uint64_t scanned() const { return scanned_; }

  static constexpr std::uint32_t kSmallSeeds = 1u << 16;
  static constexpr std::uint32_t kShortPrefix = 128;
  static constexpr std::size_t kBatch = 8;                    // seeds whose outputs are computed side by side
  // Outputs of each: two may go before the permutation. Of small sets, of which the order is looked at, as many as seed words give at once.
  static constexpr std::size_t kOutputs = kShortPrefix + 2;
  static constexpr std::size_t kMostOutputs = 224 + 2;
  using Outputs = std::array<std::uint32_t, kMostOutputs>;

 private:
  State TrySmall(std::uint64_t units);
  State Scan(std::uint64_t units);
  // `outputs`: the first kShortPrefix, or more, that the permutation is drawn by. Looks at ever longer prefixes; when they have what was observed, at
  // the whole.
  bool Try(Recipe recipe, std::uint32_t seed, std::span<const std::uint32_t> outputs, double log_tried);
  bool PrefixFits(Recipe recipe, std::uint32_t seed, std::span<const std::uint32_t> outputs);
  bool StartFits(std::span<const std::uint32_t> entries, double share) const;
  bool Fits(Recipe recipe, std::uint32_t seed, double log_tried);
  SeedFilter MakeFilter() const;

  // Constant after construction
  const Observation observation_;
  const Options options_;
  std::vector<bool> seen_;      // samples among the first that were observed
  std::size_t seen_count_ = 0;
  std::optional<SeedFilter> filter_;
  std::size_t outputs_wanted_ = kOutputs;
  double most_evidence_ = 0;

  std::optional<OrderScreen> screen_;  // of a small set
  PermutationPrefix short_prefix_;
  PermutationPrefix long_prefix_;
  State state_ = State::kSearching;
  bool identity_tried_ = false;
  std::uint32_t small_ = 0;     // next small seed
  std::uint64_t scanned_ = 0;
  std::vector<std::uint32_t> passing_;
  Outputs outputs_[kBatch];
  Outputs derived_outputs_[kBatch];
  std::optional<RecoveredOrder> result_;
};

}  // namespace tierd::orders
