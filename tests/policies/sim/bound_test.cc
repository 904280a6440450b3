// The bound: against every choice that there is, against Belady's algorithm and other policies over random reads, and where a formula says it.
#include "policies/sim/bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "policies/builtin.h"
#include "policies/sim/cache.h"
#include "tests/policies/replay.h"

namespace tierd::sim {
namespace {

using policies::testing::LogNormalSizes;
using policies::testing::Permutation;
using policies::testing::Random;

std::vector<std::uint32_t> Epochs(std::uint32_t objects, std::size_t part, int epochs, Random& random) {
  std::vector<std::uint32_t> ids;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const std::vector<std::uint32_t> order = Permutation(objects, random);
    ids.insert(ids.end(), order.begin(), order.begin() + static_cast<std::ptrdiff_t>(part));
  }
  return ids;
}

CacheCounts Simulate(const tierd_policy_ops& policy, const std::vector<std::uint32_t>& ids, const std::vector<std::uint64_t>& sizes, std::uint64_t capacity) {
  CacheOptions options;
  options.capacity_bytes[TIERD_TIER_RAM] = capacity;
  options.parameters = std::string_view(policy.name) == "belady" ? "window=1" : "";
  Result<Cache> cache = Cache::Create(policy, sizes, options);
  EXPECT_TRUE(cache.ok()) << cache.status().ToString();
  if (policy.plan != nullptr) cache->policy().Plan(TIERD_CONSUMER_ALL, 0, ids);
  cache->Read(ids);
  return cache->counts();
}

// The least source bytes and the least source reads by trying every set of objects that can be kept after each read.
std::pair<std::uint64_t, std::uint64_t> BruteForce(const std::vector<std::uint32_t>& ids, const std::vector<std::uint64_t>& sizes, std::uint64_t capacity) {
  const auto cheapest = [&](bool bytes) {
    std::map<std::uint32_t, std::uint64_t> costs = {{0, 0}};  // by what is kept
    for (const std::uint32_t id : ids) {
      std::map<std::uint32_t, std::uint64_t> next;
      for (const auto& [kept, cost] : costs) {
        const std::uint64_t paid = cost + ((kept >> id & 1) != 0 ? 0 : bytes ? sizes[id] : 1);
        const std::uint32_t most = kept | 1u << id;
        for (std::uint32_t keep = most;; keep = (keep - 1) & most) {
          std::uint64_t used = 0;
          for (std::size_t i = 0; i < sizes.size(); ++i) used += (keep >> i & 1) != 0 ? sizes[i] : 0;
          if (used <= capacity) {
            const auto [at, is_new] = next.try_emplace(keep, paid);
            if (!is_new) at->second = std::min(at->second, paid);
          }
          if (keep == 0) break;
        }
      }
      costs = std::move(next);
    }
    return std::min_element(costs.begin(), costs.end(), [](const auto& a, const auto& b) { return a.second < b.second; })->second;
  };
  return {cheapest(true), cheapest(false)};
}

TEST(Bound, IsWhatBeladyNeedsWhereSizesAreEqual) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Random random(seed);
    const std::vector<std::uint64_t> sizes(200, 100);
    const std::vector<std::uint32_t> ids = Epochs(200, seed % 2 == 0 ? 200 : 60, 8, random);
    const std::uint64_t capacity = 100 * (1 + random.Below(150)) + 7;
    const LeastSource least = LeastFromSource(ids, sizes, capacity, 0);
    const CacheCounts belady = Simulate(*policies::BeladyPolicy(), ids, sizes, capacity);
    EXPECT_EQ(least.reads, static_cast<double>(belady.reads[2])) << "seed " << seed;
    EXPECT_EQ(least.bytes, static_cast<double>(belady.bytes[2])) << "seed " << seed;
  }
}

TEST(Bound, IsCapacityPerEpochForOneReader) {
  Random random(5);
  const std::vector<std::uint64_t> sizes(1000, 10);
  const std::vector<std::uint32_t> ids = Epochs(1000, 1000, 5, random);
  EXPECT_EQ(LeastFromSource(ids, sizes, 2500, 0).reads, 1000 + 4 * 750);
  EXPECT_EQ(LeastFromSource(ids, sizes, 2500, 1000).reads, 4 * 750) << "with a full cache at the beginning";
  EXPECT_EQ(LeastFromSource(ids, sizes, 10'000, 1000).bytes, 0);
  EXPECT_EQ(LeastFromSource(ids, sizes, 0, 1000).reads, 4000);
  EXPECT_EQ(LeastFromSource(ids, sizes, 0, 5000).reads, 0) << "nothing counts";
}

TEST(Bound, IsNeverAboveWhatCanBeReached) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    std::vector<std::uint64_t> sizes(6);
    for (std::uint64_t& size : sizes) size = 1 + random.Below(9);
    std::vector<std::uint32_t> ids;
    for (int i = 0; i < 24; ++i) ids.push_back(static_cast<std::uint32_t>(random.Below(sizes.size())));
    if (seed % 2 == 0) ids = Epochs(6, 6, 4, random);
    const std::uint64_t capacity = 1 + random.Below(20);
    const auto [bytes, reads] = BruteForce(ids, sizes, capacity);
    const LeastSource least = LeastFromSource(ids, sizes, capacity, 0);
    EXPECT_LE(least.bytes, static_cast<double>(bytes)) << "seed " << seed;
    EXPECT_LE(least.reads, static_cast<double>(reads) + 1e-9) << "seed " << seed;
    EXPECT_GE(least.bytes, .6 * static_cast<double>(bytes)) << "seed " << seed << ": far from it";
  }
}

// One reader, unequal sizes: only what was there when an epoch began can be a hit, and the smallest are the most.
TEST(Bound, CountsTheSmallestThatFitAsHits) {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t i = 0; i < 100; ++i) sizes.push_back(i < 50 ? 10 : 90);
  Random random(3);
  const std::vector<std::uint32_t> ids = Epochs(100, 100, 4, random);
  const LeastSource least = LeastFromSource(ids, sizes, 500 + 90 * 10 + 45, 100);
  EXPECT_NEAR(least.reads, 3 * (50 - 10.5), 1e-6);
  EXPECT_EQ(least.bytes, 3 * (5000 - 1445));
}

TEST(Bound, NoPolicyIsBelow) {
  Random random(11);
  const std::vector<std::uint64_t> sizes = LogNormalSizes(500, 1000, 1, random);
  std::uint64_t all = 0;
  for (const std::uint64_t size : sizes) all += size;
  for (const std::size_t part : {500, 125}) {
    const std::vector<std::uint32_t> ids = Epochs(500, part, 12, random);
    const LeastSource least = LeastFromSource(ids, sizes, all / 4, 0);
    for (const tierd_policy_ops* policy : {policies::BeladyPolicy(), policies::LruPolicy(), policies::FreezePolicy(), policies::RandomPolicy()}) {
      const CacheCounts counts = Simulate(*policy, ids, sizes, all / 4);
      EXPECT_GE(static_cast<double>(counts.bytes[2]), least.bytes) << policy->name;
      EXPECT_GE(static_cast<double>(counts.reads[2]), least.reads) << policy->name;
    }
  }
}

}  // namespace
}  // namespace tierd::sim
