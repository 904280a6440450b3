#include "tierd/engine/residency/placement.h"

#include <algorithm>
#include <utility>

#include "tierd/base/check.h"
#include "tierd/engine/out_of_memory.h"

namespace tierd::engine {
namespace {

constexpr std::size_t kVictimBatch = 512;
constexpr int kVictimRounds = 8;
constexpr std::uint64_t kCheapScan = 4096;              // LeaseScanner::cost: 10 us
constexpr std::uint64_t kScanPerFrame = 128;            // of that cost; a quarter of a microsecond
constexpr std::uint64_t kMostAhead = kVictimBatch - 64; // frames
constexpr std::uint64_t kMostCopiedAhead = kMiB;        // to the SSD tier as they leave: 0.1 ms

}  // namespace

Placement::Placement(const Parts& parts, const RamOptions& options)
    : catalogue_(parts.catalogue), ram_(parts.ram), segments_(parts.segments), sources_(parts.sources), workers_(parts.workers),
      clock_(parts.clock), counters_(parts.counters), options_(options), capacity_bytes_(options.capacity_bytes),
      allowed_bytes_(options.capacity_bytes), told_capacity_{options.capacity_bytes, 0}, shares_(sources_.size()) {
  for (const auto& unit : sources_) by_use_.push_back(unit.get());
}

// ---- frames ----------------------------------------------------------------------------------------------------------------

std::uint64_t Placement::TransitReserve() const {
  if (ssd_ == nullptr) return 0;
  return std::clamp<std::uint64_t>(ram_.segment_bytes() / 8, 4 * kMiB, 256 * kMiB);
}

// None while few sessions read: what leaves early is missing as a hit.
std::uint64_t Placement::AheadReserve() const {
  const std::uint64_t cost = ram_.leases().cost();
  const std::uint64_t resident = resident_bytes_[kTierRam];
  if (cost <= kCheapScan || resident == 0) return 0;
  const std::uint64_t frames = std::min((cost - kCheapScan) / kScanPerFrame, kMostAhead);
  return std::min(resident / resident_objects_[kTierRam] * frames, resident / 256);
}

std::uint64_t Placement::MemoryToCome() const {
  const std::uint64_t has = ram_.segment_bytes() + ram_.lingering_bytes();
  if (!segment_under_way_ && segments_leaving_ == 0 && !CanGrow()) return 0;
  return ram_.budget() > has ? ram_.budget() - has : 0;
}

std::uint64_t Placement::FreeForResidents() const {
  const std::uint64_t free = ram_.free_bytes() + MemoryToCome();
  const std::uint64_t reserve = TransitReserve() + AheadReserve();
  return free > reserve ? free - reserve : 0;
}

bool Placement::HasPlace(std::uint64_t bytes) const { return MemoryToCome() >= bytes || ram_.HasPlace(bytes); }

// `spared`: so many bytes have to stay free beside it.
ram::FrameId Placement::TryAllocate(ObjectId object, std::uint32_t payload_bytes, std::uint64_t spared) {
  const ObjectRecord& record = catalogue_.object(object);
  std::uint64_t bytes = std::max<std::uint32_t>(1, payload_bytes);
  std::uint32_t align = 64;
  if (ssd_ != nullptr) {
    ssd::FrameNeeds needs = ssd_->NeedsOf(record.bytes);
    if (payload_bytes != record.bytes) needs.padded_bytes = ssd::AlignUp(payload_bytes, needs.alignment);
    bytes = std::max<std::uint64_t>(bytes, needs.padded_bytes);
    align = std::max(align, needs.alignment);
  }
  // May be mapped page by page, read with O_DIRECT: also the short end of a large file, which is mapped with the rest of it.
  const bool chunked = (catalogue_.file(record.file).flags & kFileChunked) != 0;
  if (payload_bytes >= 64 * 1024 || chunked) align = std::max<std::uint32_t>(align, 4096);
  if (ram_.free_bytes() < bytes + spared) return ram::kNoFrame;
  const ram::FrameId frame = ram_.Allocate(Raw(object), catalogue_.KeyOf(object), bytes, align);
  if (frame != ram::kNoFrame) ram_.HoldIo(frame);
  return frame;
}

// Whether pieces of it were asked for as often as makes all of it worth the room of others.
bool Placement::AskedOften(ObjectId object, std::uint32_t part_bytes) {
  constexpr std::size_t kMostAsked = 65536;
  if (asked_bytes_.size() >= kMostAsked) asked_bytes_.clear();
  std::uint32_t& asked = asked_bytes_[Raw(object)];
  asked += std::min(part_bytes, ~std::uint32_t{0} - asked);
  return asked >= catalogue_.object(object).bytes / 4;
}

Placement::Grant Placement::Acquire(ObjectId object, AcquireOptions options) {
  SourceUnit& unit = UnitOf(object);
  const std::uint32_t bytes = catalogue_.object(object).bytes;
  const bool listing = (catalogue_.object(object).flags & kObjectListing) != 0;
  std::uint64_t free = FreeForResidents();
  // Without an SSD tier nothing is kept for what passes through: what has is free for who stays. So is what left in numbers.
  if (free < bytes && ram_.limbo_frames() > (ssd_ == nullptr ? 0 : kLimboPerTurn)) {
    ram_.ReclaimLimbo(kLimboPerTurn);
    free = FreeForResidents();
  }
  options.may_evict &= !options.little;
  if (options.may_evict && free < bytes) free += OthersMayYield(unit);
  const auto admits = [&](std::uint64_t room) { return listing || unit.policy.Admit(kTierRam, Raw(object), room, options.may_transit ? TIERD_FOR_READER : TIERD_AHEAD); };
  if (ram_.CouldHold(bytes) && admits(free)) {
    const std::uint64_t spared = TransitReserve() + (options.may_evict ? 0 : AheadReserve());
    ram::FrameId frame = TryAllocate(object, bytes, spared);
    if (frame != ram::kNoFrame) return {Outcome::kGranted, frame, false};
    ram_.ReclaimLimbo(kLimboPerTurn);
    frame = TryAllocate(object, bytes, spared);
    if (frame != ram::kNoFrame) return {Outcome::kGranted, frame, false};
    if (MemoryIsComing()) return {Outcome::kWait};
    // What is free in pieces that are too small is no room: others would have to leave, and whether they should is for the policy to say.
    const bool in_pieces = options.may_evict && FreeForResidents() >= bytes;
    if (in_pieces) {
      ram_.CompactStep(bytes);
      frame = TryAllocate(object, bytes, spared);  // also where that could gain nothing: a reserve may be used then
      if (frame != ram::kNoFrame) return {Outcome::kGranted, frame, false};
    }
    if (options.may_evict && (!in_pieces || admits(OthersMayYield(unit))) && MakeRoom(unit, bytes)) {
      frame = TryAllocate(object, bytes, spared);
      if (frame == ram::kNoFrame && ram_.CompactStep(bytes) == ram::Compactor::Outcome::kEnough) frame = TryAllocate(object, bytes, spared);
      // Enough in all, but in pieces that cannot be joined: as much again has to go. (The reserve, which MakeRoom adds, is a part of what is free.)
      if (frame == ram::kNoFrame && MakeRoom(unit, ram_.free_bytes() - std::min(ram_.free_bytes(), TransitReserve()) + bytes)) frame = TryAllocate(object, bytes, spared);
      if (frame == ram::kNoFrame && ram_.CompactStep(bytes) == ram::Compactor::Outcome::kEnough) frame = TryAllocate(object, bytes, spared);
      if (frame != ram::kNoFrame) return {Outcome::kGranted, frame, false};
    }
  }
  if (!options.may_transit) return {};
  // All of it is read for a little only where it stays behind on the SSD.
  if (options.little && !OnSsd(object) && !SsdTakesNow(bytes)) return {};
  const bool part = options.part_bytes != 0 && OnSsd(object);
  const std::uint32_t passing = part ? options.part_bytes : bytes;
  if (!ram_.CouldHold(passing)) return {};
  ram::FrameId frame = TryAllocate(object, passing, 0);
  if (frame == ram::kNoFrame) {
    ram_.ReclaimLimbo(kLimboPerTurn);
    frame = TryAllocate(object, passing, 0);
  }
  if (frame == ram::kNoFrame && MemoryIsComing()) return {Outcome::kWait};
  const auto join_pieces = [&] {
    if (frame == ram::kNoFrame && ram_.CompactStep(passing) == ram::Compactor::Outcome::kEnough) frame = TryAllocate(object, passing, 0);
  };
  join_pieces();
  // What is missing; then, where there is enough in all but in pieces that cannot be joined, as much again.
  for (const bool again : {false, true}) {
    if (frame != ram::kNoFrame || !OnSsd(object) || !ResidentsYield(again ? ram_.free_bytes() + passing : passing)) break;
    frame = TryAllocate(object, passing, 0);
    join_pieces();
  }
  if (frame == ram::kNoFrame) return {};
  ++counters_.transit_frames;
  ++transit_under_way_;
  return {Outcome::kGranted, frame, true, part};
}

// Until `bytes` fit beside the reserve, or nobody may leave.
bool Placement::MakeRoom(SourceUnit& unit, std::uint64_t bytes) {
  const std::uint64_t needed = bytes + TransitReserve();
  OthersYield(unit, needed);
  return EvictNamed(unit, needed);
}

// Asks the policy for victims, and for some ahead of need where there are none yet. What is pinned may not leave; the policy is told of no access that nobody made, which it
// would take for a use.
bool Placement::EvictNamed(SourceUnit& unit, std::uint64_t needed) {
  std::uint64_t ahead = AheadReserve();
  ahead -= std::min(ahead, ram_.free_bytes() - std::min(ram_.free_bytes(), TransitReserve()));
  std::uint32_t ids[kVictimBatch];
  for (int round = 0; round < kVictimRounds && ram_.free_bytes() < needed; ++round, ahead = 0) {
    // Each round asks for twice as many: those named so far may all be pinned.
    const std::uint64_t missing = needed - ram_.free_bytes();
    const std::size_t count = unit.policy.Victims(kTierRam, (missing + ahead) << round, ids);
    if (count == 0) return false;
    const std::uint64_t resident = resident_bytes_[kTierRam], copied = counters_.promotion_bytes_ram_ssd;
    const auto enough = [&] {
      const std::uint64_t gone = resident - resident_bytes_[kTierRam];
      return gone >= missing && (gone >= missing + ahead || counters_.promotion_bytes_ram_ssd - copied >= kMostCopiedAhead);
    };
    for (std::size_t i = 0; i < count && !enough(); ++i) {
      const auto victim = static_cast<ObjectId>(ids[i]);
      if (IsPinned(victim)) {
        unit.policy.Removed(kTierRam, Raw(victim));  // for the policy it is not there until it is unpinned, and is not named again
        continue;
      }
      if (InRam(victim)) EvictRam(victim, EvictCause::kCapacity);
    }
    ram_.ReclaimLimbo(kLimboPerTurn);
  }
  return ram_.free_bytes() >= needed;
}

// So many bytes at most, in no particular order. No more than what is missing leaves at a call: what readers hold comes free later.
template <typename MayLeave>
void Placement::EvictSome(std::uint64_t bytes, MayLeave&& may_leave) {
  constexpr std::size_t kLooks = 4096;
  const std::size_t objects = catalogue_.object_slots();
  const std::uint64_t resident = resident_bytes_[kTierRam];
  for (std::size_t look = 0; look < std::min(kLooks, objects) && resident - resident_bytes_[kTierRam] < bytes; ++look, ++yield_position_) {
    if (yield_position_ >= objects) yield_position_ = 0;
    const auto object = static_cast<ObjectId>(yield_position_);
    if ((catalogue_.object(object).flags & kObjectUsed) == 0 || !InRam(object) || IsPinned(object) || !may_leave(object)) continue;
    EvictRam(object, EvictCause::kCapacity);
  }
  if (resident != resident_bytes_[kTierRam]) ram_.ReclaimLimbo(kLimboPerTurn);
}

// Readers of what the SSD tier has need more room at a time than the reserve: residents that the SSD tier has too leave for them, whatever the policy says of victims; a
// quarter of the tier stays theirs.
bool Placement::ResidentsYield(std::uint64_t bytes) {
  EvictSome(bytes - std::min(bytes, ram_.free_bytes()), [this](ObjectId object) { return OnSsd(object) && resident_bytes_[kTierRam] > ram_.budget() / 4; });
  return ram_.free_bytes() >= bytes;
}

// ---- sources among one another ---------------------------------------------------------------------------------------------

bool Placement::IsIdle(const SourceUnit& unit) const {
  const Share& share = shares_[unit.index];
  return clock_.MonotonicNs() - share.used_ns > std::max(kIdleNs, 2 * share.pause_ns);
}

std::uint64_t Placement::MayYield(SourceUnit& from, const SourceUnit& to) const {
  const std::uint64_t has = shares_[from.index].bytes;
  if (&from == &to || has == 0) return 0;
  if (IsIdle(from)) return has;
  const auto in_use = std::count_if(sources_.begin(), sources_.end(), [&](const auto& unit) { return unit.get() == &to || !IsIdle(*unit); });
  const std::uint64_t equal = ram_.budget() / static_cast<std::uint64_t>(in_use);
  if (has <= equal || shares_[to.index].bytes >= equal) return 0;
  std::uint32_t victim = 0;
  return from.policy.Victims(kTierRam, 1, {&victim, 1}) == 0 ? 0 : has - equal;
}

std::uint64_t Placement::OthersMayYield(const SourceUnit& unit) const {
  std::uint64_t bytes = 0;
  for (const auto& other : sources_) bytes += MayYield(*other, unit);
  return bytes;
}

// First whoever was used longest ago.
void Placement::OthersYield(const SourceUnit& unit, std::uint64_t needed) {
  if (by_use_.size() == 1) return;
  std::sort(by_use_.begin(), by_use_.end(), [this](const SourceUnit* a, const SourceUnit* b) { return shares_[a->index].used_ns < shares_[b->index].used_ns; });
  for (SourceUnit* const other : by_use_) {
    if (ram_.free_bytes() >= needed) return;
    if (MayYield(*other, unit) == 0 || EvictNamed(*other, needed) || !IsIdle(*other)) continue;
    EvictSome(needed - std::min(needed, ram_.free_bytes()), [&](ObjectId object) { return &UnitOf(object) == other; });
  }
}

// ---- coming ----------------------------------------------------------------------------------------------------------------

std::uint64_t Placement::Publish(ObjectId object, const Grant& grant, ssd::PayloadRange range) {
  ObjectRecord& record = catalogue_.object(object);
  TIERD_CHECK(record.frame == ram::kNoFrame || grant.part);
  const std::uint64_t word = ram_.LocationWord(grant.frame);
  ram_.MarkLive(grant.frame);
  ram_.ReleaseIo(grant.frame);
  ++shares_[UnitOf(object).index].brought;
  if (grant.transit) --transit_under_way_;
  if (grant.transit || !catalogue_.SetLocation(object, word)) {
    ram_.Retire(grant.frame);
    NotePassed(object, grant.frame, grant.part ? range : ssd::PayloadRange{0, record.bytes});
    return word;
  }
  passed_.erase(Raw(object));
  asked_bytes_.erase(Raw(object));
  record.frame = grant.frame;
  resident_bytes_[kTierRam] += record.bytes;
  ++resident_objects_[kTierRam];
  SourceUnit& unit = UnitOf(object);
  NoteUse(unit, clock_.MonotonicNs());
  (IsPinned(object) ? pinned_bytes_[kTierRam] : shares_[unit.index].bytes) += record.bytes;
  if ((record.flags & kObjectListing) == 0) unit.policy.Inserted(kTierRam, Raw(object));
  GrowIfUseful();
  return word;
}

bool Placement::IsThere(ObjectId object, const Passed& passed) const {
  if (ram_.State(passed.frame) != ram::FrameState::kLimbo || ram_.Owner(passed.frame) != Raw(object) || ram_.LeaseWord(passed.frame) != passed.lease_word) return false;
  if ((catalogue_.object(object).flags & kObjectUsed) == 0) return false;
  return passed.lease_word >> 16 == abi::LeaseKeyOf(catalogue_.KeyOf(object));  // it may be another file's by now
}

Placement::PassedFrame Placement::PassedOf(ObjectId object, ssd::PayloadRange wanted) {
  if (wanted.bytes == 0) wanted = {0, catalogue_.object(object).bytes};
  const auto [begin, end] = passed_.equal_range(Raw(object));
  for (auto passed = begin; passed != end; ++passed) {
    if (passed->second.range.Covers(wanted) && IsThere(object, passed->second)) return {ram_.LocationWord(passed->second.frame), passed->second.range};
  }
  return {};
}

bool Placement::HasPassed(ObjectId object) const {
  const auto [begin, end] = passed_.equal_range(Raw(object));
  return std::any_of(begin, end, [&](const auto& passed) { return IsThere(object, passed.second); });
}

// The run that it goes on with; null: none.
const ssd::PayloadRange* Placement::RunBefore(ObjectId object, ssd::PayloadRange wanted) const {
  const auto [begin, end] = passed_.equal_range(Raw(object));
  for (auto passed = begin; passed != end; ++passed) {
    const ssd::PayloadRange& run = passed->second.range;
    if (run.begin <= wanted.begin && wanted.begin <= run.end() && run.end() < wanted.end()) return &run;
  }
  return nullptr;
}

Placement::PartPlan Placement::PlanParts(ObjectId object, ssd::PayloadRange wanted) {
  constexpr std::uint32_t kOneOfRuns = 16;  // from so long a run on it is read on
  const std::uint32_t bytes = catalogue_.object(object).bytes;
  PartPlan plan{ssd::WidenToParts(bytes, wanted), true};
  if (plan.range.bytes == 0) return {};
  if (const ssd::PayloadRange* const run = RunBefore(object, wanted); run != nullptr && run->end() <= bytes) {
    const std::uint32_t length = std::max(plan.range.bytes, 2 * run->bytes);
    plan.range = ssd::WidenToParts(bytes, {plan.range.begin, std::min(bytes - plan.range.begin, length)});
    plan.little = length < bytes / kOneOfRuns;
  }
  if (plan.range.bytes > bytes / 2) return {};
  plan.little &= !AskedOften(object, plan.range.bytes);
  return plan;
}

void Placement::NotePassed(ObjectId object, ram::FrameId frame, ssd::PayloadRange range) {
  // Without memory for the note the next piece is brought anew.
  (void)Survives([&] {
    if (passed_.size() >= 64 + 2 * ram_.limbo_frames()) std::erase_if(passed_, [this](const auto& one) { return !IsThere(static_cast<ObjectId>(one.first), one.second); });
    const auto [begin, end] = passed_.equal_range(Raw(object));
    std::size_t runs = 0;
    auto before = end;  // the run that this one goes on with, else any
    for (auto passed = begin; passed != end; ++passed, ++runs) {
      const ssd::PayloadRange& run = passed->second.range;
      if (before == end || (run.begin <= range.begin && range.begin <= run.end())) before = passed;
    }
    const bool goes_on = before != end && before->second.range.begin <= range.begin && range.begin <= before->second.range.end();
    const Passed note{frame, ram_.LeaseWord(frame), range};
    if (goes_on || runs >= kMostRuns) before->second = note;
    else passed_.emplace(Raw(object), note);
  });
}

void Placement::Abandon(const Grant& grant) {
  if (grant.transit) --transit_under_way_;
  passed_.erase(ram_.Owner(grant.frame));
  ram_.ReleaseIo(grant.frame);
  ram_.Retire(grant.frame);
}

// ---- ahead of use ----------------------------------------------------------------------------------------------------------

void Placement::NotePrefetched(ObjectId object) {
  ObjectRecord& record = catalogue_.object(object);
  if ((record.flags & kObjectUnread) != 0) return;
  record.flags |= kObjectUnread;
  UnitOf(object).look_ahead.brought += record.bytes;
}

void Placement::NoteUsed(ObjectId object) {
  ObjectRecord& record = catalogue_.object(object);
  record.flags &= ~std::uint32_t{kObjectUnread};
  UnitOf(object).look_ahead.used += record.bytes;
}

void Placement::NoteGone(ObjectId object) {
  ObjectRecord& record = catalogue_.object(object);
  if ((record.flags & kObjectUnread) == 0) return;
  record.flags &= ~std::uint32_t{kObjectUnread};
  counters_.prefetch_unused_bytes += record.bytes;
  UnitOf(object).look_ahead.unused += record.bytes;
}

// ---- leaving ---------------------------------------------------------------------------------------------------------------

void Placement::EvictRam(ObjectId object, EvictCause cause) {
  passed_.erase(Raw(object));
  asked_bytes_.erase(Raw(object));
  ObjectRecord& record = catalogue_.object(object);
  if (record.frame == ram::kNoFrame) return;
  const bool listing = (record.flags & kObjectListing) != 0;
  const bool may_demote = cause == EvictCause::kCapacity || cause == EvictCause::kPressure;
  if (may_demote && !listing && !OnSsd(object) && ssd_ != nullptr) {
    const auto* data = ram_.Data(record.frame);
    const SourceUnit& unit = UnitOf(object);
    CopyToSsd(object, {data, record.bytes}, {.generation = ssd_->DatasetGeneration(unit.dataset_id), .why = TIERD_DEMOTION});
    if (record.frame == ram::kNoFrame) return;  // it was not what had been read, and is gone
  }
  const ram::FrameId frame = record.frame;
  catalogue_.SetLocation(object, 0);
  ram_.Retire(frame);  // where there is no memory for that the object keeps its frame
  record.frame = ram::kNoFrame;
  resident_bytes_[kTierRam] -= record.bytes;
  --resident_objects_[kTierRam];
  (IsPinned(object) ? pinned_bytes_[kTierRam] : shares_[UnitOf(object).index].bytes) -= record.bytes;
  if (!listing) UnitOf(object).policy.Removed(kTierRam, Raw(object));
  if (!OnSsd(object)) NoteGone(object);
  ++counters_.evictions[kTierRam][static_cast<std::size_t>(cause)];
  counters_.evicted_bytes[kTierRam] += record.bytes;
}

void Placement::DropSsdFlag(ObjectId object) {
  ObjectRecord& record = catalogue_.object(object);
  if (!InRam(object)) NoteGone(object);
  record.flags &= ~std::uint32_t{kObjectOnSsd};
  record.ssd = ssd::SsdLocation{};
  resident_bytes_[kTierSsd] -= record.bytes;
  --resident_objects_[kTierSsd];
  if ((catalogue_.file(record.file).flags & kFilePinned) != 0) pinned_bytes_[kTierSsd] -= record.bytes;
  UnitOf(object).policy.Removed(kTierSsd, Raw(object));
}

void Placement::EvictSsd(ObjectId object, EvictCause cause) {
  if (!HasSsdRecord(object) || ssd_ == nullptr) return;
  ssd_->Forget(catalogue_.object(object).ssd);
  DropSsdFlag(object);
  ++counters_.evictions[kTierSsd][static_cast<std::size_t>(cause)];
  counters_.evicted_bytes[kTierSsd] += catalogue_.object(object).bytes;
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
    if (InRam(object)) {
      apply(kTierRam);
      shares_[UnitOf(object).index].bytes -= pinned ? bytes : std::uint64_t{0} - bytes;
    }
    if (HasSsdRecord(object)) apply(kTierSsd);
    if (InRam(object) && !pinned) UnitOf(object).policy.Inserted(kTierRam, Raw(object));  // MakeRoom may have taken it out of the policy's sight
  }
}

}  // namespace tierd::engine
