// How few accesses say which of so many permutations is read, and that fewer are not asked.
#include "policies/orders/evidence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "policies/orders/order_fit.h"
#include "policies/orders/seed_search.h"
#include "tests/policies/orders/loader.h"

namespace tierd::orders {
namespace {

using testing::Load;

SeedSearch::State RunToTheEnd(SeedSearch& search) {
  SeedSearch::State state;
  do state = search.Advance(5000);
  while (state == SeedSearch::State::kSearching);
  return state;
}

std::vector<std::uint32_t> Part(const std::vector<std::uint32_t>& order, std::uint32_t world, std::uint32_t rank) {
  std::vector<std::uint32_t> part;
  for (std::size_t i = rank; i < order.size(); i += world) part.push_back(order[i]);
  return part;
}

TEST(Evidence, LogarithmsOfFactorials) {
  double sum = 0;
  EXPECT_EQ(LogFactorial(0), 0);
  for (int n = 1; n <= 5000; ++n) {
    sum += std::log(n);
    ASSERT_NEAR(LogFactorial(n), sum, 1e-3) << n;
  }
  EXPECT_NEAR(LogChoose(40, 16), std::log(62'852'101'650.0), 1e-3);
  EXPECT_NEAR(LogChoose(7, 7), 0, 1e-3);
}

TEST(Evidence, OfASetIsTheLogarithmOfItsOrders) {
  Observation one{.samples = 20, .accesses = {}};
  for (std::uint32_t i = 0; i < 20; ++i) one.accesses.push_back({3, i});
  EXPECT_NEAR(MostEvidence(one), LogFactorial(20), 1e-3);
  one.accesses.push_back({3, 5});
  one.accesses.push_back({4, 6});
  EXPECT_NEAR(MostEvidence(one), LogFactorial(20), 1e-3) << "what is read again says nothing";
  for (SampleAccess& access : one.accesses) access.stream = access.index % 2;
  EXPECT_NEAR(MostEvidence(one), 2 * LogFactorial(10), 1e-3) << "of two streams nobody knows how they interleave";
  one.accesses.resize(5);
  for (SampleAccess& access : one.accesses) access.stream = 0;
  EXPECT_NEAR(MostEvidence(one), LogFactorial(20) - LogFactorial(15), 1e-3);
  EXPECT_EQ(MostEvidence({.samples = 20, .accesses = {}}), 0);
  // The sets that it takes.
  EXPECT_EQ(LeastSamples(SeedSearch::LogTried(false)), 15u);
  EXPECT_EQ(LeastSamples(SeedSearch::LogTried(true)), 18u);
}

// And no fit claims more.
TEST(Evidence, IsWhatAFitComesToAtMost) {
  std::mt19937 random(1);
  for (const std::uint32_t n : {16u, 40u, 168u, 1000u}) {
    for (const std::uint32_t workers : {0u, 2u, 8u}) {
      for (const std::uint32_t world : {1u, 4u}) {
        const std::vector<std::uint32_t> order = PermutationOf(Recipe::kFresh, n + workers, n);
        std::vector<SampleAccess> seen = Load(Part(order, world, 1 % world), {.workers = workers, .batch = 3}, random);
        for (; seen.size() > 2; seen.resize(seen.size() * 2 / 3)) {
          const std::optional<OrderFit> fit = FitOrder(order, {n, seen}, -kMargin);
          ASSERT_TRUE(fit.has_value());
          ASSERT_LE(fit->evidence, MostEvidence({n, seen})) << n << " " << workers << " " << world << " " << seen.size();
        }
      }
    }
  }
}

// A wrong permutation has evidence x with a probability below e^-x, about: so kMargin above the logarithm of all that are tried is one in a million.
TEST(Evidence, ExcludesWrongPermutations) {
  std::mt19937 random(2);
  for (const std::uint32_t n : {40u, 168u}) {
    for (const std::uint32_t workers : {0u, 2u}) {
      std::vector<std::uint32_t> order(n);
      std::iota(order.begin(), order.end(), 0u);
      std::vector<SampleAccess> seen = Load(order, {.workers = workers, .batch = 4}, random);
      seen.resize(n / 2);
      constexpr int kTried = 5000;
      int more_than_3 = 0, more_than_6 = 0;
      for (int i = 0; i < kTried; ++i) {
        std::shuffle(order.begin(), order.end(), random);
        const std::optional<OrderFit> fit = FitOrder(order, {n, seen}, 3 - kMargin);
        more_than_3 += fit ? 1 : 0;
        more_than_6 += fit && fit->evidence >= 6 ? 1 : 0;
      }
      EXPECT_LT(more_than_3, 2 * kTried * std::exp(-3)) << n << " " << workers;
      EXPECT_LT(more_than_6, 2 * kTried * std::exp(-6)) << n << " " << workers;
    }
  }
}

// 168 files are UNet3D's; the first accesses, and the whole epoch.
TEST(SeedSearch, FindsSmallSeedsOfSmallSets) {
  struct Case {
    std::uint32_t samples, world, rank, workers, batch, accesses;
  };
  const Case cases[] = {{168, 1, 0, 0, 7, 16}, {168, 1, 0, 2, 7, 42}, {168, 1, 0, 2, 7, 168}, {168, 1, 0, 8, 7, 84}, {40, 1, 0, 0, 4, 16}, {40, 1, 0, 2, 4, 30},
                        {40, 1, 0, 2, 4, 40},  {256, 4, 0, 0, 8, 16}, {256, 4, 3, 2, 8, 48},  {256, 4, 2, 2, 8, 64}, {1000, 8, 5, 2, 4, 96}, {32, 1, 0, 2, 1, 32}};
  for (const Recipe recipe : {Recipe::kFresh, Recipe::kGlobal}) {
    for (const Case& one : cases) {
      std::mt19937 random(3);
      const std::uint32_t seed = 1000 + one.samples;
      std::vector<SampleAccess> seen = Load(Part(PermutationOf(recipe, seed, one.samples), one.world, one.rank), {.workers = one.workers, .batch = one.batch}, random);
      seen.resize(std::min<std::size_t>(one.accesses, seen.size()));
      SeedSearch search({one.samples, seen}, {.all_seeds = false});
      const std::string what = std::to_string(one.samples) + " samples, world " + std::to_string(one.world) + ", " + std::to_string(one.workers) + " workers, " + std::to_string(seen.size()) + " accesses";
      ASSERT_EQ(RunToTheEnd(search), SeedSearch::State::kFound) << what;
      EXPECT_EQ(search.result().seed, seed) << what;
      EXPECT_EQ(search.result().recipe, recipe) << what;
      EXPECT_EQ(search.result().fit.stride, one.world) << what;
      EXPECT_EQ(search.result().fit.offsets, std::vector<std::uint32_t>{one.rank}) << what;
    }
  }
}

TEST(SeedSearch, FindsSmallSetsThoughSomethingElseIsReadToo) {
  for (std::uint32_t seed = 0; seed < 8; ++seed) {
    std::mt19937 random(seed);
    std::vector<SampleAccess> seen = Load(PermutationOf(Recipe::kFresh, 5000 + seed, 168), {.workers = 2, .batch = 7}, random);
    for (std::size_t i = 5; i < seen.size(); i += 20) seen[i].index = random() % 168;  // 5 %
    SeedSearch search({168, seen}, {.all_seeds = false});
    ASSERT_EQ(RunToTheEnd(search), SeedSearch::State::kFound) << seed;
    EXPECT_EQ(search.result().seed, 5000 + seed);
  }
}

TEST(SeedSearch, TriesNothingThatCannotBeTold) {
  std::mt19937 random(4);
  struct Case {
    std::uint32_t samples, accesses, workers;
  };
  for (const Case& one : {Case{6, 6, 0}, Case{14, 14, 0}, Case{16, 16, 8}, Case{168, 5, 0}, Case{40, 6, 0}}) {
    std::vector<SampleAccess> seen = Load(PermutationOf(Recipe::kFresh, 1, one.samples), {.workers = one.workers, .batch = 1}, random);
    seen.resize(one.accesses);
    SeedSearch search({one.samples, seen}, {});
    EXPECT_EQ(RunToTheEnd(search), SeedSearch::State::kExhausted) << one.samples;
    EXPECT_EQ(search.tried(), 0u) << one.samples << ": no seed";
  }
  // What is enough for small seeds may be too little for all of them.
  std::vector<SampleAccess> seen = Load(PermutationOf(Recipe::kFresh, 70'000, 16), {.workers = 0}, random);
  SeedSearch search({16, seen}, {});
  EXPECT_EQ(RunToTheEnd(search), SeedSearch::State::kExhausted);
  EXPECT_EQ(search.tried(), SeedSearch::kSmallSeeds);
  EXPECT_EQ(search.scanned(), 0u);
}

}  // namespace
}  // namespace tierd::orders
