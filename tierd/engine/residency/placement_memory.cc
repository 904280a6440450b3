// The memory of the RAM tier: segments come and go by budget, pressure and use.
#include <algorithm>
#include <memory>
#include <utility>

#include "tierd/base/check.h"
#include "tierd/engine/residency/placement.h"

namespace tierd::engine {
namespace {

constexpr std::size_t kFewVictims = 64;
constexpr int kPinnedRounds = 8;
constexpr std::size_t kMostForPinned = 256;                        // leave at a step
constexpr std::uint64_t kPinnedAtOnce = 4 * kMiB;                 // what a step moves
constexpr std::int64_t kLimboPatienceNs = 1'000'000'000;         // for readers to be done with what has left
constexpr std::int64_t kSecondNs = 1'000'000'000;
constexpr std::int64_t kGrowPauseNs = 2'000'000'000;  // after a segment could not be made

}  // namespace

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
  // The node's memory is looked at once more: seconds may have passed since there was plenty, and a trainer takes gigabytes in one.
  const std::uint64_t usual = options_.min_available_bytes;
  const std::uint64_t least = ssd_ != nullptr && ram_.segment_bytes() == 0 ? std::min(usual, 2 * LastSegmentRoom()) : usual;
  const auto make = [this, bytes = ticket.bytes, floor = least, gauge = segment_gauge_]() -> Result<ram::Segment> {
    const ram::MemoryRoom room = gauge->Read();
    if (floor != 0 && room.known && room.room_bytes < floor + bytes) return Status(Code::kBusy, "others have taken the memory");
    return segments_.Create(bytes);
  };
  segment_under_way_ = workers_.Run(make, [this, ticket](Result<ram::Segment> segment) {
    segment_under_way_ = false;
    next_look_ns_ = 0;  // the room has changed, by our own doing or by others'
    if (segment.ok()) {
      ram_.AddSegment(ticket, std::move(segment).value());
      segment_failure_.clear();
    } else if (segment.status().code() == Code::kBusy) {
      ram_.CancelSegment(ticket);
      allowed_bytes_ = std::min(allowed_bytes_, ram_.segment_bytes());  // until the next look says otherwise
      ApplyBudget(std::min(capacity_bytes_, allowed_bytes_));
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

bool Placement::Turn() {
  bool more = backfill_wanted_ && Backfill();
  if (limbo_looks_ != 0) {
    ram_.ReclaimLimbo(std::min(limbo_looks_, kLimboPerTurn));
    limbo_looks_ -= std::min(limbo_looks_, kLimboPerTurn);
    more |= limbo_looks_ != 0;
  }
  if (ram_.shrinking()) {
    more |= LeaveClosedSegments(ram_.ShrinkStep(kFewVictims));
    ram_.ReclaimLimbo(kLimboPerTurn);
    if (auto segment = ram_.TakeEmptySegment()) {
      GiveBack(std::move(*segment));
      more = true;
    }
  } else {
    pinned_gone_ = false;
    if (ram_.WantsCompaction()) more |= ram_.CompactStep(catalogue_max_chunk_) == ram::Compactor::Outcome::kMore;
  }
  return more;
}

// Of segments that are to go, and whose frames find no room elsewhere. What is pinned and nowhere else stays until others have made room for it. True:
// somebody left, and there may be more of them.
bool Placement::LeaveClosedSegments(std::span<const ram::OwnerId> owners) {
  bool left = false;
  ObjectId first = kNoObject;
  std::uint64_t bytes = 0;
  for (const ram::OwnerId owner : owners) {
    const auto object = static_cast<ObjectId>(owner);
    if (!IsPinned(object) || HasCopyOnSsd(object)) {
      EvictRam(object, EvictCause::kPressure);
      left = true;
      continue;
    }
    if (!InRam(object)) continue;  // it was not what had been read, and is gone
    if (first == kNoObject) first = object;
    bytes += ram_.Capacity(catalogue_.object(object).frame);
  }
  if (first != kNoObject) MakeWayForPinned(first, bytes);
  else pinned_wait_until_ns_ = 0;
  return left;
}

bool Placement::HasCopyOnSsd(ObjectId object) {
  if (ssd_ == nullptr || OnSsd(object)) return ssd_ != nullptr;
  const ObjectRecord& record = catalogue_.object(object);
  if ((record.flags & kObjectListing) != 0) return false;
  return CopyToSsd(object, {ram_.Data(record.frame), record.bytes}, {.generation = ssd_->DatasetGeneration(UnitOf(object).dataset_id), .why = TIERD_DEMOTION}) == Copied::kStored;
}

// The first of `bytes` that have to move. Where there is room enough in pieces those are joined; else what is not pinned leaves.
void Placement::MakeWayForPinned(ObjectId object, std::uint64_t bytes) {
  const std::uint64_t own = ram_.Capacity(catalogue_.object(object).frame);
  const auto outcome = ram_.CompactStep(own, ram::RamTier::kCompactQuantumBytes / 2);  // a step of the shrinking copies as much again
  if (outcome == ram::Compactor::Outcome::kMore) return;
  const bool moves = outcome == ram::Compactor::Outcome::kEnough && std::exchange(had_room_, object) != object;
  if (moves) return;  // at the next step; else the place was no good
  had_room_ = kNoObject;
  if (EvictForPinned(std::min(bytes, std::max(own, kPinnedAtOnce))) > 0) {
    pinned_wait_until_ns_ = 0;
    return;
  }
  if (way_position_ != 0 || std::exchange(way_found_, false)) return;  // the walk goes on, or once more
  const std::int64_t now_ns = clock_.MonotonicNs();
  if (pinned_wait_until_ns_ == 0) pinned_wait_until_ns_ = now_ns + kLimboPatienceNs;
  if (ram_.limbo_frames() != 0 && now_ns < pinned_wait_until_ns_) return;
  if (!std::exchange(pinned_gone_, true) && on_pinned_gone) on_pinned_gone(object);
  EvictRam(object, EvictCause::kPressure);
}

// First whom the policies name; then whoever else is there, listings too. Returns the bytes that came free in segments that stay.
std::uint64_t Placement::EvictForPinned(std::uint64_t bytes) {
  std::uint64_t freed = 0;
  std::size_t evicted = 0;
  const auto evict = [&](ObjectId object) {
    const ram::FrameId frame = catalogue_.object(object).frame;
    if (!ram_.allocator().closed(ram_.allocator().segment(frame))) freed += ram_.Capacity(frame);
    EvictRam(object, EvictCause::kPressure);
    ++evicted;
  };
  std::uint32_t ids[kFewVictims];
  for (const auto& unit : sources_) {
    std::size_t count = kFewVictims;
    for (int round = 0; round < kPinnedRounds && count == kFewVictims && freed < bytes && evicted < kMostForPinned; ++round) {
      count = unit->policy.Victims(kTierRam, bytes - freed, ids);
      for (std::size_t i = 0; i < count && freed < bytes; ++i) {
        const auto victim = static_cast<ObjectId>(ids[i]);
        if (IsPinned(victim)) unit->policy.Removed(kTierRam, Raw(victim));  // as in MakeRoom: not named again until it is unpinned
        else if (InRam(victim)) evict(victim);
      }
    }
  }
  if (freed != 0) return freed;
  std::vector<ram::OwnerId> owners;
  way_position_ = ram_.WalkOwners(way_position_, kMostForPinned, owners);
  for (std::size_t i = 0; i < owners.size() && freed < bytes; ++i) {
    const auto object = static_cast<ObjectId>(owners[i]);
    if (IsPinned(object) && !OnSsd(object)) continue;
    if (ram_.allocator().closed(ram_.allocator().segment(catalogue_.object(object).frame))) continue;
    evict(object);
  }
  way_found_ |= freed != 0;
  return freed;
}

void Placement::GiveBack(ram::Segment segment) {
  const std::uint64_t bytes = segment.bytes();
  const auto gone = [this, bytes, serial = segment.serial()](bool punched) {
    --segments_leaving_;
    // No lease covers anything of it: clients may unmap it as soon as they hear of this.
    if (punched) ram_.SegmentDestroyed(bytes);
    else ram_.SegmentLingers(bytes, catalogue_.NoteSegmentGone(serial, ram_.OldestSerial()));
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

// Of segments that are to go, and in which all that is left is leased: the rest of them.
void Placement::GiveHolesBack() {
  using Holes = ram::RamTier::Holes;
  const auto give = [](const Holes& holes) {
    return std::all_of(holes.ranges.begin(), holes.ranges.end(), [&](const Holes::Range& range) { return ram::PunchFile(holes.file.get(), range.offset, range.bytes).ok(); });
  };
  for (;;) {
    std::shared_ptr<Holes> holes;
    const bool whole = Survives([&] {
      auto room = std::make_shared<Holes>();
      if (auto taken = ram_.TakeHoles()) *room = std::move(*taken), holes = std::move(room);
    });
    if (!whole || holes == nullptr) return;
    const auto gone = [this, holes](bool punched) {
      --segments_leaving_;
      if (punched) ram_.SegmentDestroyed(holes->bytes);
      else ram_.HolesStay(*holes);
      if (on_space) on_space();
    };
    ++segments_leaving_;
    if (!workers_.Run([holes, give] { return give(*holes); }, gone)) gone(give(*holes));
  }
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
  const std::size_t limbo = ram_.limbo_frames();
  ram_.ReclaimLimbo(kLimboPerTurn);
  limbo_looks_ = limbo - std::min(limbo, kLimboPerTurn);
  ram_.ReclaimLingering();
  if (ram_.shrinking()) GiveHolesBack();
  if (ram_.has_hollow()) {
    while (auto segment = ram_.TakeEmptySegment()) GiveBack(std::move(*segment));  // the last lease has gone
  }
  if (!segment_failure_.empty() && !segment_under_way_ && !memory_is_tight_ && clock_.MonotonicNs() >= grow_again_ns_) {
    ApplyBudget(std::min(capacity_bytes_, allowed_bytes_));
    if (CanGrow()) StartSegment();
    else segment_failure_.clear();  // nothing is missing any more
  }
  if (!looking_at_memory_ && clock_.MonotonicNs() >= next_look_ns_) LookAtMemory();
  TellCapacities();
}

void Placement::TellCapacities() {
  const std::uint64_t now[TIERD_POLICY_TIERS] = {ram_.budget(), ssd_capacity()};
  for (std::uint32_t tier = 0; tier < TIERD_POLICY_TIERS; ++tier) {
    if (std::exchange(told_capacity_[tier], now[tier]) == now[tier]) continue;
    for (const auto& unit : sources_) unit->policy.SetCapacity(tier, now[tier]);
  }
}

void Placement::LookAtMemory() {
  const auto look = [gauge = memory_gauge_] { return gauge->Read(); };
  looking_at_memory_ = workers_.Run(look, [this](const ram::MemoryRoom& room) {  // without memory: not known
    looking_at_memory_ = false;
    OnMemoryRoom(room);
    if (on_memory_look) on_memory_look();
  });
}

void Placement::OnMemoryRoom(const ram::MemoryRoom& room) {
  if (!room.known) return;
  bound_by_ = room.bound_by;
  const std::uint64_t held = ram_.segment_bytes();
  const std::uint64_t floor = options_.min_available_bytes;
  const std::int64_t skip_ns = ram::LooksToSkipNs(room.room_bytes, floor);
  memory_is_plenty_ = skip_ns > 0;
  memory_is_tight_ = room.room_bytes < 4 * floor;
  memory_half_taken_ns_ = ram::HalfTakenNs(room.room_bytes, held > 0 ? floor : 0);
  // While it is tight each tick looks, and a busy loop has ten a second.
  next_look_ns_ = clock_.MonotonicNs() + (memory_is_tight_ ? 0 : memory_half_taken_ns_ < 2 * kSecondNs ? memory_half_taken_ns_ / 2 : skip_ns);
  if (room.room_bytes < floor) {
    // What clients still map of segments that are gone is on its way back, and so is what workers are punching.
    const std::uint64_t missing = floor - std::min(floor, room.room_bytes + ram_.lingering_bytes() + ram_.leaving_bytes());
    // The pages of the hugetlb pool go back to the pool: nobody who is short of memory gains by them.
    const std::uint64_t pooled = ram_.pooled_bytes();
    const std::uint64_t ours = held - pooled;
    allowed_bytes_ = pooled + (ours > missing ? ours - missing : 0);
    const std::uint64_t last = SegmentBytes(options_);
    if (ssd_ != nullptr && allowed_bytes_ < last && room.room_bytes >= (held > 0 ? LastSegmentRoom() : 2 * LastSegmentRoom() + last)) allowed_bytes_ = std::min(capacity_bytes_, last);
  } else if (room.room_bytes - floor > SegmentBytes(options_)) {
    // Grows again only with a segment to spare, so that it does not swing.
    allowed_bytes_ = std::min(capacity_bytes_, held + room.room_bytes - floor);
  } else {
    return;
  }
  ApplyBudget(std::min(capacity_bytes_, allowed_bytes_));
}

}  // namespace tierd::engine
