#include "policies/orders/epoch_watcher.h"

#include <gtest/gtest.h>

#include "policies/orders/seed_search.h"
#include "tests/policies/orders/loader.h"

namespace tierd::orders {
namespace {

using testing::Load;

std::vector<std::uint32_t> Epoch(std::uint32_t n, std::uint32_t seed, std::uint32_t world = 1, std::uint32_t rank = 0) {
  OrderFit fit;
  fit.stride = world;
  fit.offsets = {rank};
  return EntriesOf(PermutationOf(Recipe::kFresh, seed, n), fit);
}

// Boundaries noticed, as numbers of accesses since the start.
std::vector<std::size_t> Boundaries(EpochWatcher& watcher, const std::vector<SampleAccess>& accesses) {
  std::vector<std::size_t> noticed;
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    if (watcher.Observe(accesses[i])) noticed.push_back(i);
  }
  return noticed;
}

TEST(EpochWatcher, NoticesTheEpochsOfRanksThatSeeANewPartEachTime) {
  for (const std::uint32_t world : {1u, 2u, 4u, 16u}) {
    constexpr std::uint32_t kSamples = 16'000;
    std::mt19937 random(world);
    EpochWatcher watcher(kSamples);
    const std::size_t each = kSamples / world;
    for (std::uint32_t epoch = 0; epoch < 6; ++epoch) {
      const std::vector<std::size_t> noticed = Boundaries(watcher, Load(Epoch(kSamples, 7 + epoch, world, 1 % world), {}, random));
      ASSERT_EQ(noticed.size(), epoch == 0 ? 0u : 1u) << "world " << world << " epoch " << epoch;
      if (epoch > 0) {
        EXPECT_LT(noticed[0], 12 * world + 16) << "world " << world << " epoch " << epoch;
        EXPECT_NEAR(static_cast<double>(watcher.length()), static_cast<double>(each), 6.0 * world + 16);
      }
    }
    EXPECT_EQ(watcher.epoch(), 5u);
    EXPECT_EQ(watcher.same_orders(), 0u);
  }
}

// What is left of an epoch when the watcher comes is read again all over the next one, as if at a steady rate.
TEST(EpochWatcher, NoticesEpochsWhereverItBegins) {
  for (const std::uint32_t samples : {168u, 1003u, 16'000u}) {
    // The place it begins at anew suits powers of two.
    for (const auto& [world, passes] : {std::pair{1u, 3u}, {2u, 3u}, {3u, 8u}, {4u, 3u}}) {
      const std::size_t each = (samples + world - 1) / world;
      if (each < 64) continue;
      for (std::size_t tenth = 0; tenth < 10; ++tenth) {
        const std::size_t left = 1 + tenth * (each - 1) / 10;
        std::mt19937 random(static_cast<unsigned>(left));
        EpochWatcher watcher(samples);
        std::vector<SampleAccess> before = Load(Epoch(samples, 7, world, 0), {.workers = 2, .batch = 7}, random);
        before.erase(before.begin(), before.end() - static_cast<std::ptrdiff_t>(left));
        Boundaries(watcher, before);
        std::uint32_t epoch = 0;
        while (watcher.epoch() == 0 && epoch < 8 * world) Boundaries(watcher, Load(Epoch(samples, 8 + epoch++, world, 0), {.workers = 2, .batch = 7}, random));
        EXPECT_LT(epoch, passes * world + 2) << samples << " samples, world " << world << ", " << left << " left";
        const std::uint32_t known = watcher.epoch();
        for (std::uint32_t more = 0; more < 3 * world + 6; ++more) Boundaries(watcher, Load(Epoch(samples, 8 + epoch++, world, 0), {.workers = 2, .batch = 7}, random));
        EXPECT_GE(watcher.epoch(), known + 3) << samples << " samples, world " << world << ", " << left << " left";
      }
    }
  }
}

TEST(EpochWatcher, SaysThatTheOrderNeverChanges) {
  constexpr std::uint32_t kSamples = 8000;
  std::mt19937 random(1);
  EpochWatcher forgotten(kSamples);
  EpochWatcher sequential(kSamples);
  std::vector<std::uint32_t> sorted = PermutationOf(Recipe::kIdentity, 0, kSamples);
  for (int epoch = 0; epoch < 4; ++epoch) {
    Boundaries(forgotten, Load(Epoch(kSamples, 7, 2, 1), {.workers = 2, .batch = 8}, random));
    Boundaries(sequential, Load(sorted, {.workers = 0}, random));
  }
  EXPECT_EQ(forgotten.epoch(), 3u);
  EXPECT_EQ(forgotten.same_orders(), 3u);
  EXPECT_EQ(sequential.epoch(), 3u);
  EXPECT_EQ(sequential.same_orders(), 0u) << "nobody meant to shuffle";
}

TEST(EpochWatcher, RepeatsAtASteadyRateAreNoEpoch) {
  constexpr std::uint32_t kSamples = 20'000;
  std::mt19937 random(2);
  EpochWatcher twice(kSamples);
  std::vector<SampleAccess> accesses;
  for (const std::uint32_t index : Epoch(kSamples, 1)) {
    accesses.push_back({0, index});
    if (random() % 20 == 0) accesses.push_back({0, accesses[random() % accesses.size()].index});
  }
  EXPECT_TRUE(Boundaries(twice, accesses).empty());
  EpochWatcher replacement(kSamples);
  accesses.clear();
  for (std::uint32_t i = 0; i < kSamples; ++i) accesses.push_back({0, static_cast<std::uint32_t>(random() % kSamples)});
  EXPECT_LE(Boundaries(replacement, accesses).size(), 1u);
}

TEST(RuleOf, SeedsOfEpochs) {
  EXPECT_EQ(RuleOf(std::vector<std::uint32_t>{4}), SeedRule::kUnknown);
  EXPECT_EQ(RuleOf(std::vector<std::uint32_t>{4, 5, 6}), SeedRule::kPerEpoch);
  EXPECT_EQ(RuleOf(std::vector<std::uint32_t>{UINT32_MAX, 0}), SeedRule::kPerEpoch);
  EXPECT_EQ(RuleOf(std::vector<std::uint32_t>{4, 4}), SeedRule::kSame);
  EXPECT_EQ(RuleOf(std::vector<std::uint32_t>{4, 5, 9}), SeedRule::kFresh);
}

}  // namespace
}  // namespace tierd::orders
