#include "tierd/ram/ram_tier.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tierd/base/check.h"

namespace tierd::ram {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kSmallestSegment = 64 << 10;
constexpr std::size_t kLimboPerStep = 8192;  // frames looked at in a step, some 2 ms at the worst (HAZARDS 5); after a large eviction there are millions

}  // namespace

RamTier::RamTier(RamTierOptions options, MoveCallback on_move)
    : options_(options), on_move_(std::move(on_move)), allocator_(AllocatorOptions{options.max_frame_bytes, options.largest_bytes}), compactor_(allocator_, *this) {
  options_.segment_bytes = std::clamp(options_.segment_bytes, kSmallestSegment, abi::kMaxSegmentBytes);
  if (options_.segment_bytes >= kHugePage) options_.segment_bytes = options_.segment_bytes / kHugePage * kHugePage;
}

RamTier::~RamTier() = default;

// ---- frames -------------------------------------------------------------------------------------------------------------------

// 1..65535 in turn; 65,535 fills later a number comes back, harmless: it would only make an old lease of the same key count for longer.
std::uint16_t RamTier::NextFill() { return static_cast<std::uint16_t>(fills_++ % 65535 + 1); }

FrameId RamTier::Allocate(OwnerId owner, abi::FileKey chunk_key, std::uint64_t bytes, std::uint32_t align) {
  if (bytes == 0 || bytes > std::max(options_.max_frame_bytes, options_.largest_bytes)) return kNoFrame;
  limbo_.Reserve(Frames() + 1);
  return allocator_.Allocate({owner, bytes, align, abi::EncodeLease(abi::LeaseKeyOf(chunk_key), NextFill())}, may_use_reserve_);
}

std::byte* RamTier::Data(FrameId frame) const {
  return segments_[Raw(allocator_.segment(frame))].data() + allocator_.offset(frame);
}

std::uint64_t RamTier::LocationWord(FrameId frame) const {
  const Segment& segment = segments_[Raw(allocator_.segment(frame))];
  return abi::EncodeLocation({segment.serial(), allocator_.offset(frame), static_cast<std::uint16_t>(allocator_.lease_word(frame) & 0xffff)});
}

void RamTier::MarkLive(FrameId frame) {
  allocator_.SetState(frame, FrameState::kLive);
  const std::uint64_t bytes = allocator_.bytes(frame);
  const std::uint64_t rest = allocator_.capacity(frame) - bytes;
  if (rest > 0) std::memset(Data(frame) + bytes, 0, rest);
}

void RamTier::HoldIo(FrameId frame) {
  TIERD_CHECK(allocator_.state(frame) != FrameState::kLimbo);
  allocator_.AddHold(frame);
}

void RamTier::ReleaseIo(FrameId frame) {
  allocator_.DropHold(frame);
  if (allocator_.state(frame) == FrameState::kLimbo && allocator_.holds(frame) == 0) {
    --held_limbo_frames_;
    held_limbo_bytes_ -= allocator_.capacity(frame);
  }
}

void RamTier::Retire(FrameId frame) {
  limbo_.Push(frame);
  allocator_.SetState(frame, FrameState::kLimbo);
  if (allocator_.holds(frame) > 0) {
    ++held_limbo_frames_;
    held_limbo_bytes_ += allocator_.capacity(frame);
  }
}

std::uint64_t RamTier::ReclaimLimbo(std::size_t max_frames) {
  if (limbo_.empty()) return 0;
  return FreeLimbo(max_frames, scanner_.Scan());
}

std::uint64_t RamTier::FreeLimbo(std::size_t max_frames, const LeaseSet& leased) {
  std::uint64_t freed = 0;
  std::uint64_t kept = 0;
  for (std::size_t looks = std::min(max_frames, limbo_.size()); looks > 0; --looks) {
    const FrameId frame = limbo_.Pop();
    const std::uint64_t bytes = allocator_.capacity(frame);
    const bool covered = leased.Covers(allocator_.lease_word(frame));
    if (covered || allocator_.holds(frame) > 0) {
      limbo_.Push(frame);
      if (covered) kept += bytes;
      continue;
    }
    allocator_.Free(frame);
    freed += bytes;
  }
  leased_limbo_bytes_ = kept;
  // The verdict "nothing to gain" holds until a good part of a frame was freed: else every eviction would start another fruitless sweep.
  if (freed > 0 && free_bytes() >= useless_free_bytes_ + options_.max_frame_bytes / 4) ForgetUseless();
  return freed;
}

