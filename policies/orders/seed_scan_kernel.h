// The loop of seed_scan.h over a `Chain`, which computes the seed words of many seeds side by side. Included by one file per instruction
// set and nobody else: everything here has internal linkage, so that no function compiled for AVX2 is ever called without it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "policies/orders/seed_scan.h"

namespace tierd::orders {
namespace {

constexpr std::uint32_t kSeedMultiplier = 1812433253u;
constexpr std::uint32_t kTwistShift = 397;

// Of `kSeeds` consecutive seeds: words[e][s] is word `from + e` of seed first + s, for e <= positions; shifted[e][s] is word
// `from + e + 397`, for e < positions.
template <typename Chain>
struct SeedWords {
  static constexpr std::uint32_t kSeeds = Chain::kSeeds;
  alignas(64) std::uint32_t words[SeedFilter::kMaxPositions + 1][kSeeds];
  alignas(64) std::uint32_t shifted[SeedFilter::kMaxPositions][kSeeds];

  void Compute(std::uint32_t first, std::uint32_t from, std::uint32_t positions) {
    Chain chain(first);
    std::uint32_t i = 0;
    while (i < from) chain.Step(++i);
    for (std::uint32_t e = 0; e <= positions; ++e) {
      chain.Store(words[e]);
      chain.Step(++i);
    }
    while (i < from + kTwistShift) chain.Step(++i);
    for (std::uint32_t e = 0; e < positions; ++e) {
      chain.Store(shifted[e]);
      chain.Step(++i);
    }
  }
};

// samples[s]: what seed s has at `position`, by its words (see SeedFilter).
template <std::uint32_t kSeeds>
inline void SamplesAt(const std::uint32_t* words, const std::uint32_t* next, const std::uint32_t* shifted, std::uint32_t n, std::uint32_t position, std::uint32_t* samples) {
  const std::uint32_t modulus = n - position;
  // floor(u * floor(2^32 / m) / 2^32) is floor(u / m) or one less.
  const std::uint64_t reciprocal = (std::uint64_t{1} << 32) / modulus;
  for (std::uint32_t s = 0; s < kSeeds; ++s) {
    const std::uint32_t mixed = (words[s] & 0x80000000u) | (next[s] & 0x7fffffffu);
    std::uint32_t u = shifted[s] ^ mixed >> 1 ^ (0x9908b0dfu & (0u - (next[s] & 1u)));
    u ^= u >> 11;
    u ^= u << 7 & 0x9d2c5680u;
    u ^= u << 15 & 0xefc60000u;
    u ^= u >> 18;
    const std::uint32_t rest = u - static_cast<std::uint32_t>(u * reciprocal >> 32) * modulus;
    samples[s] = position + std::min(rest, rest - modulus);
  }
}

// found[s] becomes nonzero where samples[s] is accepted. Few samples are compared with one by one, which is done for many seeds at once.
template <std::uint32_t kSeeds>
inline void Match(const SeedFilter& filter, const std::uint32_t* samples, std::uint32_t* found) {
  if (filter.few().empty()) {
    for (std::uint32_t s = 0; s < kSeeds; ++s) found[s] |= filter.Accepts(samples[s]) ? 1u : 0u;
    return;
  }
  for (const std::uint32_t wanted : filter.few()) {
    for (std::uint32_t s = 0; s < kSeeds; ++s) found[s] |= samples[s] == wanted ? 1u : 0u;
  }
}

template <typename Chain>
void ScanWith(const SeedFilter& filter, std::uint64_t begin, std::uint64_t count, std::vector<std::uint32_t>* passing) {
  constexpr std::uint32_t kSeeds = Chain::kSeeds;
  const SeedFilter::Options& options = filter.options();
  SeedWords<Chain> block;
  alignas(64) std::uint32_t samples[kSeeds];
  alignas(64) std::uint32_t found[kSeeds];
  for (std::uint64_t first = begin; first < begin + count; first += kSeeds) {
    block.Compute(static_cast<std::uint32_t>(first), options.first + options.skip, options.positions);
    std::fill_n(found, kSeeds, 0u);
    for (std::uint32_t e = 0; e < options.positions; ++e) {
      SamplesAt<kSeeds>(block.words[e], block.words[e + 1], block.shifted[e], options.samples, options.first + e, samples);
      Match<kSeeds>(filter, samples, found);
    }
    std::uint32_t any = 0;
    for (std::uint32_t s = 0; s < kSeeds; ++s) any |= found[s];
    if (any == 0) continue;
    const std::uint64_t here = std::min<std::uint64_t>(kSeeds, begin + count - first);
    for (std::uint32_t s = 0; s < here; ++s) {
      if (found[s] != 0) passing->push_back(static_cast<std::uint32_t>(first) + s);
    }
  }
}

}  // namespace
}  // namespace tierd::orders
