#include "tierd/engine/placement.h"

#include <algorithm>
#include <utility>

#include "tierd/base/check.h"

namespace tierd::engine {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint32_t kRam = TIERD_TIER_RAM;
constexpr std::uint32_t kSsd = TIERD_TIER_SSD;
constexpr std::size_t kVictimBatch = 64;
constexpr int kVictimRounds = 8;
constexpr std::size_t kBackfillPerTurn = 256;
constexpr std::int64_t kShortestBackfillPauseNs = 5'000'000;    // a device that is writing takes more within milliseconds
constexpr std::int64_t kLongestBackfillPauseNs = 1'000'000'000;
constexpr std::int64_t kGrowPauseNs = 2'000'000'000;  // after a segment could not be made

std::uint64_t SegmentBytesFor(const RamOptions& options) {
  const std::uint64_t wanted = options.segment_bytes != 0 ? options.segment_bytes : options.capacity_bytes / 16;
  const std::uint64_t bounded = std::clamp<std::uint64_t>(wanted, 16 * kMiB, abi::kMaxSegmentBytes);
  return bounded / (2 * kMiB) * (2 * kMiB);
}

}  // namespace

Placement::Placement(const Parts& parts, const RamOptions& options)
    : catalogue_(parts.catalogue), ram_(parts.ram), segments_(parts.segments), sources_(parts.sources), workers_(parts.workers),
      clock_(parts.clock), counters_(parts.counters), options_(options), capacity_bytes_(options.capacity_bytes),
      allowed_bytes_(options.capacity_bytes) {}

std::uint64_t Placement::SegmentBytes(const RamOptions& options) { return SegmentBytesFor(options); }

// ---- frames ----------------------------------------------------------------------------------------------------------------

std::uint64_t Placement::TransitReserve() const {
  if (ssd_ == nullptr) return 0;
  return std::clamp<std::uint64_t>(ram_.segment_bytes() / 8, 4 * kMiB, 256 * kMiB);
}

std::uint64_t Placement::FreeForResidents() const {
  const std::uint64_t budget = ram_.budget();
  const std::uint64_t to_come = budget > ram_.segment_bytes() ? budget - ram_.segment_bytes() : 0;
  const std::uint64_t free = ram_.free_bytes() + to_come;
  const std::uint64_t reserve = TransitReserve();
  return free > reserve ? free - reserve : 0;
}

ram::FrameId Placement::TryAllocate(ObjectId object, bool for_resident) {
  const ObjectRecord& record = catalogue_.object(object);
  std::uint64_t bytes = std::max<std::uint32_t>(1, record.bytes);
  std::uint32_t align = 64;
  if (ssd_ != nullptr) {
    const ssd::FrameNeeds needs = ssd_->NeedsOf(record.bytes);
    bytes = std::max<std::uint64_t>(bytes, needs.padded_bytes);
    align = std::max(align, needs.alignment);
  }
  if (record.bytes >= 64 * 1024) align = std::max<std::uint32_t>(align, 4096);  // may be mapped page by page, read with O_DIRECT
  if (for_resident && ram_.free_bytes() < bytes + TransitReserve()) return ram::kNoFrame;
  const ram::FrameId frame = ram_.Allocate(Raw(object), catalogue_.KeyOf(object), bytes, align);
  if (frame != ram::kNoFrame) ram_.HoldIo(frame);
  return frame;
}

