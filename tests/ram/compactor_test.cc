#include "tierd/ram/compactor.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace tierd::ram {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

// Owners know their frames; frames in `pinned` (by owner) may not move; limbo of leased owners is not reclaimed.
class World final : public FrameMover {
 public:
  FrameId Add(std::uint64_t bytes, std::uint32_t align = 64) {
    const FrameId frame = allocator.Allocate({static_cast<OwnerId>(frames.size()), bytes, align, 0});
    if (frame == kNoFrame) return frame;
    allocator.SetState(frame, FrameState::kLive);
    frames.push_back(frame);
    return frame;
  }
  void Evict(OwnerId owner) {
    allocator.Free(frames[owner]);
    frames[owner] = kNoFrame;
  }
  bool CanMove(FrameId frame) override { return pinned.count(allocator.owner(frame)) == 0; }
  std::uint64_t NextLeaseWord(FrameId) override { return ++fills; }
  void Move(FrameId from, FrameId to) override {
    EXPECT_EQ(pinned.count(allocator.owner(from)), 0u);
    EXPECT_EQ(allocator.holds(from), 0u);
    EXPECT_EQ(allocator.bytes(from), allocator.bytes(to));
    EXPECT_EQ(allocator.align(from), allocator.align(to));
    const std::uint64_t a = allocator.offset(from);
    const std::uint64_t b = allocator.offset(to);
    EXPECT_TRUE(allocator.segment(from) != allocator.segment(to) || a + allocator.capacity(from) <= b || b + allocator.capacity(to) <= a);
    allocator.SetState(to, FrameState::kLive);
    frames[allocator.owner(from)] = to;
    allocator.SetState(from, FrameState::kLimbo);
    limbo.push_back(from);
  }
  void Reclaim() {
    for (const FrameId frame : limbo) allocator.Free(frame);
    limbo.clear();
  }
  // Steps until it says something final; `steps` bounds the wait.
  Compactor::Outcome Run(std::uint64_t wanted, int steps = 1000) {
    Compactor::Outcome outcome = Compactor::Outcome::kMore;
    while (outcome == Compactor::Outcome::kMore && steps-- > 0) {
      const std::uint64_t before = compactor.stats().bytes_moved;
      outcome = compactor.Step(wanted, 4 * kMiB);
      EXPECT_LE(compactor.stats().bytes_moved - before, 8 * kMiB) << "a quantum is bounded by its budget and one frame";
      Reclaim();
    }
    const auto defect = allocator.Verify();
    EXPECT_FALSE(defect) << *defect;
    return outcome;
  }

  FrameAllocator allocator{AllocatorOptions{4 * kMiB}};
  Compactor compactor{allocator, *this};
  std::vector<FrameId> frames;
  std::vector<FrameId> limbo;
  std::set<OwnerId> pinned;
  std::uint64_t fills = 0;
};

// Whole chunks with gaps between them that are too small for any chunk: nothing can move but through the reserve.
void FillWithChunksAndCrumbs(World& world) {
  while (world.Add(4 * kMiB) != kNoFrame && world.Add(440 << 10) != kNoFrame) {
  }
  for (OwnerId i = 1; i < world.frames.size(); i += 2) {
    if (world.allocator.bytes(world.frames[i]) == 440 << 10) world.Evict(i);
  }
}

TEST(Compactor, GathersCrumbsBetweenWholeChunks) {
  World world;
  world.allocator.AddSegment(128 * kMiB);
  FillWithChunksAndCrumbs(world);
  while (world.Add(4 * kMiB) != kNoFrame) {
  }
  EXPECT_EQ(world.Run(4 * kMiB), Compactor::Outcome::kEnough);
  EXPECT_NE(world.Add(4 * kMiB), kNoFrame);
}

