#include "policies/orders/plan_location.h"

#include <gtest/gtest.h>

#include <cmath>

#include "policies/orders/plan_orders.h"
#include "policies/orders/seed_search.h"
#include "tests/policies/orders/loader.h"

namespace tierd::orders {
namespace {

using testing::Load;

constexpr std::uint32_t kSamples = 1003;
constexpr std::size_t kSeen = 256;

const auto kAlways = [] { return true; };

Plan Random(bool shared) {
  Plan plan;
  plan.kind = Kind::kTorchRandom;
  plan.samples = plan.draws = kSamples;
  plan.start = GeneratorStart{.seed = 42, .words = std::nullopt};
  plan.shared = shared;
  plan.skip_first = plan.skip_later = 1;
  return plan;
}

Plan Distributed(std::uint64_t world, std::uint64_t rank) {
  Plan plan;
  plan.kind = Kind::kTorchDistributed;
  plan.samples = kSamples;
  plan.seed = 7;
  plan.world = world;
  plan.rank = rank;
  return plan;
}

// `count` accesses of that epoch of the plan from access `from` on, by two workers.
Observation Seen(const Plan& plan, std::uint64_t epoch, std::size_t from, std::size_t count) {
  PlanOrders orders = PlanOrders::Create(plan).value();
  std::vector<std::uint32_t> order;
  for (std::uint64_t i = 0; i <= epoch; ++i) orders.Next(&order);
  std::mt19937 random(static_cast<std::uint32_t>(epoch));
  std::vector<SampleAccess> accesses = Load(order, {.workers = 2, .batch = 7}, random);
  accesses.erase(accesses.begin(), accesses.begin() + static_cast<std::ptrdiff_t>(from));
  accesses.resize(std::min(count, accesses.size()));
  return {.samples = kSamples, .accesses = std::move(accesses)};
}

std::optional<Plan> Find(const PlanSearch& search, const Observation& observation) { return Locate(search, observation, std::log(10.0), kAlways); }

TEST(Locate, SaysWhichEpochOfAGeneratorItIs) {
  for (const bool shared : {false, true}) {
    const PlanSearch search{.plan = Random(shared), .like = {.offsets = {0}}, .epochs = 6};
    for (std::uint64_t epoch = 0; epoch < 6; ++epoch) {
      const std::optional<Plan> rest = Find(search, Seen(search.plan, epoch, 0, kSeen));
      ASSERT_TRUE(rest.has_value()) << epoch;
      EXPECT_EQ(rest->epoch, epoch);
      PlanOrders all = PlanOrders::Create(search.plan).value(), found = PlanOrders::Create(*rest).value();
      std::vector<std::uint32_t> expected, order;
      for (std::uint64_t i = 0; i < epoch; ++i) all.Next(&expected);
      for (int more = 0; more < 4; ++more) {
        all.Next(&expected);
        found.Next(&order);
        ASSERT_EQ(order, expected);
      }
    }
    EXPECT_FALSE(Find(search, Seen(search.plan, 6, 0, kSeen)).has_value()) << "none of the six";
    EXPECT_FALSE(Find(search, Seen(Distributed(1, 0), 1, 0, kSeen)).has_value());
  }
}

TEST(Locate, NotBeforeFromNorWithoutLeave) {
  PlanSearch search{.plan = Random(false), .like = {.offsets = {0}}, .from = 3, .epochs = 6};
  EXPECT_FALSE(Find(search, Seen(search.plan, 2, 0, kSeen)).has_value());
  EXPECT_TRUE(Find(search, Seen(search.plan, 3, 0, kSeen)).has_value());
  EXPECT_FALSE(Locate(search, Seen(search.plan, 3, 0, kSeen), 0, [] { return false; }).has_value());
  search.plan.draws = 0;  // no plan
  EXPECT_FALSE(Find(search, Seen(Random(false), 3, 0, kSeen)).has_value());
}

// Of a permutation that ranks share, the part that was seen has to be theirs.
TEST(Locate, TheSameRanksOfIt) {
  const Observation seen = Seen(Distributed(2, 1), 4, 0, kSeen);
  PlanSearch search{.plan = Distributed(1, 0), .like = {.stride = 2, .offsets = {1}}, .epochs = 8};
  const std::optional<Plan> rest = Find(search, seen);
  ASSERT_TRUE(rest.has_value());
  EXPECT_EQ(rest->seed + static_cast<std::int64_t>(rest->epoch), 11);
  search.like.offsets = {0};
  EXPECT_FALSE(Find(search, seen).has_value());
  search.like = {.offsets = {0}};
  EXPECT_FALSE(Find(search, seen).has_value());
}

TEST(Locate, OfTooLittleItSaysNothing) {
  const PlanSearch search{.plan = Random(false), .like = {.offsets = {0}}, .epochs = 6};
  EXPECT_FALSE(Find(search, Seen(search.plan, 2, 0, 3)).has_value());
  EXPECT_FALSE(Find(search, {.samples = kSamples, .accesses = {}}).has_value());
}

}  // namespace
}  // namespace tierd::orders
