// What the loop is kept for, as tierd_loop_lag_seconds says it.
#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

constexpr std::int64_t kMs = 1'000'000;

class LagTest : public EngineTest {
 protected:
  ~LagTest() override { StopEngine(); }
};

TEST_F(LagTest, TheAnswerOfAWorkerCounts) {
  StartEngine();
  RunUntil([] { return false; }, 50);
  bool ran = false;
  const auto answer = [&](int) {
    clock_.ahead_ns += 5000 * kMs;  // it takes so long
    ran = true;
  };
  ASSERT_TRUE(engine().workers().Run([] { return 1; }, answer));
  ASSERT_TRUE(RunUntil([&] { return ran; }));
  EXPECT_GE(engine().lag().max_ns, 5000u * kMs);
  EXPECT_LT(engine().lag().sum_ns, 9000u * kMs) << "once";
}

// A daemon that has nothing to do ticks: each tick is a handler, and so is the turn that some of them are.
TEST_F(LagTest, TicksCountOnce) {
  StartEngine();
  RunUntil([] { return false; }, 300);
  const std::uint64_t before = engine().lag().count;
  const std::size_t handlers = HandlersIn(4 * abi::kHeartbeatPeriodMs);
  EXPECT_GE(engine().lag().count - before, 3u);
  EXPECT_LE(engine().lag().count - before, handlers);
}

TEST_F(LagTest, WhatIsInsideAnotherIsAPartOfIt) {
  ManualClock clock;
  LoopLag lag(clock);
  {
    const LoopLag::Handler outer(lag, "outer");
    clock.Advance(kMs);
    {
      const LoopLag::Handler inner(lag, "inner");
      clock.Advance(2 * kMs);
    }
    clock.Advance(kMs);
  }
  EXPECT_EQ(lag.count, 1u);
  EXPECT_EQ(lag.sum_ns, 4u * kMs);
  EXPECT_EQ(lag.buckets[8], 1u) << "2.048 to 4.096 ms";
}

}  // namespace
}  // namespace tierd::engine
