#include "tierd/source/read_ahead.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace tierd::source {
namespace {

constexpr StreamKey kStream{1, 10};

TEST(ReadAhead, SequentialReaderGetsDoublingWindowsAndEachChunkOnce) {
  ReadAhead ahead(ReadAheadOptions{.max_chunks = 8});
  std::set<std::uint32_t> asked;
  std::uint32_t largest = 0;
  for (std::uint32_t chunk = 0; chunk < 100; ++chunk) {
    if (chunk > 1) {
      EXPECT_TRUE(asked.contains(chunk)) << chunk;
    }
    const ChunkRange range = ahead.OnAccess(kStream, chunk, 100);
    largest = std::max(largest, range.count);
    for (std::uint32_t i = 0; i < range.count; ++i) {
      EXPECT_TRUE(asked.insert(range.first + i).second) << "twice: " << range.first + i;
      EXPECT_GT(range.first + i, chunk);
      EXPECT_LE(range.first + i, chunk + 8);
    }
  }
  EXPECT_EQ(asked.size(), 99u);
  EXPECT_EQ(*asked.rbegin(), 99u);
  EXPECT_GE(largest, 4u);
}

// What was brought is read without a word about it, where only those who have to ask are heard.
TEST(ReadAhead, ReaderThatIsHeardOnlyWhereItHasToAskGetsDoublingWindows) {
  ReadAhead ahead(ReadAheadOptions{.max_chunks = 8});
  std::set<std::uint32_t> asked;
  std::vector<std::uint32_t> missed;
  std::uint32_t largest = 0;
  for (std::uint32_t chunk = 0; chunk < 32; ++chunk) {
    if (asked.contains(chunk)) continue;
    missed.push_back(chunk);
    const ChunkRange range = ahead.OnAccess(kStream, chunk, 32);
    largest = std::max(largest, range.count);
    for (std::uint32_t i = 0; i < range.count; ++i) EXPECT_TRUE(asked.insert(range.first + i).second) << "twice: " << range.first + i;
  }
  EXPECT_EQ(missed, (std::vector<std::uint32_t>{0, 2, 5, 10, 19, 28}));
  EXPECT_EQ(largest, 8u);
}

// Reads all of a file and returns the longest window.
std::uint32_t LongestWindow(ReadAhead& ahead, StreamKey key, std::uint32_t chunks = 100) {
  std::uint32_t longest = 0;
  for (std::uint32_t chunk = 0, asked = 1; chunk < chunks; ++chunk) {
    const ChunkRange range = ahead.OnAccess(key, chunk, chunks);
    if (range.count != 0) asked = range.first + range.count;
    longest = std::max(longest, std::max(asked, chunk + 1) - chunk - 1);
  }
  return longest;
}

TEST(ReadAhead, WhatWasLostUnreadIsAskedForAgainAndHalvesAllWindows) {
  ReadAhead ahead(ReadAheadOptions{.max_chunks = 8});
  for (std::uint32_t chunk = 0; chunk <= 20; ++chunk) (void)ahead.OnAccess(kStream, chunk, 100);
  ahead.NoteMissing(kStream, 22);
  const ChunkRange again = ahead.OnAccess(kStream, 22, 100);
  EXPECT_EQ(again.first, 23u);
  EXPECT_EQ(again.count, 4u);
  EXPECT_EQ(LongestWindow(ahead, {2, 11}), 4u);
}

TEST(ReadAhead, WhatIsLostAtATimeHasOneCause) {
  ReadAhead ahead(ReadAheadOptions{.max_chunks = 8});
  for (std::uint32_t chunk = 0; chunk <= 20; ++chunk) (void)ahead.OnAccess(kStream, chunk, 100);
  for (std::uint32_t chunk = 21; chunk <= 24; ++chunk) {
    ahead.NoteMissing(kStream, chunk);
    (void)ahead.OnAccess(kStream, chunk, 100);
  }
  EXPECT_EQ(LongestWindow(ahead, {1, 11}), 4u);
}

TEST(ReadAhead, AfterManyLossesNothingIsAskedForUntilItIsCalm) {
  ReadAhead ahead(ReadAheadOptions{.max_chunks = 8});
  std::uint64_t file = 0;
  for (int losses = 0; losses < 4; ++losses, ++file) {
    for (std::uint32_t chunk = 0; chunk <= ReadAhead::kOneLoss; ++chunk) (void)ahead.OnAccess({1, file}, chunk, 100);
    ahead.NoteMissing({1, file}, ReadAhead::kOneLoss + 1);
  }
  EXPECT_EQ(LongestWindow(ahead, {1, file++}), 0u);
  for (int files = 0; files < 3; ++files) (void)LongestWindow(ahead, {1, file++});
  EXPECT_GT(LongestWindow(ahead, {1, file++}), 0u);
  for (int files = 0; files < 30; ++files) (void)LongestWindow(ahead, {1, file++});
  EXPECT_EQ(LongestWindow(ahead, {1, file++}), 8u);
}

TEST(ReadAhead, AMissOfWhatWasNotAskedForIsNoLoss) {
  ReadAhead ahead(ReadAheadOptions{.max_chunks = 8});
  (void)ahead.OnAccess(kStream, 0, 100);
  for (const std::uint32_t chunk : {0u, 2u, 50u}) ahead.NoteMissing(kStream, chunk);
  ahead.NoteMissing({7, 7}, 1);
  EXPECT_EQ(LongestWindow(ahead, {1, 11}), 8u);
}

TEST(ReadAhead, LeavingOutWhatWasNotAskedForIsAJump) {
  ReadAhead ahead(ReadAheadOptions{});
  EXPECT_EQ(ahead.OnAccess(kStream, 0, 100).count, 1u);  // chunk 1 is on its way, 2 is not
  EXPECT_EQ(ahead.OnAccess(kStream, 3, 100).count, 0u);
  EXPECT_EQ(ahead.OnAccess(kStream, 4, 100).count, 1u);
}

TEST(ReadAhead, ReaderThatSaysSoOrBeginsAgainNeedsNoSecondRead) {
  ReadAhead ahead(ReadAheadOptions{});
  EXPECT_EQ(ahead.OnAccess(kStream, 40, 100, Hint::kSequential).first, 41u);
  EXPECT_EQ(ahead.OnAccess(kStream, 41, 100).count, 2u);
  EXPECT_EQ(ahead.OnAccess(kStream, 70, 100, Hint::kSequential).first, 71u);  // another handle of the same file
  EXPECT_EQ(ahead.OnAccess(kStream, 0, 100).first, 1u);
}

TEST(ReadAhead, FirstReadOfTheBeginningAsksForOneChunk) {
  ReadAhead ahead(ReadAheadOptions{});
  const ChunkRange range = ahead.OnAccess(kStream, 0, 100);
  EXPECT_EQ(range.first, 1u);
  EXPECT_EQ(range.count, 1u);
  EXPECT_EQ(ahead.OnAccess({1, 11}, 40, 100).count, 0u);
}

TEST(ReadAhead, RandomAccessAsksForAlmostNothing) {
  ReadAhead ahead(ReadAheadOptions{});
  std::mt19937 random(3);
  std::uint32_t asked = 0;
  for (int i = 0; i < 10'000; ++i) asked += ahead.OnAccess(kStream, random() % 1000, 1000).count;
  EXPECT_LT(asked, 100u);
}

TEST(ReadAhead, RepeatedAndBackwardReadsAskForNothing) {
  ReadAhead ahead(ReadAheadOptions{});
  ahead.OnAccess(kStream, 5, 100);
  EXPECT_EQ(ahead.OnAccess(kStream, 5, 100).count, 0u);
  EXPECT_EQ(ahead.OnAccess(kStream, 4, 100).count, 0u);
  EXPECT_GT(ahead.OnAccess(kStream, 5, 100).count, 0u);
}

TEST(ReadAhead, StopsAtTheEndOfTheFileAndIgnoresOneChunkFiles) {
  ReadAhead ahead(ReadAheadOptions{});
  EXPECT_EQ(ahead.OnAccess({1, 1}, 0, 1).count, 0u);
  EXPECT_EQ(ahead.streams(), 0u);
  EXPECT_EQ(ahead.OnAccess({1, 2}, 0, 2).count, 1u);
  EXPECT_EQ(ahead.OnAccess({1, 2}, 1, 2).count, 0u);
}

TEST(ReadAhead, ForgetsTheOldestStreamAndEndedSessions) {
  ReadAhead ahead(ReadAheadOptions{.max_streams = 3});
  for (std::uint64_t file = 0; file < 10; ++file) ahead.OnAccess({file % 2, file}, 7, 100);
  EXPECT_EQ(ahead.streams(), 3u);
  ahead.ForgetSession(1);
  EXPECT_EQ(ahead.streams(), 1u);
}

TEST(ReadAhead, ZeroTurnsItOff) {
  ReadAhead ahead(ReadAheadOptions{.max_chunks = 0});
  for (std::uint32_t chunk = 0; chunk < 10; ++chunk) EXPECT_EQ(ahead.OnAccess(kStream, chunk, 100).count, 0u);
}

}  // namespace
}  // namespace tierd::source
