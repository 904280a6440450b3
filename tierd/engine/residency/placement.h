// Where bytes live: grants frames, publishes and evicts, writes to the SSD tier, and keeps both tiers inside their budgets.
// Who may enter and who leaves is asked of the policy of the object's source; what really happened is told to it.
//
// Owner: Engine. Loop thread only. It reads no source and answers no client (fetcher does).
//
// Capacity rules. A part of the RAM tier (the transit reserve) is kept for objects that pass through on their way to one reader: bytes from
// the SSD tier that the policy does not admit to RAM. Such a frame is retired the moment it is filled; the reader's lease, taken before it
// asked, keeps it until it is done (HAZARDS 2.3). The tiers are inclusive while the SSD has room; when it has not, SSD copies of what is in RAM
// are worth nothing to its reclaim, so the tiers become exclusive, and RAM victims are demoted.
//
// What leaves may be leased, which only a look at all sessions' leases tells. Where that look is dear, as many sessions read, more leave at a time than are in the way: room ahead
// of need, a 256th of what is there at most. It is for those whom the policy admits to a full tier: neither the policy nor who may make nobody leave is told of it as free.
//
// Sources share the RAM tier, and no policy knows of the others' objects. Who wants room gets it first from sources that nobody has used for a while, whatever their policies
// say of it: those were made for readers that are gone. Of a source that is used, one that has less than an equal part gets what the policy there names, as long as that
// one has more: `freeze` names nothing that is still read and keeps what it has while its readers are there. So sources that are read together do not take from one another in turns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tierd/base/clock.h"
#include "tierd/engine/catalogue/catalogue.h"
#include "tierd/engine/counters.h"
#include "tierd/engine/options.h"
#include "tierd/engine/catalogue/paged_vector.h"
#include "tierd/engine/segment_size.h"
#include "tierd/engine/sources/source_unit.h"
#include "tierd/engine/workers.h"
#include "tierd/ram/memory_pressure.h"
#include "tierd/ram/ram_tier.h"
#include "tierd/ram/segment.h"
#include "tierd/ssd/ssd_tier.h"

namespace tierd::engine {

inline constexpr std::uint64_t kMiB = 1 << 20;
// Tiers as policies know them.
inline constexpr std::uint32_t kTierRam = TIERD_TIER_RAM;
inline constexpr std::uint32_t kTierSsd = TIERD_TIER_SSD;

using SourceTable = std::vector<std::unique_ptr<SourceUnit>>;

class Placement final : public ssd::SsdOwner {
 public:
  struct Parts {
    Catalogue& catalogue;
    ram::RamTier& ram;
    ram::SegmentFactory& segments;
    SourceTable& sources;
    Workers& workers;
    const Clock& clock;
    EngineCounters& counters;
  };
  Placement(const Parts& parts, const RamOptions& options);

  // The SSD tier comes later (it needs an SsdOwner to open) and may be absent.
  void SetSsd(ssd::SsdTier* ssd) {
    ssd_ = ssd;
    told_capacity_[TIERD_TIER_SSD] = ssd_capacity();
  }

  enum class Outcome : std::uint8_t {
    kGranted,
    kWait,  // memory is on its way: ask again when on_space ran
    kNone,  // no frame can be had: bypass
  };
  struct Grant {
    Outcome outcome = Outcome::kNone;
    ram::FrameId frame = ram::kNoFrame;
    bool transit = false;
    bool part = false;  // a transit frame of AcquireOptions::part_bytes
  };
  // A frame for the object's bytes (ObjectRecord::bytes), held for I/O. `may_transit`: a reader waits, so a frame that is only passed
  // through is worth having; and the policy is told so (TIERD_FOR_READER, else TIERD_AHEAD). `may_evict`: others may leave for it.
  struct AcquireOptions {
    bool may_transit = false;
    bool may_evict = false;
    bool little = false;           // PartPlan: nobody leaves for it, nor does all of it pass through to nowhere
    std::uint32_t part_bytes = 0;  // of what is on the SSD, a part so long may pass through alone; 0: only all of it
  };
  Grant Acquire(ObjectId object, AcquireOptions options);
  // Frames that only pass through will be free again soon: with I/O under way, or in the hands of a reader that copies.
  bool TransitInUse() const { return transit_under_way_ != 0 || ram_.limbo_frames() != 0; }

