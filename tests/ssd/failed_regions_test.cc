#include "tierd/ssd/failed_regions.h"

#include <gtest/gtest.h>

namespace tierd::ssd {
namespace {

TEST(FailedRegions, ARegionIsBadIfItFailsAgainWhileAnotherIsWritten) {
  FailedRegions failed;
  EXPECT_FALSE(failed.OnFailed(7, 3)) << "the first time is no verdict";
  failed.OnWritten(8, 4);
  EXPECT_TRUE(failed.OnFailed(7, 5));
  EXPECT_FALSE(failed.OnFailed(9, 5));
}

TEST(FailedRegions, NoneIsBadWhileAllFail) {
  FailedRegions failed;
  failed.OnWritten(1, 1);
  for (std::uint64_t taken = 4; taken < 40; ++taken) EXPECT_FALSE(failed.OnFailed(taken % 3, taken));
}

// It was under way when the first failed: the device may have failed after it.
TEST(FailedRegions, WhatWasTakenBeforeIsNoEvidence) {
  FailedRegions failed;
  EXPECT_FALSE(failed.OnFailed(7, 3));
  failed.OnWritten(8, 3);
  EXPECT_FALSE(failed.OnFailed(7, 4));
}

TEST(FailedRegions, OneThatIsWrittenHasACleanRecord) {
  FailedRegions failed;
  EXPECT_FALSE(failed.OnFailed(7, 3));
  failed.OnWritten(7, 4);
  failed.OnWritten(8, 5);
  EXPECT_FALSE(failed.OnFailed(7, 6));
}

TEST(FailedRegions, RestForAnHour) {
  constexpr std::int64_t kHour = 3600ll * 1'000'000'000;
  FailedRegions failed;
  failed.Rest(7, 100);
  failed.Rest(8, 200);
  EXPECT_FALSE(failed.NextRested(kHour + 99));
  EXPECT_EQ(failed.NextRested(kHour + 100), 7u);
  EXPECT_FALSE(failed.NextRested(kHour + 100));
  EXPECT_EQ(failed.NextRested(kHour + 200), 8u);
}

}  // namespace
}  // namespace tierd::ssd