// ---- compaction ---------------------------------------------------------------------------------------------------------------

bool RamTier::CanMove(FrameId frame) { return leased_ != nullptr && !leased_->Covers(allocator_.lease_word(frame)); }

std::uint64_t RamTier::NextLeaseWord(FrameId frame) { return (allocator_.lease_word(frame) & ~std::uint64_t{0xffff}) | NextFill(); }

void RamTier::Move(FrameId from, FrameId to) {
  try {
    limbo_.Reserve(Frames());
  } catch (...) {
    allocator_.Free(to);  // nobody has seen it
    throw;
  }
  std::memcpy(Data(to), Data(from), allocator_.bytes(from));
  Retire(from);  // nothing is freed before a look at the leases
  MarkLive(to);
  on_move_(allocator_.owner(from), from, to);
}

// A look costs a scan of all sessions' leases, which each miss of a full tier would pay for.
bool RamTier::StillUseless(std::uint64_t wanted) {
  if (!compaction_useless_ || wanted < useless_wanted_ || free_bytes() > useless_free_bytes_) return false;
  return ++useless_asks_ <= scanner_.sessions() / 10;
}

Compactor::Outcome RamTier::CompactStep(std::uint64_t wanted, std::uint64_t budget_bytes) {
  wanted = Compactor::RoomFor(std::min(wanted, options_.max_frame_bytes));
  if (StillUseless(wanted)) return Compactor::Outcome::kNothing;
  const std::uint64_t stop_at = compactor_.stats().bytes_moved + budget_bytes;
  // A gap takes no more than its own size before what left it is free again: with small gaps it needs several rounds to use up the quantum. Each costs a
  // scan, so not many where there are many sessions.
  const int rounds = scanner_.sessions() <= 32 ? 16 : 2;
  std::size_t looks = kLimboPerStep;
  const auto free_some = [&](const LeaseSet& leased) {
    const std::size_t frames = std::min(looks, limbo_.size());
    looks -= frames;
    FreeLimbo(frames, leased);
  };
  Compactor::Outcome outcome = Compactor::Outcome::kMore;
  for (int round = 0; round < rounds && outcome == Compactor::Outcome::kMore && compactor_.stats().bytes_moved < stop_at; ++round) {
    const LeaseSet& leased = scanner_.Scan();
    free_some(leased);
    leased_ = &leased;
    outcome = compactor_.Step(wanted, stop_at - compactor_.stats().bytes_moved);
    leased_ = nullptr;
  }
  if (outcome == Compactor::Outcome::kMore) {
    if (looks > 0) free_some(scanner_.Scan());
    if (compactor_.HasRoom(wanted)) outcome = Compactor::Outcome::kEnough;
  }
  compaction_useless_ = outcome == Compactor::Outcome::kNothing;
  useless_free_bytes_ = free_bytes();
  useless_wanted_ = wanted;
  useless_asks_ = 0;
  // A reserve may go, until something was freed, where there is too little left to gather; not where leases are merely in the way of gathering.
  may_use_reserve_ = compaction_useless_ && !compactor_.CouldGather(wanted);
  if (may_use_reserve_ && LargestGap() >= wanted) outcome = Compactor::Outcome::kEnough;
  return outcome;
}

std::uint64_t RamTier::LargestGap() const {
  std::uint64_t largest = 0;
  for (std::uint16_t i = 0; i < allocator_.segment_slots(); ++i) {
    const SegmentIndex segment{i};
    if (!allocator_.in_use(segment) || allocator_.closed(segment) || allocator_.Gap(segment) == kNoFrame) continue;
    largest = std::max(largest, allocator_.capacity(allocator_.Gap(segment)));
  }
  return largest;
}

