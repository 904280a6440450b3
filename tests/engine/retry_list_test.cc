#include "tierd/engine/fetch/retry_list.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace tierd::engine {
namespace {

class RetryListTest : public ::testing::Test {
 protected:
  // One turn of ten steps; what is odd has to wait again.
  bool Turn() {
    return list_.Run(clock_, clock_.PreciseNs() + 10, [this](int thing) {
      clock_.Advance(1);
      tried_.push_back(thing);
      if (thing % 2 != 0) list_.Add(thing);
    });
  }
  ManualClock clock_;
  RetryList<int> list_;
  std::vector<int> tried_;
};

// However many wait in vain: a round ends.
TEST_F(RetryListTest, EachIsTriedOnceARound) {
  std::vector<int> all(95);
  std::iota(all.begin(), all.end(), 0);
  for (const int thing : all) list_.Add(thing);
  EXPECT_TRUE(Turn()) << "nothing is due";
  list_.BeginRound();
  int turns = 1;
  while (!Turn()) ++turns;
  EXPECT_EQ(turns, 10);
  EXPECT_EQ(tried_, all);
  EXPECT_TRUE(Turn());
  EXPECT_EQ(tried_.size(), 95u);
  list_.BeginRound();
  turns = 1;
  while (!Turn()) ++turns;
  EXPECT_EQ(turns, 5) << "47 are left";
  EXPECT_FALSE(list_.empty());
}

TEST_F(RetryListTest, AnotherRoundBeginsWithWhatTheLastDidNotReach) {
  for (int thing = 0; thing < 30; ++thing) list_.Add(thing);
  list_.BeginRound();
  EXPECT_FALSE(Turn());
  list_.BeginRound();
  EXPECT_FALSE(Turn());
  EXPECT_FALSE(Turn());
  EXPECT_EQ(tried_.at(10), 10);
  EXPECT_TRUE(Turn()) << "and ends with the five that were tried";
  EXPECT_EQ(tried_.back(), 9);
}

TEST_F(RetryListTest, WhatIsErasedIsNotTried) {
  for (int thing = 0; thing < 30; ++thing) list_.Add(thing);
  list_.BeginRound();
  EXPECT_EQ(list_.EraseIf([](int thing) { return thing >= 5; }), 25u);
  EXPECT_TRUE(Turn());
  EXPECT_EQ(tried_.size(), 5u);
}

}  // namespace
}  // namespace tierd::engine
