// The RAM tier as the engine sees it: frames in shared segments, under a hard byte budget, reused only when no client leases them and no I/O
// touches them.
//
// Life of a frame: Allocate (filling) -> the bytes arrive -> MarkLive, and the owner publishes LocationWord in the index -> ... -> the owner
// clears the location word and calls Retire (limbo) -> ReclaimLimbo frees it. A frame whose fill failed is retired likewise.
// The compactor may move live frames that are neither held nor leased: it copies, retires `from` and at once calls on_move, in which the owner replaces
// `from` by `to` everywhere and publishes LocationWord(to). Nothing is freed in between.
//
// Owner: Engine. Loop thread only; segments are created, punched and destroyed on a worker by the engine.
// It does not: choose victims (policies), touch the index, run I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "client_lib/abi/layout.h"
#include "tierd/base/status.h"
#include "tierd/base/unique_fd.h"
#include "tierd/ram/compactor.h"
#include "tierd/ram/frame_allocator.h"
#include "tierd/ram/frame_id.h"
#include "tierd/ram/lease_scanner.h"
#include "tierd/ram/limbo_queue.h"
#include "tierd/ram/segment.h"

namespace tierd::ram {

struct RamTierOptions {
  // Hard limit of the bytes of all segments, those being created and those being destroyed included. Reloadable: set_budget.
  std::uint64_t budget_bytes = std::uint64_t{1} << 30;
  // Size of a segment, rounded to 2 MiB; the last one may be smaller. Range 64 KiB..256 MiB. Smaller ones return sooner under pressure; below
  // 80 MiB room for a 4 MiB frame cannot be promised at 10 % free.
  std::uint64_t segment_bytes = abi::kMaxSegmentBytes;
  // Largest frame that room is kept for. Range 64 KiB..64 MiB.
  std::uint64_t max_frame_bytes = 4 << 20;
  // Largest frame that is granted when there happens to be room (listings); 0: the same.
  std::uint64_t largest_bytes = 0;
};

struct RamTierStats {
  AllocatorStats allocator;
  std::uint64_t budget_bytes = 0;
  std::uint64_t reserved_bytes = 0;     // segments under creation or destruction, part of the budget
  std::uint64_t lingering_bytes = 0;    // destroyed, but clients may map them still
  std::uint64_t hollow_bytes = 0;       // of allocator.segment_bytes: given back around leased frames
  std::uint64_t segments = 0;
  std::uint64_t leased_limbo_bytes = 0; // of limbo: kept by a lease at the last look
  std::uint64_t held_limbo_frames = 0;  // of limbo: kept by I/O that has not completed ("hung frames" once it is late)
  std::uint64_t held_limbo_bytes = 0;
  std::uint64_t scans = 0;
  std::uint64_t leases = 0;             // words seen by the last scan
  CompactStats compaction;
};

// A reserved place in the budget for a segment that a worker is about to create.
struct SegmentTicket {
  std::uint64_t bytes = 0;  // 0: the budget is used up
};

class RamTier final : private FrameMover {
 public:
  // `on_move(owner, from, to)`: see above. Runs inside CompactStep and ShrinkStep only. Must not call the tier but for its read-only accessors.
  using MoveCallback = std::function<void(OwnerId owner, FrameId from, FrameId to)>;
  RamTier(RamTierOptions options, MoveCallback on_move);
  ~RamTier() override;

  // ---- frames
  // A frame in state filling, for bytes 1..largest_bytes, start and capacity a multiple of `align` (64, 512, 4096: O_DIRECT needs the block
  // size, mmap 4096). `chunk_key` is the key that clients lease: of the chunk, of the file if it has one chunk, of the listing. kNoFrame when there is no room:
  // then in this order ReclaimLimbo, CompactStep(bytes), AddSegment, evict.
  FrameId Allocate(OwnerId owner, abi::FileKey chunk_key, std::uint64_t bytes, std::uint32_t align = 64);
  // The memory of a frame, `Capacity` bytes of it writable while filling; never written again once live. Valid until the frame is retired *or moved*:
  // whoever uses it beyond the present call holds it (HoldIo).
  std::byte* Data(FrameId frame) const;
  std::uint64_t Bytes(FrameId frame) const { return allocator_.bytes(frame); }
  std::uint64_t Capacity(FrameId frame) const { return allocator_.capacity(frame); }
  OwnerId Owner(FrameId frame) const { return allocator_.owner(frame); }
  FrameState State(FrameId frame) const { return allocator_.state(frame); }
  // What the index and replies say: segment serial, offset, fill number. Constant for the frame's life.
  std::uint64_t LocationWord(FrameId frame) const;
  // By which its leases are found: the lease key of its chunk, and the fill number.
  std::uint64_t LeaseWord(FrameId frame) const { return allocator_.lease_word(frame); }
  // The bytes are complete and checked; zeroes what the capacity has beyond them (a 4096-aligned frame may be mapped: HAZARDS 2.9).
  void MarkLive(FrameId frame);
  // I/O (or a worker: checksum, write-back) into or out of the frame begins/ends. A held frame is neither moved nor reused, retired or not.
  void HoldIo(FrameId frame);
  void ReleaseIo(FrameId frame);
  // The owner has cleared the location word (or never set it) and forgets the frame: limbo. Any state but limbo.
  void Retire(FrameId frame);
  // Looks at up to `max_frames` frames of the limbo, oldest first, with one fence and one scan; frees those without lease and I/O. Returns the bytes freed.
  // Call when an allocation failed, when limbo is large, and once a second.
  std::uint64_t ReclaimLimbo(std::size_t max_frames);

