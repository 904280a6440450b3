// Recovery of seeds: the scan against the permutations themselves, the search over loaders with workers. (All 2^32 seeds: bench/seeds.cc.)
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "policies/orders/plan_orders.h"
#include "policies/orders/seed_search.h"
#include "tests/policies/orders/loader.h"

namespace tierd::orders {
namespace {

using testing::Load;
using testing::LoaderOptions;

std::vector<ScanCode> Codes() {
  std::vector<ScanCode> codes = {ScanCode::kPortable};
  if (BestScanCode() == ScanCode::kAvx2) codes.push_back(ScanCode::kAvx2);
  return codes;
}

// Rank's part of a permutation, as DistributedSampler takes it (without padding).
std::vector<std::uint32_t> Part(const std::vector<std::uint32_t>& order, std::uint32_t world, std::uint32_t rank) {
  std::vector<std::uint32_t> part;
  for (std::size_t i = rank; i < order.size(); i += world) part.push_back(order[i]);
  return part;
}

SeedSearch::State RunToTheEnd(SeedSearch& search) {
  SeedSearch::State state;
  do state = search.Advance(5000);
  while (state == SeedSearch::State::kSearching);
  return state;
}

TEST(PermutationPrefix, IsTheBeginningOfThePermutation) {
  for (const std::uint32_t n : {1u, 2u, 5u, 100u, 10'000u}) {
    PermutationPrefix prefix(n, 300);
    for (std::uint32_t seed = 0; seed < 50; ++seed) {
      const std::vector<std::uint32_t> whole = PermutationOf(Recipe::kFresh, seed, n);
      Mt19937 engine = Mt19937::FromSeed(seed);
      std::vector<std::uint32_t> outputs(300);
      for (std::uint32_t& output : outputs) output = engine();
      const std::span<const std::uint32_t> entries = prefix.Draw(outputs);
      ASSERT_EQ(entries.size(), std::min(n, 300u));
      ASSERT_TRUE(std::equal(entries.begin(), entries.end(), whole.begin())) << n << " seed " << seed;
    }
  }
}

TEST(ScanSeeds, KeepsExactlyTheSeedsWhosePermutationBeginsSo) {
  for (const ScanCode code : Codes()) {
    for (const std::uint32_t n : {7u, 1000u, 65'537u, 1'281'167u}) {
      for (const std::uint32_t skip : {0u, 2u}) {
        const std::uint32_t accepted[] = {3, n / 2, n - 1};
        const SeedFilter filter({.samples = n, .first = 0, .positions = 1, .skip = skip}, accepted);
        const std::uint64_t begin = (1ull << 32) - 3001;  // not a multiple of anything, up to the last seed
        std::vector<std::uint32_t> passing, expected;
        ScanSeeds(filter, begin, 3001, &passing, code);
        for (std::uint64_t seed = begin; seed < begin + 3001; ++seed) {
          Mt19937 engine = Mt19937::FromSeed(static_cast<std::uint32_t>(seed));
          for (std::uint32_t i = 0; i < skip; ++i) engine();
          const std::uint32_t first = engine() % n;
          if (std::find(std::begin(accepted), std::end(accepted), first) != std::end(accepted)) expected.push_back(static_cast<std::uint32_t>(seed));
        }
        EXPECT_EQ(passing, expected) << "code " << static_cast<int>(code) << " n " << n << " skip " << skip;
      }
    }
  }
}

TEST(ScanSeeds, EveryCodeKeepsTheSame) {
  std::vector<std::uint32_t> accepted(40);
  std::iota(accepted.begin(), accepted.end(), 5000u);
  for (const std::uint32_t positions : {1u, 8u, 64u}) {
    for (const std::size_t count : {std::size_t{3}, accepted.size()}) {
      const SeedFilter filter({.samples = 50'000, .first = 1, .positions = positions, .skip = 0}, std::span(accepted).first(count));
      std::vector<std::uint32_t> portable, best;
      ScanSeeds(filter, 12'345, 20'000, &portable, ScanCode::kPortable);
      ScanSeeds(filter, 12'345, 20'000, &best);
      EXPECT_EQ(portable, best);
      EXPECT_GE(portable.size(), 20'000 * count * positions / 50'000 / 2);
    }
  }
}

// Seeds below 2^16, over worlds, ranks, workers, batches, dataset sizes.
TEST(SeedSearch, FindsSmallSeedsThroughWorkersThatRunAhead) {
  std::mt19937 random(1);
  for (int run = 0; run < 14; ++run) {
    const std::uint32_t n = std::array{600u, 5000u, 50'000u, 200'000u}[random() % 4];
    const std::uint32_t world = std::array{1u, 1u, 2u, 4u, 8u}[random() % 5];
    const std::uint32_t rank = random() % world;
    const std::uint32_t seed = run % 7 != 0 ? random() % 4000 : random() % SeedSearch::kSmallSeeds;
    const LoaderOptions loader{.workers = static_cast<std::uint32_t>(random() % 4), .batch = static_cast<std::uint32_t>(1 + random() % 24)};
    const std::vector<std::uint32_t> order = PermutationOf(Recipe::kFresh, seed, n);
    std::vector<SampleAccess> seen = Load(Part(order, world, rank), loader, random);
    seen.resize(std::min<std::size_t>(seen.size(), 400));
    SeedSearch search({n, seen}, {.all_seeds = false});
    const std::string what = "n " + std::to_string(n) + " world " + std::to_string(world) + " rank " + std::to_string(rank) + " seed " + std::to_string(seed) + " workers " +
                             std::to_string(loader.workers) + " batch " + std::to_string(loader.batch);
    ASSERT_EQ(RunToTheEnd(search), SeedSearch::State::kFound) << what;
    EXPECT_EQ(search.result().seed, seed) << what;
    EXPECT_EQ(search.result().recipe, Recipe::kFresh) << what;
    EXPECT_EQ(search.result().fit.stride, world) << what;
    EXPECT_EQ(search.result().fit.offsets, std::vector<std::uint32_t>{rank}) << what;
    EXPECT_EQ(search.result().fit.matched, 1) << what;
  }
}

TEST(SeedSearch, TellsTheRecipesApart) {
  std::mt19937 random(2);
  for (const Recipe recipe : {Recipe::kIdentity, Recipe::kFresh, Recipe::kGenerator, Recipe::kGlobal}) {
    const std::vector<std::uint32_t> order = PermutationOf(recipe, 1234, 20'000);
    std::vector<SampleAccess> seen = Load(order, {.workers = 2}, random);
    seen.resize(300);
    SeedSearch search({20'000, seen}, {.all_seeds = false});
    ASSERT_EQ(RunToTheEnd(search), SeedSearch::State::kFound) << static_cast<int>(recipe);
    EXPECT_EQ(search.result().recipe, recipe);
    EXPECT_EQ(EntriesOf(order, search.result().fit), order);
  }
  // And each is what PyTorch's own plan says: DataLoader(shuffle=True) with a generator, and without.
  for (const auto& [recipe, shared] : {std::pair{Recipe::kGenerator, false}, std::pair{Recipe::kGlobal, true}}) {
    Plan plan;
    plan.kind = Kind::kTorchRandom;
    plan.samples = plan.draws = 500;
    plan.start = GeneratorStart{.seed = 77, .words = std::nullopt};
    plan.shared = shared;
    plan.skip_first = plan.skip_later = 1;
    std::vector<std::uint32_t> order;
    ASSERT_TRUE(PlanOrders::Create(plan)->Next(&order));
    EXPECT_EQ(PermutationOf(recipe, 77, 500), order);
  }
}

TEST(SeedSearch, SeesSeveralRanksOfOneNode) {
  std::mt19937 random(3);
  const std::vector<std::uint32_t> order = PermutationOf(Recipe::kFresh, 9, 40'000);
  std::vector<SampleAccess> seen;
  const std::vector<SampleAccess> one = Load(Part(order, 8, 4), {.workers = 2}, random);
  const std::vector<SampleAccess> other = Load(Part(order, 8, 5), {.workers = 2, .first_stream = 10}, random);
  for (std::size_t i = 0; i < 200; ++i) seen.push_back(one[i]), seen.push_back(other[i]);
  SeedSearch search({40'000, seen}, {.all_seeds = false});
  ASSERT_EQ(RunToTheEnd(search), SeedSearch::State::kFound);
  EXPECT_EQ(search.result().seed, 9u);
  EXPECT_EQ(search.result().fit.stride, 8u);
  EXPECT_EQ(search.result().fit.offsets, (std::vector<std::uint32_t>{4, 5}));
}

TEST(SeedSearch, ToleratesStrayAccesses) {
  std::mt19937 random(4);
  const std::vector<std::uint32_t> order = PermutationOf(Recipe::kFresh, 4242, 100'000);
  std::vector<SampleAccess> seen = Load(order, {.workers = 3}, random);
  seen.resize(500);
  for (std::size_t i = 10; i < seen.size(); i += 20) seen[i].index = random() % 100'000;  // 5 %
  SeedSearch search({100'000, seen}, {.all_seeds = false});
  ASSERT_EQ(RunToTheEnd(search), SeedSearch::State::kFound);
  EXPECT_EQ(search.result().seed, 4242u);
  EXPECT_GT(search.result().fit.matched, 0.9);
}

TEST(SeedSearch, FindsNothingWhereNothingIs) {
  std::mt19937 random(5);
  for (const std::uint32_t n : {1u, 2u, 50u, 300'000u}) {
    std::vector<SampleAccess> seen;
    for (int i = 0; i < 400; ++i) seen.push_back({static_cast<std::uint32_t>(random() % 3), static_cast<std::uint32_t>(random() % n)});
    SeedSearch search({n, seen}, {.all_seeds = false});
    EXPECT_EQ(RunToTheEnd(search), SeedSearch::State::kExhausted) << n;
  }
  SeedSearch nothing({1000, {}}, {.all_seeds = false});
  EXPECT_EQ(RunToTheEnd(nothing), SeedSearch::State::kExhausted);
}

// A large seed, with the scan begun shortly before it: what the last part of the search does for most of its 2^32.
TEST(SeedSearch, FindsALargeSeedByItsFirstSample) {
  constexpr std::uint32_t kSeed = 70'000;
  std::mt19937 random(6);
  for (const ScanCode code : Codes()) {
    const std::vector<std::uint32_t> order = PermutationOf(Recipe::kFresh, kSeed, 50'000);
    std::vector<SampleAccess> seen = Load(Part(order, 4, 1), {.workers = 2}, random);
    seen.resize(300);
    SeedSearch search({50'000, seen}, {.ranks = 2, .code = code});
    while (search.Advance(20'000) == SeedSearch::State::kSearching && search.scanned() < 2 * kSeed) {
    }
    ASSERT_EQ(search.Advance(1), SeedSearch::State::kFound) << static_cast<int>(code);
    EXPECT_EQ(search.result().seed, kSeed);
    EXPECT_EQ(search.result().fit.stride, 4u);
    EXPECT_EQ(search.result().fit.offsets, std::vector<std::uint32_t>{1});
  }
}

}  // namespace
}  // namespace tierd::orders
