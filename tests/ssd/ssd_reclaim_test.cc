// Space: reuse of regions, moves, readers against reuse, capacity, free space.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "tests/ssd/tier_fixture.h"

namespace tierd::ssd {
namespace {

constexpr std::size_t kBytes = 20'000;

std::string Name(int i) { return "f" + std::to_string(i); }

// Appends until the tier is full; returns how many files went in.
int FillUp(Life& life, int first = 0) {
  int i = first;
  Status put;
  while ((put = life.Put(Name(i), 1, kBytes)).ok()) ++i;
  EXPECT_EQ(put.code(), Code::kNoSpace) << put.ToString();
  return i - first;
}

TEST(SsdReclaim, FullTierRefusesAndKeepsWhatItHas) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  const int count = FillUp(life);
  // 16 regions, one of them kept for the mover, 12 files of 20 KB in each.
  EXPECT_GE(count, 14 * 12);
  EXPECT_LE(life.tier->status().allocated_bytes, options.capacity_bytes);
  EXPECT_LT(life.tier->FreeBytes(), options.region_bytes);
  life.Settle();
  life.ExpectAllReadable();
  EXPECT_EQ(life.moved, 0);
  EXPECT_EQ(life.gone.size(), 0u);
  EXPECT_LE(life.tier->counters().WriteAmplification(), 1.1);
}

TEST(SsdReclaim, ForgottenSpaceComesBack) {
  TempDirectory dir;
  Life life(SmallOptions(dir.path() + "/c"));
  ASSERT_TRUE(life.Start().status.ok());
  const int count = FillUp(life);
  for (int i = 0; i < count; i += 2) {
    life.tier->Forget(life.items.at({Name(i), 0}).location);
    life.items.erase({Name(i), 0});
  }
  int more = 0;
  const bool refilled = life.RunUntil([&] {
    while (life.Put("more" + std::to_string(more), 1, kBytes).ok()) ++more;
    return more > count / 4;
  });
  EXPECT_TRUE(refilled) << more;
  EXPECT_GT(life.moved, 0) << "half-dead regions are compacted";
  EXPECT_EQ(life.gone.size(), 0u) << "everything is worth keeping";
  life.Settle();
  life.ExpectAllReadable();
  life.Stop();
  Life next(SmallOptions(dir.path() + "/c"));
  next.Start();
  EXPECT_EQ(next.items.size(), life.items.size());
  next.ExpectAllReadable();
}

TEST(SsdReclaim, DeadRegionsGoBackToTheFileSystemWhenAsked) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  const int count = FillUp(life);
  life.Settle();
  const auto given = [&] {
    std::int64_t bytes = -1;
    life.tier->GiveBack([&](std::uint64_t b) { bytes = static_cast<std::int64_t>(b); });
    EXPECT_TRUE(life.RunUntil([&] { return bytes >= 0; }));
    return static_cast<std::uint64_t>(bytes);
  };
  EXPECT_EQ(given(), 0u) << "everything lives";
  const int kept = count / 4;
  for (int i = kept; i < count; ++i) {
    life.tier->Forget(life.items.at({Name(i), 0}).location);
    life.items.erase({Name(i), 0});
  }
  const std::uint64_t before = life.tier->status().allocated_bytes;
  const std::uint64_t bytes = given();
  EXPECT_GE(bytes, before / 2);
  EXPECT_EQ(life.tier->status().allocated_bytes, before - bytes);
  EXPECT_EQ(given(), 0u);
  life.ExpectAllReadable();
  EXPECT_GT(FillUp(life, count), 0) << "and comes again when it is needed";
  life.Settle();
  life.ExpectAllReadable();
  EXPECT_EQ(life.gone.size(), 0u);
}

TEST(SsdReclaim, WorthlessRecordsGoFirst) {
  TempDirectory dir;
  Life life(SmallOptions(dir.path() + "/c"));
  ASSERT_TRUE(life.Start().status.ok());
  const int count = FillUp(life);
  // The last third is precious, the rest is not worth moving.
  life.worth_of = [&](const Item& item) { return std::stoi(item.path.substr(1)) >= count * 2 / 3 ? 5.0 : 0.0; };
  int more = count;
  EXPECT_TRUE(life.RunUntil([&] {
    while (more < count + 40 && life.Put(Name(more), 1, kBytes).ok()) ++more;
    return more == count + 40;
  }));
  EXPECT_GT(life.gone[SsdGone::kReclaimed], 0);
  for (int i = count * 2 / 3; i < count; ++i) EXPECT_TRUE(life.items.contains({Name(i), 0})) << i;
  life.Settle();
  life.ExpectAllReadable();
}

