#include "tierd/ssd/newest_versions.h"

#include <gtest/gtest.h>

namespace tierd::ssd {
namespace {

struct Offer {
  std::uint64_t key;
  std::uint64_t version;
  std::uint32_t chunk;
  std::uint64_t fill;
  std::uint64_t epoch;
};

// Files of 3 chunks of 100 bytes when the key is even, of one when it is odd.
std::vector<bool> Winners(std::initializer_list<Offer> offers) {
  NewestVersions newest(1);
  for (const Offer& o : offers) {
    RecordIdentity id;
    id.key = {o.key, o.key};
    id.version.size = o.key % 2 == 0 ? 300 : 50;
    id.version.mtime_ns = static_cast<std::int64_t>(o.version);
    id.chunk = o.chunk;
    id.chunk_bytes = 100;
    id.fill_sequence = o.fill;
    newest.Offer(id, o.epoch);
  }
  newest.Decide();
  std::vector<bool> wins;
  for (std::uint32_t i = 0; i < offers.size(); ++i) wins.push_back(newest.Wins(i));
  return wins;
}

using Bits = std::vector<bool>;

TEST(NewestVersions, KeepsTheVersionFilledLast) {
  EXPECT_EQ(Winners({{1, 1, 0, 10, 5}, {1, 2, 0, 11, 4}}), (Bits{false, true}));
  EXPECT_EQ(Winners({{1, 2, 0, 11, 4}, {1, 1, 0, 10, 5}}), (Bits{true, false}));
}

// HAZARDS 2.16 c: the mover wrote v1 behind v2; position says nothing.
TEST(NewestVersions, MovedOldVersionLosesDespiteItsYoungerRegion) {
  EXPECT_EQ(Winners({{1, 2, 0, 11, 4}, {1, 1, 0, 10, 99}}), (Bits{true, false}));
}

TEST(NewestVersions, OfEqualCopiesTheYoungerRegionWins) {
  EXPECT_EQ(Winners({{1, 1, 0, 10, 5}, {1, 1, 0, 10, 6}}), (Bits{false, true}));
  EXPECT_EQ(Winners({{2, 1, 1, 10, 6}, {2, 1, 1, 10, 5}}), (Bits{true, false}));
}

// A chunk of v1 whose v2 counterpart is missing must not complete v2.
TEST(NewestVersions, ChunksOfAnOlderVersionAreGoneAltogether) {
  EXPECT_EQ(Winners({{2, 1, 0, 10, 1}, {2, 1, 1, 11, 1}, {2, 1, 2, 12, 1}, {2, 2, 1, 20, 1}}), (Bits{false, false, false, true}));
}

TEST(NewestVersions, ChunksOfOneVersionAllStay) {
  EXPECT_EQ(Winners({{2, 1, 0, 10, 1}, {2, 1, 1, 11, 1}, {2, 1, 2, 12, 1}, {4, 1, 0, 13, 1}}), (Bits{true, true, true, true}));
}

TEST(NewestVersions, SkippedNumbersNeverWin) {
  NewestVersions newest(0);
  RecordIdentity id;
  id.fill_sequence = 1;
  newest.Skip();
  newest.Offer(id, 1);
  newest.Decide();
  EXPECT_FALSE(newest.Wins(0));
  EXPECT_TRUE(newest.Wins(1));
}

TEST(NewestVersions, ManyFilesEachKeepTheirNewest) {
  NewestVersions newest(10);
  constexpr std::uint32_t kFiles = 20'000;
  RecordIdentity id;
  id.version.size = 10;
  id.chunk_bytes = 100;
  for (std::uint32_t round = 0; round < 3; ++round) {
    for (std::uint32_t f = 0; f < kFiles; ++f) {
      id.key = {abi::Mix64(f + 1), f};
      id.version.mtime_ns = round;
      id.fill_sequence = 1 + (round == 1 ? 2 * kFiles : round * kFiles / 2) + f;  // the middle round is the newest
      newest.Offer(id, 1);
    }
  }
  newest.Decide();
  for (std::uint32_t i = 0; i < 3 * kFiles; ++i) EXPECT_EQ(newest.Wins(i), i / kFiles == 1);
}

}  // namespace
}  // namespace tierd::ssd
