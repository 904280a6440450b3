#include "policies/orders/plan_follower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>

namespace tierd::orders {
namespace {

using Verdict = PlanFollower::Verdict;

Plan PlanOf(std::uint64_t samples, std::uint64_t world = 1, std::uint64_t epochs = 4, std::int64_t seed = 3) {
  Plan plan;
  plan.kind = Kind::kTorchDistributed;
  plan.samples = samples;
  plan.world = world;
  plan.epochs = epochs;
  plan.seed = seed;
  return plan;
}
PlanOrders OrdersOf(const Plan& plan) { return PlanOrders::Create(plan).value(); }

class Followed {
 public:
  explicit Followed(const Plan& plan) : follower(OrdersOf(plan)), orders(OrdersOf(plan)) { Prepare(); }
  void Prepare() {
    while (follower.WantsEpoch()) follower.Add(PlanFollower::Prepare(follower.Ask()));
  }
  std::vector<std::uint32_t> NextOrder() {
    std::vector<std::uint32_t> order;
    orders.Next(&order);
    return order;
  }
  // How many of these were foretold.
  std::size_t Read(const std::vector<std::uint32_t>& order, bool prepares = true) {
    std::size_t expected = 0;
    for (const std::uint32_t sample : order) {
      expected += follower.Observe(sample) == Verdict::kExpected ? 1 : 0;
      if (prepares) Prepare();
    }
    return expected;
  }
  PlanFollower follower;
  PlanOrders orders;
};

TEST(PlanFollower, EveryAccessOfEveryEpochIsForetold) {
  for (const std::uint64_t world : {1u, 4u}) {
    Followed followed(PlanOf(1000, world));
    for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
      const auto order = followed.NextOrder();
      EXPECT_EQ(followed.Read(order), order.size()) << world << " " << epoch;
      EXPECT_EQ(followed.follower.epoch(), epoch);
    }
    EXPECT_TRUE(followed.follower.over());
    EXPECT_EQ(followed.follower.counts().recall(), 1);
    EXPECT_EQ(followed.follower.counts().precision(), 1);
  }
}

// The next epoch may begin with what the last one ended with.
TEST(PlanFollower, TheLastOfAnEpochMayBeTheFirstOfTheNext) {
  int same = 0;
  for (std::int64_t seed = 0; seed < 60; ++seed) {
    Followed followed(PlanOf(120, 1, 4, seed));
    std::vector<std::uint32_t> before = {0};
    for (int epoch = 0; epoch < 4; ++epoch) {
      const auto order = followed.NextOrder();
      same += std::exchange(before, order).back() == order.front() ? 1 : 0;
      EXPECT_EQ(followed.Read(order), order.size()) << seed << " " << epoch;
    }
    EXPECT_EQ(followed.follower.counts().recall(), 1) << seed;
    EXPECT_EQ(followed.follower.counts().precision(), 1) << seed;
  }
  EXPECT_GT(same, 0) << "one file at the end and at the beginning";
}

// The last batch of one worker is seen among the first of another.
TEST(PlanFollower, StragglersDoNotEraseWhatTheNextEpochBeganWith) {
  int tried = 0;
  for (std::int64_t seed = 0; seed < 60; ++seed) {
    Followed followed(PlanOf(400, 1, 4, seed));
    const auto first = followed.NextOrder(), second = followed.NextOrder(), third = followed.NextOrder();
    // Those look like a file that is opened twice.
    if (std::find_first_of(first.end() - 30, first.end(), second.begin(), second.begin() + 6) != first.end()) continue;
    ++tried;
    std::vector<std::uint32_t> all(first.begin(), first.end() - 6);
    for (std::ptrdiff_t i = 0; i < 6; ++i) {
      all.push_back(second[static_cast<std::size_t>(i)]);
      all.push_back(*(first.end() - 6 + i));
    }
    all.insert(all.end(), second.begin() + 6, second.end());
    all.insert(all.end(), third.begin(), third.end());
    EXPECT_EQ(followed.Read(all), all.size()) << seed;
    EXPECT_EQ(followed.follower.counts().recall(), 1) << seed;
    EXPECT_EQ(followed.follower.counts().precision(), 1) << seed;
  }
  EXPECT_GT(tried, 20);
}

TEST(PlanFollower, AccessesThatComeBeforeTheirEpochIsPreparedAreKept) {
  Followed followed(PlanOf(400));
  const auto first = followed.NextOrder(), second = followed.NextOrder(), third = followed.NextOrder();
  followed.Read(first);
  followed.Read(second, false);  // the third is not there yet
  EXPECT_TRUE(followed.follower.current()->finished());
  EXPECT_EQ(followed.Read({third.begin(), third.begin() + 100}, false), 0u);
  followed.Prepare();
  EXPECT_EQ(followed.follower.epoch(), 2u);
  EXPECT_EQ(followed.follower.current()->frontier(), 100u);
  EXPECT_EQ(followed.follower.counts().recall(), 1);
}

TEST(PlanFollower, TheNextEpochBeginsAlthoughTheLastWasNotReadToItsEnd) {
  Followed followed(PlanOf(2000));
  auto order = followed.NextOrder();
  order.resize(order.size() - 30);  // drop_last of the batches
  followed.Read(order);
  EXPECT_EQ(followed.follower.epoch(), 0u);
  const auto next = followed.NextOrder();
  EXPECT_GE(followed.Read(next), next.size() - 1);  // one that was read last and begins the next epoch looks like a file that is opened twice
  EXPECT_EQ(followed.follower.epoch(), 1u);
  EXPECT_TRUE(followed.follower.trusted());
}

// Worker processes are looked at one after the other: the first is in the next epoch when the last one's accesses of this epoch come.
TEST(PlanFollower, StragglersAroundATurnCount) {
  Followed followed(PlanOf(4000));
  const auto first = followed.NextOrder(), second = followed.NextOrder();
  std::vector<std::uint32_t> mixed(first.begin(), first.begin() + 3600);
  std::vector<std::uint32_t> late;
  for (std::size_t i = 3600; i < first.size(); ++i) (i % 2 == 0 ? mixed : late).push_back(first[i]);
  std::vector<std::uint32_t> behind;
  for (std::size_t i = 0; i < 400; ++i) (i % 2 == 0 ? mixed : behind).push_back(second[i]);
  mixed.insert(mixed.end(), late.begin(), late.end());
  mixed.insert(mixed.end(), behind.begin(), behind.end());
  EXPECT_GE(followed.Read(mixed), mixed.size() - 1);
  EXPECT_EQ(followed.follower.epoch(), 1u);
  EXPECT_GT(followed.follower.counts().recall(), 0.999);
}

TEST(PlanFollower, FilesThatAreOpenedTwiceEndNoEpoch) {
  Followed followed(PlanOf(2000));
  const auto order = followed.NextOrder();
  for (const std::uint32_t sample : order) {
    followed.Read({sample, sample});
    ASSERT_EQ(followed.follower.epoch(), 0u);
  }
  const auto next = followed.NextOrder();
  for (const std::uint32_t sample : next) followed.Read({sample, sample});
  EXPECT_EQ(followed.follower.epoch(), 1u);
  EXPECT_TRUE(followed.follower.trusted());
}

TEST(PlanFollower, AWrongPlanIsNotTrusted) {
  Followed followed(PlanOf(4000, 1, 4, 7));
  auto order = OrdersOf(PlanOf(4000, 1, 4, 77));
  std::vector<std::uint32_t> read;
  order.Next(&read);
  std::size_t at = 0;
  while (at < read.size() && followed.follower.trusted()) followed.Read({read[at++]});
  EXPECT_LT(at, PlanFollower::WindowFor(4000)) << "within one window";
}

TEST(PlanFollower, AnEpochThatIsSkippedIsNoticed) {
  Followed followed(PlanOf(4000));
  followed.NextOrder();
  const auto next = followed.NextOrder();
  EXPECT_GT(followed.Read(next), next.size() - 100);
  EXPECT_EQ(followed.follower.epoch(), 1u);
  EXPECT_TRUE(followed.follower.trusted());
}

// With little left of it, two workers still run as far ahead of one another.
TEST(PlanFollower, WorkersOfAResumedEpochRunAheadAsOnesOfAWholeOne) {
  Plan plan = PlanOf(160);
  plan.position = 100;
  Followed followed(plan);
  auto order = followed.NextOrder();
  ASSERT_EQ(order.size(), 60u);
  std::rotate(order.begin(), order.begin() + 7, order.begin() + 35);  // the first batch comes behind four others
  EXPECT_EQ(followed.Read(order), order.size());
  EXPECT_EQ(followed.follower.counts().recall(), 1);
}

TEST(PlanFollower, AResumedEpochIsFoundWhereItIs) {
  Followed followed(PlanOf(4000));
  auto order = followed.NextOrder();
  order.erase(order.begin(), order.begin() + 2500);
  followed.Read(order);
  EXPECT_EQ(followed.follower.current()->frontier(), 4000u);
  const auto next = followed.NextOrder();
  EXPECT_EQ(followed.Read(next), next.size());
}

// Workers that live on: what is heard of one at a time begins in one epoch and ends in the next.
TEST(PlanFollower, ATurnIsHeardOneWorkerAfterTheOther) {
  Followed followed(PlanOf(192, 2));
  std::vector<std::uint32_t> of_worker[2];
  for (int epoch = 0; epoch < 4; ++epoch) {
    const auto order = followed.NextOrder();
    for (std::size_t i = 0; i < order.size(); ++i) of_worker[i / 4 % 2].push_back(order[i]);
  }
  ASSERT_EQ(of_worker[0].size(), 4 * 48u);
  constexpr std::size_t kLooks[] = {0, 24, 72, 120, 168, 192};
  std::size_t expected = 0, all = 0;
  for (std::size_t look = 1; look < std::size(kLooks); ++look) {
    for (std::uint8_t worker = 0; worker < 2; ++worker) {
      for (std::size_t i = kLooks[look - 1]; i < kLooks[look]; ++i, ++all) {
        expected += followed.follower.Observe(of_worker[worker][i], {.tag = static_cast<std::uint8_t>(worker + 1)}) == Verdict::kExpected ? 1 : 0;
        followed.Prepare();
      }
    }
  }
  EXPECT_EQ(followed.follower.epochs_begun(), 4u);
  EXPECT_GE(expected * 100, all * 95);
}

}  // namespace
}  // namespace tierd::orders
