#include "tierd/source/listing_memory.h"

#include <gtest/gtest.h>

namespace tierd::source {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
using Verdict = ListingVerdict;

TEST(ListingMemory, TwoEqualWalksTenSecondsApartAreDurable) {
  ListingMemory memory(ListingMemoryOptions{});
  EXPECT_EQ(memory.Observe("d", {3, 1, 2}, kSecond), Verdict::kFresh);
  EXPECT_EQ(memory.Observe("d", {1, 2, 3}, 5 * kSecond), Verdict::kFresh);
  EXPECT_EQ(memory.Observe("d", {2, 1, 3}, 11 * kSecond), Verdict::kDurable);
}

TEST(ListingMemory, NewNamesStartOver) {
  ListingMemory memory(ListingMemoryOptions{});
  memory.Observe("d", {1, 2}, 0);
  EXPECT_EQ(memory.Observe("d", {1, 2, 3}, 20 * kSecond), Verdict::kFresh);
  EXPECT_EQ(memory.Observe("d", {1, 2, 3}, 25 * kSecond), Verdict::kFresh);
  EXPECT_EQ(memory.Observe("d", {1, 2, 3}, 30 * kSecond), Verdict::kDurable);
}

TEST(ListingMemory, LostNamesAreNotBelievedUntilASecondLook) {
  ListingMemory memory(ListingMemoryOptions{});
  memory.Observe("d", {1, 2, 3}, 0);
  EXPECT_EQ(memory.Observe("d", {1}, 20 * kSecond), Verdict::kLostNames);
  EXPECT_EQ(memory.Observe("d", {1}, 25 * kSecond), Verdict::kLostNames);
  EXPECT_EQ(memory.Observe("d", {1}, 30 * kSecond), Verdict::kDurable);
  EXPECT_EQ(memory.Observe("d", {1, 2, 3}, 31 * kSecond), Verdict::kFresh);
}

TEST(ListingMemory, AnOutageThatEndsLeavesNoTrace) {
  ListingMemory memory(ListingMemoryOptions{});
  memory.Observe("d", {1, 2, 3}, 0);
  EXPECT_EQ(memory.Observe("d", {}, 20 * kSecond), Verdict::kLostNames);
  EXPECT_EQ(memory.Observe("d", {1, 2, 3}, 25 * kSecond), Verdict::kDurable);
  // The same loss much later is a first look again.
  EXPECT_EQ(memory.Observe("d", {}, 90 * kSecond), Verdict::kLostNames);
}

TEST(ListingMemory, AReplacedNameIsALoss) {
  ListingMemory memory(ListingMemoryOptions{});
  memory.Observe("d", {1, 2}, 0);
  EXPECT_EQ(memory.Observe("d", {1, 3}, 20 * kSecond), Verdict::kLostNames);
  EXPECT_EQ(memory.Observe("d", {1}, 31 * kSecond), Verdict::kLostNames);
  EXPECT_EQ(memory.Observe("d", {1, 3}, 32 * kSecond), Verdict::kLostNames);
  EXPECT_EQ(memory.Observe("d", {1, 3}, 42 * kSecond), Verdict::kDurable);
}

TEST(ListingMemory, ForgetStartsOver) {
  ListingMemory memory(ListingMemoryOptions{});
  memory.Observe("d", {1, 2}, 0);
  memory.Forget("d");
  memory.Forget("never seen");
  EXPECT_EQ(memory.directories(), 0u);
  EXPECT_EQ(memory.counted(), 0u);
  EXPECT_EQ(memory.Observe("d", {1}, 20 * kSecond), Verdict::kFresh);
}

TEST(ListingMemory, StaysWithinItsBound) {
  ListingMemory memory(ListingMemoryOptions{.max_names = 100 + 14 * ListingMemory::kNamesPerDirectory});
  for (int i = 0; i < 50; ++i) memory.Observe("d" + std::to_string(i), {1, 2, 3, 4, 5, 6, 7}, 0);
  EXPECT_LE(memory.counted(), 100 + 14 * ListingMemory::kNamesPerDirectory);
  EXPECT_EQ(memory.directories(), 14u);
  EXPECT_EQ(memory.Observe("d49", {1, 2, 3, 4, 5, 6, 7}, 11 * kSecond), Verdict::kDurable);
}

// They are not free: a tree may have millions of them.
TEST(ListingMemory, DirectoriesOfFewNamesAreForgottenToo) {
  ListingMemory memory(ListingMemoryOptions{.max_names = 1000});
  for (int i = 0; i < 5000; ++i) memory.Observe("empty/" + std::to_string(i), {}, 0);
  EXPECT_LE(memory.directories(), 1000 / ListingMemory::kNamesPerDirectory);
  EXPECT_EQ(memory.Observe("empty/4999", {}, 11 * kSecond), Verdict::kDurable) << "the last one";
  EXPECT_EQ(memory.Observe("empty/0", {}, 11 * kSecond), Verdict::kFresh);
  for (int i = 0; i < 5000; ++i) memory.Observe("one/" + std::to_string(i), {1}, 0);
  EXPECT_LE(memory.directories(), 1000 / ListingMemory::kNamesPerDirectory);
}

TEST(ListingMemory, NamesHashApart) {
  EXPECT_NE(ListingMemory::HashName("f1"), ListingMemory::HashName("f2"));
  EXPECT_EQ(ListingMemory::HashName("same"), ListingMemory::HashName("same"));
}

}  // namespace
}  // namespace tierd::source
