#include "tierd/ssd/region_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tierd::ssd {
namespace {

SsdLocation In(std::uint32_t region) {
  SsdLocation location;
  location.region = region;
  location.stored_bytes = 10;
  return location;
}

// HAZARDS 5: a tier of 10 TB has 600,000 regions.
TEST(RegionTable, GrowsWithoutMovingWhatIsThere) {
  RegionTable table(1);
  table.GrowTo(1);
  const Region* const first = &table.at(0);
  for (std::uint32_t count : {2u, 1000u, 5000u, 300'000u}) {
    table.GrowTo(count);
    EXPECT_EQ(table.size(), count);
    EXPECT_EQ(&table.at(0), first) << count;
  }
  EXPECT_EQ(table.Count(RegionState::kAbsent), 300'000u);
}

TEST(RegionTable, FindsStatesAndCountsThem) {
  RegionTable table(7);
  table.GrowTo(3000);
  EXPECT_FALSE(table.FindState(RegionState::kFree));
  EXPECT_FALSE(table.OpenFree());
  table.Set(2999, RegionState::kFree);
  table.Set(1024, RegionState::kFree);
  EXPECT_EQ(table.FindState(RegionState::kFree), 1024u);
  EXPECT_EQ(table.OpenFree(), 1024u);
  EXPECT_EQ(table.at(1024).epoch, 7u);
  EXPECT_EQ(table.OpenFree(), 2999u);
  EXPECT_EQ(table.at(2999).epoch, 8u);
  EXPECT_FALSE(table.OpenFree());
  EXPECT_EQ(table.allocated(), 2u);
}

TEST(RegionTable, KnowsWhetherNothingLivesSomewhere) {
  RegionTable table(1);
  table.GrowTo(2);
  EXPECT_FALSE(table.AnyDead()) << "absent ones are not dead";
  table.Set(1, RegionState::kOpen);
  table.AddLive(In(1), 100);
  table.Set(1, RegionState::kClosed);
  EXPECT_FALSE(table.AnyDead());
  table.RemoveLive(In(1), 100);
  EXPECT_TRUE(table.AnyDead());
  table.RemoveLive(In(1), 100);
  EXPECT_TRUE(table.AnyDead());
  table.AddLive(In(1), 100);
  EXPECT_FALSE(table.AnyDead());
  table.ClearLive(1);
  EXPECT_TRUE(table.AnyDead());
  table.Set(1, RegionState::kReclaiming);
  EXPECT_FALSE(table.AnyDead());
  EXPECT_EQ(table.live_records(), 0u);
}

// Against the definition, written down as it reads.
TEST(RegionTable, NamesTheEmptiestAndTheOthersInTurn) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    RegionTable table(1);
    const std::uint32_t count = 1 + random() % 40;
    table.GrowTo(count);
    std::vector<std::uint32_t> closed;
    for (std::uint32_t i = 0; i < count; ++i) {
      table.at(i).epoch = (i * 7919) % 1009;
      for (std::uint32_t n = random() % 4; n > 0; --n) table.AddLive(In(i), 100);
      if (random() % 3 == 0) continue;
      table.Set(i, RegionState::kClosed);
      closed.push_back(i);
    }
    std::uint32_t cursor = random() % (count + 2);
    std::vector<std::uint32_t> want = closed;
    std::sort(want.begin(), want.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(table.at(a).live_bytes, table.at(a).epoch) < std::pair(table.at(b).live_bytes, table.at(b).epoch);
    });
    const auto n = static_cast<std::ptrdiff_t>(std::min<std::size_t>(3, want.size()));
    std::sort(want.begin() + n, want.end());
    std::rotate(want.begin() + n, std::upper_bound(want.begin() + n, want.end(), cursor), want.end());
    want.resize(std::min<std::size_t>(want.size(), static_cast<std::size_t>(n) + 5));
    const std::uint32_t next = want.size() > static_cast<std::size_t>(n) ? want.back() : cursor;
    EXPECT_EQ(table.Candidates(3, 5, &cursor), want) << "round " << round;
    EXPECT_EQ(cursor, next) << "round " << round;
  }
}

}  // namespace
}  // namespace tierd::ssd