Placement::Grant Placement::Acquire(ObjectId object, AcquireOptions options) {
  SourceUnit& unit = UnitOf(object);
  const std::uint64_t bytes = catalogue_.object(object).bytes;
  const bool listing = (catalogue_.object(object).flags & kObjectListing) != 0;
  const bool admitted = listing || unit.policy.Admit(kRam, Raw(object), FreeForResidents());
  if (admitted) {
    ram::FrameId frame = TryAllocate(object, true);
    if (frame != ram::kNoFrame) return {Outcome::kGranted, frame, false};
    ram_.ReclaimLimbo(4096);
    frame = TryAllocate(object, true);
    if (frame != ram::kNoFrame) return {Outcome::kGranted, frame, false};
    if (MemoryIsComing()) return {Outcome::kWait};
    if (options.may_evict && MakeRoom(unit, bytes)) {
      frame = TryAllocate(object, true);
      if (frame == ram::kNoFrame && ram_.CompactStep(bytes) == ram::Compactor::Outcome::kEnough) frame = TryAllocate(object, true);
      // Enough in all, but in pieces that cannot be joined: as much again has to go.
      if (frame == ram::kNoFrame && MakeRoom(unit, ram_.free_bytes() + bytes)) frame = TryAllocate(object, true);
      if (frame == ram::kNoFrame && ram_.CompactStep(bytes) == ram::Compactor::Outcome::kEnough) frame = TryAllocate(object, true);
      if (frame != ram::kNoFrame) return {Outcome::kGranted, frame, false};
    }
  }
  if (!options.may_transit) return {};
  ram::FrameId frame = TryAllocate(object, false);
  if (frame == ram::kNoFrame) {
    ram_.ReclaimLimbo(4096);
    frame = TryAllocate(object, false);
  }
  if (frame == ram::kNoFrame && MemoryIsComing()) return {Outcome::kWait};
  if (frame == ram::kNoFrame && ram_.CompactStep(bytes) == ram::Compactor::Outcome::kEnough) frame = TryAllocate(object, false);
  if (frame == ram::kNoFrame && OnSsd(object) && ResidentsYield(bytes)) {
    frame = TryAllocate(object, false);
    if (frame == ram::kNoFrame && ram_.CompactStep(bytes) == ram::Compactor::Outcome::kEnough) frame = TryAllocate(object, false);
  }
  if (frame == ram::kNoFrame) return {};
  ++counters_.transit_frames;
  ++transit_under_way_;
  return {Outcome::kGranted, frame, true};
}

// Asks the policy for victims until `bytes` fit beside the reserve, or nobody may leave.
bool Placement::MakeRoom(SourceUnit& unit, std::uint64_t bytes) {
  const std::uint64_t needed = bytes + TransitReserve();
  std::uint32_t ids[kVictimBatch];
  for (int round = 0; round < kVictimRounds && ram_.free_bytes() < needed; ++round) {
    // Each round asks for twice as many: those named so far may all be pinned.
    const std::uint64_t missing = needed - ram_.free_bytes();
    const std::size_t count = unit.policy.Victims(kRam, missing << round, ids);
    if (count == 0) return false;
    const std::uint64_t resident = resident_bytes_[kRam];
    for (std::size_t i = 0; i < count && resident - resident_bytes_[kRam] < missing; ++i) {
      const auto victim = static_cast<ObjectId>(ids[i]);
      if ((catalogue_.file(catalogue_.object(victim).file).flags & kFilePinned) != 0) {
        unit.policy.Accessed({Raw(victim), 0, clock_.MonotonicNs(), 0});  // so that it is not named again at once
        continue;
      }
      if (InRam(victim)) EvictRam(victim, EvictCause::kCapacity);
    }
    ram_.ReclaimLimbo(4096);
  }
  return ram_.free_bytes() >= needed;
}

