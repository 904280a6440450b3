// belady through the C ABI: against MIN computed by brute force, without a plan, with one that turns out wrong, over two tiers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "policies/builtin.h"
#include "tests/policies/replay.h"

namespace tierd::policies {
namespace {

using testing::Permutation;
using testing::Random;
using testing::Replay;

PolicyInstance Make(std::uint64_t ram, std::uint64_t ssd = 0, const std::string& parameters = "") {
  PolicyInstance::Options options;
  options.capacity_bytes[TIERD_TIER_RAM] = ram;
  options.capacity_bytes[TIERD_TIER_SSD] = ssd;
  options.parameters = parameters;
  Result<PolicyInstance> instance = PolicyInstance::Create(*BeladyPolicy(), options);
  EXPECT_TRUE(instance.ok()) << instance.status().ToString();
  return std::move(instance).value();
}

// MIN with bypass, equal sizes, by looking through the whole future each time.
std::uint64_t BestHits(const std::vector<std::uint32_t>& accesses, std::size_t capacity) {
  std::vector<std::uint32_t> cache;
  std::uint64_t hits = 0;
  for (std::size_t t = 0; t < accesses.size(); ++t) {
    if (std::find(cache.begin(), cache.end(), accesses[t]) != cache.end()) {
      ++hits;
      continue;
    }
    cache.push_back(accesses[t]);
    if (cache.size() <= capacity) continue;
    std::size_t worst = 0;
    std::size_t furthest = 0;
    for (std::size_t i = 0; i < cache.size(); ++i) {
      const auto next = static_cast<std::size_t>(std::find(accesses.begin() + static_cast<std::ptrdiff_t>(t) + 1, accesses.end(), cache[i]) - accesses.begin());
      if (next >= furthest) worst = i, furthest = next;
    }
    cache.erase(cache.begin() + static_cast<std::ptrdiff_t>(worst));
  }
  return hits;
}

TEST(Belady, HitsAsOftenAsIsPossible) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    Random random(seed);
    const auto objects = static_cast<std::uint32_t>(20 + random.Below(60));
    const std::size_t capacity = 1 + random.Below(objects);
    std::vector<std::uint32_t> accesses;
    for (int epoch = 0; epoch < 6; ++epoch) {
      // A part of the dataset each epoch, as a node of several sees it; sometimes with repeats.
      std::vector<std::uint32_t> order = Permutation(objects, random);
      if (seed % 2 == 0) order.resize(order.size() / 2);
      if (seed % 3 == 0) order.push_back(order[random.Below(order.size())]);
      accesses.insert(accesses.end(), order.begin(), order.end());
    }
    const std::vector<std::uint64_t> sizes(objects, 100);
    PolicyInstance belady = Make(capacity * 100, 0, "window=1");
    Replay replay(belady, sizes, capacity * 100);
    belady.Plan(TIERD_CONSUMER_ALL, 0, accesses);
    for (const std::uint32_t id : accesses) replay.Access(id);
    EXPECT_EQ(replay.hits, BestHits(accesses, capacity)) << "seed " << seed << " objects " << objects << " capacity " << capacity;
    EXPECT_EQ(belady.counters().dropped(), 0u);
  }
}

TEST(Belady, WithoutAPlanItDoesAsFreeze) {
  const std::vector<std::uint64_t> sizes(4000, 1024);
  const std::uint64_t capacity = 1000 * 1024;
  PolicyInstance belady = Make(capacity);
  const Replay replay = testing::ReplayEpochs(belady, sizes, capacity, 1, 4, 3);
  EXPECT_NEAR(replay.HitRate(), .25, .001);
  EXPECT_EQ(replay.evictions, 0u);
}

TEST(Belady, APlanThatIsWithdrawnLeavesFreezeBehind) {
  Random random(1);
  const std::vector<std::uint64_t> sizes(4000, 1024);
  const std::uint64_t capacity = 1000 * 1024;
  PolicyInstance belady = Make(capacity);
  Replay replay(belady, sizes, capacity);
  for (std::uint32_t epoch = 0; epoch < 3; ++epoch) belady.Plan(TIERD_CONSUMER_ALL, epoch, Permutation(4000, random));
  for (int i = 0; i < 3000; ++i) replay.Access(static_cast<std::uint32_t>(random.Below(4000)));
  belady.WithdrawPlan(TIERD_CONSUMER_ALL);
  for (const std::uint32_t id : Permutation(4000, random)) replay.Access(id);
  replay.Clear();
  for (const std::uint32_t id : Permutation(4000, random)) replay.Access(id);
  EXPECT_GE(replay.HitRate(), .25 - .01);
  EXPECT_EQ(belady.counters().dropped(), 0u);
}

