// Restarts: in order, by kill, with a damaged or missing index, with records that must not come back.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/ssd/tier_fixture.h"
#include "tierd/ssd/record_index.h"
#include "tierd/ssd/superblock.h"

namespace tierd::ssd {
namespace {

namespace fs = std::filesystem;

// Files of mixed sizes over several regions; in the index as far as their regions are closed.
int FillSome(Life& life, int count, std::uint64_t version = 1) {
  for (int i = 0; i < count; ++i) {
    const Status put = life.Put("dir" + std::to_string(i % 3) + "/f" + std::to_string(i), version, i % 5 == 0 ? 30'000 : 500 + 13 * i);
    EXPECT_TRUE(put.ok()) << put.ToString();
  }
  return count;
}

void ExpectAll(Life& life, int count) {
  EXPECT_EQ(life.items.size(), static_cast<std::size_t>(count));
  life.ExpectAllReadable();
}

TEST(SsdRecovery, EmptyDirectory) {
  TempDirectory dir;
  Life life(SmallOptions(dir.path() + "/c"));
  const RecoveryReport report = life.Start();
  EXPECT_TRUE(report.status.ok());
  EXPECT_EQ(report.records, 0u);
  EXPECT_FALSE(report.index_rebuilt);
  EXPECT_EQ(life.io.writes, 0u);
}

// A kill: no Stop, the open region has no table of contents, the index may lag.
TEST(SsdRecovery, AfterAKillEverythingSyncedIsThere) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  int count = 0;
  {
    Life life(options);
    life.Start();
    count = FillSome(life, 120);
    life.Settle();
  }
  for (int restart = 0; restart < 3; ++restart) {  // F23: each start finds the same
    Life life(options);
    const RecoveryReport report = life.Start();
    EXPECT_TRUE(report.status.ok());
    EXPECT_FALSE(report.index_rebuilt) << report.note;
    ExpectAll(life, count);
    EXPECT_EQ(life.tier->status().live_records, static_cast<std::uint64_t>(count));
  }
}

TEST(SsdRecovery, WhatWasOnlyInABufferIsAMiss) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  {
    Life life(options);
    life.Start();
    ASSERT_TRUE(life.Put("a", 1, 1000).ok());
    life.Settle();
    ASSERT_TRUE(life.Put("b", 1, 1000).ok());
  }
  Life life(options);
  life.Start();
  EXPECT_TRUE(life.items.contains({"a", 0}));
  EXPECT_FALSE(life.items.contains({"b", 0}));
}

TEST(SsdRecovery, FillSequencesGrowOverLives) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  std::uint64_t last = 0;
  for (int i = 0; i < 3; ++i) {
    Life life(options);
    ASSERT_TRUE(life.Open().ok());
    const std::uint64_t next = life.tier->NextFillSequence();
    EXPECT_GT(next, last);
    last = next + 1'000'000;
  }
}

TEST(SsdRecovery, RebuildsAMissingIndex) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  int count = 0;
  {
    Life life(options);
    life.Start();
    count = FillSome(life, 150);
    life.Stop();
  }
  fs::remove_all(options.directory + "/index");
  {
    Life life(options);
    const RecoveryReport report = life.Start();
    EXPECT_TRUE(report.status.ok()) << report.status.ToString();
    EXPECT_TRUE(report.index_rebuilt);
    EXPECT_GT(report.regions_from_toc, 1u);
    EXPECT_EQ(report.regions_walked, 0u);
    ExpectAll(life, count);
    life.Stop();
  }
  Life life(options);
  EXPECT_FALSE(life.Start().index_rebuilt);
  ExpectAll(life, count);
}