// Readers of what the SSD tier has need more room at a time than the reserve: residents that the SSD tier has too leave for them, in no particular
// order, whatever the policy says of victims; a quarter of the tier stays theirs. No more than what is missing leaves at a call: what readers hold comes free later.
bool Placement::ResidentsYield(std::uint64_t bytes) {
  constexpr std::size_t kLooks = 4096;
  const std::size_t objects = catalogue_.object_slots();
  const std::uint64_t resident = resident_bytes_[kRam];
  const std::uint64_t missing = bytes - std::min(bytes, ram_.free_bytes());
  for (std::size_t look = 0; look < std::min(kLooks, objects) && resident - resident_bytes_[kRam] < missing; ++look, ++yield_position_) {
    if (resident_bytes_[kRam] <= ram_.budget() / 4) break;
    if (yield_position_ >= objects) yield_position_ = 0;
    const auto object = static_cast<ObjectId>(yield_position_);
    const ObjectRecord& record = catalogue_.object(object);
    if ((record.flags & kObjectUsed) == 0 || !InRam(object) || !OnSsd(object) || (catalogue_.file(record.file).flags & kFilePinned) != 0) continue;
    EvictRam(object, EvictCause::kCapacity);
  }
  if (resident != resident_bytes_[kRam]) ram_.ReclaimLimbo(4096);
  return ram_.free_bytes() >= bytes;
}

std::uint64_t Placement::Publish(ObjectId object, const Grant& grant) {
  ObjectRecord& record = catalogue_.object(object);
  TIERD_CHECK(record.frame == ram::kNoFrame);
  const std::uint64_t word = ram_.LocationWord(grant.frame);
  ram_.MarkLive(grant.frame);
  ram_.ReleaseIo(grant.frame);
  if (grant.transit) --transit_under_way_;
  if (grant.transit || !catalogue_.SetLocation(object, word)) {
    ram_.Retire(grant.frame);
    return word;
  }
  record.frame = grant.frame;
  resident_bytes_[kRam] += record.bytes;
  ++resident_objects_[kRam];
  if ((catalogue_.file(record.file).flags & kFilePinned) != 0) pinned_bytes_[kRam] += record.bytes;
  if ((record.flags & kObjectListing) == 0) UnitOf(object).policy.Inserted(kRam, Raw(object));
  GrowIfUseful();
  return word;
}

void Placement::Abandon(const Grant& grant) {
  if (grant.transit) --transit_under_way_;
  ram_.ReleaseIo(grant.frame);
  ram_.Retire(grant.frame);
}

// ---- leaving ---------------------------------------------------------------------------------------------------------------

void Placement::EvictRam(ObjectId object, EvictCause cause) {
  ObjectRecord& record = catalogue_.object(object);
  if (record.frame == ram::kNoFrame) return;
  const bool listing = (record.flags & kObjectListing) != 0;
  const bool may_demote = cause == EvictCause::kCapacity || cause == EvictCause::kPressure;
  if (may_demote && !listing && !OnSsd(object) && ssd_ != nullptr) {
    const auto* data = ram_.Data(record.frame);
    const SourceUnit& unit = UnitOf(object);
    CopyToSsd(object, {data, record.bytes}, ssd_->DatasetGeneration(unit.dataset_id));
  }
  const ram::FrameId frame = record.frame;
  catalogue_.SetLocation(object, 0);
  ram_.Retire(frame);  // where there is no memory for that the object keeps its frame
  record.frame = ram::kNoFrame;
  resident_bytes_[kRam] -= record.bytes;
  --resident_objects_[kRam];
  if ((catalogue_.file(record.file).flags & kFilePinned) != 0) pinned_bytes_[kRam] -= record.bytes;
  if (!listing) UnitOf(object).policy.Removed(kRam, Raw(object));
  if ((record.flags & kObjectUnread) != 0 && !OnSsd(object)) counters_.prefetch_unused_bytes += record.bytes;
  ++counters_.evictions[kRam][static_cast<std::size_t>(cause)];
  counters_.evicted_bytes[kRam] += record.bytes;
}

void Placement::DropSsdFlag(ObjectId object) {
  ObjectRecord& record = catalogue_.object(object);
  if ((record.flags & kObjectUnread) != 0 && !InRam(object)) counters_.prefetch_unused_bytes += record.bytes;
  record.flags &= ~std::uint32_t{kObjectOnSsd};
  record.ssd = ssd::SsdLocation{};
  resident_bytes_[kSsd] -= record.bytes;
  --resident_objects_[kSsd];
  if ((catalogue_.file(record.file).flags & kFilePinned) != 0) pinned_bytes_[kSsd] -= record.bytes;
  UnitOf(object).policy.Removed(kSsd, Raw(object));
}

