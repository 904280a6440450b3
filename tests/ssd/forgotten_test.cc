// What was forgotten, or told to be gone, is not there after a restart: wherever it lay when, and whether the daemon was stopped or killed.
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/ssd/bustle.h"

namespace tierd::ssd {
namespace {

void ForgetAll(Life& life) {
  for (const auto& [name, item] : life.items) life.tier->Forget(item.location);
  life.items.clear();
}

// The index hears of it at the next tick.
void Tell(Life& life) {
  life.Pass(100'000'000);
  while (life.Turn()) {
  }
}

// A kill: the region has no table of contents, the records are found by a walk.
TEST(SsdForgotten, OfARegionThatWasBeingFilled) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  {
    Life life(options);
    ASSERT_TRUE(life.Start().status.ok());
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(life.Put("f" + std::to_string(i), 1, 3000).ok());
    ASSERT_TRUE(life.Put("changed", 1, 3000).ok());
    ASSERT_TRUE(life.Put("changed", 2, 3000).ok());
    life.Settle();
    for (const char* name : {"f0", "f4", "f9", "changed"}) {
      life.tier->Forget(life.items.at({name, 0}).location);
      life.items.erase({name, 0});
    }
    Tell(life);
  }
  for (int restart = 0; restart < 3; ++restart) {
    Life life(options);
    const RecoveryReport report = life.Start();
    EXPECT_FALSE(report.index_rebuilt) << report.note;
    EXPECT_EQ(report.regions_walked, restart == 0 ? 1u : 0u);
    EXPECT_EQ(report.records, 7u);
    for (const char* name : {"f0", "f4", "f9", "changed"}) EXPECT_FALSE(life.items.contains({name, 0})) << name;
    life.ExpectAllReadable();
  }
}

// At whichever turn of a move: neither where it is now nor where it was.
TEST(SsdForgotten, WhileARegionIsReclaimed) {
  int freed = 0, under_way = 0;
  for (const bool killed : {false, true}) {
    for (int turns = 0; turns < 24; ++turns) {
      SCOPED_TRACE(std::to_string(turns) + (killed ? " turns, killed" : " turns, stopped"));
      TempDirectory dir;
      const SsdOptions options = SmallOptions(dir.path() + "/c");
      {
        Life life(options);
        ASSERT_TRUE(life.Start().status.ok());
        Bustle bustle(life);
        bustle.MakeItWorthLeast();
        life.no_retry = true;
        (void)life.Put("new", 1, kBytes);
        life.Pass(1'100'000'000);
        for (int i = 0; i < turns; ++i) life.Turn();
        const std::uint64_t reclaimed = life.tier->counters().regions_reclaimed;
        freed += reclaimed > 0 ? 1 : 0;
        under_way += reclaimed == 0 && life.moved > 0 ? 1 : 0;
        ForgetAll(life);
        if (killed) Tell(life);
        else life.Stop();
      }
      Life life(options);
      const RecoveryReport report = life.Start();
      EXPECT_TRUE(report.status.ok());
      EXPECT_EQ(report.records, 0u) << (life.items.empty() ? "" : life.items.begin()->first.first);
    }
  }
  EXPECT_GE(freed, 2);
  EXPECT_GE(under_way, 2);
}

// Its owner was told that it is gone: that a part of the region was written all the same is no reason to find it again.
TEST(SsdForgotten, OfARegionThatCouldNotBeWritten) {
  constexpr int kInRegion = 12;
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  {
    Life life(options);
    ASSERT_TRUE(life.Start().status.ok());
    for (int i = 0; i < kInRegion + 3; ++i) ASSERT_TRUE(life.Put("f" + std::to_string(i), 1, kBytes).ok());
    life.Settle();
    life.io.fault = [](bool write, std::uint64_t) { return write ? IoFault{EIO, 0, false} : IoFault(); };
    for (int i = 0; i < 6; ++i) ASSERT_TRUE(life.Put("g" + std::to_string(i), 1, kBytes).ok());
    EXPECT_TRUE(life.RunUntil([&] { return life.gone[SsdGone::kWriteFailed] == 9; }));
    Tell(life);
  }
  Life life(options);
  EXPECT_EQ(life.Start().records, std::uint64_t{kInRegion});
  life.ExpectAllReadable();
}

}  // namespace
}  // namespace tierd::ssd