bool RamTier::WantsCompaction() const {
  if (compaction_useless_ || free_bytes() * 10 < segment_bytes()) return false;
  for (std::uint16_t i = 0; i < allocator_.segment_slots(); ++i) {
    if (allocator_.in_use(SegmentIndex{i}) && allocator_.GapSurplus(SegmentIndex{i}) >= options_.max_frame_bytes) return false;
  }
  return segment_bytes() > 0;
}

// ---- segments and budget ------------------------------------------------------------------------------------------------------

// Beside so many bytes of the budget that are used; 0: none.
std::uint64_t RamTier::NextSegmentBytes(std::uint64_t used) const {
  if (used >= options_.budget_bytes) return 0;
  std::uint64_t bytes = std::min(options_.segment_bytes, options_.budget_bytes - used);
  bytes = bytes >= kHugePage ? bytes / kHugePage * kHugePage : bytes / kPage * kPage;
  return bytes < kSmallestSegment ? 0 : bytes;
}

SegmentTicket RamTier::ReserveSegment() {
  if (shrinking()) return {};
  const std::uint64_t bytes = NextSegmentBytes(segment_bytes() + reserved_bytes_ + leaving_bytes_ + lingering_bytes_);
  reserved_bytes_ += bytes;
  return {bytes};
}

bool RamTier::CouldHold(std::uint64_t bytes) const {
  // One in the making, or the place of one that is leaving, is the next one.
  if (bytes <= allocator_.LargestIn(NextSegmentBytes(segment_bytes() + lingering_bytes_))) return true;
  for (std::uint16_t i = 0; i < allocator_.segment_slots(); ++i) {
    const SegmentIndex segment{i};
    if (!allocator_.closed(segment) && bytes <= allocator_.LargestIn(allocator_.segment_bytes(segment))) return true;
  }
  return false;
}

void RamTier::CancelSegment(SegmentTicket ticket) {
  TIERD_CHECK(ticket.bytes <= reserved_bytes_);
  reserved_bytes_ -= ticket.bytes;
}

void RamTier::AddSegment(SegmentTicket ticket, Segment segment) {
  TIERD_CHECK(ticket.bytes <= reserved_bytes_ && segment.bytes() == ticket.bytes);
  segments_.resize(std::max(segments_.size(), allocator_.segment_slots() + std::size_t{1}));  // first: the allocator may not have a segment without memory
  const SegmentIndex index = allocator_.AddSegment(segment.bytes());
  TIERD_CHECK(index != kNoSegment);
  reserved_bytes_ -= ticket.bytes;
  segments_[Raw(index)] = std::move(segment);
  ForgetUseless();
}

const Segment* RamTier::FindSegment(std::uint32_t serial) const {
  for (const Segment& segment : segments_) {
    if (segment.data() != nullptr && segment.serial() == serial) return &segment;
  }
  return nullptr;
}

// ---- giving memory back -------------------------------------------------------------------------------------------------------

std::uint64_t RamTier::OverBudget() const {
  const std::uint64_t used = segment_bytes() + reserved_bytes_;
  return used > options_.budget_bytes ? used - options_.budget_bytes : 0;
}

std::uint64_t RamTier::Shrink(std::uint64_t bytes) {
  std::vector<SegmentIndex> open;
  std::uint64_t closed = 0;
  for (std::uint16_t i = 0; i < allocator_.segment_slots(); ++i) {
    const SegmentIndex segment{i};
    if (!allocator_.in_use(segment) || IsHollow(segment)) continue;
    if (allocator_.closed(segment)) {
      closed += allocator_.segment_bytes(segment);
    } else {
      open.push_back(segment);
    }
  }
  const auto live = [&](SegmentIndex s) { return allocator_.segment_bytes(s) - allocator_.free_in(s); };
  std::sort(open.begin(), open.end(), [&](SegmentIndex a, SegmentIndex b) { return std::pair(IsPooled(a), live(a)) < std::pair(IsPooled(b), live(b)); });
  for (const SegmentIndex segment : open) {
    if (closed >= bytes) break;
    allocator_.CloseSegment(segment, true);
    ++closed_segments_;
    closed += allocator_.segment_bytes(segment);
  }
  return closed;
}