void Placement::EvictSsd(ObjectId object, EvictCause cause) {
  if (!HasSsdRecord(object) || ssd_ == nullptr) return;
  ssd_->Forget(catalogue_.object(object).ssd);
  DropSsdFlag(object);
  ++counters_.evictions[kSsd][static_cast<std::size_t>(cause)];
  counters_.evicted_bytes[kSsd] += catalogue_.object(object).bytes;
}

void Placement::EvictFile(FileId file, EvictCause cause) {
  const ObjectId listing = catalogue_.ListingOf(file, false);
  if (listing != kNoObject) EvictRam(listing, cause);
  const std::uint32_t chunks = catalogue_.ChunkCount(file);
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    const ObjectId object = catalogue_.ObjectOf(file, chunk);
    EvictRam(object, cause);
    EvictSsd(object, cause);
  }
}

void Placement::SetPinned(FileId file, bool pinned) {
  FileRecord& record = catalogue_.file(file);
  if (((record.flags & kFilePinned) != 0) == pinned) return;
  record.flags = static_cast<std::uint16_t>(record.flags ^ kFilePinned);
  const std::uint32_t chunks = catalogue_.ChunkCount(file);
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    const ObjectId object = catalogue_.ObjectOf(file, chunk);
    const std::uint64_t bytes = catalogue_.object(object).bytes;
    const auto apply = [&](std::uint32_t tier) { pinned_bytes_[tier] += pinned ? bytes : std::uint64_t{0} - bytes; };
    if (InRam(object)) apply(kRam);
    if (HasSsdRecord(object)) apply(kSsd);
  }
}

// ---- SSD -------------------------------------------------------------------------------------------------------------------

ssd::RecordIdentity Placement::IdentityOf(ObjectId object, std::uint64_t generation) const {
  const ObjectRecord& record = catalogue_.object(object);
  const FileRecord& owner = catalogue_.file(record.file);
  const SourceUnit& unit = *sources_[owner.source];
  const io::FileStat stat = catalogue_.StatOf(record.file);
  ssd::RecordIdentity identity;
  identity.source_id = unit.persistent_id;
  identity.dataset_id = unit.dataset_id;
  identity.dataset_generation = generation;
  identity.key = owner.key;
  identity.version = {stat.ino, stat.size, stat.mtime_ns, stat.ctime_ns};
  identity.chunk = record.chunk;
  identity.chunk_bytes = static_cast<std::uint32_t>(unit.options.chunk_bytes);
  identity.fill_sequence = record.ssd.fill_sequence;
  return identity;
}

Placement::Copied Placement::CopyToSsd(ObjectId object, std::span<const std::byte> payload, std::uint64_t generation) {
  if (ssd_ == nullptr) return Copied::kRefused;
  if (OnSsd(object)) return Copied::kStored;
  EvictSsd(object, EvictCause::kChanged);  // a void record is in its place
  ObjectRecord& record = catalogue_.object(object);
  // After a restart a stat would confirm it for good; it may come when it has been read again (HAZARDS 2.12).
  if ((catalogue_.file(record.file).flags & kFileRacy) != 0) return Copied::kRefused;
  SourceUnit& unit = UnitOf(object);
  if (!unit.policy.Admit(kSsd, Raw(object), ssd_->FreeBytes())) {
    ++counters_.ssd_not_admitted;
    backfill_wanted_ |= ssd_->status().recovering;  // until then nothing is free: asked again when something is
    return Copied::kRefused;
  }
  ssd::RecordIdentity identity = IdentityOf(object, generation);
  identity.fill_sequence = ssd_->NextFillSequence();
  const auto appended = ssd_->Append(identity, catalogue_.PathOf(record.file), payload);
  if (!appended.ok()) {  // counted by the tier; the object stays where it is
    if (appended.status().code() != Code::kBusy) return Copied::kRefused;
    backfill_wanted_ = true;
    const ssd::SsdStatus state = ssd_->status();
    return state.health == ssd::SsdHealth::kHealthy && state.writable && !state.recovering ? Copied::kBusy : Copied::kRefused;
  }
  AdoptSsd(object, *appended);
  ++counters_.promotions_ram_ssd;
  counters_.promotion_bytes_ram_ssd += record.bytes;
  return Copied::kStored;
}

