// lru against a plain reference, freeze, and both against the formulas of the training order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <numeric>

#include "policies/builtin.h"
#include "tests/policies/replay.h"

namespace tierd::policies {
namespace {

using testing::LogNormalSizes;
using testing::Random;
using testing::Replay;
using testing::ReplayEpochs;

PolicyInstance Make(const tierd_policy_ops* ops, std::uint64_t ram, std::uint64_t ssd = 0) {
  PolicyInstance::Options options;
  options.capacity_bytes[TIERD_TIER_RAM] = ram;
  options.capacity_bytes[TIERD_TIER_SSD] = ssd;
  Result<PolicyInstance> instance = PolicyInstance::Create(*ops, options);
  EXPECT_TRUE(instance.ok()) << instance.status().ToString();
  return std::move(instance).value();
}

// What lru promises, said as slowly as possible.
struct Reference {
  std::list<std::uint32_t> tier[2];  // newest first
  void Remove(std::uint32_t t, std::uint32_t id) { tier[t].remove(id); }
  bool Has(std::uint32_t t, std::uint32_t id) const { return std::find(tier[t].begin(), tier[t].end(), id) != tier[t].end(); }
  void Insert(std::uint32_t t, std::uint32_t id) {
    if (!Has(t, id)) tier[t].push_front(id);
  }
  void Access(std::uint32_t id) {
    for (auto& list : tier) {
      if (std::find(list.begin(), list.end(), id) == list.end()) continue;
      list.remove(id);
      list.push_front(id);
    }
  }
  std::vector<std::uint32_t> Victims(std::uint32_t t, std::uint64_t bytes, std::size_t max, const std::vector<std::uint64_t>& sizes) const {
    std::vector<std::uint32_t> named;
    std::uint64_t freed = 0;
    for (auto it = tier[t].rbegin(); it != tier[t].rend() && named.size() < max && freed < bytes; ++it) {
      named.push_back(*it);
      freed += sizes[*it];
    }
    return named;
  }
};

TEST(Lru, NamesTheVictimsOfTheReferenceOverRandomTraces) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    constexpr std::uint32_t kObjects = 60;
    std::vector<std::uint64_t> sizes(kObjects);
    PolicyInstance lru = Make(LruPolicy(), 1000, 4000);
    for (std::uint32_t id = 0; id < kObjects; ++id) {
      sizes[id] = 1 + random.Below(100);
      lru.ObjectKnown({.id = id * 97, .file_id = id, .chunk = 0, .bytes = sizes[id]});  // ids across several pages
    }
    Reference reference;
    for (int step = 0; step < 4000; ++step) {
      const auto id = static_cast<std::uint32_t>(random.Below(kObjects));
      const auto t = static_cast<std::uint32_t>(random.Below(2));
      switch (random.Below(6)) {
        case 0:
        case 1: lru.Inserted(t, id * 97), reference.Insert(t, id); break;
        case 2: lru.Removed(t, id * 97), reference.Remove(t, id); break;
        case 3:
          if (random.Below(20) != 0) break;
          lru.ObjectForgotten(id * 97);
          reference.Remove(0, id), reference.Remove(1, id);
          sizes[id] = 1 + random.Below(100);
          lru.ObjectKnown({.id = id * 97, .file_id = id, .chunk = 0, .bytes = sizes[id]});
          break;
        default: lru.Accessed({.id = id * 97, .consumer = 0, .time_ns = step, .tier = 0}), reference.Access(id);
      }
      std::vector<std::uint32_t> ids(1 + random.Below(8));
      const std::uint64_t bytes = 1 + random.Below(400);
      const std::size_t max = ids.size();
      ids.resize(lru.Victims(t, bytes, ids));
      for (std::uint32_t& named : ids) named /= 97;
      ASSERT_EQ(ids, reference.Victims(t, bytes, max, sizes)) << "seed " << seed << " step " << step;
    }
    EXPECT_EQ(lru.counters().dropped(), 0u);
  }
}