// Adversarial: what is read is not what was announced. Never worse than not evicting at all (less the objects that a wrong plan put there).
TEST(Belady, WithAWrongPlanItIsNoWorseThanFreeze) {
  Random random(2);
  const std::vector<std::uint64_t> sizes(4000, 1024);
  const std::uint64_t capacity = 2000 * 1024;
  PolicyInstance belady = Make(capacity);
  Replay replay(belady, sizes, capacity);
  for (std::uint32_t epoch = 0; epoch < 8; ++epoch) belady.Plan(TIERD_CONSUMER_ALL, epoch, Permutation(4000, random));
  for (std::uint32_t epoch = 0; epoch < 6; ++epoch) {
    if (epoch == 1) replay.Clear();
    for (const std::uint32_t id : Permutation(4000, random)) replay.Access(id);
  }
  EXPECT_GE(replay.HitRate(), .5 - .01);
}

TEST(Belady, EpochsInPiecesAreTheSame) {
  Random random(3);
  const std::vector<std::uint32_t> order = Permutation(1000, random);
  PolicyInstance whole = Make(100 * 10);
  PolicyInstance pieces = Make(100 * 10);
  const std::vector<std::uint64_t> sizes(1000, 10);
  Replay a(whole, sizes, 1000);
  Replay b(pieces, sizes, 1000);
  whole.Plan(0, 0, order);
  for (std::uint32_t first = 0; first < 1000; first += 300) pieces.Plan(0, 0, std::span(order).subspan(first, std::min(300u, 1000 - first)), first);
  whole.Plan(0, 1, order);
  pieces.Plan(0, 1, order);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const std::uint32_t id : order) a.Access(id), b.Access(id);
  }
  EXPECT_EQ(a.hits, b.hits);
  EXPECT_EQ(a.hits, 100u);
}

TEST(Belady, BringsWhatIsUsedFirstAndSaysWhen) {
  PolicyInstance belady = Make(300, 0, "window=4");
  for (std::uint32_t id = 0; id < 20; ++id) belady.ObjectKnown({.id = id, .file_id = id, .chunk = 0, .bytes = 100});
  const std::vector<std::uint32_t> order = {7, 3, 9, 1, 7, 5};
  belady.Plan(0, 0, order);
  belady.Inserted(TIERD_TIER_RAM, 3);
  tierd_candidate out[8];
  ASSERT_EQ(belady.Next(TIERD_TIER_RAM, 1000, out), 4u);
  EXPECT_EQ(out[0].id, 7u);
  EXPECT_EQ(out[1].id, 9u);
  EXPECT_EQ(out[2].id, 1u);
  EXPECT_EQ(out[3].id, 5u);
  EXPECT_TRUE(belady.Admit(TIERD_TIER_RAM, 7, 200, TIERD_AHEAD));
  belady.Inserted(TIERD_TIER_RAM, 7);
  belady.Inserted(TIERD_TIER_RAM, 9);
  EXPECT_FALSE(belady.Admit(TIERD_TIER_RAM, 1, 0, TIERD_AHEAD)) << "used after all that are there";
  EXPECT_FALSE(belady.Admit(TIERD_TIER_RAM, 20, 0, TIERD_AHEAD));
  std::uint32_t victims[4];
  ASSERT_EQ(belady.Victims(TIERD_TIER_RAM, 250, victims), 3u);
  EXPECT_EQ(victims[0], 9u);
  EXPECT_EQ(victims[1], 3u);
  EXPECT_GT(belady.Worth(TIERD_TIER_RAM, 7), belady.Worth(TIERD_TIER_RAM, 9));
  EXPECT_EQ(belady.Worth(TIERD_TIER_RAM, 12), 0);
}

TEST(Belady, TiersAreExclusiveAndOrderedByUse) {
  PolicyInstance belady = Make(200, 300);
  for (std::uint32_t id = 0; id < 8; ++id) belady.ObjectKnown({.id = id, .file_id = id, .chunk = 0, .bytes = 100});
  const std::vector<std::uint32_t> order = {0, 1, 2, 3, 4, 5, 6, 7};
  belady.Plan(0, 0, order);
  belady.Plan(0, 1, order);
  belady.Inserted(TIERD_TIER_RAM, 0);
  EXPECT_FALSE(belady.Admit(TIERD_TIER_SSD, 0, 300, TIERD_COPY)) << "it is in RAM, and the SSD does not hold all";
  EXPECT_TRUE(belady.Admit(TIERD_TIER_SSD, 0, 300, TIERD_DEMOTION));
  for (const std::uint32_t id : {3u, 5u, 7u}) belady.Inserted(TIERD_TIER_SSD, id);
  EXPECT_TRUE(belady.Admit(TIERD_TIER_SSD, 4, 0, TIERD_DEMOTION));
  std::uint32_t victims[1];
  ASSERT_EQ(belady.Victims(TIERD_TIER_SSD, 100, victims), 1u);
  EXPECT_EQ(victims[0], 7u);
}

