// Two tiers: what leaves RAM is on the SSD, the SSD gives up first what RAM holds too, and RAM shrinks when it must.
#include <algorithm>
#include <map>
#include <numeric>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class TierTest : public EngineTest {
 protected:
  static constexpr std::size_t kBytes = 100'000;
  TierTest() {
    options_.ram.capacity_bytes = 32 << 20;
    options_.ram.segment_bytes = 16 << 20;
    source_options().policy = "lru";
    source_options().staleness = abi::Staleness::kImmutable;
  }
  void ReadAll(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const Answer answer = Fetch(name);
      ASSERT_EQ(answer.status(), abi::FetchStatus::kFrame) << name;
      ASSERT_TRUE(answer.bytes == Bytes(name, kBytes)) << name;
    }
  }
  std::size_t Count(const std::vector<std::string>& names, bool ram, bool ssd) {
    return static_cast<std::size_t>(std::count_if(names.begin(), names.end(), [&](const std::string& name) { return (ram && InRam(name)) || (ssd && OnSsd(name)); }));
  }
};

TEST_F(TierTest, WhatLeavesRamIsReadFromTheSsd) {
  UseSsd();
  const auto names = MakeFiles(600, kBytes);  // 60 MB through 32 MiB
  StartEngine();
  ReadAll(names);
  EXPECT_LT(Count(names, true, false), names.size());
  EXPECT_EQ(Count(names, true, true), names.size());
  ReadAll(names);
  // Once, but for readers who were sent there because the device was busy with something else (F08).
  EXPECT_EQ(source_io_.count(io::Step::kOpen), names.size() + engine().counters().ssd_slow_bypass);
  EXPECT_GT(engine().counters().promotions_ssd_ram, 0u);
}

TEST_F(TierTest, TheTiersHoldMoreTogetherThanTheLargerOne) {
  UseSsd();
  options_.ssd.capacity_bytes = 96 << 20;
  options_.ram.capacity_bytes = 64 << 20;
  const auto names = MakeFiles(1200, kBytes);  // 120 MB: more than the SSD tier, less than both
  StartEngine();
  for (int pass = 0; pass < 3; ++pass) {
    ReadAll(names);
    RunUntil([] { return false; }, 200);  // reclaim in the background
  }
  const std::size_t cached = Count(names, true, true);
  const std::size_t on_ssd = Count(names, false, true);
  EXPECT_GT(cached, on_ssd + 100) << "copies that RAM holds too make room";
}

TEST_F(TierTest, RamShrinksByEvictingAndTheSsdServes) {
  UseSsd();
  const auto names = MakeFiles(250, kBytes);
  StartEngine();
  ReadAll(names);
  const std::size_t before = Count(names, true, false);
  EXPECT_GT(before, 200u);
  engine().placement().SetRamCapacity(16 << 20);
  ASSERT_TRUE(RunUntil([&] { return engine().ram().segment_bytes() <= (16u << 20); }));
  EXPECT_LT(Count(names, true, false), before);
  EXPECT_GT(engine().counters().evictions[0][static_cast<std::size_t>(EvictCause::kPressure)], 0u);
  ReadAll(names);
  EXPECT_EQ(source_io_.count(io::Step::kOpen), names.size() + engine().counters().ssd_slow_bypass);
  EXPECT_LE(engine().ram().segment_bytes(), 16u << 20);
}

// HAZARDS 2.8: a sound checksum of forged bytes would last.
TEST_F(TierTest, BytesThatChangedInRamDoNotReachTheSsd) {
  UseSsd();
  const auto names = MakeFiles(2, kBytes);
  StartEngine();
  ReadAll(names);
  const ObjectId forged = ObjectOf(names[0]);
  const ObjectId sound = ObjectOf(names[1]);
  for (const ObjectId object : {forged, sound}) {
    ASSERT_TRUE(engine().placement().InRam(object));
    engine().placement().EvictSsd(object, EvictCause::kRequest);
    ASSERT_FALSE(engine().placement().OnSsd(object));
  }
  engine().ram().Data(engine().catalogue().object(forged).frame)[kBytes / 2] ^= std::byte{1};
  for (const ObjectId object : {forged, sound}) engine().placement().EvictRam(object, EvictCause::kCapacity);
  EXPECT_TRUE(engine().placement().OnSsd(sound));
  EXPECT_FALSE(engine().placement().OnSsd(forged));
  EXPECT_FALSE(engine().placement().InRam(forged));
  EXPECT_EQ(engine().counters().integrity_ram, 1u);
  const std::uint64_t opens = source_io_.count(io::Step::kOpen);
  ReadAll(names);
  EXPECT_GT(source_io_.count(io::Step::kOpen), opens) << "the source has the right bytes";
}

