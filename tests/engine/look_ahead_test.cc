// Whether more is brought ahead: by the used share of what was, and by what the source gave.
#include "tierd/engine/sources/look_ahead.h"

#include <gtest/gtest.h>

namespace tierd::engine {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

class LookAheadGateTest : public testing::Test {
 protected:
  // So much was brought and used, so much was brought and left; readers read all of the first, and missed the rest.
  bool Bring(std::uint64_t used, std::uint64_t unused) {
    ahead_.brought += used + unused, ahead_.used += used, ahead_.unused += unused;
    traffic_.read += used, traffic_.from_source += used + unused;
    return MayBring();
  }
  void Read(std::uint64_t bytes, std::uint64_t from_source = 0) { traffic_.read += bytes, traffic_.from_source += from_source; }
  bool MayBring() { return gate_.MayBring(ahead_, traffic_); }

  LookAhead ahead_;
  Traffic traffic_;
  LookAheadGate gate_;
};

TEST_F(LookAheadGateTest, BringsWhileMostOfItIsUsed) {
  for (int i = 0; i < 100; ++i) {
    Read(100 * kMiB);
    ASSERT_TRUE(Bring(9 * kMiB, kMiB)) << i;
  }
  EXPECT_FALSE(gate_.resting());
}

TEST_F(LookAheadGateTest, RestsWhereMostOfItLeavesUnused) {
  ASSERT_TRUE(MayBring());
  EXPECT_FALSE(Bring(kMiB, kMiB));
  EXPECT_TRUE(gate_.resting());
  EXPECT_DOUBLE_EQ(gate_.used_share(), .5);
}

TEST_F(LookAheadGateTest, ALittleSaysNothing) {
  EXPECT_TRUE(Bring(0, kMiB / 2));
  EXPECT_FALSE(Bring(0, kMiB / 2 + 1));
}

TEST_F(LookAheadGateTest, TriesAgainAfterMuchWasReadAndThenLessOften) {
  EXPECT_FALSE(Bring(0, kMiB));
  Read(16 * kMiB - 1);
  EXPECT_FALSE(MayBring());
  Read(200 * kMiB);
  EXPECT_TRUE(MayBring());
  EXPECT_FALSE(gate_.resting());
  EXPECT_FALSE(Bring(0, kMiB));
  Read(31 * kMiB);
  EXPECT_FALSE(MayBring()) << "twice as long as the first time";
  Read(kMiB);
  EXPECT_TRUE(MayBring());
}

// Three quarters are used, and the rest is more than the cache saves.
TEST_F(LookAheadGateTest, RestsWhileTheSourceGivesMoreThanIsRead) {
  Read(100 * kMiB, 100 * kMiB);
  EXPECT_FALSE(Bring(13 * kMiB, 4 * kMiB));
  EXPECT_TRUE(gate_.resting());
  Read(300 * kMiB, 200 * kMiB);  // hits
  EXPECT_TRUE(MayBring());
}

// What is on its way to its reader is no loss.
TEST_F(LookAheadGateTest, WhatWaitsForItsReaderIsNoLoss) {
  ahead_.brought = traffic_.from_source = 50 * kMiB;
  EXPECT_TRUE(MayBring());
}

// The bound that is promised: with a policy that lets everything leave unused, whatever is asked for at each turn.
TEST_F(LookAheadGateTest, CostsTheSourceNoMoreThanTwoPercentInTheLongRun) {
  for (int turn = 0; turn < 100'000; ++turn) {
    Read(kMiB / 8, kMiB / 8);
    if (MayBring()) Bring(0, kMiB / 8);
  }
  EXPECT_LE(traffic_.from_source, traffic_.read + traffic_.read / 50) << ahead_.unused;
}

}  // namespace
}  // namespace tierd::engine