void RamTier::CancelShrink() {
  for (std::uint16_t i = 0; i < allocator_.segment_slots(); ++i) {
    if (!IsHollow(SegmentIndex{i})) allocator_.CloseSegment(SegmentIndex{i}, false);
  }
  closed_segments_ = 0;
  ForgetUseless();
}

std::vector<OwnerId> RamTier::ShrinkStep(std::size_t max_victims, std::uint64_t budget_bytes) {
  std::vector<OwnerId> victims;
  if (!shrinking()) return victims;
  FreeLimbo(kLimboPerStep, scanner_.Scan());
  for (std::uint16_t i = 0; i < allocator_.segment_slots() && victims.size() < max_victims; ++i) {
    const SegmentIndex segment{i};
    if (!allocator_.in_use(segment) || !allocator_.closed(segment) || allocator_.frames_in(segment) == 0 || IsHollow(segment)) continue;
    const Compactor::Outcome outcome = compactor_.Evacuate(segment, budget_bytes);
    if (outcome == Compactor::Outcome::kMore) return victims;
    if (outcome == Compactor::Outcome::kEnough) continue;
    for (FrameId at = allocator_.First(segment); at != kNoFrame && victims.size() < max_victims; at = allocator_.Next(at)) {
      if (allocator_.state(at) == FrameState::kLive) victims.push_back(allocator_.owner(at));
    }
  }
  return victims;
}

std::optional<Segment> RamTier::TakeEmptySegment() {
  for (std::uint16_t i = 0; i < allocator_.segment_slots(); ++i) {
    const SegmentIndex index{i};
    if (!allocator_.in_use(index) || !allocator_.closed(index) || allocator_.frames_in(index) != 0) continue;
    allocator_.RemoveSegment(index);
    if (const auto hollow = std::find_if(hollow_.begin(), hollow_.end(), [&](const Hollow& h) { return h.segment == index; }); hollow != hollow_.end()) {
      hollow_bytes_ -= hollow->bytes;
      hollow_.erase(hollow);
    } else {
      --closed_segments_;
    }
    leaving_bytes_ += segments_[i].bytes();
    return std::exchange(segments_[i], Segment{});
  }
  return std::nullopt;
}

bool RamTier::IsHollow(SegmentIndex segment) const {
  return std::any_of(hollow_.begin(), hollow_.end(), [&](const Hollow& h) { return h.segment == segment; });
}

std::optional<RamTier::Holes> RamTier::TakeHoles() {
  if (!shrinking()) return std::nullopt;
  const LeaseSet& leased = scanner_.Scan();
  for (std::uint16_t i = 0; i < allocator_.segment_slots(); ++i) {
    const SegmentIndex segment{i};
    if (!allocator_.in_use(segment) || !allocator_.closed(segment) || allocator_.frames_in(segment) == 0 || IsHollow(segment)) continue;
    Holes holes;
    bool waits_for_leases = true;
    const std::uint64_t unit = segments_[i].PunchUnit();
    for (FrameId at = allocator_.First(segment); at != kNoFrame && waits_for_leases; at = allocator_.Next(at)) {
      if (allocator_.IsFrame(at)) {
        waits_for_leases = allocator_.state(at) == FrameState::kLimbo && (leased.Covers(allocator_.lease_word(at)) || allocator_.holds(at) > 0);
        continue;
      }
      const std::uint64_t from = (allocator_.offset(at) + unit - 1) / unit * unit;
      const std::uint64_t to = (allocator_.offset(at) + allocator_.capacity(at)) / unit * unit;
      if (from >= to) continue;
      holes.ranges.push_back({from, to - from});
      holes.bytes += to - from;
    }
    if (!waits_for_leases || holes.bytes == 0) continue;
    Result<UniqueFd> file = segments_[i].DuplicateFile();
    if (!file.ok()) return std::nullopt;
    holes.file = std::move(*file);
    holes.serial = segments_[i].serial();
    hollow_.push_back({segment, holes.bytes});  // last of what may fail for want of memory
    hollow_bytes_ += holes.bytes;
    leaving_bytes_ += holes.bytes;
    --closed_segments_;
    return holes;
  }
  return std::nullopt;
}

