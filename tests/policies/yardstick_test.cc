// random, fifo, lfu, frequency, s3fifo, epoch: each against what makes it what it is, and all against wrong answers over random events.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policies/builtin.h"
#include "policies/registry.h"
#include "policies/sim/cache.h"
#include "tests/policies/replay.h"

namespace tierd::policies {
namespace {

using testing::Permutation;
using testing::Random;
using testing::Replay;

PolicyInstance Make(const tierd_policy_ops* ops, std::uint64_t ram, std::uint64_t ssd = 0, const std::string& parameters = "") {
  PolicyInstance::Options options;
  options.parameters = parameters;
  options.seed = 5;
  options.capacity_bytes[TIERD_TIER_RAM] = ram;
  options.capacity_bytes[TIERD_TIER_SSD] = ssd;
  Result<PolicyInstance> instance = PolicyInstance::Create(*ops, options);
  EXPECT_TRUE(instance.ok());
  return std::move(instance).value();
}

// A parameter that is misspelt, or another policy's, must not be taken for one that works.
TEST(EveryPolicy, RefusesParametersItDoesNotHaveAndNamesThoseItHas) {
  for (const tierd_policy_ops* ops : BuiltinPolicies()) {
    PolicyInstance::Options options;
    options.parameters = "foo=1";
    const auto refused = PolicyInstance::Create(*ops, options);
    ASSERT_FALSE(refused.ok()) << ops->name;
    const bool plans = std::string_view(ops->name) == "belady" || std::string_view(ops->name) == "auto";
    EXPECT_NE(refused.status().message().find(plans ? "foo=1; there are: window, operation_bytes" : "foo=1; there are none"), std::string::npos) << refused.status().message();
  }
}

TEST(EveryPolicy, GivesNoWrongAnswerWhateverHappens) {
  std::vector<std::pair<const tierd_policy_ops*, std::string>> all = {{BeladyPolicy(), "operation_bytes=50"}};
  for (const tierd_policy_ops* ops : BuiltinPolicies()) all.emplace_back(ops, "");
  for (const auto& [ops, parameters] : all) {
    Random random(9);
    PolicyInstance policy = Make(ops, 3000, 6000, parameters);
    constexpr std::uint32_t kObjects = 200;
    std::uint64_t free[2] = {3000, 6000};
    std::vector<std::uint64_t> sizes(kObjects);
    const auto remove = [&](std::uint32_t tier, std::uint32_t id) {
      if (!policy.IsIn(tier, id)) return;
      policy.Removed(tier, id);
      free[tier] += sizes[id];
    };
    for (int step = 0; step < 60'000; ++step) {
      const auto id = static_cast<std::uint32_t>(random.Below(kObjects));
      const auto tier = static_cast<std::uint32_t>(random.Below(2));
      switch (random.Below(12)) {
        case 0:
          remove(0, id), remove(1, id);
          if (policy.IsKnown(id) && random.Below(2) == 0) policy.ObjectForgotten(id);
          sizes[id] = 1 + random.Below(100);
          policy.ObjectKnown({.id = id, .file_id = id, .chunk = 0, .bytes = sizes[id]});
          break;
        case 1: remove(tier, id); break;
        case 2:
          if (random.Below(40) == 0) policy.EpochBoundary(0, static_cast<std::uint32_t>(step));
          if (random.Below(40) == 0) policy.WithdrawPlan(0);
          if (const double priority = random.Unit(); random.Below(2) == 0) policy.Prioritize(std::span(&id, 1), std::span(&priority, 1));
          if (random.Below(10) == 0) policy.Plan(0, static_cast<std::uint32_t>(step), Permutation(kObjects, random));
          break;
        case 3:
        case 4:
        case 5: {
          if (!policy.IsKnown(id) || policy.IsIn(tier, id) || !policy.Admit(tier, id, free[tier], static_cast<std::uint32_t>(random.Below(4)))) break;
          while (free[tier] < sizes[id]) {
            std::uint32_t victims[4];
            const std::size_t count = policy.Victims(tier, sizes[id] - free[tier], victims);
            ASSERT_GT(count, 0u) << ops->name << ": yes to admit is a promise";
            for (std::size_t i = 0; i < count; ++i) remove(tier, victims[i]);
          }
          free[tier] -= sizes[id];
          policy.Inserted(tier, id);
          break;
        }
        case 6: {
          tierd_candidate out[8];
          policy.Next(tier, step, out);
          policy.Worth(tier, id);
          break;
        }
        default: {
          const std::uint32_t soon[] = {id, id + 1, 1u << 29};
          policy.Soon(soon);
          policy.Accessed({.id = id, .consumer = 0, .time_ns = step, .tier = 0});
        }
      }
    }
    const PolicyCounters& counters = policy.counters();
    // What is wanted next may be where a placement just put it; nothing else may be dropped.
    EXPECT_EQ(counters.dropped(), 0u) << ops->name << ": unknown " << counters.unknown_ids << " misplaced " << counters.misplaced_ids << " twice " << counters.duplicate_ids;
  }
}

TEST(Yardsticks, UnderPermutationsWithHalfOfTheData) {
  const std::vector<std::uint64_t> sizes(8000, 1024);
  const std::uint64_t capacity = 4000 * 1024;
  const std::pair<const tierd_policy_ops*, double> expected[] = {{RandomPolicy(), .283}, {FifoPolicy(), .193}, {LfuPolicy(), .153}, {EpochPolicy(), .5}};
  for (const auto& [ops, rate] : expected) {
    PolicyInstance policy = Make(ops, capacity);
    const Replay replay = testing::ReplayEpochs(policy, sizes, capacity, 4, 8, 11);
    EXPECT_NEAR(replay.HitRate(), rate, .01) << ops->name;
  }
}

TEST(Random, TheSameSeedDrawsTheSame) {
  const std::vector<std::uint64_t> sizes(1000, 1);
  std::uint64_t hits[2];
  for (std::uint64_t& count : hits) {
    PolicyInstance policy = Make(RandomPolicy(), 400);
    count = testing::ReplayEpochs(policy, sizes, 400, 1, 4, 11).hits;
  }
  EXPECT_EQ(hits[0], hits[1]);
}

// Zipf: a tenth of the objects gets most of the reads, and scans go by.
TEST(S3Fifo, BeatsLruWhereAFewAreReadMuchMoreOften) {
  const std::vector<std::uint64_t> sizes(20'000, 1);
  double rate[2];
  const tierd_policy_ops* policies[2] = {S3FifoPolicy(), LruPolicy()};
  for (int i = 0; i < 2; ++i) {
    Random random(3);
    PolicyInstance policy = Make(policies[i], 1000);
    Replay replay(policy, sizes, 1000);
    std::uint32_t scan = 0;
    for (int step = 0; step < 300'000; ++step) {
      const double u = random.Unit();
      replay.Access(random.Below(3) == 0 ? 10'000 + scan++ % 10'000 : static_cast<std::uint32_t>(10'000 * u * u * u * u));
    }
    rate[i] = replay.HitRate();
  }
  std::printf("s3fifo %.3f lru %.3f\n", rate[0], rate[1]);
  EXPECT_GT(rate[0], rate[1] + .02);
}

// A set that fits was read for some epochs, and another begins: the first victim is no reason to go through all of it.
TEST(S3Fifo, LooksAtSoManyInUseInOneCall) {
  constexpr std::uint32_t kObjects = 20'000;
  PolicyInstance policy = Make(S3FifoPolicy(), kObjects);
  for (std::uint32_t id = 0; id < kObjects; ++id) {
    policy.ObjectKnown({.id = id, .file_id = id, .chunk = 0, .bytes = 1});
    policy.Inserted(TIERD_TIER_RAM, id);
  }
  for (int epoch = 0; epoch < 5; ++epoch) {
    for (std::uint32_t id = 0; id < kObjects; ++id) policy.Accessed({.id = id, .consumer = 1, .time_ns = epoch, .tier = 0});
  }
  std::uint32_t ids[8];
  EXPECT_EQ(policy.Victims(TIERD_TIER_RAM, 1, ids), 1u);
  EXPECT_GT(policy.Worth(TIERD_TIER_RAM, 0), 0) << "looked at, and kept";
  EXPECT_EQ(policy.Worth(TIERD_TIER_RAM, 5000), 0) << "not looked at";
}

TEST(Frequency, KeepsWhatThePlanUsesMostOften) {
  PolicyInstance policy = Make(FrequencyPolicy(), 200);
  for (std::uint32_t id = 0; id < 5; ++id) policy.ObjectKnown({.id = id, .file_id = id, .chunk = 0, .bytes = 100});
  policy.Plan(0, 0, std::vector<std::uint32_t>{3, 1, 3, 2});
  policy.Plan(0, 1, std::vector<std::uint32_t>{1, 3});
  tierd_candidate out[2];
  ASSERT_EQ(policy.Next(TIERD_TIER_RAM, 0, out), 2u);
  EXPECT_EQ(out[0].id, 3u);
  EXPECT_EQ(out[1].id, 1u);
  policy.Inserted(TIERD_TIER_RAM, 2);
  policy.Inserted(TIERD_TIER_RAM, 1);
  EXPECT_TRUE(policy.Admit(TIERD_TIER_RAM, 3, 0));
  EXPECT_FALSE(policy.Admit(TIERD_TIER_RAM, 4, 0));
}

TEST(Epoch, UnreadObjectsTakeThePlaceOfReadOnes) {
  PolicyInstance policy = Make(EpochPolicy(), 200);
  std::vector<std::uint32_t> victims(4);
  for (std::uint32_t id = 0; id < 4; ++id) policy.ObjectKnown({.id = id, .file_id = id, .chunk = 0, .bytes = 100});
  policy.Inserted(TIERD_TIER_RAM, 0);
  policy.Inserted(TIERD_TIER_RAM, 1);
  EXPECT_EQ(policy.Victims(TIERD_TIER_RAM, 100, victims), 0u) << "nothing has been read";
  policy.Accessed({.id = 1, .consumer = 0, .time_ns = 0, .tier = 0});
  EXPECT_FALSE(policy.Admit(TIERD_TIER_RAM, 2, 0)) << "a reader's miss replaces nobody";
  EXPECT_TRUE(policy.Admit(TIERD_TIER_RAM, 2, 0, TIERD_AHEAD));
  ASSERT_EQ(policy.Victims(TIERD_TIER_RAM, 200, victims), 1u);
  EXPECT_EQ(victims[0], 1u);
  policy.EpochBoundary(0, 1);
  EXPECT_EQ(policy.Victims(TIERD_TIER_RAM, 100, victims), 0u);
}

// Reads of the first `read` of 1,000 objects, half of those in RAM, in a fresh order each epoch; the host brings ahead, and says a quarter later than it was that an epoch began.
double HitRateOfEpoch(std::uint32_t read, bool told) {
  sim::CacheOptions options;
  options.capacity_bytes[TIERD_TIER_RAM] = read / 2;
  const std::vector<std::uint64_t> sizes(1000, 1);
  Result<sim::Cache> cache = sim::Cache::Create(*EpochPolicy(), sizes, options);
  EXPECT_TRUE(cache.ok());
  Random random(3);
  sim::CacheCounts cold;
  for (std::uint32_t epoch = 0; epoch < 8; ++epoch) {
    const std::vector<std::uint32_t> order = Permutation(read, random);
    for (std::uint32_t i = 0; i < read; ++i) {
      if (told && epoch > 0 && i == read / 4) cache->policy().EpochBoundary(TIERD_CONSUMER_ALL, epoch);
      if (i % 10 == 0) cache->Bring(10);
      cache->Read({&order[i], 1});
    }
    if (epoch == 0) cold = cache->counts();
  }
  return (cache->counts() - cold).hit_rate();
}

TEST(Epoch, AWordThatComesLateCostsNothingAndIsAllThatIsKnownOfAPart) {
  EXPECT_EQ(HitRateOfEpoch(1000, true), HitRateOfEpoch(1000, false)) << "it has noticed by itself";
  EXPECT_GT(HitRateOfEpoch(900, true), HitRateOfEpoch(900, false) + .1) << "not where others are never read";
}

}  // namespace
}  // namespace tierd::policies
