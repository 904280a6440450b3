// Ghosts and hindsight on a stream, against whole runs of the same policies; and how they stay small.
#include "policies/sim/ghost.h"

#include <gtest/gtest.h>

#include "policies/builtin.h"
#include "policies/sim/simulate.h"

namespace tierd::sim {
namespace {

std::uint64_t Spread(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

TEST(Ghost, HitsWhatAWholeRunHits) {
  const Result<Job> job = Job::Create({.samples = 3000, .bytes_sigma = .5, .epochs = 5});
  ASSERT_TRUE(job.ok());
  for (const tierd_policy_ops* ops : {policies::LruPolicy(), policies::FreezePolicy()}) {
    RunOptions run;
    run.cache.capacity_bytes[TIERD_TIER_RAM] = job->bytes() / 2;
    run.seeded = false;
    const Result<RunResult> whole = RunJob(*ops, *job, run);
    Result<Ghost> ghost = Ghost::Create(*ops, run.cache, 1);
    ASSERT_TRUE(whole.ok() && ghost.ok());
    orders::PlanOrders orders = job->Orders();
    std::vector<std::uint32_t> order;
    Sample sample;
    for (std::uint32_t epoch = 0; orders.Next(&order); ++epoch) {
      for (const std::uint32_t id : order) ghost->Read({.id = sample.IdOf(id), .bytes = job->sizes()[id], .missed = true, .epoch = epoch});
    }
    EXPECT_EQ(ghost->counts().reads[0], whole->total.reads[0]) << ops->name;
    EXPECT_EQ(ghost->missed(), 15'000u);
    EXPECT_EQ(ghost->last_epoch().reads[0], whole->epochs[3].reads[0]);
    EXPECT_EQ(ghost->last_epoch_missed(), 3000u);
  }
}

// A sample of a twelfth tells the shares of the whole.
TEST(Ghost, ASampleTellsTheSharesOfTheWhole) {
  const Result<Job> job = Job::Create({.samples = 48'000, .epochs = 6});
  ASSERT_TRUE(job.ok());
  CacheOptions options;
  options.capacity_bytes[TIERD_TIER_RAM] = job->bytes() / 2;
  Sample sample(4096);
  std::optional<Ghost> ghost;
  orders::PlanOrders orders = job->Orders();
  std::vector<std::uint32_t> order;
  for (std::uint32_t epoch = 0; orders.Next(&order); ++epoch) {
    for (const std::uint32_t id : order) {
      if (!sample.Takes(Spread(id + 1))) continue;
      const std::uint32_t name = sample.IdOf(Spread(id + 1));
      if (name == Sample::kNotTaken) ghost.reset();
      if (!ghost) ghost.emplace(std::move(Ghost::Create(*policies::FreezePolicy(), options, sample.share())).value());
      if (name != Sample::kNotTaken) ghost->Read({.id = name, .bytes = job->sizes()[id], .epoch = epoch});
    }
  }
  EXPECT_LE(sample.size(), 4096u);
  EXPECT_GT(sample.size(), 2000u);
  EXPECT_DOUBLE_EQ(sample.share(), 1.0 / 16);
  EXPECT_NEAR(ghost->last_epoch().hit_rate(), .5, .03);
}

TEST(Hindsight, MissesAsOftenAsBeladyWhenTheOrderIsKnown) {
  for (const std::uint32_t nodes : {1u, 4u}) {
    const Result<Job> job = Job::Create({.samples = 4000, .nodes = nodes, .epochs = 12});
    ASSERT_TRUE(job.ok());
    RunOptions run;
    run.cache.capacity_bytes[TIERD_TIER_RAM] = job->bytes() / (2 * nodes);
    run.cache.parameters = "window=1";
    const Result<RunResult> told = RunJob(*policies::BeladyPolicy(), *job, run);
    ASSERT_TRUE(told.ok());
    Hindsight hindsight(run.cache.capacity_bytes[TIERD_TIER_RAM], 1);
    orders::PlanOrders orders = job->Orders();
    std::vector<std::uint32_t> order;
    Sample sample;
    for (std::uint32_t epoch = 0; orders.Next(&order); ++epoch) {
      for (const std::uint32_t id : order) hindsight.Read({.id = sample.IdOf(id), .bytes = job->sizes()[id], .missed = true, .epoch = epoch});
    }
    const Hindsight::Epoch second = hindsight.epochs()[1];
    const std::uint64_t first = 4000 / nodes - second.reads;  // of their objects: missed by all
    EXPECT_EQ(first == 0, nodes == 1);
    EXPECT_EQ(second.missed, second.reads);
    EXPECT_NEAR(static_cast<double>(second.least + first), static_cast<double>(told->epochs[1].reads[2]), 0.02 * 4000 / nodes) << nodes << " nodes";
    EXPECT_EQ(hindsight.epochs()[0].reads, 0u) << "nobody has what was never read";
  }
}

// One node of four: belady hits twice what it hits without the plan, and as much as the simulator says; withdrawn, it does as freeze.
TEST(Ghost, HearsOfAPlan) {
  const Result<Job> job = Job::Create({.samples = 4000, .nodes = 4, .epochs = 24});
  ASSERT_TRUE(job.ok());
  RunOptions run;
  run.cache.capacity_bytes[TIERD_TIER_RAM] = job->bytes() / 4;
  run.lookahead = 24;
  const Result<RunResult> told = RunJob(*policies::BeladyPolicy(), *job, run);
  ASSERT_TRUE(told.ok());
  Result<Ghost> with = Ghost::Create(*policies::BeladyPolicy(), run.cache, 1);
  Result<Ghost> without = Ghost::Create(*policies::BeladyPolicy(), run.cache, 1);
  Result<Ghost> lru = Ghost::Create(*policies::LruPolicy(), run.cache, 1);
  ASSERT_TRUE(with.ok() && without.ok() && lru.ok());
  const auto read_of = [&](std::uint32_t id) { return StreamRead{.id = id, .bytes = job->sizes()[id]}; };
  orders::PlanOrders plan = job->Orders();
  std::vector<std::uint32_t> order;
  for (std::uint32_t epoch = 0; plan.Next(&order); ++epoch) {
    std::vector<StreamRead> reads;
    for (const std::uint32_t id : order) reads.push_back(read_of(id));
    with->Plan(epoch, 0, std::span(reads).first(300));
    with->Plan(epoch, 300, std::span(reads).subspan(300));
    lru->Plan(epoch, 0, reads);
  }
  EXPECT_TRUE(with->planned());
  EXPECT_FALSE(without->planned());
  EXPECT_FALSE(lru->planned() || lru->takes_plans());
  orders::PlanOrders orders = job->Orders();
  while (orders.Next(&order)) {
    for (const std::uint32_t id : order) with->Read(read_of(id)), without->Read(read_of(id));
  }
  EXPECT_NEAR(with->counts().hit_rate(), told->total.hit_rate(), .02);
  EXPECT_GT(with->counts().hit_rate(), 1.5 * without->counts().hit_rate());
  with->Plan(0, 0, {});
  EXPECT_FALSE(with->planned());
}

// Of what a plan names and nobody has read yet, nothing is judged before it is read twice.
TEST(Hindsight, DoesNotTakeThePlannedForTheRead) {
  Hindsight hindsight(1000, 1);
  for (int round = 0; round < 5; ++round) {
    for (const std::uint32_t id : {7u, 3u}) hindsight.Read({.id = id, .bytes = 10, .missed = true, .epoch = 1});
  }
  EXPECT_EQ(hindsight.epochs()[1].reads, 4u) << "the first of each is not judged, the last two times two are to come";
  EXPECT_EQ(hindsight.epochs()[1].least, 0u);
}

TEST(Ghost, AnObjectThatChangesItsSizeLeaves) {
  CacheOptions options;
  options.capacity_bytes[TIERD_TIER_RAM] = 100;
  Result<Ghost> ghost = Ghost::Create(*policies::FreezePolicy(), options, 1);
  ASSERT_TRUE(ghost.ok());
  for (const std::uint64_t bytes : {60, 60, 90, 90}) ghost->Read({.id = 0, .bytes = bytes});
  EXPECT_EQ(ghost->counts().reads[0], 2u);
  EXPECT_EQ(ghost->counts().bytes[0], 150u);
}

}  // namespace
}  // namespace tierd::sim
