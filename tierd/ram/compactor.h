// Gathers the free space of a segment in its gap, so that large frames find room: frames beside the gap are moved into holes elsewhere if one
// fits, else to the far side of the gap, which so wanders through the segment and swallows the holes it meets (up, then down again). Frames that are
// leased, filling, held by I/O or already in limbo are obstacles: the gap stays on their near side, or another place is tried.
// Old and new place of a move never overlap; the old one goes to limbo and is freed by whoever scans the leases.
//
// Owner: RamTier (or a test). Loop thread only. Decides which frames move where; copying, publishing and retiring are its mover's.
#pragma once

#include <cstdint>
#include <vector>

#include "tierd/ram/frame_allocator.h"

namespace tierd::ram {

// What the compactor needs done.
class FrameMover {
 public:
  virtual ~FrameMover() = default;
  // Whether the frame (live, without holds) may be moved now; false for a leased one.
  virtual bool CanMove(FrameId frame) = 0;
  // The lease word of the copy: same key, a fill number of its own.
  virtual std::uint64_t NextLeaseWord(FrameId frame) = 0;
  // Copies bytes(from) to the new frame `to` (filling), makes it live, publishes it in place of `from`, retires `from` to limbo (or frees it).
  virtual void Move(FrameId from, FrameId to) = 0;
};

struct CompactStats {
  std::uint64_t frames_moved = 0;
  std::uint64_t bytes_moved = 0;
  std::uint64_t obstacles = 0;  // frames met that could not move
  std::uint64_t passes = 0;     // gap has reached both ends of a segment
};

class Compactor {
 public:
  Compactor(FrameAllocator& allocator, FrameMover& mover) : allocator_(allocator), mover_(mover) {}

  enum class Outcome : std::uint8_t {
    kEnough,   // a gap has the wanted surplus, or a hole that size exists
    kMore,     // budget used up: call again
    kBlocked,  // everything that could be done waits for frames in limbo: reclaim limbo, then call again
    kNothing,  // no segment has anything to gain: evict
  };
  // Works towards room for `wanted` bytes: at most `budget_bytes` copied (and at most kMaxMoves frames) in this call.
  Outcome Step(std::uint64_t wanted, std::uint64_t budget_bytes);
  // Moves frames out of a closed segment into the others, within the same limits. kEnough: no live frame is left in it; kNothing: no room elsewhere.
  Outcome Evacuate(SegmentIndex segment, std::uint64_t budget_bytes);

  const CompactStats& stats() const { return stats_; }

  static constexpr std::uint32_t kMaxMoves = 2048;

 private:
  struct Sweep {            // progress in one segment
    bool up = true;         // the gap wanders to higher addresses
    std::uint8_t turns = 0; // ends reached without any growth of the gap
    std::uint64_t best = 0; // largest gap seen
  };
  struct Quantum {
    std::uint64_t bytes_left;
    std::uint32_t moves_left;
  };
  SegmentIndex Choose(std::uint64_t wanted) const;
  Outcome SweepSegment(SegmentIndex segment, std::uint64_t wanted, Quantum& quantum);
  bool MoveOne(FrameId frame, FrameId to, Quantum& quantum);

  FrameAllocator& allocator_;
  FrameMover& mover_;
  SegmentIndex current_ = kNoSegment;
  Sweep sweep_;
  CompactStats stats_;
};

}  // namespace tierd::ram
