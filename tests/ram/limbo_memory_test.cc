// Memory that runs out while frames are made, moved to the limbo, and looked at there: none of them is lost, and the tier's books stay right.
#include <gtest/gtest.h>

#include <new>
#include <vector>

#include "tests/support/failing_memory.h"
#include "tierd/ram/ram_tier.h"

namespace tierd::ram {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint32_t kFrames = 4096;

RamTierOptions Options() {
  RamTierOptions options;
  options.budget_bytes = options.segment_bytes = 16 * kMiB;
  return options;
}

void AddSegment(RamTier& tier) {
  SegmentOptions pages;
  pages.force_kind = abi::PageKind::k4KiB;
  SegmentFactory factory(pages);
  const SegmentTicket ticket = tier.ReserveSegment();
  auto segment = factory.Create(ticket.bytes);
  ASSERT_TRUE(segment.ok());
  tier.AddSegment(ticket, std::move(segment).value());
}

// Whichever allocation fails: a block that is split must not stay between two states, and a frame that exists can be retired without any.
TEST(LimboMemoryTest, AFrameThatCannotBeMadeLeavesTheTierAsItWas) {
  test::allocations_count_here = [] { return true; };
  for (long nth = 1; nth < 40; ++nth) {
    RamTier tier(Options(), [](OwnerId, FrameId, FrameId) {});
    AddSegment(tier);
    std::vector<FrameId> frames;
    frames.reserve(3 * kFrames);
    bool failed = false;
    {
      const test::FailingMemory failing(nth);
      for (std::uint32_t i = 0; i < 3 * kFrames && !failed; ++i) {
        try {
          frames.push_back(tier.Allocate(static_cast<OwnerId>(i), {abi::Mix64(i + 1), i}, 100 + i % 7 * 300, i % 3 == 0 ? 512 : 64));
        } catch (const std::bad_alloc&) {
          failed = true;
        }
      }
    }
    const char* const defect = tier.allocator().Verify().value_or(nullptr);
    ASSERT_EQ(defect, nullptr) << defect << " after allocation " << nth;
    {
      const test::FailingMemory failing(1);
      for (std::size_t i = 0; i < frames.size(); i += 2) tier.Retire(frames[i]);
    }
    tier.ReclaimLimbo(frames.size());
    EXPECT_EQ(tier.limbo_frames(), 0u);
    ASSERT_EQ(tier.allocator().Verify().value_or(nullptr), nullptr) << nth;
    ASSERT_NE(tier.Allocate(1, {1, 2}, 1000, 64), kNoFrame);
    if (!failed) return;  // there are no more allocations to fail
  }
  FAIL() << "more allocations than were let fail";
}

TEST(LimboMemoryTest, AFrameThatCannotGoToTheBackKeepsItsPlace) {
  test::allocations_count_here = [] { return true; };
  RamTier tier(Options(), [](OwnerId, FrameId, FrameId) {});
  AddSegment(tier);
  std::vector<FrameId> frames;
  for (std::uint32_t i = 0; i < kFrames; ++i) {
    frames.push_back(tier.Allocate(static_cast<OwnerId>(i), {abi::Mix64(i + 1), i}, 1000, 64));
    ASSERT_NE(frames.back(), kNoFrame);
    tier.HoldIo(frames.back());
    tier.Retire(frames.back());  // with I/O under way: it stays in limbo however often it is looked at
  }
  for (long nth = 1; nth < 20; ++nth) {
    const test::FailingMemory failing(nth);
    try {
      tier.ReclaimLimbo(kFrames);
    } catch (const std::bad_alloc&) {
    }
    EXPECT_EQ(tier.limbo_frames(), kFrames) << nth;
  }
  for (const FrameId frame : frames) tier.ReleaseIo(frame);
  tier.ReclaimLimbo(kFrames);
  EXPECT_EQ(tier.limbo_frames(), 0u);
  EXPECT_EQ(tier.stats().allocator.limbo_bytes, 0u);
}

}  // namespace
}  // namespace tierd::ram
