#include <gtest/gtest.h>

#include "tierd/source/token_bucket.h"

namespace tierd::source {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

TEST(TokenBucket, WithoutRateAllowsEverything) {
  TokenBucket bucket(0);
  bucket.Refill(1);
  bucket.Take(1'000'000'000);
  EXPECT_TRUE(bucket.Allows(true));
  EXPECT_TRUE(bucket.Allows(false));
}

TEST(TokenBucket, HoldsTheRateOverTime) {
  TokenBucket bucket(1000);
  std::int64_t sent = 0;
  std::int64_t now = kSecond;
  for (int step = 0; step < 10'000; ++step, now += kSecond / 1000) {
    bucket.Refill(now);
    while (bucket.Allows(false)) {
      bucket.Take(1);
      ++sent;
    }
  }
  EXPECT_NEAR(static_cast<double>(sent), 10'000, 110);
}

TEST(TokenBucket, LargeRequestsGoIntoDebtAndPay) {
  TokenBucket bucket(1000);
  bucket.Refill(kSecond);
  bucket.Refill(2 * kSecond);
  ASSERT_TRUE(bucket.Allows(false));
  bucket.Take(5100);  // 100 were there
  EXPECT_FALSE(bucket.Allows(false));
  EXPECT_NEAR(static_cast<double>(bucket.AllowedAt(false)), 7.0 * kSecond, 0.01 * kSecond);
  bucket.Refill(bucket.AllowedAt(false) + 1'000'000);
  EXPECT_TRUE(bucket.Allows(false));
}

TEST(TokenBucket, LeavesTheLastQuarterToDemand) {
  TokenBucket bucket(1000);
  bucket.Refill(kSecond);
  bucket.Refill(2 * kSecond);
  bucket.Take(80);
  EXPECT_FALSE(bucket.Allows(true));
  EXPECT_TRUE(bucket.Allows(false));
  EXPECT_GT(bucket.AllowedAt(true), 2 * kSecond);
}

TEST(TokenBucket, GivesBackWhatWasNotUsed) {
  TokenBucket bucket(1000);
  bucket.Refill(kSecond);
  bucket.Refill(2 * kSecond);
  bucket.Take(4000);
  bucket.Take(-3990);
  EXPECT_TRUE(bucket.Allows(true));
}

TEST(TokenBucket, LowRatesStillSend) {
  TokenBucket bucket(1);
  bucket.Refill(kSecond);
  bucket.Refill(3 * kSecond);
  EXPECT_TRUE(bucket.Allows(true));
}

}  // namespace
}  // namespace tierd::source