void Placement::AdoptSsd(ObjectId object, const ssd::SsdLocation& location) {
  ObjectRecord& record = catalogue_.object(object);
  record.ssd = location;
  record.flags |= kObjectOnSsd;
  resident_bytes_[kSsd] += record.bytes;
  ++resident_objects_[kSsd];
  if ((catalogue_.file(record.file).flags & kFilePinned) != 0) pinned_bytes_[kSsd] += record.bytes;
  UnitOf(object).policy.Inserted(kSsd, Raw(object));
}

ObjectId Placement::LiveObjectOf(const ssd::SsdRecord& record) {
  const FileId file = catalogue_.Find(record.identity.key);
  if (file == kNoFile) return kNoObject;
  const ObjectId object = catalogue_.ObjectOf(file, record.identity.chunk);
  if (object == kNoObject || !HasSsdRecord(object) || catalogue_.object(object).ssd != record.location) return kNoObject;
  return object;
}

double Placement::Worth(const ssd::SsdRecord& record) {
  const ObjectId object = LiveObjectOf(record);
  if (object == kNoObject) return -1;
  if ((catalogue_.file(catalogue_.object(object).file).flags & kFilePinned) != 0) return 1e18;
  if (InRam(object)) return 0;  // exclusive tiers once space is short: the copy in RAM is demoted when it leaves
  return std::max(0.0, UnitOf(object).policy.Worth(kSsd, Raw(object)));
}

void Placement::OnMoved(const ssd::SsdRecord& from, const ssd::SsdLocation& to) {
  const ObjectId object = LiveObjectOf(from);
  if (object != kNoObject) catalogue_.object(object).ssd = to;
}

void Placement::OnGone(const ssd::SsdRecord& record, ssd::SsdGone why) {
  const ObjectId object = LiveObjectOf(record);
  if (object == kNoObject) return;
  const EvictCause cause = why == ssd::SsdGone::kDamaged || why == ssd::SsdGone::kWriteFailed ? EvictCause::kDamaged : EvictCause::kCapacity;
  if (why == ssd::SsdGone::kDamaged) ++counters_.integrity_ssd;
  DropSsdFlag(object);
  ++counters_.evictions[kSsd][static_cast<std::size_t>(cause)];
  counters_.evicted_bytes[kSsd] += catalogue_.object(object).bytes;
}

// ---- memory ----------------------------------------------------------------------------------------------------------------

void Placement::OnFrameMoved(ObjectId object, ram::FrameId from, ram::FrameId to) {
  ObjectRecord& record = catalogue_.object(object);
  TIERD_CHECK(record.frame == from);
  record.frame = to;
  catalogue_.SetLocation(object, ram_.LocationWord(to));
}

bool Placement::CanGrow() const {
  return !segment_under_way_ && !ram_.shrinking() && ram_.segment_bytes() + ram_.lingering_bytes() + 2 * kMiB <= ram_.budget();
}

// Whether a segment is being made, or can be. One that is being given back keeps its place in the budget until it is gone.
bool Placement::MemoryIsComing() {
  if (CanGrow()) StartSegment();
  return segment_under_way_ || (segments_leaving_ != 0 && CanGrow());
}

