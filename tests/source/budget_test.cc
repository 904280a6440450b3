#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tierd/source/request_budget.h"
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

TEST(RequestBudget, ManyThreadsGetTogetherWhatThereIs) {
  RequestBudget budget(1000);
  EXPECT_GT(budget.TakeIfAllowed(kSecond, false), kSecond);
  std::atomic<int> taken = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 1000; ++n) taken += budget.TakeIfAllowed(2 * kSecond, true) == 2 * kSecond;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, 75);  // a tenth of a second's, but for what is demand's
  EXPECT_EQ(budget.AllowedAt(2 * kSecond, false), 2 * kSecond);
  EXPECT_GT(budget.AllowedAt(2 * kSecond, true), 2 * kSecond);
  budget.SetRate(0);
  EXPECT_EQ(budget.TakeIfAllowed(2 * kSecond, true), 2 * kSecond);
}

TEST(TokenBucket, LowRatesStillSend) {
  TokenBucket bucket(1);
  bucket.Refill(kSecond);
  bucket.Refill(3 * kSecond);
  EXPECT_TRUE(bucket.Allows(true));
}

}  // namespace
}  // namespace tierd::source
