// Regions that cannot be written, or read, against devices that cannot.
#include <gtest/gtest.h>

#include <random>

#include "tests/ssd/tier_fixture.h"

namespace tierd::ssd {
namespace {

// Ten files a second that come again and again in new versions: in a minute three times what the tier holds.
class Stream {
 public:
  explicit Stream(Life& life) : life_(life) { life_.no_retry = true; }
  // For so many seconds. How much of the time the tier took nothing for its health, in parts of 1.
  double Run(int seconds) {
    const int all = seconds * 10;
    int ill = 0;
    for (int i = 0; i < all; ++i, ++next_) {
      (void)life_.Put("s" + std::to_string(next_ % 100), 1 + next_ / 100, 20'000);
      while (life_.Turn()) {
      }
      life_.Pass(100'000'000);
      ill += life_.tier->status().health != SsdHealth::kHealthy ? 1 : 0;
    }
    return 1.0 * ill / all;
  }

 private:
  Life& life_;
  std::uint64_t next_ = 0;
};

// F06: one bad place is left alone; the tier is well but for that region.
TEST(SsdBadRegion, ARegionThatCannotBeWrittenIsLeftAlone) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  std::uint64_t refused = 0;
  life.io.fault_at = [&](bool, std::uint64_t offset) {
    if (offset / options.region_bytes != 2) return IoFault();
    ++refused;
    return IoFault{EIO, 0, false};
  };
  Stream stream(life);
  EXPECT_EQ(stream.Run(60), 0);
  const SsdCounters first = life.tier->counters();
  EXPECT_EQ(first.regions_retired, 1u);
  EXPECT_LE(first.records_lost_to_write_errors, 2u * 12) << "of " << first.appends;
  EXPECT_GT(first.appends, 500u);
  EXPECT_EQ(life.tier->status().retired_regions, 1u);
  EXPECT_EQ(life.tier->status().capacity_bytes, options.capacity_bytes - options.region_bytes);
  const std::uint64_t refused_first = refused;
  EXPECT_EQ(stream.Run(60), 0);
  EXPECT_EQ(refused, refused_first) << "nobody asks it";
  life.Settle();
  life.ExpectAllReadable();
  // An hour later it has one more chance, at the cost of what is in a buffer.
  life.Pass(3601ll * 1'000'000'000);
  EXPECT_EQ(stream.Run(60), 0);
  EXPECT_EQ(life.tier->counters().regions_retired, 2u);
  EXPECT_LE(life.tier->counters().records_lost_to_write_errors, 3u * 12);
  life.io.fault_at = nullptr;
  life.Pass(3601ll * 1'000'000'000);
  EXPECT_EQ(stream.Run(60), 0);
  EXPECT_EQ(life.tier->status().retired_regions, 0u);
  life.Settle();
  life.ExpectAllReadable();
}

TEST(SsdBadRegion, WritesThatWereOnTheirWayToOneRegionAreOneError) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  life.io.fault_at = [&](bool write, std::uint64_t offset) { return write && offset < options.region_bytes ? IoFault{EIO, 0, false} : IoFault(); };
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(life.Put("f" + std::to_string(i), 1, 20'000).ok());
  life.Settle();
  EXPECT_GE(life.tier->counters().write_errors, 3u);
  EXPECT_EQ(life.tier->status().health, SsdHealth::kHealthy);
}

// Its space goes first where the tier must hold less.
TEST(SsdBadRegion, ARetiredRegionIsTheFirstToBeGivenBack) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  life.io.fault_at = [&](bool, std::uint64_t offset) { return offset / options.region_bytes == 2 ? IoFault{EIO, 0, false} : IoFault(); };
  Stream stream(life);
  (void)stream.Run(60);
  ASSERT_EQ(life.tier->status().retired_regions, 1u);
  life.Settle();
  const std::size_t items = life.items.size();
  life.tier->SetCapacity(life.tier->status().allocated_bytes - options.region_bytes);
  EXPECT_TRUE(life.RunUntil([&] { return life.tier->counters().regions_punched == 1; }));
  EXPECT_FALSE(life.RunUntil([&] { return life.tier->counters().regions_punched > 1; }, 3));
  EXPECT_EQ(life.tier->status().retired_regions, 0u);
  EXPECT_EQ(life.items.size(), items);
}

// F06: while every write fails no region is at fault, from whichever write on; afterwards all are there, and what was there before.
TEST(SsdBadRegion, ADeviceThatTookNoWritesForAWhileHasAllItsRegionsAgain) {
  for (const bool reads_too : {false, true}) {
    for (const std::uint64_t from : {0, 1, 2, 3, 5, 8}) {
      TempDirectory dir;
      const SsdOptions options = SmallOptions(dir.path() + "/c");
      Life life(options);
      ASSERT_TRUE(life.Start().status.ok());
      for (int i = 0; i < 36; ++i) ASSERT_TRUE(life.Put("kept" + std::to_string(i), 1, 20'000).ok());
      Stream stream(life);
      EXPECT_EQ(stream.Run(30), 0);
      life.Settle();
      const std::uint64_t outage = life.io.writes + from;
      life.io.fault = [&](bool write, std::uint64_t number) { return (write && number >= outage) || (!write && reads_too) ? IoFault{EIO, 0, false} : IoFault(); };
      EXPECT_GT(stream.Run(60), 0.5);
      for (int i = 0; i < 36; ++i) EXPECT_TRUE(life.items.contains({"kept" + std::to_string(i), 0})) << "given up for what cannot be written: " << i << " from " << from;
      life.io.fault = nullptr;
      EXPECT_TRUE(life.RunUntil([&] { return life.tier->status().health == SsdHealth::kHealthy; }, 40)) << from;
      EXPECT_EQ(stream.Run(60), 0);
      EXPECT_EQ(life.tier->counters().regions_retired, 0u) << from;
      EXPECT_EQ(life.tier->status().capacity_bytes, options.capacity_bytes);
      life.Settle();
      life.ExpectAllReadable();
    }
  }
}

// A device that fails now and then, everywhere, loses an eighth of its regions at most, and for an hour at most.
TEST(SsdBadRegion, ADeviceThatFailsNowAndThenKeepsMostOfItsRegions) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  std::mt19937 random(3);
  life.io.fault = [&](bool write, std::uint64_t) { return write && random() % 16 == 0 ? IoFault{EIO, 0, false} : IoFault(); };
  Stream stream(life);
  (void)stream.Run(600);
  EXPECT_EQ(life.tier->status().retired_regions, 2u);
  life.io.fault = nullptr;
  life.Pass(3601ll * 1'000'000'000);
  EXPECT_TRUE(life.RunUntil([&] { return life.tier->status().health == SsdHealth::kHealthy; }, 40));
  EXPECT_EQ(stream.Run(60), 0);
  EXPECT_EQ(life.tier->status().retired_regions, 0u);
  life.Settle();
  life.ExpectAllReadable();
}

// A probe that meets a bad place asks another.
TEST(SsdBadRegion, AnUnreadableRegionDoesNotKeepTheTierOut) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(life.Put("f" + std::to_string(i), 1, 20'000).ok());
  life.Settle();
  life.io.fault_at = [&](bool write, std::uint64_t offset) { return !write && offset < options.region_bytes ? IoFault{EIO, 0, false} : IoFault(); };
  ASSERT_EQ(life.items.at({"f1", 0}).location.region, 0u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(life.Get("f1"), ReadOutcome::kIoError);
  ASSERT_EQ(life.tier->status().health, SsdHealth::kDegraded);
  EXPECT_TRUE(life.RunUntil([&] { return life.tier->status().health == SsdHealth::kHealthy; }, 40));
}

}  // namespace
}  // namespace tierd::ssd
