#include "tierd/ram/compactor.h"

#include <algorithm>

namespace tierd::ram {
namespace {

bool IsFree(FrameState state) { return state == FrameState::kHole || state == FrameState::kGap; }

// A sweep may turn at both ends of a segment (or at obstacles) without having gained anything before it gives up.
constexpr std::uint8_t kFruitlessTurns = 3;
// Other stretches of a segment that may be tried for one want.
constexpr std::uint8_t kMaxRelocations = 16;
// Blocks around the gap that a relocation looks at: <= 1 ms.
constexpr int kStretchVisits = 16384;
// A want may cost this many copies of its segment; where obstacles make it dearer, evicting is better.
constexpr std::uint64_t kMaxPasses = 2;

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

void Compactor::ForgetEffort() {
  turns_ = 0;
  relocations_ = 0;
  best_ = 0;
  begin_bytes_ = stats_.bytes_moved;
}

void Compactor::Begin(SegmentIndex segment) {
  current_ = segment;
  ForgetEffort();
  // Towards the side with more of the segment on it: the other side is gathered on the way back.
  const FrameId gap = allocator_.Gap(segment);
  up_ = allocator_.offset(gap) < allocator_.segment_bytes(segment) / 2;
}

Compactor::Outcome Compactor::Step(std::uint64_t wanted, std::uint64_t budget_bytes) {
  Quantum quantum{budget_bytes};
  if (allocator_.stats().gap_allocations != gap_allocations_) {
    // What was gathered has been used: the limits below are for one want.
    gap_allocations_ = allocator_.stats().gap_allocations;
    tried_.clear();
    ForgetEffort();
  }
  for (bool look = true;;) {
    if (look && HasRoom(wanted)) {
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
    look = stop != Stop::kNoHole;  // else nothing has changed, and a look goes over all segments
    if (stop == Stop::kObstacle || stop == Stop::kEnd || stop == Stop::kTooLarge) given_up = Exhausted() || (!Turn() && !Relocate() && !MoveWindow(quantum));
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

bool Compactor::Exhausted() const { return stats_.bytes_moved - begin_bytes_ > kMaxPasses * allocator_.segment_bytes(current_); }

bool Compactor::Turn() {
  if (turns_ >= kFruitlessTurns) return false;
  ++turns_;
  ++stats_.passes;
  up_ = !up_;
  return true;
}

// The gap is shut in, by obstacles or by frames larger than itself. If another stretch between such blocks has more free space in it, its largest
// hole becomes the gap and gathers the rest there: grown, it may pass what stopped it before. Costs no copy.
bool Compactor::Relocate() {
  if (relocations_ >= kMaxRelocations) return false;
  const FrameId gap = allocator_.Gap(current_);
  const std::uint64_t limit = allocator_.capacity(gap);
  FrameId at = StretchBegin();
  struct Stretch {
    std::uint64_t free = 0;
    FrameId hole = kNoFrame;
  };
  Stretch best{limit, kNoFrame};
  Stretch here;
  bool has_gap = false;
  for (int visits = 0; visits < kStretchVisits; ++visits, at = allocator_.Next(at)) {
    const bool end = at == kNoFrame;
    if (end || (!IsFree(allocator_.state(at)) && (allocator_.capacity(at) > limit || !Movable(at)))) {
      if (!has_gap && here.free > best.free) best = here;
      here = Stretch{};
      has_gap = false;
      if (end) break;
      continue;
    }
    if (!IsFree(allocator_.state(at))) continue;
    here.free += allocator_.capacity(at);
    has_gap |= at == gap;
    if (here.hole == kNoFrame || allocator_.capacity(at) > allocator_.capacity(here.hole)) here.hole = at;
  }
  if (best.hole == kNoFrame) return false;
  allocator_.MoveGap(current_, best.hole);
  ++relocations_;
  turns_ = 0;
  best_ = 0;
  return true;
}

// No stretch helps by itself: the frames of a window whose live bytes fit into the gap go there, if that leaves a larger hole than the gap was.
bool Compactor::MoveWindow(Quantum& quantum) {
  const FrameId gap = allocator_.Gap(current_);
  const std::uint64_t room = allocator_.capacity(gap);
  const auto cost = [&](FrameId id) {
    if (IsFree(allocator_.state(id))) return std::uint64_t{0};
    return allocator_.capacity(id) + (allocator_.align(id) > abi::kGranule ? allocator_.align(id) : 0);
  };
  Window best;
  Window here;
  FrameId at = StretchBegin();
  for (int visits = 0; visits < kStretchVisits && at != kNoFrame; ++visits, at = allocator_.Next(at)) {
    if (at == gap || (!IsFree(allocator_.state(at)) && (cost(at) > room || !Movable(at)))) {
      here = Window{};
      continue;
    }
    if (here.first == kNoFrame) here.first = at;
    here.last = at;
    here.live += cost(at);
    here.bytes += allocator_.capacity(at);
    for (; here.live > room; here.first = allocator_.Next(here.first)) {
      here.live -= cost(here.first);
      here.bytes -= allocator_.capacity(here.first);
    }
    if (here.bytes > best.bytes) best = here;
  }
  if (best.bytes <= room) return false;
  const bool above = allocator_.offset(best.first) > allocator_.offset(gap);
  const FrameId end = allocator_.Next(best.last);
  for (at = best.first; at != end && quantum.moves > 0; at = allocator_.Next(at)) {
    if (IsFree(allocator_.state(at))) continue;
    if (allocator_.Gap(current_) == kNoFrame || !MoveTo(at, allocator_.AllocateInGap(RequestFor(at), current_, !above), quantum)) break;
  }
  turns_ = kFruitlessTurns;  // the next thing to try is to make the new hole the gap
  return true;
}

// Some way down from the gap, where a look around it begins.
FrameId Compactor::StretchBegin() const {
  FrameId at = allocator_.Gap(current_);
  for (int i = 0; i < kStretchVisits / 2 && allocator_.Previous(at) != kNoFrame; ++i) at = allocator_.Previous(at);
  return at;
}

bool Compactor::CouldGather(std::uint64_t wanted) const {
  for (std::uint16_t i = 0; i < allocator_.segment_slots(); ++i) {
    const SegmentIndex segment{i};
    if (!allocator_.in_use(segment) || allocator_.closed(segment)) continue;
    if (allocator_.free_in(segment) >= allocator_.GapReserve(segment) + wanted) return true;
  }
  return false;
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
