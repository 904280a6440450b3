// Could this permutation be what was observed? Finds the part of it that the observed streams read (every stride-th entry from a few
// offsets on: the ranks of DistributedSampler on this node, or workers that take turns), and weighs the evidence.
//
// Evidence is a log likelihood ratio (natural) against "any samples in any order": each access that lies where the hypothesis wants it
// adds ln(.98 / share of the dataset that lies there), each other one takes ln(.02 / ...); and so does the order within each stream: of m
// accesses l at most go up, which any order has by chance with a probability below C(m, l) / l!. It has to exceed the logarithm of how many
// permutations were tried, and kMargin (evidence.h: what it can come to). Tolerant by construction: a few foreign, repeated or late
// accesses cost some evidence, and no order between streams is assumed. Pure functions, no thread rule.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "policies/orders/evidence.h"
#include "policies/orders/observation.h"

namespace tierd::orders {

struct OrderFit {
  std::uint32_t stride = 1;             // world size, if the observed consumer is some ranks of one
  std::vector<std::uint32_t> offsets;   // which ranks, ascending
  std::uint32_t window = 0;             // how far ahead of the first one not yet seen an access lay, in entries of these ranks
  double evidence = 0;
  double matched = 0;                   // share of the accesses that lie where they should
};

// `order`: a permutation of 0..n-1 (or its identity). log_tried: logarithm of the number of permutations among which this is one.
// Empty: the observation does not say so, or not yet.
std::optional<OrderFit> FitOrder(std::span<const std::uint32_t> order, const Observation& observation, double log_tried);

// The entries of `order` that the fit is about, in order: what the observed streams read in this epoch, all together.
std::vector<std::uint32_t> EntriesOf(std::span<const std::uint32_t> order, const OrderFit& fit);

}  // namespace tierd::orders
