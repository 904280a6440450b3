// A cache of one tier in a few lines: replays a trace through a policy and counts hits. It is the host of the C ABI at its smallest
// (known, admit, victims, removed, inserted, accessed), deterministic, and keeps no bytes.
#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "policies/policy_instance.h"

namespace tierd::policies::testing {

struct Random {
  explicit Random(std::uint64_t seed) : engine(seed) {}
  std::uint64_t Below(std::uint64_t n) { return engine() % n; }
  double Unit() { return static_cast<double>(engine() >> 11) * 0x1p-53; }
  std::mt19937_64 engine;
};

// A fresh permutation of 0..n-1.
inline std::vector<std::uint32_t> Permutation(std::uint32_t n, Random& random) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  for (std::uint32_t i = n; i > 1; --i) std::swap(order[i - 1], order[random.Below(i)]);
  return order;
}

// Log-normal sizes as of photographs: median `median`, sigma of the logarithm `sigma`.
inline std::vector<std::uint64_t> LogNormalSizes(std::uint32_t n, double median, double sigma, Random& random) {
  std::vector<std::uint64_t> sizes(n);
  for (std::uint64_t& size : sizes) {
    const double radius = std::sqrt(-2 * std::log(1 - random.Unit()));
    size = static_cast<std::uint64_t>(median * std::exp(sigma * radius * std::cos(2 * 3.14159265358979 * random.Unit()))) + 1;
  }
  return sizes;
}

class Replay {
 public:
  Replay(PolicyInstance& policy, std::span<const std::uint64_t> sizes, std::uint64_t capacity_bytes)
      : policy_(policy), sizes_(sizes), free_(capacity_bytes) {
    for (std::uint32_t id = 0; id < sizes.size(); ++id) policy.ObjectKnown({.id = id, .file_id = id, .chunk = 0, .bytes = sizes[id]});
  }

  void Access(std::uint32_t id) {
    ++accesses;
    bytes += sizes_[id];
    now_ns_ += step_ns;
    const bool hit = policy_.IsIn(TIERD_TIER_RAM, id);
    if (hit) {
      ++hits;
      hit_bytes += sizes_[id];
    } else {
      Insert(id);
    }
    policy_.Accessed({.id = id, .consumer = 1, .time_ns = now_ns_, .tier = static_cast<std::uint8_t>(hit ? 0 : 2)});
  }

  void Clear() { accesses = hits = evictions = bytes = hit_bytes = 0; }
  double HitRate() const { return static_cast<double>(hits) / static_cast<double>(accesses); }
  double ByteHitRate() const { return static_cast<double>(hit_bytes) / static_cast<double>(bytes); }

  std::int64_t step_ns = 1000;  // between accesses
  std::uint64_t accesses = 0, hits = 0, evictions = 0, bytes = 0, hit_bytes = 0;

 private:
  void Insert(std::uint32_t id) {
    if (!policy_.Admit(TIERD_TIER_RAM, id, free_)) return;
    while (free_ < sizes_[id]) {
      std::uint32_t victims[16];
      const std::size_t count = policy_.Victims(TIERD_TIER_RAM, sizes_[id] - free_, victims);
      if (count == 0) return;
      for (std::size_t i = 0; i < count && free_ < sizes_[id]; ++i) {
        policy_.Removed(TIERD_TIER_RAM, victims[i]);
        free_ += sizes_[victims[i]];
        ++evictions;
      }
    }
    free_ -= sizes_[id];
    policy_.Inserted(TIERD_TIER_RAM, id);
  }

  PolicyInstance& policy_;
  std::span<const std::uint64_t> sizes_;
  std::uint64_t free_;
  std::int64_t now_ns_ = 0;
};

// Steady state under a fresh permutation per epoch: `warm` epochs unmeasured, then `measured` ones.
inline Replay ReplayEpochs(PolicyInstance& policy, std::span<const std::uint64_t> sizes, std::uint64_t capacity, int warm, int measured,
                           std::uint64_t seed) {
  Random random(seed);
  Replay replay(policy, sizes, capacity);
  for (int epoch = 0; epoch < warm + measured; ++epoch) {
    if (epoch == warm) replay.Clear();
    for (std::uint32_t id : Permutation(static_cast<std::uint32_t>(sizes.size()), random)) replay.Access(id);
  }
  return replay;
}

}  // namespace tierd::policies::testing
