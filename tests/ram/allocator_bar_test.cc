// The allocator's bar: payload of live frames / segment bytes >= .85 after 10^7 random insert/evict steps with the sizes redrawn every 10^6 steps
// from another mix, and no allocation of <= 4 MiB fails while >= 10 % is free. Metadata only: bytes are counted, not copied (ram_tier_test copies).
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <random>
#include <vector>

#include "tests/ram/size_mix.h"
#include "tierd/ram/compactor.h"

namespace tierd::ram {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSteps = 200'000;
#else
constexpr std::uint64_t kSteps = 10'000'000;
#endif

// The tier of the test: a table of owners, frames that may be removed at random, limbo that empties itself at each reclaim.
class Tier final : public FrameMover {
 public:
  Tier(int segments, std::uint64_t bytes) : allocator(AllocatorOptions{test::kLargestFrame}), compactor(allocator, *this) {
    for (int i = 0; i < segments; ++i) allocator.AddSegment(bytes);
  }

  bool CanMove(FrameId) override { return true; }
  std::uint64_t NextLeaseWord(FrameId frame) override { return allocator.lease_word(frame) + 1; }
  void Move(FrameId from, FrameId to) override {
    ASSERT_EQ(allocator.owner(from), allocator.owner(to));
    ASSERT_EQ(allocator.bytes(from), allocator.bytes(to));
    allocator.SetState(to, FrameState::kLive);
    frames[allocator.owner(from)] = to;
    allocator.SetState(from, FrameState::kLimbo);
    limbo.push_back(from);
  }
  void Reclaim() {
    for (const FrameId frame : limbo) allocator.Free(frame);
    limbo.clear();
  }
  void EvictOne() {
    std::uniform_int_distribution<std::size_t> pick(0, alive.size() - 1);
    const std::size_t at = pick(random);
    allocator.Free(frames[alive[at]]);
    free_owners.push_back(alive[at]);
    alive[at] = alive.back();
    alive.pop_back();
  }
  double FreeShare() const { return static_cast<double>(allocator.stats().free_bytes()) / static_cast<double>(allocator.stats().segment_bytes); }
  double PayloadShare() const {
    return static_cast<double>(allocator.stats().payload_bytes) / static_cast<double>(allocator.stats().segment_bytes);
  }
  // Compacts until there is room or nothing to gain.
  FrameId AllocateCompacting(const FrameRequest& request) {
    FrameId frame = allocator.Allocate(request);
    while (frame == kNoFrame) {
      ++quanta;
      const Compactor::Outcome outcome = compactor.Step(Compactor::RoomFor(request.bytes), 4 << 20);
      Reclaim();
      const bool last_resort = outcome == Compactor::Outcome::kNothing && !compactor.CouldGather(Compactor::RoomFor(request.bytes));
      frame = allocator.Allocate(request, last_resort);
      if (outcome == Compactor::Outcome::kNothing) break;
    }
    return frame;
  }
  void Insert(std::uint64_t bytes, std::uint32_t align) {
    OwnerId owner = static_cast<OwnerId>(frames.size());
    if (free_owners.empty()) {
      frames.push_back(kNoFrame);
    } else {
      owner = free_owners.back();
      free_owners.pop_back();
    }
    FrameId frame = kNoFrame;
    while ((frame = AllocateCompacting({owner, bytes, align, 0})) == kNoFrame) {
      ASSERT_LT(FreeShare(), 0.10) << "allocation of " << bytes << " bytes failed";
      EvictOne();
    }
    inserted += allocator.capacity(frame);
    allocator.SetState(frame, FrameState::kLive);
    frames[owner] = frame;
    alive.push_back(owner);
  }

  FrameAllocator allocator;
  Compactor compactor;
  std::vector<FrameId> frames;
  std::vector<OwnerId> alive;
  std::vector<OwnerId> free_owners;
  std::vector<FrameId> limbo;
  std::mt19937_64 random{20240611};
  std::uint64_t quanta = 0;
  std::uint64_t inserted = 0;
};

void RunMixes(Tier& tier, std::uint64_t steps) {
  const auto begin = std::chrono::steady_clock::now();
  const std::uint64_t phase = steps / test::SizeMix::kKinds;
  std::uint64_t moved = 0;
  std::uint64_t inserted = 0;
  for (unsigned kind = 0; kind < test::SizeMix::kKinds; ++kind) {
    test::SizeMix mix(kind);
    for (std::uint64_t step = 0; step < phase; ++step) {
      const bool evict = !tier.alive.empty() && tier.random() % 16 == 0;
      if (evict) tier.EvictOne();
      while (tier.FreeShare() < 0.08 && !tier.alive.empty()) tier.EvictOne();
      tier.Insert(mix.Draw(tier.random), kind % 3 == 2 ? 4096 : 64);
      if (testing::Test::HasFatalFailure()) return;
    }
    const auto defect = tier.allocator.Verify();
    ASSERT_FALSE(defect) << *defect;
    const AllocatorStats& stats = tier.allocator.stats();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::printf("mix %u: %.3f payload, %8llu frames, %.1f B metadata each, moved %.2f x inserted, %llu quanta, %.1f s\n", kind, tier.PayloadShare(),
                static_cast<unsigned long long>(stats.frames), static_cast<double>(stats.metadata_bytes) / static_cast<double>(stats.frames),
                static_cast<double>(tier.compactor.stats().bytes_moved - moved) / static_cast<double>(tier.inserted - inserted),
                static_cast<unsigned long long>(tier.quanta), seconds);
    moved = tier.compactor.stats().bytes_moved;
    inserted = tier.inserted;
    if (steps >= 1'000'000) {
      EXPECT_GE(tier.PayloadShare(), 0.85) << "after mix " << kind;
    }
  }
}

TEST(AllocatorBar, StaysDenseUnderChangingSizes) {
  Tier tier(4, abi::kMaxSegmentBytes);
  RunMixes(tier, kSteps);
}

// One segment just large enough for the promise: reserve and a largest frame are 6 % of it.
TEST(AllocatorBar, StaysDenseInASmallTier) {
  Tier tier(1, std::uint64_t{128} << 20);
  RunMixes(tier, kSteps / 10);
}

}  // namespace
}  // namespace tierd::ram