void RamTier::HolesStay(const Holes& holes) {
  SegmentDestroyed(holes.bytes);
  for (Hollow& hollow : hollow_) {
    if (segments_[Raw(hollow.segment)].serial() != holes.serial) continue;
    hollow_bytes_ -= std::exchange(hollow.bytes, 0);
  }
}

std::uint64_t RamTier::free_bytes() const {
  std::uint64_t bytes = allocator_.stats().free_bytes();
  for (const Hollow& hollow : hollow_) bytes -= allocator_.free_in(hollow.segment);
  return bytes;
}

std::uint64_t RamTier::pooled_bytes() const {
  std::uint64_t bytes = 0;
  for (std::uint16_t i = 0; i < allocator_.segment_slots(); ++i) {
    if (allocator_.in_use(SegmentIndex{i}) && IsPooled(SegmentIndex{i})) bytes += segments_[i].bytes();
  }
  for (const Hollow& hollow : hollow_) {
    if (IsPooled(hollow.segment)) bytes -= hollow.bytes;
  }
  return bytes;
}

void RamTier::SegmentDestroyed(std::uint64_t bytes) {
  TIERD_CHECK(bytes <= leaving_bytes_);
  leaving_bytes_ -= bytes;
}

std::uint32_t RamTier::OldestSerial() const {
  std::uint32_t oldest = 0;
  for (const Segment& segment : segments_) {
    if (segment.data() != nullptr && (oldest == 0 || segment.serial() < oldest)) oldest = segment.serial();
  }
  return oldest;
}

void RamTier::SegmentLingers(std::uint64_t bytes, std::uint32_t notice) {
  SegmentDestroyed(bytes);
  lingering_.push_back({bytes, scanner_.next_serial(), notice});
  lingering_bytes_ += bytes;
  ReclaimLingering();
}

void RamTier::ReclaimLingering() {
  while (!lingering_.empty() && scanner_.HaveUnmapped(lingering_.front().until_serial, lingering_.front().notice)) {
    lingering_bytes_ -= lingering_.front().bytes;
    lingering_.pop_front();
  }
}

// Position: segment in the upper half, granule in the lower, plus one so that 0 is the start.
std::uint64_t RamTier::WalkOwners(std::uint64_t position, std::size_t max, std::vector<OwnerId>& owners) const {
  const std::uint64_t from = position == 0 ? 0 : position - 1;
  for (std::uint64_t i = from >> 32; i < allocator_.segment_slots(); ++i) {
    const SegmentIndex segment{static_cast<std::uint16_t>(i)};
    if (!allocator_.in_use(segment)) continue;
    const std::uint64_t skip = i == from >> 32 ? (from & 0xffffffffu) * abi::kGranule : 0;
    for (FrameId at = allocator_.First(segment); at != kNoFrame; at = allocator_.Next(at)) {
      if (allocator_.state(at) != FrameState::kLive || allocator_.offset(at) < skip) continue;
      if (owners.size() >= max) return ((i << 32) | (allocator_.offset(at) / abi::kGranule)) + 1;
      owners.push_back(allocator_.owner(at));
    }
  }
  return 0;
}

RamTierStats RamTier::stats() const {
  RamTierStats stats;
  stats.allocator = allocator_.stats();
  stats.budget_bytes = options_.budget_bytes;
  stats.reserved_bytes = reserved_bytes_ + leaving_bytes_;
  stats.lingering_bytes = lingering_bytes_;
  stats.hollow_bytes = hollow_bytes_;
  for (const Segment& segment : segments_) stats.segments += segment.data() != nullptr ? 1 : 0;
  stats.leased_limbo_bytes = leased_limbo_bytes_;
  stats.held_limbo_frames = held_limbo_frames_;
  stats.held_limbo_bytes = held_limbo_bytes_;
  stats.scans = scanner_.scans();
  stats.leases = scanner_.leases();
  stats.compaction = compactor_.stats();
  return stats;
}

}  // namespace tierd::ram