TEST(Lru, AdmitsWhatFitsIntoTheTierAtAll) {
  PolicyInstance lru = Make(LruPolicy(), 1000, 0);
  lru.ObjectKnown({.id = 1, .file_id = 1, .chunk = 0, .bytes = 1000});
  lru.ObjectKnown({.id = 2, .file_id = 2, .chunk = 0, .bytes = 1001});
  EXPECT_TRUE(lru.Admit(TIERD_TIER_RAM, 1, 0));
  EXPECT_FALSE(lru.Admit(TIERD_TIER_RAM, 2, 5000));
  EXPECT_FALSE(lru.Admit(TIERD_TIER_SSD, 1, 0));
  lru.SetCapacity(TIERD_TIER_RAM, 2000);
  EXPECT_TRUE(lru.Admit(TIERD_TIER_RAM, 2, 0));
  EXPECT_FALSE(lru.Admit(TIERD_TIER_RAM, 3, 5000)) << "never made known";
}

TEST(Lru, WorthFollowsRecencyAndTheOlderHalfIsWorthNothing) {
  PolicyInstance lru = Make(LruPolicy(), 1 << 20, 1 << 20);
  for (std::uint32_t id = 0; id < 100; ++id) {
    lru.ObjectKnown({.id = id, .file_id = id, .chunk = 0, .bytes = 10});
    lru.Inserted(TIERD_TIER_SSD, id);
    lru.Accessed({.id = id, .consumer = 0, .time_ns = 0, .tier = 1});
  }
  for (std::uint32_t id = 0; id < 48; ++id) EXPECT_EQ(lru.Worth(TIERD_TIER_SSD, id), 0) << id;
  for (std::uint32_t id = 52; id < 100; ++id) EXPECT_GT(lru.Worth(TIERD_TIER_SSD, id), lru.Worth(TIERD_TIER_SSD, id - 1)) << id;
  EXPECT_EQ(lru.Worth(TIERD_TIER_RAM, 99), 0) << "not in that tier";
}