  // ---- leases
  LeaseScanner& leases() { return scanner_; }

  // ---- compaction
  // One quantum (<= budget_bytes copied, default ~1 ms) towards a contiguous place for `wanted` bytes, with a few lease scans; frees limbo on its
  // way. kEnough: Allocate finds room now. kMore: call again. kNothing: evict. Who asks again although nothing came free since kNothing gets it without a
  // look, but for one in as many as there are tens of sessions: leases may have gone.
  Compactor::Outcome CompactStep(std::uint64_t wanted, std::uint64_t budget_bytes = kCompactQuantumBytes);
  // Whether Allocate surely finds room for that many bytes, at any alignment, without any of this. (It may find some where this says no: a hole of just that size, a reserve.)
  bool HasPlace(std::uint64_t bytes) const { return compactor_.HasRoom(Compactor::RoomFor(bytes)); }
  // Whether there can be a frame of that many bytes at all: some segment, one that the budget has room for included, would take it when empty. Else nobody who leaves makes
  // room for it.
  bool CouldHold(std::uint64_t bytes) const;
  // What a segment of the usual size takes.
  std::uint64_t LargestFrame() const { return allocator_.LargestIn(options_.segment_bytes); }
  // Whether background quanta are worth it: no surplus for a largest frame although >= 10 % is free and the last try had not said kNothing.
  bool WantsCompaction() const;
  static constexpr std::uint64_t kCompactQuantumBytes = 4 << 20;

  // ---- segments and budget
  // Reserves budget for the next segment (0 bytes: none left). Then exactly one of AddSegment and CancelSegment.
  SegmentTicket ReserveSegment();
  void CancelSegment(SegmentTicket ticket);
  void AddSegment(SegmentTicket ticket, Segment segment);
  // By serial, for kGetSegment; null when it is gone. Valid until the next TakeEmptySegment.
  const Segment* FindSegment(std::uint32_t serial) const;

  // ---- giving memory back
  // A smaller budget takes effect by Shrink; a larger one by ReserveSegment.
  void set_budget(std::uint64_t bytes) { options_.budget_bytes = bytes; }
  std::uint64_t budget() const { return options_.budget_bytes; }
  // Bytes of segments above the budget, without those that have left the tier and are being destroyed.
  std::uint64_t OverBudget() const;
  // Closes segments, those of the hugetlb pool last, emptiest first, until closed ones hold >= bytes (all of them if need be). Returns the bytes that will come back.
  std::uint64_t Shrink(std::uint64_t bytes);
  // Reopens closed segments that are not yet taken: memory is no longer short.
  void CancelShrink();
  bool shrinking() const { return closed_segments_ != 0; }
  // One quantum of emptying closed segments: moves frames to other segments while there is room, else collects owners of up to `max_victims` live frames that
  // the engine must evict (clear location, Retire) now. Free frames leave with ReclaimLimbo.
  std::vector<OwnerId> ShrinkStep(std::size_t max_victims, std::uint64_t budget_bytes = kCompactQuantumBytes);
  // A closed segment without any frame, out of the tier for good. A worker punches it whole (memory returns although clients still map it) and
  // destroys it; then SegmentDestroyed(bytes).
  std::optional<Segment> TakeEmptySegment();
  void SegmentDestroyed(std::uint64_t bytes);
  // Instead, when it could not be punched (FUTURE_WRITE): the memory comes back when the sessions of
  // today, whose processes may map it, have ended or have unmapped it. They were told by the given
  // notice (SharedIndex::NoteSegmentGone). Until then nothing is made in its place.
  void SegmentLingers(std::uint64_t bytes, std::uint32_t notice);
  // The lowest serial of a segment of the tier; 0: there is none.
  std::uint32_t OldestSerial() const;
  // Forgets those whose memory has come back. Call once a second.
  void ReclaimLingering();
  // What lies between the frames of a closed segment in which somebody leases all that is left (HAZARDS 2.8: a view that is kept for hours must not keep 256 MiB). The segment
  // stays mapped, never opens again, and is its leased frames' alone: the rest is no more part of segment_bytes. A worker punches it; then SegmentDestroyed(bytes)
  // or, when that is refused, HolesStay. When the last lease has gone TakeEmptySegment has it. Nothing: there is no such segment, or no descriptor.
  struct Holes {
    struct Range {
      std::uint64_t offset, bytes;
    };
    std::uint32_t serial = 0;
    UniqueFd file;
    std::vector<Range> ranges;
    std::uint64_t bytes = 0;
  };
  std::optional<Holes> TakeHoles();
  void HolesStay(const Holes& holes);
  bool has_hollow() const { return !hollow_.empty(); }
  std::uint64_t lingering_bytes() const { return lingering_bytes_; }
  // Of what has been taken out and is being destroyed.
  std::uint64_t leaving_bytes() const { return leaving_bytes_; }
  // Of segments in pages of the hugetlb pool: no memory of the node comes free by these.
  std::uint64_t pooled_bytes() const;