void Placement::GrowIfUseful() {
  const std::uint64_t ahead = std::max<std::uint64_t>(SegmentBytes(options_) / 4, TransitReserve() * 2);
  if (CanGrow() && ram_.free_bytes() < ahead) StartSegment();
}

void Placement::StartSegment() {
  if (segment_under_way_) return;
  const ram::SegmentTicket ticket = ram_.ReserveSegment();
  if (ticket.bytes == 0) return;
  segment_under_way_ = workers_.Run([this, bytes = ticket.bytes] { return segments_.Create(bytes); },
                                    [this, ticket](Result<ram::Segment> segment) {
                                      segment_under_way_ = false;
                                      if (segment.ok()) {
                                        ram_.AddSegment(ticket, std::move(segment).value());
                                        next_look_ns_ = 0;  // the room has changed by our own doing
                                        segment_failure_.clear();
                                      } else {
                                        OnNoSegment(ticket, segment.status().ToString());
                                      }
                                      if (on_space) on_space();
                                    });
  if (!segment_under_way_) OnNoSegment(ticket, "out of memory");
}

// The node has no memory to give: what there is has to do for a while.
void Placement::OnNoSegment(const ram::SegmentTicket& ticket, std::string why) {
  ram_.CancelSegment(ticket);
  segment_failure_ = std::move(why);
  grow_again_ns_ = clock_.MonotonicNs() + kGrowPauseNs;
  ram_.set_budget(ram_.segment_bytes());
}

Status Placement::CreateFirstSegment() {
  const ram::SegmentTicket ticket = ram_.ReserveSegment();
  if (ticket.bytes == 0) return Status(Code::kInvalid, "ram.capacity is below one segment");
  auto segment = segments_.Create(ticket.bytes);
  if (!segment.ok()) {
    ram_.CancelSegment(ticket);
    return segment.status();
  }
  page_kind_ = segment->page_kind();
  page_reason_ = segment->reason();
  ram_.AddSegment(ticket, std::move(segment).value());
  return Status::Ok();
}

// Objects that the SSD tier could not take when they came (recovering, buffers full) are copied from RAM as soon as it can: a warm restart
// must not depend on the moment of the read.
bool Placement::Backfill() {
  const std::int64_t now_ns = clock_.MonotonicNs();
  if (ssd_ == nullptr || ssd_->ailing() || ssd_->status().recovering || ssd_->behind() || now_ns < backfill_again_ns_) return false;
  const std::size_t objects = catalogue_.object_slots();
  for (std::size_t looked = 0; looked < kBackfillPerTurn; ++looked, ++backfill_position_) {
    if (backfill_position_ >= objects) {
      backfill_position_ = 0;
      backfill_wanted_ = false;
      return false;
    }
    const auto object = static_cast<ObjectId>(backfill_position_);
    const ObjectRecord& record = catalogue_.object(object);
    if ((record.flags & kObjectUsed) == 0 || (record.flags & kObjectListing) != 0 || !InRam(object) || OnSsd(object)) continue;
    backfill_wanted_ = false;
    CopyToSsd(object, {ram_.Data(record.frame), record.bytes}, ssd_->DatasetGeneration(UnitOf(object).dataset_id));
    const bool busy = std::exchange(backfill_wanted_, true);
    backfill_pause_ns_ = busy ? std::clamp(2 * backfill_pause_ns_, kShortestBackfillPauseNs, kLongestBackfillPauseNs) : 0;
    backfill_again_ns_ = now_ns + backfill_pause_ns_;
    if (busy) return false;  // goes on here at a later turn
  }
  return true;
}

bool Placement::Turn() {
  bool more = backfill_wanted_ && Backfill();
  if (ram_.shrinking()) {
    for (const ram::OwnerId owner : ram_.ShrinkStep(kVictimBatch)) EvictRam(static_cast<ObjectId>(owner), EvictCause::kPressure);
    ram_.ReclaimLimbo(4096);
    if (auto segment = ram_.TakeEmptySegment()) {
      GiveBack(std::move(*segment));
      more = true;
    }
  } else if (ram_.WantsCompaction()) {
    more |= ram_.CompactStep(catalogue_max_chunk_) == ram::Compactor::Outcome::kMore;
  }
  return more;
}