// HAZARDS 5: regions of small records are looked through, and emptied, over many turns.
TEST(SsdReclaim, ATurnAsksAboutAFewThousandRecordsAtMost) {
  TempDirectory dir;
  SsdOptions options = SmallOptions(dir.path() + "/c");
  options.region_bytes = 1u << 20;
  options.capacity_bytes = 8 * options.region_bytes;
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  int count = 0;
  while (life.Put(Name(count), 1, 100).ok()) ++count;
  ASSERT_GT(count, 7 * 2048) << "more in each region than are asked about in a turn";
  std::size_t asked = 0, most_asked = 0;
  int most_gone = 0;
  life.worth_of = [&](const Item&) {
    ++asked;
    return 0.0;
  };
  life.no_retry = true;
  for (int turn = 0; turn < 20'000 && life.gone[SsdGone::kReclaimed] < 500; ++turn) {
    (void)life.Put("more", 1, 100);
    asked = 0;
    const int gone = life.gone[SsdGone::kReclaimed];
    life.Turn();
    most_asked = std::max(most_asked, asked);
    most_gone = std::max(most_gone, life.gone[SsdGone::kReclaimed] - gone);
  }
  EXPECT_GE(life.gone[SsdGone::kReclaimed], 500) << "of " << count;
  EXPECT_LE(most_asked, 2048u);
  EXPECT_LE(most_gone, 1024);
}

// Files of all sizes, most of them worth keeping, come and go in the middle of moves. What is new must not take the room of what is moved.
class Turnover {
 public:
  explicit Turnover(Life& life, std::size_t bytes = 6'000) : life_(life), bytes_(bytes) {
    life_.no_retry = true;
    life_.worth_of = [](const Item& item) { return std::stoi(item.path.substr(1)) % 10 == 0 ? 0.0 : 1.0; };
  }
  // Until so many regions more have been reclaimed.
  bool Run(std::uint64_t regions) {
    const std::uint64_t end = life_.tier->counters().regions_reclaimed + regions;
    return life_.RunUntil([&] {
      while (life_.Put(Name(next_), 1, 100 + random_() % (random_() % 4 == 0 ? 10 * bytes_ : bytes_)).ok()) ++next_;
      for (int i = 0; i < 4 && life_.tier->status().live_bytes > life_.tier->status().capacity_bytes * 6 / 10; ++i) ForgetOne();
      return life_.tier->counters().regions_reclaimed >= end;
    }, 600);
  }

 private:
  void ForgetOne() {
    auto at = life_.items.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(random_() % life_.items.size()));
    if (life_.worth_of(at->second) > 1) return;
    life_.tier->Forget(at->second.location);
    life_.items.erase(at);
  }

  Life& life_;
  const std::size_t bytes_;
  std::mt19937_64 random_{5};
  int next_ = 0;
};

TEST(SsdReclaim, WhatIsWorthKeepingIsMovedAndNotLost) {
  TempDirectory dir;
  SsdOptions options = SmallOptions(dir.path() + "/c");
  options.region_bytes = 4u << 20;  // moved in several turns
  options.capacity_bytes = 16 * options.region_bytes;
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  EXPECT_TRUE(Turnover(life, 90'000).Run(60)) << life.tier->counters().regions_reclaimed;
  EXPECT_GT(life.moved, 500);
  EXPECT_EQ(life.gone[SsdGone::kNoRoom], 0);
  life.Settle();
  life.ExpectAllReadable();
}

// F11: the region that waited for the mover is free again at the next start.
TEST(SsdReclaim, AFullTierThatWasKilledLosesNothingWorthKeeping) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  for (int life_number = 0; life_number < 6; ++life_number) {
    Life life(options);
    ASSERT_TRUE(life.Start().status.ok());
    Turnover turnover(life);
    EXPECT_TRUE(turnover.Run(life_number == 0 ? 40 : 20)) << life_number;
    EXPECT_EQ(life.gone[SsdGone::kNoRoom], 0) << life_number;
    // Ended without a word, at a moment at which the last region is not being filled.
    ASSERT_TRUE(life.RunUntil([&] { return life.tier->FreeBytes() > 0; }));
  }
}

// Without its index no region is known to be free: it gets going all the same, at the cost of what is worth least.
TEST(SsdReclaim, ATierWithoutASpareRegionMakesOne) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  {
    Life life(options);
    ASSERT_TRUE(life.Start().status.ok());
    ASSERT_TRUE(Turnover(life).Run(40));
    life.Settle();
  }
  std::filesystem::remove_all(options.directory + "/index");
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  std::vector<std::string> precious;
  for (const auto& [name, item] : life.items) {
    if (precious.size() < 5 && name.first.ends_with("7")) precious.push_back(name.first);
  }
  Turnover turnover(life);
  life.worth_of = [&](const Item& item) { return std::count(precious.begin(), precious.end(), item.path) > 0 ? 1000.0 : 1.0; };
  EXPECT_TRUE(turnover.Run(3));
  EXPECT_GT(life.gone[SsdGone::kNoRoom], 0) << "all its regions were taken";
  const int lost = life.gone[SsdGone::kNoRoom];
  EXPECT_TRUE(turnover.Run(10));
  EXPECT_EQ(life.gone[SsdGone::kNoRoom], lost) << "once";
  EXPECT_EQ(precious.size(), 5u);
  for (const std::string& path : precious) EXPECT_TRUE(life.items.contains({path, 0})) << path;
  life.Settle();
  life.ExpectAllReadable();
}

