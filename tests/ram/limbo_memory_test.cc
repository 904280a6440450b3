// Memory that runs out while the frames in limbo are looked at: none of them is lost.
#include <gtest/gtest.h>

#include <new>
#include <vector>

#include "tests/support/failing_memory.h"
#include "tierd/ram/ram_tier.h"

namespace tierd::ram {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint32_t kFrames = 4096;

TEST(LimboMemoryTest, AFrameThatCannotGoToTheBackKeepsItsPlace) {
  test::allocations_count_here = [] { return true; };
  RamTierOptions options;
  options.budget_bytes = options.segment_bytes = 16 * kMiB;
  RamTier tier(options, [](OwnerId, FrameId, FrameId) {});
  SegmentOptions pages;
  pages.force_kind = abi::PageKind::k4KiB;
  SegmentFactory factory(pages);
  const SegmentTicket ticket = tier.ReserveSegment();
  auto segment = factory.Create(ticket.bytes);
  ASSERT_TRUE(segment.ok());
  tier.AddSegment(ticket, std::move(segment).value());
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
