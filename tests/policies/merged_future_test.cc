#include "policies/merged_future.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace tierd::policies {
namespace {

using orders::Kind;
using orders::OrderFollower;
using orders::Plan;
using orders::PlanOrders;

Plan PlanOf(std::uint64_t samples, std::uint64_t world = 1, std::uint64_t rank = 0, std::uint64_t epochs = 3) {
  Plan plan;
  plan.kind = Kind::kTorchDistributed;
  plan.samples = samples;
  plan.world = world;
  plan.rank = rank;
  plan.epochs = epochs;
  return plan;
}

// At its first epoch; names are samples plus `base`.
MergedFuture::Consumer ConsumerOf(const Plan& plan, std::uint32_t from = 0, double pace = 0, std::uint32_t base = 0) {
  auto orders = PlanOrders::Create(plan).value();
  std::vector<std::uint32_t> order;
  orders.Next(&order);
  auto names = std::make_shared<std::vector<std::uint32_t>>(plan.samples);
  std::iota(names->begin(), names->end(), base);
  return {.now = std::make_shared<OrderFollower>(static_cast<std::uint32_t>(plan.samples), order, 16), .from = from, .following = orders, .pace = pace, .names = names};
}
std::vector<std::uint32_t> OrderOf(const Plan& plan, int epoch) {
  auto orders = PlanOrders::Create(plan).value();
  std::vector<std::uint32_t> order;
  for (int i = 0; i <= epoch; ++i) orders.Next(&order);
  return order;
}

TEST(MergedFuture, OneConsumerIsJustItself) {
  const Plan plan = PlanOf(100);
  MergedFuture future({ConsumerOf(plan, 10)});
  std::map<std::uint32_t, std::vector<std::uint32_t>> epochs;
  for (;;) {
    const MergedFuture::Slice slice = future.Next(33);
    if (slice.names.empty()) break;
    auto& epoch = epochs[slice.epoch];
    EXPECT_EQ(slice.first, epoch.size());
    epoch.insert(epoch.end(), slice.names.begin(), slice.names.end());
  }
  ASSERT_EQ(epochs.size(), 3u);
  auto first = OrderOf(plan, 0);
  first.erase(first.begin(), first.begin() + 10);
  EXPECT_EQ(epochs[0], first);
  EXPECT_EQ(epochs[1], OrderOf(plan, 1));
  EXPECT_EQ(epochs[2], OrderOf(plan, 2));
}

TEST(MergedFuture, RanksTakeTurns) {
  MergedFuture future({ConsumerOf(PlanOf(100, 2, 0)), ConsumerOf(PlanOf(100, 2, 1))});
  std::vector<std::uint32_t> all;
  for (auto slice = future.Next(1000); !slice.names.empty(); slice = future.Next(1000)) all.insert(all.end(), slice.names.begin(), slice.names.end());
  ASSERT_EQ(all.size(), 300u);
  const auto a = OrderOf(PlanOf(100, 2, 0), 0), b = OrderOf(PlanOf(100, 2, 1), 0);
  for (std::size_t i = 0; i < 50; ++i) {
    EXPECT_EQ(all[2 * i], a[i]);
    EXPECT_EQ(all[2 * i + 1], b[i]);
  }
}

TEST(MergedFuture, AFasterConsumerComesMoreOften) {
  MergedFuture future({ConsumerOf(PlanOf(1000), 0, 300), ConsumerOf(PlanOf(1000), 0, 100, 5000)});
  std::vector<std::uint32_t> all;
  while (all.size() < 400) {
    const auto slice = future.Next(400);
    all.insert(all.end(), slice.names.begin(), slice.names.end());
  }
  const auto slow = std::count_if(all.begin(), all.begin() + 400, [](std::uint32_t name) { return name >= 5000; });
  EXPECT_NEAR(static_cast<double>(slow), 100, 2);
}

TEST(MergedFuture, WhoIsThroughLeavesTheOthersAlone) {
  MergedFuture future({ConsumerOf(PlanOf(100, 1, 0, 1)), ConsumerOf(PlanOf(100, 1, 0, 3), 0, 0, 1000)});
  std::size_t first = 0, second = 0;
  for (auto slice = future.Next(64); !slice.names.empty(); slice = future.Next(64)) {
    for (const std::uint32_t name : slice.names) ++(name >= 1000 ? second : first);
  }
  EXPECT_EQ(first, 100u);
  EXPECT_EQ(second, 300u);
}

}  // namespace
}  // namespace tierd::policies
