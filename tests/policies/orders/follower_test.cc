#include "policies/orders/order_follower.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "policies/orders/plan_follower.h"
#include "policies/orders/seed_search.h"
#include "tests/policies/orders/loader.h"

namespace tierd::orders {
namespace {

using testing::Load;
using Verdict = OrderFollower::Verdict;

constexpr std::uint32_t kSamples = 10'000;

TEST(OrderFollower, FollowsWorkersToTheEnd) {
  std::mt19937 random(1);
  const std::vector<std::uint32_t> order = PermutationOf(Recipe::kFresh, 3, kSamples);
  OrderFollower follower(kSamples, order, 2 * 2 * 16 + 16);
  for (const SampleAccess& access : Load(order, {.workers = 2, .batch = 16}, random)) {
    ASSERT_EQ(follower.Observe(access.index), Verdict::kExpected);
    ASSERT_TRUE(follower.trusted());
  }
  EXPECT_TRUE(follower.finished());
  EXPECT_EQ(follower.counts().recall(), 1);
  EXPECT_EQ(follower.counts().precision(), 1);
}

TEST(OrderFollower, LosesTrustWithinAWindowWhenTheOrderChanges) {
  const std::vector<std::uint32_t> order = PermutationOf(Recipe::kFresh, 3, kSamples);
  const std::vector<std::uint32_t> other = PermutationOf(Recipe::kFresh, 4, kSamples);
  OrderFollower follower(kSamples, order, 100);
  for (std::size_t i = 0; i < 4000; ++i) follower.Observe(order[i]);
  ASSERT_TRUE(follower.trusted());
  std::size_t until = 0;
  while (follower.trusted()) follower.Observe(other[until++]);
  EXPECT_LE(until, 100u);
}

TEST(OrderFollower, RepeatsAndAFewStraysChangeNothing) {
  std::mt19937 random(3);
  std::vector<std::uint32_t> order = PermutationOf(Recipe::kFresh, 3, kSamples);
  OrderFollower follower(kSamples + 5, order, 64);
  EXPECT_EQ(follower.Observe(kSamples + 1), Verdict::kForeign);
  EXPECT_EQ(follower.Observe(kSamples + 99), Verdict::kForeign) << "beyond the dataset";
  EXPECT_EQ(follower.Observe(order[5000]), Verdict::kEarly);
  for (std::size_t i = 0; i < order.size(); ++i) {
    ASSERT_EQ(follower.Observe(order[i]), Verdict::kExpected) << "an early access does not count as the read that is due";
    if (random() % 20 == 0) {
      ASSERT_EQ(follower.Observe(order[i / 2]), Verdict::kRepeated);
    }
    ASSERT_TRUE(follower.trusted());
  }
}

TEST(OrderFollower, PassesByWhatDoesNotCome) {
  const std::vector<std::uint32_t> order = PermutationOf(Recipe::kFresh, 3, kSamples);
  OrderFollower follower(kSamples, order, 64);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i % 100 == 7) continue;
    ASSERT_EQ(follower.Observe(order[i]), Verdict::kExpected) << i;
  }
  EXPECT_GE(follower.counts().missed, 99u);
  EXPECT_GT(follower.frontier(), kSamples - 64);
  EXPECT_EQ(follower.Observe(order[7]), Verdict::kExpected) << "late is not wrong";
}

TEST(OrderFollower, FindsAConsumerThatResumesInMidEpoch) {
  std::mt19937 random(5);
  const std::vector<std::uint32_t> order = PermutationOf(Recipe::kFresh, 3, kSamples);
  const std::vector<std::uint32_t> rest(order.begin() + 6000, order.end());
  OrderFollower follower(kSamples, order, 80);
  std::size_t lost = 0;
  for (const SampleAccess& access : Load(rest, {.workers = 2, .batch = 16}, random)) lost += follower.Observe(access.index) != Verdict::kExpected ? 1 : 0;
  EXPECT_LT(lost, 60u);
  EXPECT_TRUE(follower.trusted());
  EXPECT_TRUE(follower.finished());
}

// A plan that is told when half of a small epoch has been read: the first dozen of accesses says where.
TEST(OrderFollower, FindsTheMiddleOfASmallEpochSoon) {
  std::mt19937 random(6);
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const std::vector<std::uint32_t> order = PermutationOf(Recipe::kFresh, seed, 96);
    const std::vector<std::uint32_t> rest(order.begin() + 48, order.end());
    OrderFollower follower(96, order, 24);
    std::size_t lost = 0, found = 0;
    for (const SampleAccess& access : Load(rest, {.workers = 2, .batch = 4}, random)) {
      const Verdict verdict = follower.Observe(access.index);
      lost += verdict == Verdict::kEarly ? 1 : 0;
      found += verdict == Verdict::kFound ? 1 : 0;
      ASSERT_EQ(follower.trusted(), found == 1 || lost <= 4) << seed << " " << lost;
    }
    EXPECT_EQ(found, 1u) << seed;
    EXPECT_LE(lost, 24u) << seed;
    EXPECT_TRUE(follower.finished()) << seed;
  }
}

