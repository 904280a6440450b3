#include "tierd/ram/frame_allocator.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/ram/size_mix.h"

namespace tierd::ram {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

FrameRequest Want(std::uint64_t bytes, std::uint32_t align = 64, OwnerId owner = 7) { return {owner, bytes, align, 0x1234}; }

class FrameAllocatorTest : public testing::Test {
 protected:
  void TearDown() override {
    const auto defect = allocator.Verify();
    EXPECT_FALSE(defect) << *defect;
  }
  FrameAllocator allocator{AllocatorOptions{4 * kMiB}};
};

TEST_F(FrameAllocatorTest, RemembersWhatWasAskedFor) {
  const SegmentIndex segment = allocator.AddSegment(64 * kMiB);
  const FrameId frame = allocator.Allocate(Want(784));
  ASSERT_NE(frame, kNoFrame);
  EXPECT_EQ(allocator.state(frame), FrameState::kFilling);
  EXPECT_EQ(allocator.segment(frame), segment);
  EXPECT_EQ(allocator.offset(frame), 0u);
  EXPECT_EQ(allocator.bytes(frame), 784u);
  EXPECT_EQ(allocator.capacity(frame), 832u);
  EXPECT_EQ(allocator.owner(frame), 7u);
  EXPECT_EQ(allocator.lease_word(frame), 0x1234u);
  EXPECT_EQ(allocator.align(frame), 64u);
  EXPECT_EQ(allocator.frames_in(segment), 1u);
  EXPECT_EQ(allocator.stats().payload_bytes, 784u);
}

TEST_F(FrameAllocatorTest, SmallestFrameIsOneGranule) {
  allocator.AddSegment(64 * kMiB);
  const FrameId frame = allocator.Allocate(Want(1));
  EXPECT_EQ(allocator.capacity(frame), 64u);
}

TEST_F(FrameAllocatorTest, AlignsStartAndCapacity) {
  allocator.AddSegment(64 * kMiB);
  (void)allocator.Allocate(Want(64));
  for (const std::uint32_t align : {512u, 4096u, 64u}) {
    const FrameId frame = allocator.Allocate(Want(100, align));
    EXPECT_EQ(allocator.offset(frame) % align, 0u);
    EXPECT_EQ(allocator.capacity(frame), align == 64 ? 128u : align);
  }
  // The room before an aligned frame is used by later small ones.
  const FrameId small = allocator.Allocate(Want(64));
  EXPECT_LT(allocator.offset(small), 4096u);
}

TEST_F(FrameAllocatorTest, KeepsTheReserveOfTheGap) {
  const SegmentIndex segment = allocator.AddSegment(64 * kMiB);
  EXPECT_EQ(allocator.GapReserve(segment), 4 * kMiB) << "a sixteenth of 64 MiB; 9/8 of a frame from 72 MiB on";
  int frames = 0;
  while (allocator.Allocate(Want(4 * kMiB)) != kNoFrame) ++frames;
  EXPECT_EQ(frames, 15);
  EXPECT_EQ(allocator.stats().gap_bytes, 4 * kMiB);
  EXPECT_NE(allocator.Allocate(Want(4 * kMiB), true), kNoFrame) << "the reserve is there for who asks";
  EXPECT_EQ(allocator.stats().free_bytes(), 0u);
  EXPECT_EQ(allocator.Allocate(Want(64), true), kNoFrame);
}

TEST_F(FrameAllocatorTest, ReserveOfSmallSegmentsIsASixteenth) {
  const SegmentIndex segment = allocator.AddSegment(16 * kMiB);
  EXPECT_EQ(allocator.GapReserve(segment), kMiB);
}

TEST_F(FrameAllocatorTest, FreedNeighboursMerge) {
  const SegmentIndex segment = allocator.AddSegment(64 * kMiB);
  const FrameId a = allocator.Allocate(Want(1000));
  const FrameId b = allocator.Allocate(Want(2000));
  const FrameId c = allocator.Allocate(Want(3000));
  const FrameId d = allocator.Allocate(Want(4000));
  allocator.Free(a);
  allocator.Free(c);
  allocator.Free(b);
  EXPECT_EQ(allocator.stats().hole_bytes, allocator.offset(d));
  allocator.Free(d);
  EXPECT_EQ(allocator.stats().hole_bytes, 0u);
  EXPECT_EQ(allocator.First(segment), allocator.Gap(segment));
  EXPECT_EQ(allocator.free_in(segment), 64 * kMiB);
}

TEST_F(FrameAllocatorTest, TakesAGoodFitBeforeTheGap) {
  allocator.AddSegment(64 * kMiB);
  const FrameId large = allocator.Allocate(Want(100'000));
  (void)allocator.Allocate(Want(64));
  const FrameId small = allocator.Allocate(Want(832));
  (void)allocator.Allocate(Want(64));
  const std::uint64_t small_at = allocator.offset(small);
  allocator.Free(large);
  allocator.Free(small);
  EXPECT_EQ(allocator.offset(allocator.Allocate(Want(800))), small_at);
}

TEST_F(FrameAllocatorTest, ClosedSegmentsTakeNothing) {
  const SegmentIndex first = allocator.AddSegment(64 * kMiB);
  const FrameId a = allocator.Allocate(Want(832));
  (void)allocator.Allocate(Want(832));
  allocator.Free(a);
  allocator.CloseSegment(first, true);
  EXPECT_EQ(allocator.Allocate(Want(832)), kNoFrame);
  const SegmentIndex second = allocator.AddSegment(64 * kMiB);
  EXPECT_EQ(allocator.segment(allocator.Allocate(Want(832))), second);
  allocator.CloseSegment(first, false);
  EXPECT_EQ(allocator.segment(allocator.Allocate(Want(832))), first);
}

TEST_F(FrameAllocatorTest, RemovedSegmentsLeaveTheirIndexToTheNext) {
  const SegmentIndex first = allocator.AddSegment(64 * kMiB);
  const FrameId frame = allocator.Allocate(Want(832));
  allocator.Free(frame);
  allocator.RemoveSegment(first);
  EXPECT_FALSE(allocator.in_use(first));
  EXPECT_EQ(allocator.stats().segment_bytes, 0u);
  EXPECT_EQ(allocator.Allocate(Want(832)), kNoFrame);
  EXPECT_EQ(allocator.AddSegment(8 * kMiB), first);
}

TEST_F(FrameAllocatorTest, CountsStates) {
  allocator.AddSegment(64 * kMiB);
  const FrameId frame = allocator.Allocate(Want(784));
  allocator.SetState(frame, FrameState::kLive);
  allocator.SetState(frame, FrameState::kLimbo);
  EXPECT_EQ(allocator.stats().frames, 0u);
  EXPECT_EQ(allocator.stats().limbo_frames, 1u);
  EXPECT_EQ(allocator.stats().limbo_bytes, 832u);
  EXPECT_EQ(allocator.stats().payload_bytes, 0u);
  allocator.Free(frame);
  EXPECT_EQ(allocator.stats().limbo_frames, 0u);
}

TEST_F(FrameAllocatorTest, LargestFramesOf64MiB) {
  FrameAllocator large(AllocatorOptions{64 * kMiB});
  large.AddSegment(256 * kMiB);
  const FrameId frame = large.Allocate(Want(64 * kMiB));
  ASSERT_NE(frame, kNoFrame);
  EXPECT_EQ(large.bytes(frame), 64 * kMiB);
}

// A long random walk against a plain model: no two frames share a byte, nothing is lost.
TEST_F(FrameAllocatorTest, RandomWalkKeepsFramesApart) {
  allocator.AddSegment(32 * kMiB);
  allocator.AddSegment(16 * kMiB);
  std::mt19937_64 random(42);
  std::map<std::uint64_t, FrameId> model;  // segment and offset -> frame
  const auto key = [&](FrameId f) { return (std::uint64_t{Raw(allocator.segment(f))} << 32) | allocator.offset(f); };
  for (int step = 0; step < 30'000; ++step) {
    test::SizeMix mix(static_cast<unsigned>(step / 3000));
    const std::uint32_t aligns[] = {64, 512, 4096};
    const FrameId frame = allocator.Allocate(Want(mix.Draw(random), aligns[random() % 3], static_cast<OwnerId>(step)));
    if (frame != kNoFrame) {
      const auto [at, fresh] = model.emplace(key(frame), frame);
      ASSERT_TRUE(fresh);
      if (at != model.begin()) {
        const auto before = std::prev(at);
        ASSERT_LE(before->first + allocator.capacity(before->second), at->first);
      }
      if (std::next(at) != model.end()) {
        ASSERT_LE(at->first + allocator.capacity(frame), std::next(at)->first);
      }
    }
    while (!model.empty() && (frame == kNoFrame || random() % 4 == 0)) {
      auto victim = model.lower_bound(random() % (std::uint64_t{2} << 32));
      if (victim == model.end()) victim = model.begin();
      allocator.Free(victim->second);
      model.erase(victim);
      if (random() % 2 == 0) break;
    }
    if (step % 1000 == 0) {
      const auto defect = allocator.Verify();
      ASSERT_FALSE(defect) << *defect;
    }
  }
  for (const auto& [at, frame] : model) allocator.Free(frame);
  EXPECT_EQ(allocator.stats().free_bytes(), 48 * kMiB);
}

}  // namespace
}  // namespace tierd::ram
