// importance: keeps what the application says is worth most; a SHADE-like sampler beside lru, lfu and freeze.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <vector>

#include "policies/builtin.h"
#include "policies/sim/cache.h"
#include "tests/policies/replay.h"

namespace tierd::policies {
namespace {

using testing::Random;

sim::Cache Make(const tierd_policy_ops& policy, std::span<const std::uint64_t> sizes, std::uint64_t ram, std::uint64_t ssd = 0) {
  sim::CacheOptions options;
  options.capacity_bytes[TIERD_TIER_RAM] = ram;
  options.capacity_bytes[TIERD_TIER_SSD] = ssd;
  return std::move(sim::Cache::Create(policy, sizes, options)).value();
}

void Tell(sim::Cache& cache, const std::vector<double>& priorities) {
  std::vector<std::uint32_t> ids(priorities.size());
  std::iota(ids.begin(), ids.end(), 0u);
  cache.policy().Prioritize(ids, priorities);
}

// Draws with replacement, in proportion to weights that change a little with every epoch: few samples are hard, and are read again and again. The sampler tells
// the cache what it tells itself, before each epoch.
class Sampler {
 public:
  explicit Sampler(std::uint32_t samples) : random_(17), weights_(samples) {
    for (double& weight : weights_) weight = 1 / (.02 + random_.Unit());  // the hardest fifty times as often as the easiest
  }
  std::vector<std::uint32_t> Epoch() {
    for (double& weight : weights_) weight *= .9 + .2 * random_.Unit();
    std::vector<double> sums(weights_.size());
    std::partial_sum(weights_.begin(), weights_.end(), sums.begin());
    std::vector<std::uint32_t> order(weights_.size());
    for (std::uint32_t& id : order) id = static_cast<std::uint32_t>(std::lower_bound(sums.begin(), sums.end() - 1, random_.Unit() * sums.back()) - sums.begin());
    return order;
  }
  const std::vector<double>& weights() const { return weights_; }
  // What the best set of so many would hit.
  double Best(std::size_t count) const {
    std::vector<double> sorted = weights_;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    return std::accumulate(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(count), 0.0) / std::accumulate(sorted.begin(), sorted.end(), 0.0);
  }

 private:
  Random random_;
  std::vector<double> weights_;
};

TEST(Importance, HitsWhatAnImportanceSamplerDraws) {
  constexpr std::uint32_t kSamples = 4000;
  const std::vector<std::uint64_t> sizes(kSamples, 1000);
  for (const double share : {.1, .25, .5}) {
    const auto room = static_cast<std::size_t>(share * kSamples);
    std::vector<double> rates;
    double best = 0;
    for (const tierd_policy_ops* policy : {ImportancePolicy(), LruPolicy(), FreezePolicy(), LfuPolicy()}) {
      Sampler sampler(kSamples);
      sim::Cache cache = Make(*policy, sizes, room * 1000);
      sim::CacheCounts before;
      for (int epoch = 0; epoch < 20; ++epoch) {
        const std::vector<std::uint32_t> order = sampler.Epoch();
        if (epoch == 5) before = cache.counts();
        Tell(cache, sampler.weights());
        cache.Read(order);
      }
      best = sampler.Best(room);
      rates.push_back((cache.counts() - before).hit_rate());
      EXPECT_EQ(cache.policy().counters().dropped(), 0u);
    }
    std::printf("share %.2f: importance %.3f lru %.3f freeze %.3f lfu %.3f, the best set %.3f\n", share, rates[0], rates[1], rates[2], rates[3], best);
    EXPECT_GT(rates[0], best - .04);
    EXPECT_GT(rates[0], rates[1] + .06) << "lru";
    EXPECT_GT(rates[0], rates[2] + .06) << "freeze";
  }
}

TEST(Importance, DoesAsFreezeAsLongAsNothingIsSaid) {
  Random random(2);
  const std::vector<std::uint64_t> sizes(1000, 10);
  sim::Cache cache = Make(*ImportancePolicy(), sizes, 2500);
  for (int epoch = 0; epoch < 3; ++epoch) cache.Read(testing::Permutation(1000, random));
  EXPECT_EQ(cache.counts().evictions[TIERD_TIER_RAM], 0u);
  EXPECT_EQ(cache.counts().reads[0], 2 * 250u);
}

TEST(Importance, TheLatestWordCounts) {
  const std::vector<std::uint64_t> sizes(4, 10);
  sim::Cache cache = Make(*ImportancePolicy(), sizes, 20);
  const auto read = [&](std::uint32_t id) { cache.Read(std::span(&id, 1)); };
  Tell(cache, {1, 2, 3, 0});
  read(0), read(1), read(2);
  EXPECT_FALSE(cache.policy().IsIn(TIERD_TIER_RAM, 0)) << "the least of three";
  read(3);
  EXPECT_FALSE(cache.policy().IsIn(TIERD_TIER_RAM, 3)) << "worth nothing";
  Tell(cache, {1, 2, 3, 9});
  read(3);
  EXPECT_TRUE(cache.policy().IsIn(TIERD_TIER_RAM, 3));
  EXPECT_FALSE(cache.policy().IsIn(TIERD_TIER_RAM, 1));
}

TEST(Importance, LooksAtWorthPerByte) {
  const std::vector<std::uint64_t> sizes = {100, 10, 10, 80};
  sim::Cache cache = Make(*ImportancePolicy(), sizes, 100);
  const auto read = [&](std::uint32_t id) { cache.Read(std::span(&id, 1)); };
  Tell(cache, {5, 1, 2, 4});
  read(0), read(1);
  EXPECT_TRUE(cache.policy().IsIn(TIERD_TIER_RAM, 0)) << "1 is worth less than what would leave for it, all of 5";
  Tell(cache, {5, 6, 2, 4});
  read(1), read(2), read(3);
  EXPECT_FALSE(cache.policy().IsIn(TIERD_TIER_RAM, 0));
  for (const std::uint32_t id : {1u, 2u, 3u}) EXPECT_TRUE(cache.policy().IsIn(TIERD_TIER_RAM, id)) << id;
}

// What leaves RAM is offered to the SSD, which keeps the next best; no object is in both where they do not hold all.
TEST(Importance, TheSsdHasTheNextBest) {
  std::vector<std::uint64_t> sizes(100, 10);
  sim::Cache cache = Make(*ImportancePolicy(), sizes, 200, 300);
  std::vector<double> priorities(100);
  for (std::size_t id = 0; id < 100; ++id) priorities[id] = 1 + static_cast<double>(id);
  Tell(cache, priorities);
  Random random(5);
  for (int epoch = 0; epoch < 4; ++epoch) cache.Read(testing::Permutation(100, random));
  for (std::uint32_t id = 0; id < 100; ++id) {
    EXPECT_EQ(cache.policy().IsIn(TIERD_TIER_RAM, id), id >= 80) << id;
    EXPECT_EQ(cache.policy().IsIn(TIERD_TIER_SSD, id), id >= 50 && id < 80) << id;
  }
}

}  // namespace
}  // namespace tierd::policies