// What a worker read before anybody looked leaves holes that the next batches must not wait for.
TEST(OrderFollower, HolesFromBeforeThePlanWasToldHoldNothingUp) {
  const std::vector<std::uint32_t> order = PermutationOf(Recipe::kFresh, 3, 96);
  OrderFollower follower(96, order, 24);
  for (std::uint32_t batch = 0; batch < 24; ++batch) {
    if (batch == 1 || batch == 3) continue;  // the other worker's first batches
    for (std::uint32_t i = 0; i < 4; ++i) follower.Observe(order[4 * batch + i]);
  }
  EXPECT_TRUE(follower.trusted());
  EXPECT_GE(follower.counts().expected, 80u);
  EXPECT_TRUE(follower.finished());
}

// In a large one four are enough, also if ranks of the same list, which read nothing of this order, come in between.
TEST(OrderFollower, FindsAConsumerAmongStrangers) {
  const std::vector<std::uint32_t> order = PermutationOf(Recipe::kFresh, 3, kSamples);
  OrderFollower follower(kSamples + 5, order, 64);
  for (std::uint32_t i = 0; i < 20; ++i) {
    const Verdict verdict = follower.Observe(order[7000 + i]);
    EXPECT_EQ(verdict, i < 3 ? Verdict::kEarly : i == 3 ? Verdict::kFound : Verdict::kExpected) << i;
    EXPECT_EQ(follower.Observe(kSamples + i % 5), Verdict::kForeign);
  }
  EXPECT_EQ(follower.frontier(), 7020u);
}

// Close to one another are also: one file that is opened again and again, and an order read from its end.
TEST(OrderFollower, FindsNobodyWhereNobodyReadsInOrder) {
  const std::vector<std::uint32_t> order = PermutationOf(Recipe::kFresh, 3, kSamples);
  const auto found = [&order](const std::vector<std::uint32_t>& read) {
    OrderFollower follower(kSamples, order, 64);
    return std::count_if(read.begin(), read.end(), [&](std::uint32_t index) { return follower.Observe(index) == Verdict::kFound; });
  };
  EXPECT_EQ(found(std::vector<std::uint32_t>(1000, order[5000])), 0);
  EXPECT_EQ(found({order.rbegin(), order.rend()}), 0);
  for (std::uint32_t seed = 4; seed < 20; ++seed) EXPECT_EQ(found(PermutationOf(Recipe::kFresh, seed, kSamples)), 0) << seed;
}

// A small epoch takes milliseconds: the daemon hears all of one worker before anything of the other.
TEST(OrderFollower, WholeEpochsOfOneWorkerAfterTheOtherAreExpected) {
  for (const std::uint32_t length : {48u, 96u, 168u}) {
    for (const std::uint32_t workers : {2u, 3u, 6u}) {
      std::vector<std::uint32_t> order = PermutationOf(Recipe::kFresh, length, 200);
      order.resize(length);
      OrderFollower follower(200, order, PlanFollower::WindowFor(length));
      for (std::uint32_t worker = 0; worker < workers; ++worker) {
        for (std::size_t i = 0; i < length; ++i) {
          if (i / 4 % workers != worker) continue;
          ASSERT_TRUE(follower.Expects(order[i], {.tag = static_cast<std::uint8_t>(worker + 1)})) << length << " " << workers << " " << worker << " " << i;
          ASSERT_EQ(follower.Observe(order[i], {.tag = static_cast<std::uint8_t>(worker + 1)}), Verdict::kExpected);
        }
        ASSERT_TRUE(follower.trusted());
      }
      EXPECT_TRUE(follower.finished());
      EXPECT_EQ(follower.counts().recall(), 1);
      EXPECT_EQ(follower.counts().precision(), 1);
    }
  }
}

// Nor does that make a wrong order of a small epoch one that is followed.
TEST(OrderFollower, AnotherOrderOfASmallSetIsNotExpected) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    OrderFollower follower(168, PermutationOf(Recipe::kFresh, 100 + seed, 168), PlanFollower::WindowFor(168));
    const std::vector<std::uint32_t> other = PermutationOf(Recipe::kFresh, seed, 168);
    std::size_t until = 0;
    while (until < other.size() && follower.trusted()) follower.Observe(other[until++]);
    EXPECT_LE(until, PlanFollower::WindowFor(168)) << seed << ": within a window";
  }
}

}  // namespace
}  // namespace tierd::orders
