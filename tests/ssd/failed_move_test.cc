// Moves that do not come off, at whichever turn: what is wanted is where it was.
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>

#include "tests/ssd/bustle.h"

namespace tierd::ssd {
namespace {

// In want of a region; the next one that is looked at is worth its moves.
void AskForOne(Life& life, Bustle& bustle) {
  bustle.MakeItWorthLeast();
  life.no_retry = true;
  (void)life.Put("new", 1, kBytes);
  life.Pass(1'100'000'000);
}

TEST(SsdFailedMove, ADirectoryThatGoesAwayAtAnyTurnLosesNothing) {
  for (int turns = 0; turns < 20; ++turns) {
    TempDirectory dir;
    const SsdOptions options = SmallOptions(dir.path() + "/c");
    Life life(options);
    ASSERT_TRUE(life.Start().status.ok());
    Bustle bustle(life);
    AskForOne(life, bustle);
    for (int i = 0; i < turns; ++i) life.Turn();
    std::filesystem::rename(options.directory, dir.path() + "/away");
    life.Pass(10'000'000'000);  // measured, and heard before another turn
    while (life.tier->status().writable) life.Pass(0);
    EXPECT_FALSE(life.RunUntil([] { return false; }, 1));
    std::filesystem::rename(dir.path() + "/away", options.directory);
    EXPECT_TRUE(life.RunUntil([&] { return life.tier->status().writable; }));
    EXPECT_EQ(bustle.Left(), 9) << turns;
    EXPECT_EQ(life.gone.size(), 0u) << turns;
    EXPECT_EQ(life.tier->status().live_records, life.items.size()) << turns;
  }
}

TEST(SsdFailedMove, WhatCouldNotBeWrittenIsWhereItWas) {
  for (const int error : {EIO, ENOSPC}) {
    int met = 0;
    for (std::uint64_t failing = 0; failing < 8; ++failing) {
      TempDirectory dir;
      const SsdOptions options = SmallOptions(dir.path() + "/c");
      std::vector<Item> dear;
      {
        Life life(options);
        ASSERT_TRUE(life.Start().status.ok());
        Bustle bustle(life);
        const std::uint64_t first = life.io.writes;
        life.io.fault = [&](bool write, std::uint64_t number) { return write && number == first + failing ? IoFault{error, 0, false} : IoFault(); };
        AskForOne(life, bustle);
        EXPECT_FALSE(life.RunUntil([] { return false; }, 5));
        met += life.io.writes > first + failing && life.moved > 0 ? 1 : 0;
        EXPECT_EQ(bustle.Left(), 9) << "write " << failing;
        EXPECT_EQ(life.tier->status().live_records, life.items.size()) << failing;
        EXPECT_EQ(life.tier->counters().records_lost_to_write_errors, static_cast<std::uint64_t>(life.gone[SsdGone::kWriteFailed]));
        dear = bustle.dear();
      }  // as a kill
      Life life(options);
      ASSERT_TRUE(life.Start().status.ok());
      for (const Item& item : dear) EXPECT_TRUE(life.items.contains({item.path, 0})) << item.path << " after write " << failing;
      life.ExpectAllReadable();
    }
    EXPECT_GE(met, 3);
  }
}

// It is tried again, and comes off then.
TEST(SsdFailedMove, ARegionThatWasPutBackIsReclaimedLater) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  Bustle bustle(life);
  life.io.fault = [](bool write, std::uint64_t) { return write ? IoFault{ENOSPC, 0, false} : IoFault(); };
  AskForOne(life, bustle);
  EXPECT_FALSE(life.RunUntil([] { return false; }, 5));
  EXPECT_FALSE(bustle.Reclaimed());
  EXPECT_EQ(bustle.Left(), 9);
  life.io.fault = nullptr;
  EXPECT_TRUE(bustle.Run(60));
  EXPECT_EQ(bustle.Left(), 9);
}

}  // namespace
}  // namespace tierd::ssd
