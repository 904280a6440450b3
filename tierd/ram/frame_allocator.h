// Places frames in segments: contiguous pieces of any size from one granule (64 B) to max_frame_bytes. Pure bookkeeping, 32 bytes per block,
// kept outside the segments; it never touches the memory it hands out.
//
// Each segment is tiled by blocks in address order. One free block of each segment is its *gap*: it is kept at least gap_bytes large so that the
// compactor can always move a frame without overlapping its old place. Other free blocks (*holes*) are in segregated lists; allocation takes a good fit
// among the holes, else the front of a gap as far as its surplus goes. A block next to free space merges with it when it is freed.
//
// Owner: RamTier (or a test). Loop thread only.
// It does not: know leases, copy bytes, decide who leaves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "client_lib/abi/layout.h"
#include "tierd/ram/frame_id.h"

namespace tierd::ram {

enum class FrameState : std::uint8_t {
  kUnused = 0,   // id not in use
  kHole = 1,     // free, in the lists
  kGap = 2,      // free, the gap of its segment
  kFilling = 3,  // allocated, bytes not complete, location not published
  kLive = 4,     // complete; its owner may have published it
  kLimbo = 5,    // retired: waits until unleased and without I/O
};

struct AllocatorOptions {
  // Largest frame that room is kept for (the largest chunk size of any source). Range 64 B..64 MiB.
  std::uint64_t max_frame_bytes = 4 << 20;
  // Largest frame that is granted when there happens to be room; 0: the same.
  std::uint64_t largest_bytes = 0;
};

struct FrameRequest {
  OwnerId owner = 0;
  std::uint64_t bytes = 0;      // payload, 1..largest_bytes
  std::uint32_t align = 64;     // 64, 512 or 4096: of start *and* capacity
  std::uint64_t lease_word = 0; // abi::EncodeLease(key, fill) of this frame; opaque here
};

struct AllocatorStats {
  std::uint64_t segment_bytes = 0;  // of all segments
  std::uint64_t payload_bytes = 0;  // of filling and live frames
  std::uint64_t frame_bytes = 0;    // capacity of filling and live frames
  std::uint64_t limbo_bytes = 0;    // capacity of frames in limbo
  std::uint64_t hole_bytes = 0;
  std::uint64_t gap_bytes = 0;
  std::uint64_t frames = 0;         // filling and live
  std::uint64_t limbo_frames = 0;
  std::uint64_t metadata_bytes = 0; // of this object
  std::uint64_t gap_allocations = 0;  // by Allocate, from gaps, since construction
  std::uint64_t free_bytes() const { return hole_bytes + gap_bytes; }
};

class FrameAllocator {
 public:
  explicit FrameAllocator(AllocatorOptions options);

  // Adds a segment (multiple of 4 KiB, <= 256 MiB); all of it is the gap. kNoSegment when 65535 are there.
  SegmentIndex AddSegment(std::uint64_t bytes);
  // A closed segment takes no new frame; its free space counts no more as allocatable. Reopening undoes that.
  void CloseSegment(SegmentIndex segment, bool closed);
  bool closed(SegmentIndex segment) const { return segments_[Raw(segment)].closed; }
  // Forgets an empty segment (frames_in == 0).
  void RemoveSegment(SegmentIndex segment);
  std::uint64_t segment_bytes(SegmentIndex segment) const { return segments_[Raw(segment)].bytes; }
  // Frames in it in any state, limbo included.
  std::uint32_t frames_in(SegmentIndex segment) const { return segments_[Raw(segment)].frames; }
  std::uint64_t free_in(SegmentIndex segment) const { return segments_[Raw(segment)].free_bytes; }
  bool in_use(SegmentIndex segment) const { return segments_[Raw(segment)].bytes != 0; }
  // Indices below this may be in use.
  std::uint16_t segment_slots() const { return static_cast<std::uint16_t>(segments_.size()); }

  // A frame in state kFilling; kNoFrame when neither a hole nor a surplus of a gap fits (compaction may help: see Compactor). `into_reserve`
  // lets it eat the reserve of a gap: for when compaction has nothing left to gain. O(1) but for a walk over the segments.
  FrameId Allocate(const FrameRequest& request, bool into_reserve = false);
  // As Allocate, but only from holes, none that starts inside `avoid`.
  struct Span {
    SegmentIndex segment = kNoSegment;
    std::uint64_t from = 0;  // bytes, [from, to)
    std::uint64_t to = 0;
  };
  FrameId AllocateInHole(const FrameRequest& request, const Span& avoid);
  // Whether a hole of that size is at hand (granule-aligned).
  bool HasHole(std::uint64_t bytes) const;
  // As Allocate, but the front (or, `at_end`, the back) of the gap of `segment`, reserve included. Ignores closed.
  FrameId AllocateInGap(const FrameRequest& request, SegmentIndex segment, bool at_end);
  // Makes the memory of a frame free at once. Any state but free ones.
  void Free(FrameId frame);

  // Filling -> live, live or filling -> limbo. Other transitions fail a check.
  void SetState(FrameId frame, FrameState state);