// A read that began before its region is reclaimed gets its own bytes; the region waits for it.
TEST(SsdReclaim, RegionWithReadersIsNotReused) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  const int count = FillUp(life);
  life.Settle();
  const Item item = life.items.at({Name(0), 0});
  life.io.fault = [](bool write, std::uint64_t) { return write ? IoFault() : IoFault{0, ~0ull, true}; };
  io::AlignedBuffer frame(32768);
  ReadResult result;
  bool done = false;
  ASSERT_TRUE(life.tier->Read(item.location, item.identity, frame.span(), [&](const ReadResult& r) {
    result = r;
    done = true;
  }).ok());
  ASSERT_TRUE(life.RunUntil([&] { return life.io.hung() == 1; }));
  life.io.fault = nullptr;
  // The whole tier turns over, again and again.
  life.worth_of = [](const Item&) { return 0.0; };
  life.no_retry = true;
  int more = 0;
  EXPECT_TRUE(life.RunUntil([&] {
    while (more < count * 2 && life.Put("turn" + std::to_string(more), 1, kBytes).ok()) ++more;
    return more == count * 2;
  })) << more;
  EXPECT_FALSE(done);
  life.io.Release();
  ASSERT_TRUE(life.RunUntil([&] { return done; }));
  EXPECT_EQ(result.outcome, ReadOutcome::kOk);
  const auto want = ContentOf(Name(0), 1, 0, kBytes);
  EXPECT_EQ(std::memcmp(frame.data(), want.data(), want.size()), 0);
}

// HAZARDS 2.16 c: v2 is appended while v1's region is being moved.
TEST(SsdReclaim, MoverDoesNotBringBackAnOldVersion) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  {
    Life life(options);
    ASSERT_TRUE(life.Start().status.ok());
    const int count = FillUp(life);
    for (int i = 0; i < count; ++i) {
      if (i % 3 == 0) continue;
      life.tier->Forget(life.items.at({Name(i), 0}).location);
      life.items.erase({Name(i), 0});
    }
    // New versions of what is left, as soon as the mover makes room, in the middle of its work.
    int next = 0;
    EXPECT_TRUE(life.RunUntil([&] {
      while (next < count && life.Put(Name(next), 2, kBytes).ok()) next += 3;
      return next >= count;
    }));
    EXPECT_GT(life.moved, 0) << life.tier->counters().regions_reclaimed << " reclaimed, " << count << " files, next " << next;
    life.Settle();
    life.ExpectAllReadable();
  }
  for (const bool rebuild : {false, true}) {
    if (rebuild) std::filesystem::remove_all(options.directory + "/index");
    Life life(options);
    life.Start();
    for (const auto& [name, item] : life.items) {
      if (std::stoi(item.path.substr(1)) % 3 == 0) {
        EXPECT_EQ(item.identity.version.mtime_ns, 2'000'000'000) << name.first;
      }
    }
    life.ExpectAllReadable();
  }
}

TEST(SsdReclaim, LocationOfAReusedRegionIsAMiss) {
  TempDirectory dir;
  Life life(SmallOptions(dir.path() + "/c"));
  ASSERT_TRUE(life.Start().status.ok());
  const int count = FillUp(life);
  const Item stale = life.items.at({Name(0), 0});
  life.worth_of = [](const Item&) { return 0.0; };
  int more = count;
  ASSERT_TRUE(life.RunUntil([&] {
    while (more < count * 2 && life.Put(Name(more), 1, kBytes).ok()) ++more;
    return more == count * 2;
  }));
  EXPECT_EQ(life.GetAt(stale), ReadOutcome::kMiss);
  EXPECT_EQ(life.tier->counters().read_corrupt, 0u);
  EXPECT_EQ(life.tier->status().health, SsdHealth::kHealthy);
}