// Drawn at random, some objects are not read for long; hardly any leaves for it (disuse_test has the other orders).
TEST(Freeze, HardlyEverNamesAVictimWhileAllIsRead) {
  Random random(7);
  PolicyInstance freeze = Make(FreezePolicy(), 10'000);
  std::vector<std::uint64_t> sizes(500);
  for (auto& size : sizes) size = 16 * (1 + random.Below(10));
  Replay replay(freeze, sizes, 10'000);
  for (int i = 0; i < 50'000; ++i) replay.Access(static_cast<std::uint32_t>(random.Below(sizes.size())));
  EXPECT_LT(replay.evictions, 100u);
  EXPECT_EQ(freeze.counters().dropped(), 0u);
}

TEST(Freeze, RoomThatInvalidationMakesIsFilledAgain) {
  PolicyInstance freeze = Make(FreezePolicy(), 320);
  for (std::uint32_t id = 0; id < 3; ++id) freeze.ObjectKnown({.id = id, .file_id = id, .chunk = 0, .bytes = 160});
  EXPECT_TRUE(freeze.Admit(TIERD_TIER_RAM, 0, 320));
  EXPECT_TRUE(freeze.Admit(TIERD_TIER_RAM, 1, 160));
  EXPECT_FALSE(freeze.Admit(TIERD_TIER_RAM, 2, 0));
  EXPECT_TRUE(freeze.Admit(TIERD_TIER_RAM, 2, 160));
}

TEST(Freeze, TiersAreExclusiveOnceTheDatasetOutgrowsTheSsd) {
  PolicyInstance freeze = Make(FreezePolicy(), 320, 480);
  for (std::uint32_t id = 0; id < 3; ++id) freeze.ObjectKnown({.id = id, .file_id = id, .chunk = 0, .bytes = 160});
  freeze.Inserted(TIERD_TIER_RAM, 0);
  EXPECT_TRUE(freeze.Admit(TIERD_TIER_SSD, 0, 480)) << "all of it fits: a copy below survives a restart";
  freeze.ObjectKnown({.id = 3, .file_id = 3, .chunk = 0, .bytes = 16});
  EXPECT_FALSE(freeze.Admit(TIERD_TIER_SSD, 0, 480));
  EXPECT_TRUE(freeze.Admit(TIERD_TIER_SSD, 1, 480));
  freeze.Removed(TIERD_TIER_RAM, 0);
  EXPECT_TRUE(freeze.Admit(TIERD_TIER_SSD, 0, 480));
  freeze.ObjectForgotten(3);
  freeze.Inserted(TIERD_TIER_RAM, 0);
  EXPECT_TRUE(freeze.Admit(TIERD_TIER_SSD, 0, 480));
}

// Equal sizes, a fresh permutation per epoch, steady state: within .01 of the theory (N = 8,000, f = C/N).
TEST(HitRate, LruUnderPermutationsIsTheFormula) {
  const std::vector<std::uint64_t> sizes(8000, 1024);
  for (double f : {.10, .25, .50, .75, .90}) {
    const auto capacity = static_cast<std::uint64_t>(f * 8000) * 1024;
    PolicyInstance lru = Make(LruPolicy(), capacity);
    const Replay replay = ReplayEpochs(lru, sizes, capacity, 2, 10, 42);
    EXPECT_NEAR(replay.HitRate(), f + (1 - f) * std::log(1 - f), .01) << "f = " << f;
    EXPECT_EQ(lru.counters().dropped(), 0u);
    std::printf("lru    f=%.2f hit=%.4f theory=%.4f\n", f, replay.HitRate(), f + (1 - f) * std::log(1 - f));
  }
}

TEST(HitRate, FreezeUnderPermutationsIsTheResidentShare) {
  const std::vector<std::uint64_t> sizes(8000, 1024);
  for (double f : {.10, .25, .50, .75, .90}) {
    const auto capacity = static_cast<std::uint64_t>(f * 8000) * 1024;
    PolicyInstance freeze = Make(FreezePolicy(), capacity);
    const Replay replay = ReplayEpochs(freeze, sizes, capacity, 1, 5, 42);
    EXPECT_NEAR(replay.HitRate(), f, .01) << "f = " << f;
  }
}

TEST(HitRate, FreezeOnLogNormalSizesHitsTheResidentBytes) {
  Random random(11);
  const std::vector<std::uint64_t> sizes = LogNormalSizes(8000, 100'000, .5, random);
  const auto total = static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}));
  for (double f : {.25, .50}) {
    const auto capacity = static_cast<std::uint64_t>(f * total);
    PolicyInstance freeze = Make(FreezePolicy(), capacity);
    const Replay replay = ReplayEpochs(freeze, sizes, capacity, 1, 5, 42);
    EXPECT_NEAR(replay.ByteHitRate(), f, .02) << "f = " << f;
    EXPECT_NEAR(replay.HitRate(), f, .02) << "f = " << f;
    std::printf("freeze f=%.2f hit=%.4f bytes=%.4f (log-normal)\n", f, replay.HitRate(), replay.ByteHitRate());
  }
}

TEST(PolicyState, EventsCostTheSameAtTenMillionObjects) {
  // No element moves when the arrays grow: a policy may not stall the loop. (The time itself is not asserted: no real clock in tests.)
  PolicyInstance lru = Make(LruPolicy(), 1 << 20);
  for (std::uint32_t id = 0; id < 10'000'000; id += 4096) lru.ObjectKnown({.id = id, .file_id = id, .chunk = 0, .bytes = 1});
  lru.Inserted(TIERD_TIER_RAM, 9'998'336);
  std::uint32_t victims[2];
  EXPECT_EQ(lru.Victims(TIERD_TIER_RAM, 100, victims), 1u);
  EXPECT_EQ(victims[0], 9'998'336u);
}

}  // namespace
}  // namespace tierd::policies
