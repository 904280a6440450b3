#include "tierd/ssd/health.h"

#include <gtest/gtest.h>

namespace tierd::ssd {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

TEST(Health, DegradesOnErrorsInAWindowOnly) {
  const SsdOptions options;
  Health health(options);
  for (int i = 0; i < 20; ++i) health.OnError(i * 40 * kSecond);  // two per window at most
  EXPECT_EQ(health.state(), SsdHealth::kHealthy);
  EXPECT_TRUE(health.MayAppend());
  for (int i = 0; i < 3; ++i) health.OnError(1000 * kSecond + i);
  EXPECT_EQ(health.state(), SsdHealth::kDegraded);
  EXPECT_FALSE(health.MayAppend());
  EXPECT_TRUE(health.MayRead(0));
  EXPECT_FALSE(health.MayRead(4));
}

TEST(Health, GoesOutAndComesBackStepByStep) {
  const SsdOptions options;
  Health health(options);
  for (unsigned i = 0; i < options.out_errors; ++i) health.OnError(kSecond + i);
  EXPECT_EQ(health.state(), SsdHealth::kOut);
  EXPECT_FALSE(health.MayRead(0));
  EXPECT_TRUE(health.ProbeDue(5 * kSecond));
  EXPECT_FALSE(health.ProbeDue(5 * kSecond + 1));
  EXPECT_TRUE(health.ProbeDue(7 * kSecond));
  for (unsigned i = 0; i < options.recover_successes; ++i) health.OnReadSuccess(1000);
  EXPECT_EQ(health.state(), SsdHealth::kDegraded);
  for (unsigned i = 0; i + 1 < options.recover_successes; ++i) health.OnReadSuccess(1000);
  health.OnError(8 * kSecond);  // the row of successes starts anew
  health.OnReadSuccess(1000);
  EXPECT_EQ(health.state(), SsdHealth::kDegraded);
  for (unsigned i = 1; i < options.recover_successes; ++i) health.OnReadSuccess(1000);
  EXPECT_EQ(health.state(), SsdHealth::kHealthy);
  EXPECT_FALSE(health.ProbeDue(100 * kSecond));
}

TEST(Health, WrongBytesDegradeButNeverTakeTheDeviceOut) {
  const SsdOptions options;
  Health health(options);
  for (int i = 0; i < 100; ++i) health.OnCorrupt(kSecond + i);
  EXPECT_EQ(health.state(), SsdHealth::kDegraded);
}

TEST(Health, HungReadsDegradeAtOnce) {
  const SsdOptions options;
  Health health(options);
  health.OnHung(kSecond, 0);
  EXPECT_EQ(health.state(), SsdHealth::kHealthy);
  health.OnHung(kSecond, 1);
  EXPECT_EQ(health.state(), SsdHealth::kDegraded);
  health.OnHung(2 * kSecond, options.out_errors);
  EXPECT_EQ(health.state(), SsdHealth::kOut);
}

// Who waits for a device that hangs does not wait for one that fails.
TEST(Health, AStallIsIllnessWithoutAnError) {
  const SsdOptions options;
  Health health(options);
  EXPECT_FALSE(health.stalls());
  health.OnError(kSecond);  // one is none
  EXPECT_FALSE(health.stalls());
  health.OnHung(2 * kSecond, options.out_errors);
  EXPECT_TRUE(health.stalls());
  for (unsigned i = 0; i < options.recover_successes; ++i) health.OnWriteSuccess();
  EXPECT_EQ(health.state(), SsdHealth::kDegraded);
  EXPECT_TRUE(health.stalls());
  health.OnError(3 * kSecond);
  EXPECT_FALSE(health.stalls());
  for (unsigned i = 0; i < options.recover_successes; ++i) health.OnWriteSuccess();
  EXPECT_EQ(health.state(), SsdHealth::kHealthy);
  EXPECT_FALSE(health.stalls());
  health.OnHung(4 * kSecond, 1);
  EXPECT_TRUE(health.stalls());
  for (unsigned i = 0; i < options.degrade_errors; ++i) health.OnError(5 * kSecond);
  EXPECT_FALSE(health.stalls());
}

TEST(Health, LatencyFollowsTheDevice) {
  const SsdOptions options;
  Health health(options);
  health.OnReadSuccess(1000);
  EXPECT_EQ(health.read_latency_ns(), 1000);
  for (int i = 0; i < 100; ++i) health.OnReadSuccess(9000);
  EXPECT_GT(health.read_latency_ns(), 8800);
}

}  // namespace
}  // namespace tierd::ssd