// "Deletable at any time": also while somebody writes it.
TEST(SsdRecovery, AnIndexDeletedUnderARunningTierCostsNothing) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  int count = 0;
  {
    Life life(options);
    life.Start();
    count = FillSome(life, 60);
    fs::remove_all(options.directory + "/index");
    for (; count < 150; ++count) ASSERT_TRUE(life.Put("f" + std::to_string(count), 1, 9'000).ok());
    life.Settle();
    life.ExpectAllReadable();
    life.Stop();
  }
  Life life(options);
  const RecoveryReport report = life.Start();
  EXPECT_TRUE(report.status.ok()) << report.status.ToString();
  EXPECT_TRUE(report.index_rebuilt);
  EXPECT_EQ(life.items.size(), static_cast<std::size_t>(count));
  life.ExpectAllReadable();
}

// Without tables of contents too: their footers are destroyed.
TEST(SsdRecovery, RebuildsFromHeaders) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  int count = 0;
  {
    Life life(options);
    life.Start();
    count = FillSome(life, 150);
    life.Stop();
  }
  fs::remove_all(options.directory + "/index");
  std::fstream file(options.directory + "/regions-0000", std::ios::in | std::ios::out | std::ios::binary);
  for (std::uint64_t end = options.region_bytes; end <= fs::file_size(options.directory + "/regions-0000"); end += options.region_bytes) {
    file.seekg(static_cast<std::streamoff>(end - 10));
    const int was = file.get();
    file.seekp(static_cast<std::streamoff>(end - 10));
    file.put(static_cast<char>(was ^ 1));  // of a checksum, which may be any byte
  }
  file.close();
  Life life(options);
  const RecoveryReport report = life.Start();
  EXPECT_EQ(report.regions_from_toc, 0u);
  EXPECT_GT(report.regions_walked, 1u);
  ExpectAll(life, count);
}

// What was forgotten stays away, in regions that were closed before and after it, with an index and after a kill.
TEST(SsdRecovery, ForgottenRecordsStayGone) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  {
    Life life(options);
    life.Start();
    FillSome(life, 120);
    life.Settle();
    for (int i = 0; i < 120; i += 3) {
      const Life::Name name{"dir" + std::to_string(i % 3) + "/f" + std::to_string(i), 0};
      life.tier->Forget(life.items.at(name).location);
      life.items.erase(name);
    }
    life.Stop();
  }
  for (int restart = 0; restart < 2; ++restart) {
    Life life(options);
    const RecoveryReport report = life.Start();
    EXPECT_FALSE(report.index_rebuilt) << report.note;
    EXPECT_EQ(report.records, 80u);
    ExpectAll(life, 80);
  }
}

// Stop() before anything has been handed over: the scan ends, the next start finds everything.
TEST(SsdRecovery, AStopEndsARecovery) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  {
    Life life(options);
    life.Start();
    FillSome(life, 150);
    life.Stop();
  }
  for (const bool rebuild : {false, true}) {
    if (rebuild) fs::remove_all(options.directory + "/index");
    {
      Life life(options);
      ASSERT_TRUE(life.Open().ok());
      life.tier->Recover([](std::span<const RecoveredRecord>) {}, [](const RecoveryReport&) { FAIL() << "it was stopped"; });
      life.Stop();
    }
    Life life(options);
    EXPECT_TRUE(life.Start().status.ok());
    ExpectAll(life, 150);
    life.Stop();
  }
}

TEST(SsdRecovery, TellsHowMuchIsToCome) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  {
    Life life(options);
    life.Start();
    FillSome(life, 150);
    life.Stop();
  }
  Life life(options);
  ASSERT_TRUE(life.Open().ok());
  std::uint64_t expected = 0, before = 0, records = 0;
  bool done = false;
  life.tier->Recover([&](std::span<const RecoveredRecord> batch) { records += batch.size(); }, [&](const RecoveryReport&) { done = true; },
                     [&](std::uint64_t n) {
                       expected = n;
                       before = records;
                     });
  ASSERT_TRUE(life.RunUntil([&] { return done; }));
  EXPECT_EQ(expected, 150u);
  EXPECT_EQ(before, 0u);
}