TEST(SsdReclaim, CapacityCanBeCutAndRaised) {
  TempDirectory dir;
  SsdOptions options = SmallOptions(dir.path() + "/c");
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  FillUp(life);
  life.Settle();
  life.tier->SetCapacity(6 * options.region_bytes);
  EXPECT_TRUE(life.RunUntil([&] { return life.tier->status().allocated_bytes <= 6 * options.region_bytes; }));
  EXPECT_GT(life.gone[SsdGone::kNoRoom], 0);
  EXPECT_GE(life.tier->counters().regions_punched, 10u);
  life.ExpectAllReadable();
  const std::uint64_t before = life.tier->status().live_records;
  EXPECT_EQ(before, life.items.size());
  life.tier->SetCapacity(16 * options.region_bytes);
  EXPECT_GT(FillUp(life, 100'000), 8 * 12) << life.tier->status().allocated_bytes << ' ' << life.tier->status().capacity_bytes;
  life.Settle();
  life.ExpectAllReadable();
  life.Stop();
  Life next(options);
  next.Start();
  EXPECT_EQ(next.items.size(), life.items.size());
  next.ExpectAllReadable();
}

// F02: somebody else fills the disk.
TEST(SsdReclaim, GivesSpaceBackToKeepMinFree) {
  TempDirectory dir;
  SsdOptions options = SmallOptions(dir.path() + "/c");
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  FillUp(life);
  life.Settle();
  EXPECT_FALSE(life.RunUntil([] { return false; }, 5)) << "nothing is refused any more, nor forgotten";
  // As if the disk had fewer free bytes than it must: nothing may be kept.
  life.tier->SetMinFree(~std::uint64_t{0} / 4, 0);
  EXPECT_TRUE(life.RunUntil([&] { return life.tier->status().capacity_bytes == 0 && life.tier->status().live_records == 0; }));
  EXPECT_TRUE(life.RunUntil([&] { return life.tier->status().allocated_bytes == 0; })) << life.tier->status().allocated_bytes;
  EXPECT_EQ(life.Put("x", 1, 100).code(), Code::kNoSpace);
  life.tier->SetMinFree(0, 0);
  EXPECT_TRUE(life.RunUntil([&] { return life.Put("y", 1, 100).ok(); }));
  // And F03: no inodes to spare stops growth, and frees nothing.
  life.tier->SetMinFree(0, ~std::uint64_t{0} / 4);
  EXPECT_FALSE(life.RunUntil([] { return false; }, 2));
  const std::uint64_t allocated = life.tier->status().allocated_bytes;
  EXPECT_FALSE(life.RunUntil([&] { return life.tier->status().allocated_bytes != allocated; }, 3));
  FillUp(life);
  EXPECT_EQ(life.tier->status().allocated_bytes, allocated);
  life.ExpectAllReadable();
}

// With something in the region that is being filled, and the next one prepared: they go like others.
TEST(SsdReclaim, GivesBackWhatItIsAboutToWrite) {
  TempDirectory dir;
  Life life(SmallOptions(dir.path() + "/c"));
  ASSERT_TRUE(life.Start().status.ok());
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(life.Put(Name(i), 1, kBytes).ok());
  EXPECT_GE(life.tier->status().allocated_bytes, 4u << 18);
  life.tier->SetMinFree(~std::uint64_t{0} / 4, 0);
  EXPECT_TRUE(life.RunUntil([&] { return life.tier->status().allocated_bytes == 0; })) << life.tier->status().allocated_bytes;
  EXPECT_EQ(life.tier->status().live_records, 0u);
  life.tier->SetMinFree(0, 0);
  EXPECT_TRUE(life.RunUntil([&] { return life.Put("y", 1, 100).ok(); }));
}

TEST(SsdReclaim, ARecordThatNoRegionHoldsLeavesTheOpenOneAlone) {
  TempDirectory dir;
  Life life(SmallOptions(dir.path() + "/c"));
  ASSERT_TRUE(life.Start().status.ok());
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(life.Put(Name(i), 1, 1000).ok());
    EXPECT_EQ(life.Put("long", 1, 300 << 10).code(), Code::kInvalid);
  }
  EXPECT_EQ(life.tier->counters().regions_opened, 1u);
}

TEST(SsdReclaim, CountersAgreeWithThemselves) {
  TempDirectory dir;
  Life life(SmallOptions(dir.path() + "/c"));
  ASSERT_TRUE(life.Start().status.ok());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(life.Put(Name(i), 1, kBytes).ok());
  const SsdStatus status = life.tier->status();
  EXPECT_EQ(status.live_records, 100u);
  EXPECT_EQ(status.live_payload_bytes, 100 * kBytes);
  for (int i = 0; i < 100; ++i) {
    life.tier->Forget(life.items.at({Name(i), 0}).location);
    life.tier->Forget(life.items.at({Name(i), 0}).location);  // twice does no harm
  }
  EXPECT_EQ(life.tier->status().live_records, 0u);
  EXPECT_EQ(life.tier->status().live_bytes, 0u);
}

}  // namespace
}  // namespace tierd::ssd