TEST(Belady, RefusesParametersItDoesNotKnow) {
  PolicyInstance::Options options;
  options.parameters = "window=x";
  EXPECT_FALSE(PolicyInstance::Create(*BeladyPolicy(), options).ok());
  options.parameters = "depth=3";
  const auto refused = PolicyInstance::Create(*BeladyPolicy(), options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("depth=3"), std::string::npos);
}

// What a read from the source costs beside its bytes, in bytes. Sizes differ; the plan is known.
struct Costs {
  double bytes = 0, misses = 0;
  double Of(double operation_bytes) const { return bytes + misses * operation_bytes; }
};
Costs SourceCosts(const std::string& parameters, std::uint32_t part, std::uint64_t capacity, std::span<const std::uint64_t> sizes) {
  Random random(4);
  const auto objects = static_cast<std::uint32_t>(sizes.size());
  PolicyInstance belady = Make(capacity, 0, parameters);
  Replay replay(belady, sizes, capacity);
  std::vector<std::vector<std::uint32_t>> epochs;
  for (std::uint32_t epoch = 0; epoch < 24; ++epoch) {
    epochs.push_back(Permutation(objects, random));
    epochs.back().resize(part);
    belady.Plan(TIERD_CONSUMER_ALL, epoch, epochs.back());
  }
  for (std::uint32_t epoch = 0; epoch < epochs.size(); ++epoch) {
    if (epoch == 8) replay.Clear();
    for (const std::uint32_t id : epochs[epoch]) replay.Access(id);
  }
  EXPECT_EQ(belady.counters().dropped(), 0u);
  return {.bytes = static_cast<double>(replay.bytes - replay.hit_bytes), .misses = static_cast<double>(replay.accesses - replay.hits)};
}

TEST(Belady, WeighsOperationsAgainstBytes) {
  Random random(8);
  const std::vector<std::uint64_t> sizes = testing::LogNormalSizes(1500, 60'000, 1, random);
  const std::uint64_t all = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
  for (const std::uint32_t part : {1500u, 375u}) {  // one reader; one of four
    const std::uint64_t capacity = all / 4 * part / 1500;
    const Costs plain = SourceCosts("", part, capacity, sizes);
    const Costs even = SourceCosts("operation_bytes=100000", part, capacity, sizes);
    const Costs many = SourceCosts("operation_bytes=10000000", part, capacity, sizes);
    std::printf("part %u: misses %.0f %.0f %.0f, GB %.3f %.3f %.3f\n", part, plain.misses, even.misses, many.misses, plain.bytes * 1e-9, even.bytes * 1e-9, many.bytes * 1e-9);
    EXPECT_LT(even.Of(1e5), .99 * plain.Of(1e5)) << "plain belady costs more where an operation costs as much as 100,000 bytes";
    EXPECT_LT(many.Of(1e7), .9 * plain.Of(1e7));
    EXPECT_LT(many.misses, even.misses);
    EXPECT_LE(plain.bytes, even.bytes * 1.01) << "and it is the best where only bytes count";
  }
}

// Equal sizes: whatever an operation costs, next use decides.
TEST(Belady, OperationsDoNotMatterWhereSizesAreEqual) {
  const std::vector<std::uint64_t> sizes(800, 1000);
  EXPECT_EQ(SourceCosts("", 200, 100'000, sizes).misses, SourceCosts("operation_bytes=123456", 200, 100'000, sizes).misses);
}

// Two sizes, one epoch after another: what saves most per byte stays. 100 of 10,000 bytes and 100 of 90,000, room for 1 MB: all small ones, if it were not for
// large ones that are read again at once.
TEST(Belady, KeepsTheSmallOnesWhereOperationsCount) {
  std::vector<std::uint64_t> sizes;
  for (int i = 0; i < 200; ++i) sizes.push_back(i % 2 == 0 ? 10'000 : 90'000);
  const Costs costs = SourceCosts("operation_bytes=1000000000", 200, 1'000'000, sizes);
  EXPECT_GE(costs.misses, 16 * 100) << "the bound";
  EXPECT_LT(costs.misses, 16 * 125);
  EXPECT_GT(SourceCosts("", 200, 1'000'000, sizes).misses, 16 * 170);
}

}  // namespace
}  // namespace tierd::policies