// F25: each file of the index flipped, cut, removed; never wrong, never an abort, never a loop.
TEST(SsdRecovery, SurvivesDamageToEveryFileOfTheIndex) {
  TempDirectory dir;
  SsdOptions options = SmallOptions(dir.path() + "/c");
  int count = 0;
  for (int life_number = 0; life_number < 3; ++life_number) {  // restarts make LevelDB write tables
    Life life(options);
    life.Start();
    if (life_number == 0) count = FillSome(life, 150);
    life.Stop();
  }
  const std::string saved = dir.path() + "/saved";
  fs::copy(options.directory, saved, fs::copy_options::recursive);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(saved + "/index")) names.push_back(entry.path().filename());
  ASSERT_GE(names.size(), 4u);
  for (const std::string& name : names) {
    for (int damage = 0; damage < 4; ++damage) {
      fs::remove_all(options.directory);
      fs::copy(saved, options.directory, fs::copy_options::recursive);
      fs::permissions(options.directory, fs::perms::owner_all);
      const std::string victim = options.directory + "/index/" + name;
      const auto size = fs::file_size(victim);
      if (damage == 0) fs::remove(victim);
      if (damage == 1) fs::resize_file(victim, size / 2);
      if (damage >= 2 && size > 0) {
        std::fstream file(victim, std::ios::in | std::ios::out | std::ios::binary);
        const auto at = static_cast<std::streamoff>(damage == 2 ? size / 3 : size - 1);
        file.seekg(at);
        const char byte = static_cast<char>(file.get() ^ 0x10);
        file.seekp(at);
        file.put(byte);
      }
      Life life(options);
      const RecoveryReport report = life.Start();
      EXPECT_TRUE(report.status.ok()) << name << " damage " << damage << ": " << report.status.ToString();
      EXPECT_EQ(life.items.size(), static_cast<std::size_t>(count)) << name << " damage " << damage << " " << report.note;
      life.ExpectAllReadable();
      ASSERT_TRUE(life.Put("after", 1, 100).ok());
      life.Stop();
    }
  }
}

// F12 for values of the index: a changed value under sound LevelDB checksums.
TEST(SsdRecovery, NoticesAFlippedIndexValue) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  RecordSalt salt;
  {
    Life life(options);
    life.Start();
    FillSome(life, 60);
    life.Stop();
  }
  Superblock superblock;
  {
    UniqueFd fd(::open(options.directory.c_str(), O_RDONLY | O_DIRECTORY));
    ASSERT_EQ(*LoadSuperblock(fd.get(), &superblock), SuperblockCheck::kOk);
  }
  {
    // Written with another salt: every value's own checksum fails.
    auto index = RecordIndex::Open(options.directory + "/index", superblock.salt, nullptr);
    ASSERT_TRUE(index.ok());
    RecordSalt wrong = superblock.salt;
    wrong.secret[2] ^= 4;
    index->reset();
    auto forged = RecordIndex::Open(options.directory + "/index", wrong, nullptr);
    ASSERT_TRUE(forged.ok());
    TocBuilder contents;
    contents.Reset(0, 1);
    ASSERT_TRUE(contents.Add({}, {1, 0, 1, EncodePlace(0, 192), 10}, "path"));
    ASSERT_TRUE((*forged)->EndRegion(contents).ok());
  }
  Life life(options);
  const RecoveryReport report = life.Start();
  EXPECT_TRUE(report.status.ok());
  EXPECT_TRUE(report.index_rebuilt) << report.note;
  ExpectAll(life, 60);
}

// HAZARDS 2.16 b: v2 is void, v1 is still in another region and must not come back.
TEST(SsdRecovery, InvalidatedDatasetStaysGone) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  for (const bool rebuild : {false, true}) {
    fs::remove_all(options.directory);
    {
      Life life(options);
      life.Start();
      FillSome(life, 30);
      const Item before = life.items.begin()->second;
      life.Settle();
      bool durable = false;
      life.tier->InvalidateDataset(life.dataset, [&](Status s) { durable = s.ok(); });
      EXPECT_EQ(life.GetAt(before), ReadOutcome::kMiss) << "void at once";
      EXPECT_EQ(life.tier->Append(before.identity, before.path, ContentOf("x", 1, 0, 10)).status().code(), Code::kNotFound)
          << "bytes that were asked for before the invalidation";
      ASSERT_TRUE(life.RunUntil([&] { return durable; }));
      life.items.clear();
      ASSERT_TRUE(life.Put("fresh", 5, 700).ok());
      life.Settle();
      if (!rebuild) life.Stop();
    }
    if (rebuild) fs::remove_all(options.directory + "/index");
    Life life(options);
    const RecoveryReport report = life.Start();
    EXPECT_EQ(report.superseded, 30u);
    ExpectAll(life, 1);
    EXPECT_EQ(life.tier->DatasetGeneration(life.dataset), 1u);
  }
}