TEST(Compactor, KeepsAlignment) {
  World world;
  world.allocator.AddSegment(128 * kMiB);
  while (world.Add(300'000, 4096) != kNoFrame && world.Add(5000, 64) != kNoFrame && world.Add(9000, 512) != kNoFrame) {
  }
  for (OwnerId i = 0; i < world.frames.size(); i += 5) world.Evict(i);
  ASSERT_EQ(world.Add(4 * kMiB), kNoFrame);
  EXPECT_EQ(world.Run(4 * kMiB), Compactor::Outcome::kEnough);
  for (const FrameId frame : world.frames) {
    if (frame == kNoFrame) continue;
    EXPECT_EQ(world.allocator.offset(frame) % world.allocator.align(frame), 0u);
  }
}

TEST(Compactor, SmallFramesGoIntoHolesElsewhereFirst) {
  World world;
  world.allocator.AddSegment(128 * kMiB);
  while (world.Add(832) != kNoFrame) {
  }
  for (OwnerId i = 0; i < world.frames.size(); i += 8) world.Evict(i);
  const std::uint64_t before = world.compactor.stats().bytes_moved;
  EXPECT_EQ(world.Run(4 * kMiB), Compactor::Outcome::kEnough);
  EXPECT_LE(world.compactor.stats().bytes_moved - before, 6 * kMiB) << "about one byte copied per byte gained";
}

TEST(Compactor, LeasedAndHeldFramesStayWhereTheyAre) {
  World world;
  world.allocator.AddSegment(128 * kMiB);
  world.allocator.AddSegment(128 * kMiB);
  while (world.Add(500'000) != kNoFrame) {
  }
  for (OwnerId i = 0; i < world.frames.size(); i += 4) world.Evict(i);
  std::vector<std::pair<OwnerId, FrameId>> fixed;
  for (OwnerId i = 1; i < world.frames.size(); i += 40) {
    if (world.frames[i] == kNoFrame) continue;
    fixed.emplace_back(i, world.frames[i]);
    if (i % 80 == 1) {
      world.pinned.insert(i);
    } else {
      world.allocator.AddHold(world.frames[i]);
    }
  }
  ASSERT_GE(fixed.size(), 5u);
  int gained = 0;
  while (world.Run(4 * kMiB) == Compactor::Outcome::kEnough && world.Add(4 * kMiB) != kNoFrame) ++gained;
  EXPECT_GE(gained, 8) << "of 60 MiB freed, between a dozen obstacles";
  for (const auto& [owner, frame] : fixed) EXPECT_EQ(world.frames[owner], frame);
  EXPECT_GT(world.compactor.stats().obstacles, 0u);
}

// The gap sits between two leased frames and cannot slide: it must hop.
TEST(Compactor, HopsOverAnObstacle) {
  World world;
  world.allocator.AddSegment(128 * kMiB);
  FillWithChunksAndCrumbs(world);
  const FrameId gap = world.allocator.Gap(SegmentIndex{0});
  const FrameId neighbour = world.allocator.Previous(gap);
  ASSERT_NE(neighbour, kNoFrame);
  world.pinned.insert(world.allocator.owner(neighbour));
  EXPECT_EQ(world.Run(4 * kMiB), Compactor::Outcome::kEnough);
  EXPECT_NE(world.Add(4 * kMiB), kNoFrame);
}

TEST(Compactor, SaysSoWhenNothingCanBeGained) {
  World world;
  world.allocator.AddSegment(128 * kMiB);
  while (world.Add(4 * kMiB) != kNoFrame) {
  }
  EXPECT_EQ(world.Run(4 * kMiB), Compactor::Outcome::kNothing);
  for (OwnerId i = 0; i < world.frames.size(); ++i) world.pinned.insert(i);
  world.Evict(3);
  EXPECT_EQ(world.Run(4 * kMiB), Compactor::Outcome::kEnough) << "the hole of an evicted chunk is room";
}

TEST(Compactor, EndsWhenEverythingIsLeased) {
  World world;
  world.allocator.AddSegment(128 * kMiB);
  while (world.Add(1 * kMiB) != kNoFrame) {
  }
  for (OwnerId i = 0; i < world.frames.size(); ++i) {
    if (i % 3 == 0) {
      world.Evict(i);
    } else {
      world.pinned.insert(i);
    }
  }
  EXPECT_EQ(world.Run(4 * kMiB), Compactor::Outcome::kNothing);
}

TEST(Compactor, EmptiesAClosedSegment) {
  World world;
  const SegmentIndex first = world.allocator.AddSegment(64 * kMiB);
  while (world.Add(700'000) != kNoFrame) {
  }
  world.allocator.AddSegment(128 * kMiB);
  world.allocator.CloseSegment(first, true);
  Compactor::Outcome outcome = Compactor::Outcome::kMore;
  while (outcome == Compactor::Outcome::kMore) {
    outcome = world.compactor.Evacuate(first, 4 * kMiB);
    world.Reclaim();
  }
  EXPECT_EQ(outcome, Compactor::Outcome::kEnough);
  EXPECT_EQ(world.allocator.frames_in(first), 0u);
}

TEST(Compactor, EmptyingFailsWithoutRoomElsewhere) {
  World world;
  const SegmentIndex first = world.allocator.AddSegment(64 * kMiB);
  while (world.Add(700'000) != kNoFrame) {
  }
  world.allocator.CloseSegment(first, true);
  EXPECT_EQ(world.compactor.Evacuate(first, 4 * kMiB), Compactor::Outcome::kNothing);
}

}  // namespace
}  // namespace tierd::ram
