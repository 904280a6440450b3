#include "tierd/config/edit_distance.h"

#include <gtest/gtest.h>

#include <vector>

namespace tierd::config {
namespace {

TEST(EditDistance, CountsEdits) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("capacity", "capacity"), 0u);
  EXPECT_EQ(EditDistance("capacty", "capacity"), 1u);
  EXPECT_EQ(EditDistance("capactiy", "capacity"), 1u);  // neighbours swapped
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
}

TEST(EditDistance, NearestIsOnlyWhatMayBeMeant) {
  const std::vector<std::string> words = {"prefetch", "evict", "pin", "status", "min_free", "min_free_inodes"};
  EXPECT_EQ(Nearest("prefech", words), "prefetch");
  EXPECT_EQ(Nearest("statsu", words), "status");
  EXPECT_EQ(Nearest("inodes", words), "min_free_inodes");
  EXPECT_EQ(Nearest("xyzzy", words), "");
  EXPECT_EQ(Nearest("", words), "");
  EXPECT_EQ(Nearest(std::string(1000, 'p'), words), "");
}

}  // namespace
}  // namespace tierd::config