// A storm of changes: as many stores as follow one another, not as there were calls; a stop waits for the last.
TEST(SsdRecovery, InvalidationsShareTheirStores) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  constexpr std::uint64_t kTimes = 3000;
  {
    Life life(options);
    life.Start();
    std::uint64_t told = 0;
    for (std::uint64_t i = 0; i < kTimes; ++i) life.tier->InvalidateDataset(life.dataset, [&](const Status& status) { told += status.ok() ? 1 : 0; });
    life.no_retry = true;
    EXPECT_EQ(life.Put("early", 1, 100).code(), Code::kBusy) << "the generation is not on the disk";
    int turns = 0;
    EXPECT_TRUE(life.RunUntil([&] { return ++turns > 8 || told == kTimes; }));
    EXPECT_EQ(told, kTimes);
    for (int i = 0; i < 2; ++i) life.tier->InvalidateDataset(life.dataset, [](const Status&) {});
    life.Stop();
  }
  Life life(options);
  life.Start();
  EXPECT_EQ(life.tier->DatasetGeneration(life.dataset), kTimes + 2);
}

// What is written in a life that could not have its index is not in it, and what it names may be gone.
TEST(SsdRecovery, AnIndexThatMissedALifeIsGivenUp) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  {
    Life life(options);
    life.Start();
    FillSome(life, 60);
    life.Stop();
  }
  {
    Superblock superblock;
    UniqueFd fd(::open(options.directory.c_str(), O_RDONLY | O_DIRECTORY));
    ASSERT_EQ(*LoadSuperblock(fd.get(), &superblock), SuperblockCheck::kOk);
    const auto holder = RecordIndex::Open(options.directory + "/index", superblock.salt, nullptr);  // LevelDB lets nobody else in
    ASSERT_TRUE(holder.ok());
    Life life(options);
    EXPECT_FALSE(life.Start().status.ok());
    ExpectAll(life, 60);  // the regions said
    while (!life.items.empty()) {
      life.tier->Forget(life.items.begin()->second.location);
      life.items.erase(life.items.begin());
    }
    for (int i = 0; i < 150; ++i) ASSERT_TRUE(life.Put("later" + std::to_string(i), 1, 20'000).ok());
    life.Settle();
    life.Stop();
  }
  Life life(options);
  const RecoveryReport report = life.Start();
  EXPECT_TRUE(report.status.ok()) << report.status.ToString();
  EXPECT_TRUE(report.index_rebuilt);
  // What was forgotten and not yet written over comes back, as after each rebuild.
  EXPECT_EQ(std::count_if(life.items.begin(), life.items.end(), [](const auto& item) { return item.first.first.starts_with("later"); }), 150);
  life.ExpectAllReadable();
}

TEST(SsdRecovery, KeepsOnlyTheNewestVersion) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  {
    Life life(options);
    life.Start();
    FillSome(life, 40, 1);
    FillSome(life, 40, 2);
    life.Stop();
  }
  // The index lost the removals of version 1 together with everything else.
  fs::remove_all(options.directory + "/index");
  Life life(options);
  const RecoveryReport report = life.Start();
  EXPECT_EQ(report.superseded, 40u);
  ExpectAll(life, 40);
  for (const auto& [name, item] : life.items) EXPECT_EQ(item.identity.version.mtime_ns, 2'000'000'000);
}

TEST(SsdRecovery, RegionsOfALostFileAreGone) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  {
    Life life(options);
    life.Start();
    FillSome(life, 50);
    life.Stop();
  }
  fs::remove(options.directory + "/regions-0000");
  Life life(options);
  EXPECT_EQ(life.Start().records, 0u);
  ASSERT_TRUE(life.Put("new", 1, 1000).ok());
  life.Settle();
  EXPECT_EQ(life.Get("new"), ReadOutcome::kOk);
}

TEST(SsdRecovery, TruncatedRegionFileCostsItsTailOnly) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  {
    Life life(options);
    life.Start();
    FillSome(life, 150);
    life.Stop();
  }
  fs::resize_file(options.directory + "/regions-0000", options.region_bytes + 1000);
  Life life(options);
  const RecoveryReport report = life.Start();
  EXPECT_GT(report.records, 0u);
  EXPECT_LT(report.records, 150u);
  life.ExpectAllReadable();
}

}  // namespace
}  // namespace tierd::ssd
