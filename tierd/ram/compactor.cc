#include "tierd/ram/compactor.h"

#include <algorithm>

namespace tierd::ram {
namespace {

bool IsFree(FrameState state) { return state == FrameState::kHole || state == FrameState::kGap; }

// A sweep may turn at both ends of a segment (or at obstacles) without having gained anything before it gives up.
constexpr std::uint8_t kFruitlessTurns = 3;
// Each hop copies about a reserve's bytes and opens one more stretch between obstacles; 16 reach every stretch of a segment with 16 obstacles.
constexpr std::uint8_t kMaxHops = 16;
// Blocks that a hop may look at beyond an obstacle.
constexpr int kHopVisits = 4096;

}  // namespace

bool Compactor::HasRoom(std::uint64_t wanted) const {
  for (std::uint16_t i = 0; i < allocator_.segment_slots(); ++i) {
    if (allocator_.in_use(SegmentIndex{i}) && allocator_.GapSurplus(SegmentIndex{i}) >= wanted) return true;
  }
  return allocator_.HasHole(wanted);
}

// The segment with the most free space: the fewest bytes to copy per byte gained.
SegmentIndex Compactor::Choose(std::uint64_t wanted) const {
  SegmentIndex best = kNoSegment;
  std::uint64_t most = 0;
  for (std::uint16_t i = 0; i < allocator_.segment_slots(); ++i) {
    const SegmentIndex segment{i};
    if (!allocator_.in_use(segment) || allocator_.closed(segment) || (i < tried_.size() && tried_[i])) continue;
    if (allocator_.Gap(segment) == kNoFrame || allocator_.segment_bytes(segment) < wanted) continue;
    if (allocator_.free_in(segment) > most) {
      most = allocator_.free_in(segment);
      best = segment;
    }
  }
  return best;
}

void Compactor::Begin(SegmentIndex segment) {
  current_ = segment;
  turns_ = 0;
  hops_ = 0;
  best_ = 0;
  // Towards the side with more of the segment on it: the other side is gathered on the way back.
  const FrameId gap = allocator_.Gap(segment);
  up_ = allocator_.offset(gap) < allocator_.segment_bytes(segment) / 2;
}

Compactor::Outcome Compactor::Step(std::uint64_t wanted, std::uint64_t budget_bytes) {
  Quantum quantum{budget_bytes};
  wanted = std::min(wanted, allocator_.max_frame_bytes());
  for (;;) {
    if (HasRoom(wanted)) {
      tried_.clear();
      return Outcome::kEnough;
    }
    const bool usable = current_ != kNoSegment && Raw(current_) < allocator_.segment_slots() && allocator_.in_use(current_) &&
                        !allocator_.closed(current_) && allocator_.Gap(current_) != kNoFrame;
    if (!usable) {
      const SegmentIndex next = Choose(wanted);
      if (next == kNoSegment) {
        current_ = kNoSegment;
        tried_.clear();
        return Outcome::kNothing;
      }
      Begin(next);
    }
    const std::uint64_t before = stats_.frames_moved;
    const Stop stop = Sweep(wanted, quantum);
    if (stop == Stop::kQuantum) return Outcome::kMore;
    bool given_up = stop == Stop::kNoHole;
    if (stop == Stop::kObstacle || stop == Stop::kEnd || stop == Stop::kTooLarge) given_up = !Turn() && !Hop(quantum);
    if (given_up) {
      tried_.resize(std::max<std::size_t>(tried_.size(), allocator_.segment_slots()));
      tried_[Raw(current_)] = true;
      current_ = kNoSegment;
    }
    // What moved is in limbo: nothing merges with the gap until it was reclaimed.
    if (stats_.frames_moved != before || quantum.visits == 0) return Outcome::kMore;
  }
}

bool Compactor::Movable(FrameId frame) {
  return allocator_.state(frame) == FrameState::kLive && allocator_.holds(frame) == 0 && mover_.CanMove(frame);
}

FrameRequest Compactor::RequestFor(FrameId frame) {
  return {allocator_.owner(frame), allocator_.bytes(frame), allocator_.align(frame), mover_.NextLeaseWord(frame)};
}

bool Compactor::MoveTo(FrameId frame, FrameId to, Quantum& quantum) {
  if (to == kNoFrame) return false;
  const std::uint64_t bytes = allocator_.capacity(frame);
  mover_.Move(frame, to);
  ++stats_.frames_moved;
  stats_.bytes_moved += bytes;
  quantum.bytes -= std::min(quantum.bytes, bytes);
  --quantum.moves;
  return true;
}

// Walks from the gap in the present direction. Moved frames stay behind as limbo blocks, so the walk goes on beyond them; limbo that it finds
// ahead is an obstacle (somebody leases it).
Compactor::Stop Compactor::Sweep(std::uint64_t wanted, Quantum& quantum) {
  const FrameId first_gap = allocator_.Gap(current_);
  const std::uint64_t reserve = allocator_.GapReserve(current_);
  if (allocator_.capacity(first_gap) > best_) {
    best_ = allocator_.capacity(first_gap);
    turns_ = 0;
  }
  slide_ = allocator_.free_in(current_) >= reserve + wanted;
  const std::uint64_t anchor = up_ ? allocator_.offset(first_gap) : allocator_.offset(first_gap) + allocator_.capacity(first_gap);
  std::uint64_t gained = 0;  // bytes that will join the gap when limbo is reclaimed
  FrameId at = Step1(first_gap, up_);
  for (; at != kNoFrame; at = Step1(at, up_)) {
    if (quantum.bytes == 0 || quantum.moves == 0 || quantum.visits == 0) return Stop::kQuantum;
    --quantum.visits;
    const std::uint64_t bytes = allocator_.capacity(at);
    if (IsFree(allocator_.state(at))) {
      gained += bytes;
      continue;
    }
    if (allocator_.capacity(allocator_.Gap(current_)) + gained >= reserve + wanted) return Stop::kQuantum;
    if (!Movable(at)) {
      ++stats_.obstacles;
      return Stop::kObstacle;
    }
    const FrameRequest request = RequestFor(at);
    const std::uint64_t far = up_ ? allocator_.offset(at) + bytes : allocator_.offset(at);
    FrameId to = allocator_.AllocateInHole(request, {current_, std::min(anchor, far), std::max(anchor, far)});
    if (to == kNoFrame && slide_ && bytes <= allocator_.capacity(allocator_.Gap(current_))) to = allocator_.AllocateInGap(request, current_, !up_);
    if (to == kNoFrame) {
      if (!slide_) return Stop::kNoHole;
      return gained > 0 ? Stop::kQuantum : Stop::kTooLarge;
    }
    MoveTo(at, to, quantum);
    gained += bytes;
    if (allocator_.Gap(current_) == kNoFrame) return Stop::kQuantum;
  }
  return Stop::kEnd;
}

bool Compactor::Turn() {
  if (turns_ >= kFruitlessTurns) return false;
  ++turns_;
  ++stats_.passes;
  up_ = !up_;
  return true;
}

// The gap is shut in by obstacles: moves the frames behind one of them into it, if that makes a hole of the reserve's size there.
bool Compactor::Hop(Quantum& quantum) {
  if (!slide_ || hops_ >= kMaxHops) return false;
  // On in one direction as long as possible, so that it does not hop back.
  if (!HopTo(hop_up_, quantum)) {
    hop_up_ = !hop_up_;
    if (!HopTo(hop_up_, quantum)) return false;
  }
  ++hops_;
  turns_ = 0;
  return true;
}

bool Compactor::HopTo(bool up, Quantum& quantum) {
  const FrameId gap = allocator_.Gap(current_);
  const std::uint64_t reserve = allocator_.GapReserve(current_);
  int visits = kHopVisits;
  FrameId at = Step1(gap, up);
  while (at != kNoFrame && visits-- > 0 && !IsFree(allocator_.state(at)) && !Movable(at)) at = Step1(at, up);
  const FrameId begin = at;
  std::uint64_t region = 0;
  std::uint64_t moved = 0;
  while (at != kNoFrame && visits-- > 0 && region < reserve) {
    const std::uint64_t bytes = allocator_.capacity(at);
    if (!IsFree(allocator_.state(at))) {
      if (!Movable(at) || moved + bytes + 4096 > allocator_.capacity(gap)) break;
      moved += bytes + 4096;  // its alignment may cost that much
    }
    region += bytes;
    at = Step1(at, up);
  }
  if (region < reserve) return false;
  const FrameId end = at;
  for (at = begin; at != end; at = Step1(at, up)) {
    if (IsFree(allocator_.state(at))) continue;
    const FrameRequest request = RequestFor(at);
    if (allocator_.Gap(current_) == kNoFrame || !MoveTo(at, allocator_.AllocateInGap(request, current_, !up), quantum)) break;
    if (quantum.moves == 0) break;
  }
  return true;
}

Compactor::Outcome Compactor::Evacuate(SegmentIndex segment, std::uint64_t budget_bytes) {
  Quantum quantum{budget_bytes};
  for (FrameId at = allocator_.First(segment); at != kNoFrame; at = allocator_.Next(at)) {
    if (allocator_.state(at) != FrameState::kLive || allocator_.holds(at) != 0) continue;
    if (quantum.bytes == 0 || quantum.moves == 0) return Outcome::kMore;
    if (!MoveTo(at, allocator_.Allocate(RequestFor(at)), quantum)) return Outcome::kNothing;
  }
  return Outcome::kEnough;
}

}  // namespace tierd::ram