// HAZARDS 2.8: a few views that somebody keeps for hours, one in each segment, are no reason to keep the segments from whoever is short of memory.
TEST_F(TierTest, ViewsThatAreKeptKeepTheirOwnMemoryAlone) {
  options_.ram.capacity_bytes = 64 << 20;
  const auto names = MakeFiles(600, kBytes);
  StartEngine();
  ReadAll(names);
  auto page = std::make_unique<abi::SessionPage>();
  AddSession(page.get());
  std::map<std::uint32_t, ram::FrameId> viewed;
  for (const std::string& name : names) {
    if (!InRam(name)) continue;
    const std::uint32_t segment = abi::DecodeLocation(engine().placement().LocationWordOf(ObjectOf(name))).segment;
    const ram::FrameId frame = engine().catalogue().object(ObjectOf(name)).frame;
    if (viewed.emplace(segment, frame).second) page->leases[viewed.size() - 1].store(engine().ram().LeaseWord(frame));
  }
  page->lease_high.store(static_cast<std::uint32_t>(viewed.size()));
  ASSERT_GE(viewed.size(), 4u);
  engine().placement().SetRamCapacity(16 << 20);
  ASSERT_TRUE(RunUntil([&] { return engine().ram().segment_bytes() <= (16u << 20); })) << engine().ram().segment_bytes();
  ASSERT_TRUE(RunUntil([&] { return engine().ram().leaving_bytes() == 0; }));
  EXPECT_TRUE(engine().ram().has_hollow());
  EXPECT_FALSE(engine().ram().shrinking()) << "the loop has nothing more to do";
  ReadAll(names);
  engine().placement().SetRamCapacity(64 << 20);
  ReadAll(names);
  ASSERT_TRUE(RunUntil([&] { return engine().ram().segment_bytes() > (32u << 20); })) << "the tier grows beside them";
  page->lease_high.store(0);
  for (auto& lease : page->leases) lease.store(0);
  EXPECT_TRUE(RunUntil([&] { return !engine().ram().has_hollow(); }));
  RemoveSession(page.get());
}

TEST_F(TierTest, PinnedFilesStayWhenOthersLeave) {
  const auto names = MakeFiles(600, kBytes);
  StartEngine();
  const std::vector<std::string> pinned(names.begin(), names.begin() + 20);
  for (const std::string& name : pinned) {
    ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
    engine().placement().SetPinned(FileOf(name), true);
  }
  ReadAll(names);
  EXPECT_EQ(Count(pinned, true, false), pinned.size());
  EXPECT_GT(engine().counters().evictions[0][static_cast<std::size_t>(EvictCause::kCapacity)], 100u);
}

TEST_F(TierTest, FreezeKeepsWhatCameFirstAndPassesTheRestThrough) {
  source_options().policy = "freeze";
  const auto names = MakeFiles(600, kBytes);
  StartEngine();
  const auto read_all = [&] {
    for (const std::string& name : names) {
      if (const Answer answer = Fetch(name); answer.status() == abi::FetchStatus::kFrame) NoteRead(answer);
    }
  };
  read_all();
  std::vector<std::string> first;
  for (const std::string& name : names) {
    if (InRam(name)) first.push_back(name);
  }
  EXPECT_GT(first.size(), 250u);
  for (int epoch = 0; epoch < 3; ++epoch) read_all();
  EXPECT_EQ(Count(first, true, false), first.size());
  EXPECT_EQ(engine().placement().ram_resident_objects(), first.size());
  EXPECT_EQ(engine().counters().evictions[0][static_cast<std::size_t>(EvictCause::kCapacity)], 0u);
}