void Placement::GiveBack(ram::Segment segment) {
  const std::uint64_t bytes = segment.bytes();
  const auto gone = [this, bytes](bool punched) {
    --segments_leaving_;
    if (punched) ram_.SegmentDestroyed(bytes);
    else ram_.SegmentLingers(bytes);
    if (on_space) on_space();
  };
  const auto give = [](ram::Segment& what) {
    const bool punched = what.Punch(0, what.bytes()).ok();  // kPermission under FUTURE_WRITE: memory returns with the last mapping
    what = ram::Segment();
    return punched;
  };
  ++segments_leaving_;
  std::shared_ptr<ram::Segment> owned;  // shared with the worker only until it ran
  bool handed = Survives([&] { owned = std::make_shared<ram::Segment>(); });
  if (handed) {
    *owned = std::move(segment);
    handed = workers_.Run([owned, give] { return give(*owned); }, gone);
  }
  if (!handed) gone(give(owned != nullptr ? *owned : segment));  // no memory to have a worker do it: some comes back right here
}

void Placement::SetRamCapacity(std::uint64_t bytes) {
  capacity_bytes_ = bytes;
  ApplyBudget(std::min(capacity_bytes_, allowed_bytes_));
}

void Placement::ApplyBudget(std::uint64_t bytes) {
  // After a segment could not be made: what there is, until it is tried again.
  if (!segment_failure_.empty() && clock_.MonotonicNs() < grow_again_ns_) bytes = std::min(bytes, ram_.segment_bytes());
  ram_.set_budget(bytes);
  if (const std::uint64_t over = ram_.OverBudget(); over > 0) {
    ram_.Shrink(over);
  } else if (ram_.shrinking()) {
    ram_.CancelShrink();
  }
}

void Placement::Tick() {
  ram_.ReclaimLimbo(65536);
  ram_.ReclaimLingering();
  if (!segment_failure_.empty() && !segment_under_way_ && !memory_is_tight_ && clock_.MonotonicNs() >= grow_again_ns_) {
    ApplyBudget(std::min(capacity_bytes_, allowed_bytes_));
    if (CanGrow()) StartSegment();
    else segment_failure_.clear();  // nothing is missing any more
  }
  if (pressure_check_under_way_ || clock_.MonotonicNs() < next_look_ns_) return;
  pressure_check_under_way_ = workers_.Run([] { return ram::ReadMemoryRoom(ram::MemoryRoots{}); }, [this](const ram::MemoryRoom& room) { OnMemoryRoom(room); });
}

void Placement::OnMemoryRoom(const ram::MemoryRoom& room) {
  pressure_check_under_way_ = false;
  if (!room.known) return;
  bound_by_ = room.bound_by;
  const std::uint64_t held = ram_.segment_bytes();
  const std::uint64_t floor = options_.min_available_bytes;
  next_look_ns_ = clock_.MonotonicNs() + ram::LooksToSkipNs(room.room_bytes, floor);
  memory_is_tight_ = room.room_bytes < 4 * floor;
  if (room.room_bytes < floor) {
    // What clients still map of segments that are gone is on its way back.
    const std::uint64_t missing = floor - std::min(floor, room.room_bytes + ram_.lingering_bytes());
    allowed_bytes_ = held > missing ? held - missing : 0;
  } else if (room.room_bytes - floor > SegmentBytes(options_)) {
    // Grows again only with a segment to spare, so that it does not swing.
    allowed_bytes_ = std::min(capacity_bytes_, held + room.room_bytes - floor);
  } else {
    return;
  }
  ApplyBudget(std::min(capacity_bytes_, allowed_bytes_));
}

}  // namespace tierd::engine