  // The whole writable memory of a granted frame.
  std::span<std::byte> FrameSpan(ram::FrameId frame) { return {ram_.Data(frame), static_cast<std::size_t>(ram_.Capacity(frame))}; }

  // The frame holds the object's bytes: makes them visible, tells the policy, and returns the location word for the reply. The I/O hold
  // ends. For a transit frame nothing becomes visible.
  // `range`: what the frame has, where it is a part.
  std::uint64_t Publish(ObjectId object, const Grant& grant, ssd::PayloadRange range = {});
  // Where bytes of the object have passed through, and nothing else has the frame yet. Who took the lease before asking may have it: a file that is read piece by piece
  // passes through once, not once a piece, each in a frame that the next piece's lease keeps.
  struct PassedFrame {
    std::uint64_t word = 0;    // location; 0: they have not
    ssd::PayloadRange range;   // what of the object the frame has
  };
  // `wanted`: has it to have; 0 bytes: all.
  PassedFrame PassedOf(ObjectId object, ssd::PayloadRange wanted);
  bool HasPassed(ObjectId object) const;
  // Its record is about to go, and its number to another.
  void ForgetPassed(ObjectId object) { passed_.erase(static_cast<std::uint32_t>(object)); }
  // For a reader that wants just `wanted` of the object now. Asked once for each such request.
  struct PartPlan {
    ssd::PayloadRange range;  // parts to read from the SSD tier, more of them each time while it reads on from where it was; 0 bytes: all of it
    // It is not worth the room of others yet: it neither reads on nor has, piece by piece, a quarter of the object been asked for.
    bool little = false;
  };
  PartPlan PlanParts(ObjectId object, ssd::PayloadRange wanted);
  // Nothing useful is in the frame. The I/O hold ends and the frame goes back.
  void Abandon(const Grant& grant);

  enum class Copied : std::uint8_t {
    kStored,  // or there already
    kBusy,    // the device is behind: there will be room again as it writes
    kRefused,
    kChanged,  // they are not what was read: the object has left RAM
  };
  // The checksum of bytes that the source gave, when the read completed. CopyToSsd compares with it.
  void NoteSourceBytes(ObjectId object, std::span<const std::byte> bytes);
  // What is known of an earlier object with that id is not about this one.
  void ForgetSourceBytes(ObjectId object);
  // A copy for the SSD tier of bytes just read from the source (or being demoted), if there is a tier, the policy agrees and there is room.
  struct CopyOptions {
    std::uint64_t generation = 0;     // of the dataset, when the bytes were asked for
    std::uint32_t why = TIERD_COPY;   // TIERD_FOR_READER: the reader's bytes found no place in RAM
  };
  Copied CopyToSsd(ObjectId object, std::span<const std::byte> payload, CopyOptions options);
  ssd::RecordIdentity IdentityOf(ObjectId object, std::uint64_t generation) const;

  bool InRam(ObjectId object) const { return catalogue_.object(object).frame != ram::kNoFrame; }
  // A record that may be read: not one that an invalidation of all of its source has made void, whose end a sweep notes by and by.
  bool OnSsd(ObjectId object) const { return HasSsdRecord(object) && catalogue_.object(object).ssd.fill_sequence >= UnitOf(object).void_before; }
  bool HasSsdRecord(ObjectId object) const { return (catalogue_.object(object).flags & kObjectOnSsd) != 0; }
  std::uint64_t LocationWordOf(ObjectId object) const { return ram_.LocationWord(catalogue_.object(object).frame); }

  void EvictRam(ObjectId object, EvictCause cause);
  void EvictSsd(ObjectId object, EvictCause cause);
  // Both tiers, every object of the file (and the listing of a directory).
  void EvictFile(FileId file, EvictCause cause);
  // Pinned files are evicted by request or change only. They may leave RAM for the SSD tier's copy; the node only where the RAM tier has to become smaller than what is
  // pinned in it (on_pinned_gone).
  void SetPinned(FileId file, bool pinned);
  // An object was read ahead of use; noted so that what leaves unread is counted.
  void NotePrefetched(ObjectId object);
  void NoteRead(ObjectId object) {
    if ((catalogue_.object(object).flags & kObjectUnread) != 0) NoteUsed(object);
  }

