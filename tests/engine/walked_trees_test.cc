// Which trees count as walked, and for how many that is remembered.
#include "tierd/engine/sources/walked_trees.h"

#include <gtest/gtest.h>

#include <string>

namespace tierd::engine {
namespace {

TEST(WalkedTrees, CoverWhatIsBelowThem) {
  WalkedTrees walked;
  walked.Note("a/b", 10);
  for (const char* path : {"a/b", "a/b/c", "a/b/c/d"}) EXPECT_TRUE(walked.Covers(path, 9)) << path;
  for (const char* path : {"", "a", "a/bc", "a/b-c", "b"}) EXPECT_FALSE(walked.Covers(path, 9)) << path;
  EXPECT_FALSE(walked.Covers("a/b", 10)) << "not later";
  walked.Note("", 20);
  EXPECT_TRUE(walked.Covers("b", 19));
}

TEST(WalkedTrees, TakeThePlaceOfWhatIsBelowThem) {
  WalkedTrees walked;
  for (const char* path : {"a", "a/b", "a/b/c", "a-b", "a0", "b"}) walked.Note(path, 10);
  EXPECT_EQ(walked.size(), 6u);
  walked.Note("a", 20);
  EXPECT_EQ(walked.size(), 4u);
  EXPECT_TRUE(walked.Covers("a/b/c", 19));
  for (const char* path : {"a-b", "a0", "b"}) EXPECT_TRUE(walked.Covers(path, 9)) << path;
  walked.Note("", 30);
  EXPECT_EQ(walked.size(), 1u);
}

// A job that asks about one path after the other, for ever.
TEST(WalkedTrees, AreNotMoreThanTheLatest) {
  WalkedTrees walked;
  std::int64_t now_ns = 0;
  for (; now_ns < 100'000; ++now_ns) walked.Note("f" + std::to_string(now_ns), now_ns + 1);
  EXPECT_LE(walked.size(), WalkedTrees::kMost);
  for (std::int64_t i = now_ns - std::int64_t{WalkedTrees::kMost} / 2; i < now_ns; ++i) EXPECT_TRUE(walked.Covers("f" + std::to_string(i), 0)) << i;
  EXPECT_FALSE(walked.Covers("f0", 0));
}

}  // namespace
}  // namespace tierd::engine
