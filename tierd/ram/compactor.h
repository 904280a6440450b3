// Gathers the free space of a segment in its gap, so that large frames find room: frames beside the gap are moved into holes elsewhere if one
// fits, else to the far side of the gap, which so wanders through the segment and swallows the holes it meets (up, then down again). Frames that
// are leased, filling, held by I/O or already in limbo are obstacles: the gap turns around there, and when it can turn no more another hole takes its
// part.
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
  // Copies bytes(from) to the new frame `to` (filling), makes it live, publishes it in place of `from`, retires `from` to limbo. Frees nothing.
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
    kMore,     // not yet: reclaim limbo, call again
    kNothing,  // no segment has anything to gain: evict
  };
  // Works towards room for `wanted` bytes (capacity plus what alignment may cost: RoomFor): at most about `budget_bytes` copied, at most kMaxMoves frames moved and kMaxVisits looked at in this call.
  // Limbo should have been reclaimed since the last call.
  Outcome Step(std::uint64_t wanted, std::uint64_t budget_bytes);
  // Moves frames out of a closed segment into the others, within the same limits, leased ones too (their old place then waits in limbo).
  // kEnough: no frame is left that could be moved (held ones and limbo may be); kNothing: no room elsewhere.
  Outcome Evacuate(SegmentIndex segment, std::uint64_t budget_bytes);

  // Whether a gap's surplus or a hole has that many bytes.
  bool HasRoom(std::uint64_t wanted) const;
  // Whether some segment has enough free space for `wanted` beside its reserve, in however many pieces. If not, eating a reserve is the last resort.
  bool CouldGather(std::uint64_t wanted) const;
  const CompactStats& stats() const { return stats_; }

  // Contiguous bytes that surely take a frame of `bytes` at any alignment.
  static constexpr std::uint64_t RoomFor(std::uint64_t bytes) { return (bytes + 4095) / 4096 * 4096 + 4096; }

  static constexpr std::uint32_t kMaxMoves = 2048;
  static constexpr std::uint32_t kMaxVisits = 16384;

 private:
  struct Quantum {
    std::uint64_t bytes;
    std::uint32_t moves = kMaxMoves;
    std::uint32_t visits = kMaxVisits;
  };
  struct Window {
    FrameId first = kNoFrame;
    FrameId last = kNoFrame;
    std::uint64_t live = 0;   // what moving its frames takes
    std::uint64_t bytes = 0;  // all of it
  };
  enum class Stop : std::uint8_t { kQuantum, kEnd, kObstacle, kTooLarge, kNoHole };
  SegmentIndex Choose(std::uint64_t wanted) const;
  void Begin(SegmentIndex segment);
  void ForgetEffort();
  Stop Sweep(std::uint64_t wanted, Quantum& quantum);
  bool Turn();
  bool Relocate();
  bool MoveWindow(Quantum& quantum);
  bool Exhausted() const;
  FrameId StretchBegin() const;
  bool Movable(FrameId frame);
  FrameId Step1(FrameId block, bool up) const { return up ? allocator_.Next(block) : allocator_.Previous(block); }
  bool MoveTo(FrameId frame, FrameId to, Quantum& quantum);
  FrameRequest RequestFor(FrameId frame);

  FrameAllocator& allocator_;
  FrameMover& mover_;
  SegmentIndex current_ = kNoSegment;  // segment being swept
  bool up_ = true;                     // the gap wanders to higher addresses
  bool slide_ = true;                  // false: only holes elsewhere can help, this segment has not enough free space of its own
  std::uint8_t turns_ = 0;             // since the gap last grew beyond best_
  std::uint8_t relocations_ = 0;       // in this segment, for the present want
  std::uint64_t begin_bytes_ = 0;      // stats_.bytes_moved when it was chosen
  std::uint64_t gap_allocations_ = 0;  // of the allocator, at the last step
  std::uint64_t best_ = 0;
  std::vector<bool> tried_;            // segments that had nothing to give to the present want
  CompactStats stats_;
};

}  // namespace tierd::ram
