#include "policies/plan_feeder.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "policies/builtin.h"
#include "policies/sim/epoch_time.h"
#include "policies/sim/simulate.h"

namespace tierd::sim {
namespace {

using policies::MergeByNextUse;
using policies::PlanFeeder;
using Order = std::vector<std::uint32_t>;

TEST(MergeByNextUse, EpochsEndTogetherOrBySpeed) {
  const std::vector<Order> orders = {{1, 2, 3, 4}, {10, 20}};
  EXPECT_EQ(MergeByNextUse(orders, {}), (Order{1, 10, 2, 3, 20, 4}));
  const double speeds[] = {1, 4};
  EXPECT_EQ(MergeByNextUse(orders, speeds), (Order{10, 20, 1, 2, 3, 4}));
  const std::vector<Order> shared = {{1, 2}, {2, 1}};
  EXPECT_EQ(MergeByNextUse(shared, {}), (Order{1, 2, 2, 1})) << "used twice, declared twice";
  EXPECT_EQ(MergeByNextUse(std::vector<Order>{{}, {5}}, {}), (Order{5}));
}

// Two ranks on one node: what belady hits with their merged plan is what it would with the one plan of both.
TEST(PlanFeeder, TwoConsumersAreHitLikeOne) {
  constexpr std::uint32_t kSamples = 8000;
  const auto plan = [](std::uint64_t world, std::uint64_t rank) {
    orders::Plan p;
    p.kind = orders::Kind::kTorchDistributed;
    p.samples = kSamples;
    p.world = world;
    p.rank = rank;
    p.epochs = 20;
    return *orders::PlanOrders::Create(p);
  };
  const std::vector<std::uint64_t> sizes(kSamples, 100);
  double rates[2];
  for (const bool merged : {false, true}) {
    CacheOptions options;
    options.capacity_bytes[TIERD_TIER_RAM] = kSamples / 4 * 100;
    Result<Cache> cache = Cache::Create(*policies::BeladyPolicy(), sizes, options);
    ASSERT_TRUE(cache.ok());
    // Ranks 0 and 2 of 4 are rank 0 of 2.
    std::vector<orders::PlanOrders> consumers;
    if (merged) consumers = {plan(4, 0), plan(4, 2)};
    if (!merged) consumers = {plan(2, 0)};
    PlanFeeder feeder(consumers, 8);
    orders::PlanOrders read = plan(2, 0);
    Order order;
    for (std::uint32_t epoch = 0; read.Next(&order); ++epoch) {
      feeder.Advance(epoch, cache->policy());
      cache->Read(order);
    }
    rates[merged ? 1 : 0] = cache->counts().hit_rate();
    EXPECT_EQ(cache->policy().counters().dropped(), 0u);
  }
  EXPECT_GT(rates[0], .3);
  EXPECT_NEAR(rates[0], rates[1], .001);
}

TEST(EpochSeconds, TheSlowestOfDevicesReadersAndAccelerator) {
  CacheCounts epoch;
  epoch.reads[0] = 600, epoch.reads[2] = 400;
  epoch.bytes[0] = 600'000, epoch.bytes[2] = 400'000;
  Speeds speeds;
  for (Device& device : speeds.devices) device = {};
  EXPECT_LT(EpochSeconds(epoch, speeds), 1e-9);
  speeds.step_seconds = .01;
  EXPECT_DOUBLE_EQ(EpochSeconds(epoch, speeds), 10);
  speeds.devices[2].bandwidth = 20'000;
  EXPECT_DOUBLE_EQ(EpochSeconds(epoch, speeds), 20);
  speeds.devices[2].latency_seconds = .5;
  speeds.readers = 8;
  EXPECT_NEAR(EpochSeconds(epoch, speeds), 25, 1e-9);
  speeds.devices[2].concurrency = 4;
  EXPECT_DOUBLE_EQ(EpochSeconds(epoch, speeds), 50);
}

}  // namespace
}  // namespace tierd::sim