  // Owners of live frames in address order, for whoever wants to walk the tier in pieces: fills `owners` from `position` on (0 = start), returns where to
  // go on, 0 at the end. Changes in between may skip or repeat frames.
  std::uint64_t WalkOwners(std::uint64_t position, std::size_t max, std::vector<OwnerId>& owners) const;

  RamTierStats stats() const;
  std::size_t limbo_frames() const { return limbo_.size(); }
  // Without what is free in segments that were given back around their leased frames.
  std::uint64_t free_bytes() const;
  std::uint64_t segment_bytes() const { return allocator_.stats().segment_bytes - hollow_bytes_; }
  const FrameAllocator& allocator() const { return allocator_; }

 private:
  bool CanMove(FrameId frame) override;
  std::uint64_t NextLeaseWord(FrameId frame) override;
  void Move(FrameId from, FrameId to) override;
  std::uint16_t NextFill();
  std::size_t Frames() const { return allocator_.stats().frames + allocator_.stats().limbo_frames; }
  std::uint64_t LargestGap() const;
  std::uint64_t NextSegmentBytes(std::uint64_t used) const;
  bool StillUseless(std::uint64_t wanted);
  void ForgetUseless() { compaction_useless_ = may_use_reserve_ = false; }
  bool IsHollow(SegmentIndex segment) const;
  bool IsPooled(SegmentIndex segment) const { return segments_[Raw(segment)].page_kind() == abi::PageKind::kHugetlb; }
  std::uint64_t FreeLimbo(std::size_t max_frames, const LeaseSet& leased);

  // Owned by the loop thread.
  RamTierOptions options_;
  MoveCallback on_move_;
  FrameAllocator allocator_;
  LeaseScanner scanner_;
  Compactor compactor_;
  const LeaseSet* leased_ = nullptr;  // during a step
  std::vector<Segment> segments_;     // by SegmentIndex
  LimboQueue limbo_;                  // room for every frame there is
  std::uint64_t fills_ = 0;
  std::uint64_t reserved_bytes_ = 0;  // of segments in the making
  std::uint64_t leaving_bytes_ = 0;   // of those taken out, until they are destroyed
  struct Lingering {
    std::uint64_t bytes;
    std::uint64_t until_serial;  // sessions with a lower number may map it
    std::uint32_t notice;
  };
  std::deque<Lingering> lingering_;  // oldest first
  std::uint64_t lingering_bytes_ = 0;
  std::uint32_t closed_segments_ = 0;   // without hollow ones
  struct Hollow {
    SegmentIndex segment;
    std::uint64_t bytes;  // given back; 0: it could not be
  };
  std::vector<Hollow> hollow_;
  std::uint64_t hollow_bytes_ = 0;
  bool compaction_useless_ = false;   // the last step found nothing to gain; until something was freed
  std::uint64_t useless_free_bytes_ = 0;  // free bytes at that verdict
  std::uint64_t useless_wanted_ = 0;      // what was wanted
  std::uint64_t useless_asks_ = 0;        // for as much, since
  bool may_use_reserve_ = false;      // and there is too little left for any gathering
  std::uint64_t leased_limbo_bytes_ = 0;
  std::uint64_t held_limbo_frames_ = 0;
  std::uint64_t held_limbo_bytes_ = 0;
};

}  // namespace tierd::ram
