#include "tierd/ssd/record_index.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/ssd/temp_directory.h"

namespace tierd::ssd {
namespace {

RecordSalt Salt() {
  RecordSalt salt;
  salt.uuid[0] = 9;
  salt.secret = {5, 6, 7, 8};
  return salt;
}

constexpr std::uint32_t PlaceOf(std::uint32_t i) { return EncodePlace(i * 256, 192); }

class RecordIndexTest : public testing::Test {
 protected:
  void SetUp() override { Open(); }
  void Open() {
    index.reset();
    auto opened = RecordIndex::Open(dir.path() + "/index", Salt(), nullptr);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    index = std::move(*opened);
  }
  // Closes a region with `count` records.
  void Close(std::uint32_t region, std::uint64_t epoch, std::uint32_t count) {
    TocBuilder contents;
    contents.Reset(region, epoch);
    for (std::uint32_t i = 0; i < count; ++i) {
      RecordIdentity id;
      id.fill_sequence = epoch * 1000 + i;
      ASSERT_TRUE(contents.Add(id, {id.fill_sequence, region, static_cast<std::uint32_t>(epoch), PlaceOf(i), 10}, "dir/file" + std::to_string(i)));
    }
    ASSERT_TRUE(index->EndRegion(contents).ok());
  }
  // Places in order, per (region, epoch).
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::vector<std::uint32_t>> All() {
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::vector<std::uint32_t>> found;
    const Status status = index->VisitRecords(
        [&](const RecoveredRecord& r, std::uint64_t epoch) {
          found[{r.location.region, epoch}].push_back(r.location.place);
          EXPECT_EQ(r.path, "dir/file" + std::to_string(r.location.offset() / 256));
        },
        stop);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return found;
  }
  std::vector<std::uint32_t> Places(std::initializer_list<std::uint32_t> numbers) {
    std::vector<std::uint32_t> out;
    for (const std::uint32_t i : numbers) out.push_back(PlaceOf(i));
    return out;
  }

  TempDirectory dir;
  std::unique_ptr<RecordIndex> index;
  std::atomic<bool> stop{false};
};

TEST_F(RecordIndexTest, KeepsWhatRegionsHoldLessWhatWasRemoved) {
  EXPECT_TRUE(index->fresh());
  Close(3, 50, 4);
  Close(700, 51, 3);
  const IndexKey removed[] = {{3, 50, PlaceOf(0)}, {3, 50, PlaceOf(3)}, {700, 51, PlaceOf(1)}, {4, 50, PlaceOf(1)}};
  ASSERT_TRUE(index->Remove(removed).ok());
  for (int opened = 0; opened < 2; ++opened) {
    const auto all = All();
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all.at({3, 50}), Places({1, 2}));
    EXPECT_EQ(all.at({700, 51}), Places({0, 2}));
    Open();
    EXPECT_FALSE(index->fresh());
  }
}

TEST_F(RecordIndexTest, AnOverwrittenRegionHasNothing) {
  Close(3, 50, 4);
  const IndexKey removed[] = {{3, 50, PlaceOf(2)}};
  ASSERT_TRUE(index->Remove(removed).ok());
  ASSERT_TRUE(index->BeginRegion(3, 60).ok());
  EXPECT_TRUE(All().empty());
  std::vector<IndexedRegion> regions;
  ASSERT_TRUE(index->VisitRegions([&](const IndexedRegion& r) { regions.push_back(r); }).ok());
  ASSERT_EQ(regions.size(), 1u);
  EXPECT_FALSE(regions[0].closed);
  Close(3, 60, 4);
  EXPECT_EQ(All().at({3, 60}), Places({0, 1, 2, 3})) << "a removal from the former life of the region hides a record";
}

// The removal comes before the contents.
TEST_F(RecordIndexTest, WhatWasRemovedOfAnOpenRegionStaysRemoved) {
  ASSERT_TRUE(index->BeginRegion(3, 50).ok());
  const IndexKey removed[] = {{3, 50, PlaceOf(2)}, {3, 50, PlaceOf(1)}, {3, 49, PlaceOf(0)}};
  ASSERT_TRUE(index->Remove(removed).ok());
  EXPECT_TRUE(All().empty());
  Close(3, 50, 4);
  EXPECT_EQ(All().at({3, 50}), Places({0, 3}));
}

// A removal waits in a queue while its region is overwritten.
TEST_F(RecordIndexTest, ALateRemovalOfAnOlderEpochSaysNothing) {
  Close(3, 50, 4);
  ASSERT_TRUE(index->BeginRegion(3, 60).ok());
  const IndexKey late[] = {{3, 50, PlaceOf(1)}};
  ASSERT_TRUE(index->Remove(late).ok());
  Close(3, 60, 3);
  EXPECT_EQ(All().at({3, 60}), Places({0, 1, 2}));
}

TEST_F(RecordIndexTest, AScanEndsWhenItIsStopped) {
  for (std::uint32_t region = 0; region < 5; ++region) Close(region, 50, 2);
  int seen = 0;
  const Status status = index->VisitRecords(
      [&](const RecoveredRecord&, std::uint64_t) {
        ++seen;
        stop = true;
      },
      stop);
  EXPECT_EQ(status.code(), Code::kStopped);
  EXPECT_EQ(seen, 2) << "the rest of the region at hand, no other";
}

TEST_F(RecordIndexTest, AnotherDirectorysIndexIsRefused) {
  index.reset();
  RecordSalt other = Salt();
  other.uuid[0] = 10;
  EXPECT_EQ(RecordIndex::Open(dir.path() + "/index", other, nullptr).status().code(), Code::kCorrupt);
}

TEST_F(RecordIndexTest, TellsTheContentsOfOneRegionAndEpoch) {
  Close(4, 10, 2);
  Close(5, 11, 3);
  Close(6, 12, 4);
  const auto contents = [&](std::uint32_t region, std::uint64_t epoch) {
    std::vector<std::uint32_t> places;
    const Status status = index->VisitContents(region, epoch, [&](const RecoveredRecord& r) {
      EXPECT_EQ(r.location.region, region);
      EXPECT_EQ(r.path, "dir/file" + std::to_string(r.location.offset() / 256));
      places.push_back(r.location.place);
    });
    return std::pair(status.code(), status.ok() ? places : std::vector<std::uint32_t>());
  };
  const IndexKey removed{5, 11, PlaceOf(1)};
  ASSERT_TRUE(index->Remove({&removed, 1}).ok());
  EXPECT_EQ(contents(5, 11), std::pair(Code::kOk, Places({0, 1, 2}))) << "removed ones, too";
  EXPECT_EQ(contents(5, 10).first, Code::kNotFound);
  EXPECT_EQ(contents(7, 11).first, Code::kNotFound);
  ASSERT_TRUE(index->BeginRegion(5, 13).ok());
  EXPECT_EQ(contents(5, 11).first, Code::kNotFound);
}

}  // namespace
}  // namespace tierd::ssd
