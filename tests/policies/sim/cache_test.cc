// Cache against the tests' smallest host, and over two tiers.
#include "policies/sim/cache.h"

#include <gtest/gtest.h>

#include "policies/builtin.h"
#include "policies/registry.h"
#include "policies/sim/simulate.h"
#include "tests/policies/replay.h"

namespace tierd::sim {
namespace {

TEST(Cache, DoesWithOneTierWhatTheSmallestHostDoes) {
  for (const tierd_policy_ops* ops : policies::BuiltinPolicies()) {
    policies::testing::Random random(5);
    const std::vector<std::uint64_t> sizes = policies::testing::LogNormalSizes(3000, 10'000, .7, random);
    constexpr std::uint64_t kCapacity = 12'000'000;
    CacheOptions options;
    options.capacity_bytes[TIERD_TIER_RAM] = kCapacity;
    Result<Cache> cache = Cache::Create(*ops, sizes, options);
    ASSERT_TRUE(cache.ok());
    policies::PolicyInstance::Options instance_options;
    instance_options.seed = options.seed;
    instance_options.capacity_bytes[TIERD_TIER_RAM] = kCapacity;
    Result<policies::PolicyInstance> instance = policies::PolicyInstance::Create(*ops, instance_options);
    policies::testing::Replay replay(*instance, sizes, kCapacity);
    for (std::uint32_t epoch = 0; epoch < 4; ++epoch) {
      const std::vector<std::uint32_t> order = policies::testing::Permutation(3000, random);
      cache->policy().Plan(0, epoch, order);
      instance->Plan(0, epoch, order);
      cache->Read(order);
      for (const std::uint32_t id : order) replay.Access(id);
    }
    EXPECT_EQ(cache->counts().reads[0], replay.hits) << ops->name;
    EXPECT_EQ(cache->counts().evictions[0], replay.evictions) << ops->name;
    EXPECT_LE(cache->used_bytes(TIERD_TIER_RAM), kCapacity);
  }
}

// RAM for a quarter, SSD for a half, exclusive: three quarters of the reads need no source, with the plan and without.
TEST(Cache, TwoTiersHoldWhatBothHaveRoomFor) {
  JobOptions job_options;
  job_options.samples = 4000;
  job_options.epochs = 8;
  const Result<Job> job = Job::Create(job_options);
  ASSERT_TRUE(job.ok());
  for (const tierd_policy_ops* ops : {policies::FreezePolicy(), policies::BeladyPolicy()}) {
    RunOptions options;
    options.cache.capacity_bytes[TIERD_TIER_RAM] = job->bytes() / 4;
    options.cache.capacity_bytes[TIERD_TIER_SSD] = job->bytes() / 2;
    const Result<RunResult> result = RunJob(*ops, *job, options);
    ASSERT_TRUE(result.ok());
    EXPECT_NEAR(result->hit_rate(1), .75, .01) << ops->name;
    EXPECT_EQ(result->dropped_answers, 0u);
    EXPECT_EQ(result->epochs.size(), 8u);
    EXPECT_GE(static_cast<double>(result->total.bytes[2]) * 1.001, LeastSourceBytes(*job, static_cast<double>(job->bytes()) * .75)) << "below what is possible";
  }
}

TEST(Cache, BlindIsToldOfReadsOnly) {
  const Result<Job> job = Job::Create({.samples = 4000, .nodes = 4, .epochs = 20});
  ASSERT_TRUE(job.ok());
  RunOptions options;
  options.cache.capacity_bytes[TIERD_TIER_RAM] = job->bytes() / 4;
  const Result<RunResult> seeded = RunJob(*policies::BeladyPolicy(), *job, options);
  options.seeded = false;
  const Result<RunResult> blind = RunJob(*policies::BeladyPolicy(), *job, options);
  const Result<RunResult> freeze = RunJob(*policies::FreezePolicy(), *job, options);
  ASSERT_TRUE(seeded.ok() && blind.ok() && freeze.ok());
  EXPECT_GT(seeded->hit_rate(), blind->hit_rate() + .2);
  EXPECT_EQ(blind->total.reads[0], freeze->total.reads[0]);
}

// Reads that were not announced: drawn with replacement, the plan of another seed, some read twice. Never worse than freeze by more than .01.
TEST(Cache, BeladyWithAPlanThatIsWrongIsNoWorseThanFreeze) {
  const Result<Job> job = Job::Create({.samples = 4000, .epochs = 6});
  ASSERT_TRUE(job.ok());
  for (const char* read : {"distributed", "replacement", "sequential", "same"}) {
    const Result<Job> other = Job::Create({.samples = 4000, .seed = 77, .epochs = 6, .order = read});
    ASSERT_TRUE(other.ok());
    double rates[2];
    for (const tierd_policy_ops* ops : {policies::BeladyPolicy(), policies::FreezePolicy()}) {
      CacheOptions options;
      options.capacity_bytes[TIERD_TIER_RAM] = job->bytes() / 2;
      Result<Cache> cache = Cache::Create(*ops, job->sizes(), options);
      orders::PlanOrders planned = job->Orders();
      orders::PlanOrders actual = other->Orders();
      std::vector<std::uint32_t> order;
      for (std::uint32_t epoch = 0; planned.Next(&order); ++epoch) cache->policy().Plan(0, epoch, order);
      while (actual.Next(&order)) cache->Read(order);
      rates[ops == policies::FreezePolicy() ? 1 : 0] = cache->counts().hit_rate();
    }
    EXPECT_GE(rates[0], rates[1] - .01) << read;
  }
}

// In parts, for somebody who looks at how it gets on: the same figures, and each read is told of once.
TEST(Simulate, IsTheSameWhetherItIsLookedAtOrNot) {
  const Result<Job> job = Job::Create({.samples = 150'000, .bytes_sigma = .5, .epochs = 3});
  ASSERT_TRUE(job.ok());
  for (const tierd_policy_ops* ops : policies::BuiltinPolicies()) {
    RunOptions options;
    options.cache.capacity_bytes[TIERD_TIER_RAM] = job->bytes() / 3;
    const Result<RunResult> alone = RunJob(*ops, *job, options);
    std::uint64_t told = 0;
    options.on_reads = [&told](std::uint64_t reads) { told += reads; };
    const Result<RunResult> looked_at = RunJob(*ops, *job, options);
    ASSERT_TRUE(alone.ok() && looked_at.ok()) << ops->name;
    EXPECT_EQ(told, 450'000u);
    for (std::size_t tier = 0; tier < 3; ++tier) {
      EXPECT_EQ(alone->total.reads[tier], looked_at->total.reads[tier]) << ops->name;
      EXPECT_EQ(alone->total.bytes[tier], looked_at->total.bytes[tier]) << ops->name;
    }
  }
}

TEST(Job, SizesAndRefusals) {
  const Result<Job> job = Job::Create({.samples = 20'000, .bytes_mean = 50'000, .bytes_sigma = .5});
  ASSERT_TRUE(job.ok());
  EXPECT_NEAR(static_cast<double>(job->bytes()) / 20'000, 50'000, 1000);
  EXPECT_FALSE(Job::Create({.samples = 0}).ok());
  EXPECT_FALSE(Job::Create({.nodes = 4, .node = 4}).ok());
  EXPECT_FALSE(Job::Create({.order = "by size"}).ok());
  EXPECT_FALSE(Job::Create({.bytes_sigma = 9}).ok());
}

}  // namespace
}  // namespace tierd::sim