  // A client has read from the source, from wherever. What is brought for it counts too (Publish).
  void NoteUse(const SourceUnit& unit, std::int64_t now_ns) {
    Share& share = shares_[unit.index];
    const std::int64_t pause_ns = now_ns - share.used_ns;
    if (share.used_ns != 0 && pause_ns <= kLongestPauseNs) share.pause_ns = std::max(share.pause_ns, pause_ns);
    share.used_ns = now_ns;
  }
  // A source is given up behind so long a pause, or behind twice the longest one after which it was used again: a training set waits while the validation set is read.
  static constexpr std::int64_t kIdleNs = 60'000'000'000;
  static constexpr std::int64_t kLongestPauseNs = 900'000'000'000;  // that is waited for; behind a longer one comes another job
  // How often something of the source was brought into a frame, be it to stay or to pass through, for a reader or ahead of one.
  std::uint64_t brought(const SourceUnit& unit) const { return shares_[unit.index].brought; }
  // Bytes in RAM that other sources would give up for this one.
  std::uint64_t OthersMayYield(const SourceUnit& unit) const;

  // Recovery: the object is on SSD already.
  void AdoptSsd(ObjectId object, const ssd::SsdLocation& location);

  // Bytes that could still enter a tier without anybody leaving: for warm-up and prefetch.
  std::uint64_t FreeForResidents() const;
  // Whether RAM surely has a place for so many bytes: what is free may be in pieces that they do not fit in.
  bool HasPlace(std::uint64_t bytes) const;
  std::uint64_t SsdFree() const { return ssd_ == nullptr ? 0 : ssd_->FreeBytes(); }
  std::uint64_t ssd_capacity() const { return ssd_ == nullptr ? 0 : ssd_->status().capacity_bytes; }
  bool has_ssd() const { return ssd_ != nullptr; }
  // It is known what is there.
  bool SsdRecovered() const { return ssd_ != nullptr && !ssd_->status().recovering; }

  std::uint64_t ram_resident_bytes() const { return resident_bytes_[0]; }
  std::uint64_t ram_resident_objects() const { return resident_objects_[0]; }
  std::uint64_t ssd_resident_bytes() const { return resident_bytes_[1]; }
  std::uint64_t ssd_resident_objects() const { return resident_objects_[1]; }
  std::uint64_t pinned_bytes(std::uint32_t tier) const { return pinned_bytes_[tier]; }

  // What has left since the last look at all of it comes free some at a turn.
  bool reclaiming() const { return limbo_looks_ != 0; }
  // Objects in RAM still wait to be copied to an SSD tier that can take them; one that ails is not waited for.
  bool backfilling() const { return backfill_wanted_ && !ssd_->ailing(); }

  // Called when memory that somebody waited for has come.
  std::function<void()> on_space;
  // A pinned object is about to leave the node: the first of a RAM tier that shrinks.
  std::function<void(ObjectId)> on_pinned_gone;
  // It is known anew how much memory there is: segments may have to go, the next look may be wanted sooner.
  std::function<void()> on_memory_look;

  // The compactor moved a live frame (RamTier's callback).
  void OnFrameMoved(ObjectId object, ram::FrameId from, ram::FrameId to);
  // Largest frame there may be: what compaction keeps room for.
  void SetLargestChunk(std::uint64_t bytes) { catalogue_max_chunk_ = bytes; }
  // What is larger never gets a frame.
  std::uint64_t LargestFrame() const { return ram_.LargestFrame(); }
  abi::PageKind page_kind() const { return page_kind_; }
  const std::string& page_reason() const { return page_reason_; }
  const std::string& memory_bound_by() const { return bound_by_; }
  const std::string& segment_failure() const { return segment_failure_; }

