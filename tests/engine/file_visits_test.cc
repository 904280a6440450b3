#include "tierd/engine/orders/file_visits.h"

#include <gtest/gtest.h>

namespace tierd::engine {
namespace {

constexpr SessionId kOne{1}, kOther{2};
constexpr FileId kFile{7}, kLater{8};
ObjectId Chunk(std::uint32_t number) { return ObjectId{number}; }

TEST(FileVisits, ChunksOfAFileAreOneVisit) {
  FileVisits visits;
  EXPECT_TRUE(visits.Begins(kOne, kFile, Chunk(100)));
  for (std::uint32_t chunk = 101; chunk < 135; ++chunk) EXPECT_FALSE(visits.Begins(kOne, kFile, Chunk(chunk)));
  EXPECT_TRUE(visits.Begins(kOther, kFile, Chunk(103))) << "another reader";
  EXPECT_TRUE(visits.Begins(kOne, kLater, Chunk(200)));
  EXPECT_FALSE(visits.Begins(kOne, kFile, Chunk(101))) << "two of its threads take turns";
  EXPECT_FALSE(visits.Begins(kOne, kLater, Chunk(201)));
}

TEST(FileVisits, ReadAgainItIsAnother) {
  FileVisits visits;
  EXPECT_TRUE(visits.Begins(kOne, kFile, Chunk(100)));
  EXPECT_FALSE(visits.Begins(kOne, kFile, Chunk(101)));
  EXPECT_TRUE(visits.Begins(kOne, kFile, Chunk(100)));
  EXPECT_TRUE(visits.Begins(kOne, kFile, Chunk(100))) << "a file of one chunk";
  for (std::uint32_t i = 0; i < FileVisits::kOpen; ++i) EXPECT_TRUE(visits.Begins(kOne, FileId{50 + i}, Chunk(500 + i)));
  EXPECT_TRUE(visits.Begins(kOne, kFile, Chunk(110))) << "in the next epoch, from the middle";
  visits.OnSessionEnd(kOne);
  EXPECT_TRUE(visits.Begins(kOne, kFile, Chunk(111)));
}

}  // namespace
}  // namespace tierd::engine