  FrameState state(FrameId frame) const { return block(frame).state(); }
  SegmentIndex segment(FrameId frame) const { return static_cast<SegmentIndex>(block(frame).segment); }
  std::uint64_t offset(FrameId frame) const { return std::uint64_t{block(frame).start} * abi::kGranule; }
  std::uint64_t bytes(FrameId frame) const { return block(frame).payload(); }
  std::uint64_t capacity(FrameId frame) const;
  std::uint32_t align(FrameId frame) const { return block(frame).align(); }
  OwnerId owner(FrameId frame) const { return block(frame).owner; }
  std::uint64_t lease_word(FrameId frame) const { return block(frame).lease_word; }
  std::uint32_t holds(FrameId frame) const { return block(frame).holds; }
  void AddHold(FrameId frame);
  void DropHold(FrameId frame);
  // Whether `frame` names a frame (not free, not unused): for checks and tests.
  bool IsFrame(FrameId frame) const;

  // Blocks in address order, free ones included; kNoFrame at either end. The walk stays valid until the next change.
  FrameId First(SegmentIndex segment) const { return segments_[Raw(segment)].first; }
  FrameId Gap(SegmentIndex segment) const { return segments_[Raw(segment)].gap; }
  FrameId Next(FrameId block_id) const { return FrameId{block(block_id).next}; }
  FrameId Previous(FrameId block_id) const { return FrameId{block(block_id).prev}; }
  // Makes another hole of the same segment its gap (the old gap becomes a hole).
  void MoveGap(SegmentIndex segment, FrameId hole);

  // Bytes that a gap keeps: min(9/8 max_frame_bytes + 4 KiB, segment bytes / 16), so segments below 80 MiB cannot promise room for 4 MiB at 10 % free.
  std::uint64_t GapReserve(SegmentIndex segment) const { return GapReserveOf(segment_bytes(segment)); }
  // The largest frame that a segment of that size has a place for, once it is empty. (A reserve may be used up, but nobody may count on that.)
  std::uint64_t LargestIn(std::uint64_t segment_bytes) const { return (segment_bytes - GapReserveOf(segment_bytes)) / 4096 * 4096; }
  std::uint64_t GapSurplus(SegmentIndex segment) const;
  std::uint64_t max_frame_bytes() const { return options_.max_frame_bytes; }

  const AllocatorStats& stats() const { return stats_; }
  // Walks everything and checks tiling, sums, lists; for tests. Returns a sentence about the first defect, or nothing.
  std::optional<const char*> Verify() const;

 private:
  // One piece of a segment, free or not: 32 bytes. The capacity is the distance to the next block.
  struct Block {
    std::uint64_t lease_word;  // holes: low half previous, high half next hole of its list
    std::uint32_t start;       // granules
    std::uint32_t prev;
    std::uint32_t next;
    OwnerId owner;
    std::uint32_t packed;      // bits 0-26 payload bytes, 27-28 alignment code, 29-31 state
    std::uint16_t segment;
    std::uint16_t holds;
    FrameState state() const { return static_cast<FrameState>(packed >> 29); }
    std::uint64_t payload() const { return packed & 0x7ffffffu; }
    std::uint32_t align() const;
  };
  static_assert(sizeof(Block) == 32);
  struct SegmentRecord {
    std::uint64_t bytes = 0;  // 0: slot not in use
    std::uint64_t free_bytes = 0;
    FrameId first = kNoFrame;
    FrameId gap = kNoFrame;
    std::uint32_t frames = 0;
    bool closed = false;
  };
  static constexpr std::uint32_t kPageBlocks = 4096;  // blocks live in pages that never move
  static constexpr int kSubBits = 4;                  // 16 size classes per power of two
  static constexpr int kClasses = 24 << kSubBits;

  Block& block(FrameId id) { return pages_[Raw(id) / kPageBlocks][Raw(id) % kPageBlocks]; }
  const Block& block(FrameId id) const { return pages_[Raw(id) / kPageBlocks][Raw(id) % kPageBlocks]; }
  std::uint64_t GapReserveOf(std::uint64_t segment_bytes) const;
  std::uint32_t Granules(const Block& b) const;
  void KeepBlocks(std::uint32_t count);
  FrameId NewBlock();
  void DropBlock(FrameId id);
  void SetBlockState(Block& b, FrameState state);
  static int ClassOf(std::uint32_t granules);
  void Link(FrameId hole);
  void Unlink(FrameId hole);
  FrameId FindHole(std::uint32_t granules, std::uint32_t align_granules, const Span& avoid) const;
  int NextClass(int from) const;
  FrameId InsertAfter(FrameId left, std::uint32_t start);
  FrameId Carve(FrameId free_block, std::uint32_t start, std::uint32_t granules, const FrameRequest& request);
  void Absorb(FrameId left, FrameId right);
  void MakeFree(FrameId id, FrameState state);
  void TakeFree(FrameId id);
  void CountFrame(FrameId id, FrameState state, bool add);
  std::optional<const char*> VerifySegment(SegmentIndex index, AllocatorStats& sum) const;

  // Constant after construction.
  const AllocatorOptions options_;
  // Owned by the loop thread.
  std::vector<std::unique_ptr<Block[]>> pages_;
  std::uint32_t free_block_ = 0xffffffffu;  // chain of unused ids through `next`
  std::uint32_t used_ids_ = 0;
  std::vector<SegmentRecord> segments_;
  std::uint16_t gap_hint_ = 0;  // segment whose gap served last
  std::array<std::uint32_t, kClasses> lists_;
  std::array<std::uint64_t, kClasses / 64> occupied_;
  AllocatorStats stats_;
};

}  // namespace tierd::ram