  // Every loop turn with work: limbo, compaction, growth; returns true if it wants another turn soon.
  bool Turn();
  // Once a second, up to ten times as often while half of what is left may be taken within two (memory_half_taken_ns): limbo; memory of the node and of our cgroups, more rarely while
  // there is plenty.
  void Tick();
  // In how long others may have taken half of what memory is left (ram::HalfTakenNs): an idle daemon ticks by then. 10 s where there is nothing to give back.
  std::int64_t memory_half_taken_ns() const { return memory_half_taken_ns_; }
  bool memory_is_plenty() const { return memory_is_plenty_; }  // looks at it may be left out
  // `config set ram.capacity`.
  void SetRamCapacity(std::uint64_t bytes);
  std::uint64_t ram_capacity() const { return capacity_bytes_; }
  // There may be frames; while others need all memory there are none, and what is on the SSD cannot be served either.
  bool HasFrames() const { return ram_.budget() >= (2 << 20); }
  // What policies go by: as much as the tier may hold, by configuration, memory and disk. Tick tells them when that has become another number.
  std::uint64_t told_capacity(std::uint32_t tier) const { return told_capacity_[tier]; }
  // The first segment, before serving. Blocks.
  Status CreateFirstSegment();

  // ssd::SsdOwner
  double Worth(const ssd::SsdRecord& record) override;
  void OnMoved(const ssd::SsdRecord& from, const ssd::SsdLocation& to) override;
  void OnGone(const ssd::SsdRecord& record, ssd::SsdGone why) override;

 private:
  SourceUnit& UnitOf(ObjectId object) const { return *sources_[catalogue_.file(catalogue_.object(object).file).source]; }
  ram::FrameId TryAllocate(ObjectId object, std::uint32_t payload_bytes, std::uint64_t spared);
  bool MakeRoom(SourceUnit& unit, std::uint64_t bytes);
  bool EvictNamed(SourceUnit& unit, std::uint64_t needed);
  void OthersYield(const SourceUnit& unit, std::uint64_t needed);
  bool IsIdle(const SourceUnit& unit) const;
  std::uint64_t MayYield(SourceUnit& from, const SourceUnit& to) const;
  template <typename MayLeave>
  void EvictSome(std::uint64_t bytes, MayLeave&& may_leave);
  bool ResidentsYield(std::uint64_t bytes);
  bool CanGrow() const;
  // While there is an SSD tier its readers need a frame: the last segment stays as long as that much memory is left beside it, and comes back where twice that is.
  std::uint64_t LastSegmentRoom() const { return std::max<std::uint64_t>(32 << 20, SegmentBytes(options_)); }
  bool MemoryIsComing();
  void GrowIfUseful();
  bool IsPinned(ObjectId object) const { return (catalogue_.file(catalogue_.object(object).file).flags & kFilePinned) != 0; }
  bool HasCopyOnSsd(ObjectId object);
  bool LeaveClosedSegments(std::span<const ram::OwnerId> owners);
  void MakeWayForPinned(ObjectId object, std::uint64_t bytes);
  std::uint64_t EvictForPinned(std::uint64_t bytes);
  void StartSegment();
  void OnNoSegment(const ram::SegmentTicket& ticket, std::string why);
  ObjectId LiveObjectOf(const ssd::SsdRecord& record);
  std::uint64_t MemoryToCome() const;
  std::uint64_t TransitReserve() const;
  struct Passed {
    ram::FrameId frame;
    std::uint64_t lease_word;
    ssd::PayloadRange range;
  };
  bool SsdTakesNow(std::uint64_t bytes) const { return ssd_ != nullptr && SsdFree() >= bytes && !ssd_->behind() && !ssd_->ailing() && !ssd_->status().recovering; }
  static constexpr std::size_t kMostRuns = 8;  // of an object
  const ssd::PayloadRange* RunBefore(ObjectId object, ssd::PayloadRange wanted) const;
  bool AskedOften(ObjectId object, std::uint32_t part_bytes);
  bool IsThere(ObjectId object, const Passed& passed) const;
  void NotePassed(ObjectId object, ram::FrameId frame, ssd::PayloadRange range);
  std::uint64_t AheadReserve() const;
  void DropSsdFlag(ObjectId object);
  void NoteUsed(ObjectId object);
  void NoteGone(ObjectId object);
  bool Backfill();
  std::uint32_t SourceCrc(ObjectId object) const { return Raw(object) < source_crcs_.size() ? source_crcs_[Raw(object)] : 0; }
  void ApplyBudget(std::uint64_t bytes);
  void TellCapacities();
  void GiveBack(ram::Segment segment);
  void GiveHolesBack();
  void LookAtMemory();
  void OnMemoryRoom(const ram::MemoryRoom& room);