// As long as all of it does not fit on the SSD, what is in RAM is not copied there; an SSD that has become larger takes it.
TEST_F(TierTest, FreezeCopiesWhatRamHoldsOnceTheSsdHoldsAll) {
  UseSsd();
  options_.ssd.capacity_bytes = 4 * options_.ssd.region_bytes;
  source_options().policy = "freeze";
  const auto names = MakeFiles(300, 400'000);  // 120 MB
  StartEngine();
  for (const std::string& name : names) ASSERT_EQ(Fetch(name, abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
  (void)Fetch(names[0]);
  EXPECT_TRUE(InRam(names[0]));
  EXPECT_FALSE(OnSsd(names[0]));
  engine().ssd()->SetCapacity(10 * options_.ssd.region_bytes);
  ASSERT_TRUE(RunUntil([&] { return engine().ssd()->status().capacity_bytes == 10 * options_.ssd.region_bytes; }));
  RunUntil([] { return false; }, 1500);  // a tick, once a second
  (void)Fetch(names[1]);
  EXPECT_TRUE(InRam(names[1]));
  EXPECT_TRUE(RunUntil([&] { return OnSsd(names[1]); }, 5000));
}

// Of the segments that go, what is pinned moves to where others make room.
TEST_F(TierTest, PinnedFilesOutlastASmallerTier) {
  options_.ram.capacity_bytes = 64 << 20;
  const auto names = MakeFiles(150, 400'000);
  StartEngine();
  for (const std::string& name : names) (void)Fetch(name);
  std::vector<std::string> pinned;
  for (const std::string& name : names) {
    if (InRam(name) && pinned.size() < 48) pinned.push_back(name);  // 19 MB of 64
  }
  ASSERT_EQ(pinned.size(), 48u);
  for (const std::string& name : pinned) engine().placement().SetPinned(FileOf(name), true);
  int gone = 0;
  engine().placement().on_pinned_gone = [&](ObjectId) { ++gone; };
  const auto shrink_to = [&](std::uint64_t bytes) {
    engine().placement().SetRamCapacity(bytes);
    engine().Kick();
    return RunUntil([&] { return engine().ram().segment_bytes() <= bytes; });
  };
  ASSERT_TRUE(shrink_to(32 << 20));
  EXPECT_EQ(Count(pinned, true, false), pinned.size());
  EXPECT_EQ(gone, 0);
  EXPECT_GT(engine().placement().ram_resident_objects(), pinned.size()) << "no more left than had to";
  for (const std::string& name : pinned) EXPECT_EQ(Fetch(name).bytes, Bytes(name, 400'000));
  ASSERT_TRUE(shrink_to(16 << 20));  // room for 41 at most
  EXPECT_EQ(gone, 1) << "said once, when there is nobody left to make room";
  EXPECT_GT(Count(pinned, true, false), 25u);
  EXPECT_EQ(engine().placement().ram_resident_objects(), Count(pinned, true, false));
}

// A policy that names nobody, and a listing, which it does not know.
TEST_F(TierTest, WhoIsNotNamedMakesWayForPinnedFilesToo) {
  options_.ram.capacity_bytes = 64 << 20;
  source_options().policy = "freeze";
  const auto names = MakeFiles(150, 400'000);
  StartEngine();
  for (const std::string& name : names) (void)Fetch(name);
  std::vector<std::string> pinned;
  for (const std::string& name : names) {
    if (InRam(name) && abi::DecodeLocation(engine().placement().LocationWordOf(ObjectOf(name))).segment == 4 && pinned.size() < 20) pinned.push_back(name);
  }
  for (const std::string& name : pinned) engine().placement().SetPinned(FileOf(name), true);
  engine().placement().SetRamCapacity(32 << 20);
  engine().Kick();
  ASSERT_TRUE(RunUntil([&] { return engine().ram().segment_bytes() <= (32u << 20); }));
  EXPECT_EQ(Count(pinned, true, false), pinned.size());
}

}  // namespace
}  // namespace tierd::engine
