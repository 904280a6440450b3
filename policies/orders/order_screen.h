// Whether a permutation may be the one that a small set was read in, at a glance: do the accesses of each stream go up in it? For trying many seeds. Of a large set the
// samples alone say more, and sooner (seed_search.h); of a small one any wrong permutation has them too, in another order.
//
// Of neighbours in a stream half go up by chance (c pairs: c / 2, with a deviation of no more than the root of c / 12): 7 of 10 are asked for, which one in a hundred
// wrong permutations has with 8 pairs, one in a million with 40; strays and a little disorder pass. What passes is weighed (order_fit.h).
//
// Owner: one search. One thread at a time. Memory: 8 bytes per sample and pair.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "policies/orders/observation.h"

namespace tierd::orders {

class OrderScreen {
 public:
  static constexpr std::uint32_t kMostSamples = 1024;
  static constexpr std::size_t kLeastPairs = 8;
  static constexpr std::size_t kMostPairs = 256;  // the first ones

  // Of at most kMostSamples samples.
  explicit OrderScreen(const Observation& observation);

  // `outputs`: the first of the generator that torch.randperm draws by, at most one for each sample; what they leave undecided counts as the permutation's rest.
  // False too where there are fewer than kLeastPairs.
  bool Passes(std::span<const std::uint32_t> outputs);

 private:
  const std::uint32_t samples_;
  std::vector<std::pair<std::uint16_t, std::uint16_t>> pairs_;  // of samples, read one after the other by one stream
  std::vector<std::uint16_t> order_;
  std::vector<std::uint16_t> places_;
};

}  // namespace tierd::orders