  // Constant after construction.
  Catalogue& catalogue_;
  ram::RamTier& ram_;
  ram::SegmentFactory& segments_;
  SourceTable& sources_;
  Workers& workers_;
  const Clock& clock_;
  EngineCounters& counters_;
  const RamOptions options_;

  ssd::SsdTier* ssd_ = nullptr;
  std::uint64_t capacity_bytes_;       // configured
  std::uint64_t allowed_bytes_;        // what the node's memory allows now; <= capacity_bytes_
  std::uint64_t told_capacity_[TIERD_POLICY_TIERS];
  std::uint64_t catalogue_max_chunk_ = 4 << 20;
  abi::PageKind page_kind_ = abi::PageKind::k4KiB;
  std::string page_reason_;
  std::string bound_by_;
  std::string segment_failure_;
  static constexpr std::size_t kLimboPerTurn = 4096;  // frames
  std::size_t limbo_looks_ = 0;          // that many of the limbo are still to be looked at since the last tick
  bool backfill_wanted_ = false;
  std::size_t backfill_position_ = 0;
  std::int64_t backfill_again_ns_ = 0;   // a refusal is not asked about before
  std::int64_t backfill_pause_ns_ = 0;   // longer with each refusal in a row
  bool segment_under_way_ = false;
  std::size_t yield_position_ = 0;         // where EvictSome looks next
  struct Share {
    std::uint64_t bytes = 0;      // in RAM, but for what is pinned
    std::uint64_t brought = 0;
    std::int64_t used_ns = 0;
    std::int64_t pause_ns = 0;    // the longest behind which it was used again
  };
  std::vector<Share> shares_;                // by SourceUnit::index
  std::vector<SourceUnit*> by_use_;          // scratch
  // While the tier shrinks: pinned objects that have to move.
  std::uint64_t way_position_ = 0;         // of RamTier::WalkOwners
  bool way_found_ = false;                 // somebody who could leave for them, since the walk began
  ObjectId had_room_ = kNoObject;          // for it there was a place at the last look
  std::int64_t pinned_wait_until_ns_ = 0;  // for what readers hold
  bool pinned_gone_ = false;
  PagedVector<std::uint32_t> source_crcs_;  // by object, 0: not known; empty without an SSD tier
  std::uint32_t transit_under_way_ = 0;  // frames that pass through, with I/O under way
  // By object: where its bytes have passed through, as long as that frame is retired and has the same lease word; of parts the latest few. Ends with EvictRam, Publish and
  // Abandon of the object.
  std::unordered_multimap<std::uint32_t, Passed> passed_;
  std::unordered_map<std::uint32_t, std::uint32_t> asked_bytes_;  // by object: read piece by piece while RAM was full; forgotten now and then
  std::int64_t grow_again_ns_ = 0;      // after segment_failure_
  std::uint32_t segments_leaving_ = 0;  // a worker gives them back
  const std::shared_ptr<ram::MemoryGauge> memory_gauge_ = std::make_shared<ram::MemoryGauge>(options_.memory_roots);   // the worker's who looks at memory
  const std::shared_ptr<ram::MemoryGauge> segment_gauge_ = std::make_shared<ram::MemoryGauge>(options_.memory_roots);  // the worker's who makes a segment
  bool looking_at_memory_ = false;
  std::int64_t next_look_ns_ = 0;       // at the node's memory
  bool memory_is_plenty_ = false;
  bool memory_is_tight_ = false;
  std::int64_t memory_half_taken_ns_ = ram::HalfTakenNs(0, 0);
  std::uint64_t resident_bytes_[2] = {0, 0};
  std::uint64_t resident_objects_[2] = {0, 0};
  std::uint64_t pinned_bytes_[2] = {0, 0};
};

}  // namespace tierd::engine
