#include "tierd/base/clock.h"

#include <gtest/gtest.h>

#include <ctime>

namespace tierd {
namespace {

TEST(SystemClock, ReadsTheClocksItNames) {
  const SystemClock clock;
  const std::int64_t coarse = clock.MonotonicNs();
  const std::int64_t precise = clock.PreciseNs();
  EXPECT_GT(coarse, 0);
  EXPECT_LE(coarse, precise) << "the coarse clock is the precise one at its last tick";
  EXPECT_LE(precise, clock.PreciseNs());
  EXPECT_LE(coarse, clock.MonotonicNs());
  constexpr std::int64_t kSecond = 1'000'000'000;
  const std::int64_t now = std::int64_t{::time(nullptr)} * kSecond;
  EXPECT_NEAR(static_cast<double>(clock.RealtimeNs()), static_cast<double>(now), 10.0 * kSecond);
}

TEST(ManualClock, StandsStillUntilAdvanced) {
  ManualClock clock;
  const std::int64_t monotonic = clock.MonotonicNs();
  const std::int64_t realtime = clock.RealtimeNs();
  EXPECT_EQ(clock.MonotonicNs(), monotonic);
  clock.Advance(5);
  EXPECT_EQ(clock.MonotonicNs(), monotonic + 5);
  EXPECT_EQ(clock.PreciseNs(), monotonic + 5);
  EXPECT_EQ(clock.RealtimeNs(), realtime + 5);
}

}  // namespace
}  // namespace tierd
