#include "tierd/ram/frame_allocator.h"

#include <algorithm>
#include <bit>

#include "tierd/base/check.h"

namespace tierd::ram {
namespace {

constexpr std::uint32_t kNone = 0xffffffffu;
// Entries of one size class that are looked at before the next class: a bound on the search, and 16 classes per power of two make a good
// fit likely anyway.
constexpr int kTriesPerClass = 8;

constexpr std::uint32_t AlignUp(std::uint32_t value, std::uint32_t align) { return (value + align - 1) / align * align; }
constexpr std::uint32_t AlignCode(std::uint32_t align) { return align == 64 ? 0 : align == 512 ? 1 : 2; }
constexpr std::uint32_t Pack(std::uint64_t payload, std::uint32_t align, FrameState state) {
  return static_cast<std::uint32_t>(payload) | (AlignCode(align) << 27) | (static_cast<std::uint32_t>(state) << 29);
}
constexpr std::uint64_t PackLinks(std::uint32_t prev, std::uint32_t next) { return std::uint64_t{prev} | (std::uint64_t{next} << 32); }
constexpr std::uint32_t PrevLink(std::uint64_t links) { return static_cast<std::uint32_t>(links); }
constexpr std::uint32_t NextLink(std::uint64_t links) { return static_cast<std::uint32_t>(links >> 32); }

std::uint32_t GranulesFor(const FrameRequest& request) {
  const std::uint64_t capacity = (request.bytes + request.align - 1) / request.align * request.align;
  return static_cast<std::uint32_t>(capacity / abi::kGranule);
}

bool IsFreeState(FrameState state) { return state == FrameState::kHole || state == FrameState::kGap; }

AllocatorOptions WithLargest(AllocatorOptions options) {
  options.largest_bytes = std::max(options.largest_bytes, options.max_frame_bytes);
  return options;
}

}  // namespace

FrameAllocator::FrameAllocator(AllocatorOptions options) : options_(WithLargest(options)) {
  TIERD_CHECK(options_.max_frame_bytes >= abi::kGranule && options_.max_frame_bytes <= (std::uint64_t{64} << 20));
  lists_.fill(kNone);
  occupied_.fill(0);
}

std::uint32_t FrameAllocator::Block::align() const {
  constexpr std::uint32_t kAligns[4] = {64, 512, 4096, 4096};
  return kAligns[(packed >> 27) & 3];
}

// ---- blocks and their ids -----------------------------------------------------------------------------------------------------

FrameId FrameAllocator::NewBlock() {
  if (free_block_ != kNone) {
    const FrameId id{free_block_};
    free_block_ = block(id).next;
    return id;
  }
  KeepBlocks(1);
  return FrameId{used_ids_++};
}

// Room for so many new blocks. May fail for want of memory; then nothing has changed.
void FrameAllocator::KeepBlocks(std::uint32_t count) {
  if (used_ids_ + count <= pages_.size() * kPageBlocks) return;
  pages_.push_back(std::make_unique<Block[]>(kPageBlocks));
  stats_.metadata_bytes += kPageBlocks * sizeof(Block);
}

void FrameAllocator::DropBlock(FrameId id) {
  Block& b = block(id);
  b.packed = Pack(0, 64, FrameState::kUnused);
  b.next = free_block_;
  free_block_ = Raw(id);
}

void FrameAllocator::SetBlockState(Block& b, FrameState state) { b.packed = (b.packed & 0x1fffffffu) | (static_cast<std::uint32_t>(state) << 29); }

std::uint32_t FrameAllocator::Granules(const Block& b) const {
  const std::uint32_t end = b.next == kNone ? static_cast<std::uint32_t>(segments_[b.segment].bytes / abi::kGranule) : block(FrameId{b.next}).start;
  return end - b.start;
}

std::uint64_t FrameAllocator::capacity(FrameId frame) const { return std::uint64_t{Granules(block(frame))} * abi::kGranule; }

// Splits `left` at granule `start`; the new block gets the upper part.
FrameId FrameAllocator::InsertAfter(FrameId left, std::uint32_t start) {
  const FrameId id = NewBlock();
  Block& l = block(left);
  Block& b = block(id);
  b = Block{0, start, Raw(left), l.next, 0, Pack(0, 64, FrameState::kUnused), l.segment, 0};
  if (l.next != kNone) block(FrameId{l.next}).prev = Raw(id);
  l.next = Raw(id);
  return id;
}

// ---- free space ---------------------------------------------------------------------------------------------------------------

int FrameAllocator::ClassOf(std::uint32_t granules) {
  if (granules < (1u << kSubBits)) return static_cast<int>(granules);
  const int log = std::bit_width(granules) - 1;
  return ((log - kSubBits + 1) << kSubBits) + static_cast<int>((granules >> (log - kSubBits)) & ((1u << kSubBits) - 1));
}

int FrameAllocator::NextClass(int from) const {
  for (std::size_t word = static_cast<std::size_t>(from) / 64; word < occupied_.size(); ++word) {
    std::uint64_t bits = occupied_[word];
    if (word == static_cast<std::size_t>(from) / 64) bits &= ~std::uint64_t{0} << (from % 64);
    if (bits != 0) return static_cast<int>(word * 64) + std::countr_zero(bits);
  }
  return kClasses;
}

void FrameAllocator::Link(FrameId hole) {
  Block& b = block(hole);
  if (segments_[b.segment].closed) return;
  const int c = ClassOf(Granules(b));
  std::uint32_t& head = lists_[static_cast<std::size_t>(c)];
  b.lease_word = PackLinks(kNone, head);
  if (head != kNone) {
    Block& second = block(FrameId{head});
    second.lease_word = PackLinks(Raw(hole), NextLink(second.lease_word));
  }
  head = Raw(hole);
  occupied_[static_cast<std::size_t>(c) / 64] |= std::uint64_t{1} << (c % 64);
}

void FrameAllocator::Unlink(FrameId hole) {
  Block& b = block(hole);
  if (segments_[b.segment].closed) return;
  const std::uint32_t prev = PrevLink(b.lease_word);
  const std::uint32_t next = NextLink(b.lease_word);
  if (next != kNone) {
    Block& n = block(FrameId{next});
    n.lease_word = PackLinks(prev, NextLink(n.lease_word));
  }
  if (prev != kNone) {
    Block& p = block(FrameId{prev});
    p.lease_word = PackLinks(PrevLink(p.lease_word), next);
    return;
  }
  const int c = ClassOf(Granules(b));
  lists_[static_cast<std::size_t>(c)] = next;
  if (next == kNone) occupied_[static_cast<std::size_t>(c) / 64] &= ~(std::uint64_t{1} << (c % 64));
}

// Makes the block free as it stands, without merging.
void FrameAllocator::MakeFree(FrameId id, FrameState state) {
  Block& b = block(id);
  const std::uint64_t bytes = capacity(id);
  SegmentRecord& segment = segments_[b.segment];
  b.packed = Pack(0, 64, state);
  b.holds = 0;
  b.owner = 0;
  segment.free_bytes += bytes;
  if (state == FrameState::kGap) {
    segment.gap = id;
    stats_.gap_bytes += bytes;
  } else {
    stats_.hole_bytes += bytes;
    Link(id);
  }
}

void FrameAllocator::TakeFree(FrameId id) {
  const Block& b = block(id);
  const std::uint64_t bytes = capacity(id);
  SegmentRecord& segment = segments_[b.segment];
  segment.free_bytes -= bytes;
  if (b.state() == FrameState::kGap) {
    segment.gap = kNoFrame;
    stats_.gap_bytes -= bytes;
  } else {
    Unlink(id);
    stats_.hole_bytes -= bytes;
  }
}

FrameId FrameAllocator::FindHole(std::uint32_t granules, std::uint32_t align_granules, const Span& avoid) const {
  for (int c = NextClass(ClassOf(granules)); c < kClasses; c = NextClass(c + 1)) {
    int tries = kTriesPerClass;
    for (std::uint32_t i = lists_[static_cast<std::size_t>(c)]; i != kNone && tries > 0; i = NextLink(block(FrameId{i}).lease_word), --tries) {
      const Block& b = block(FrameId{i});
      if (AlignUp(b.start, align_granules) + granules > b.start + Granules(b)) continue;
      const std::uint64_t at = std::uint64_t{b.start} * abi::kGranule;
      if (b.segment == Raw(avoid.segment) && at >= avoid.from && at < avoid.to) continue;
      return FrameId{i};
    }
  }
  return kNoFrame;
}

bool FrameAllocator::HasHole(std::uint64_t bytes) const {
  return FindHole(static_cast<std::uint32_t>((bytes + abi::kGranule - 1) / abi::kGranule), 1, Span{}) != kNoFrame;
}

// ---- frames -------------------------------------------------------------------------------------------------------------------

void FrameAllocator::CountFrame(FrameId id, FrameState state, bool add) {
  const std::uint64_t sign = add ? 1 : ~std::uint64_t{0};  // unsigned arithmetic wraps: -1
  const std::uint64_t bytes = capacity(id);
  if (state == FrameState::kLimbo) {
    stats_.limbo_frames += sign;
    stats_.limbo_bytes += sign * bytes;
  } else {
    stats_.frames += sign;
    stats_.frame_bytes += sign * bytes;
    stats_.payload_bytes += sign * block(id).payload();
  }
}

// Makes granules [start, start + granules) of a free block a frame; what is left on either side stays free, the larger rest as the gap if the
// block was one.
FrameId FrameAllocator::Carve(FrameId free_block, std::uint32_t start, std::uint32_t granules, const FrameRequest& request) {
  KeepBlocks(2);  // first: nothing below may fail for want of memory
  const bool was_gap = block(free_block).state() == FrameState::kGap;
  const std::uint32_t left = start - block(free_block).start;
  const std::uint32_t right = Granules(block(free_block)) - left - granules;
  TakeFree(free_block);
  FrameId frame = free_block;
  if (left > 0) frame = InsertAfter(free_block, start);
  FrameId rest = kNoFrame;
  if (right > 0) rest = InsertAfter(frame, start + granules);
  if (left > 0) MakeFree(free_block, was_gap && left >= right ? FrameState::kGap : FrameState::kHole);
  if (right > 0) MakeFree(rest, was_gap && right > left ? FrameState::kGap : FrameState::kHole);
  Block& b = block(frame);
  b.lease_word = request.lease_word;
  b.owner = request.owner;
  b.packed = Pack(request.bytes, request.align, FrameState::kFilling);
  b.holds = 0;
  ++segments_[b.segment].frames;
  CountFrame(frame, FrameState::kFilling, true);
  return frame;
}

FrameId FrameAllocator::Allocate(const FrameRequest& request, bool into_reserve) {
  TIERD_CHECK(request.bytes > 0 && request.bytes <= options_.largest_bytes);
  TIERD_CHECK(request.align == 64 || request.align == 512 || request.align == 4096);
  const FrameId in_hole = AllocateInHole(request, Span{});
  if (in_hole != kNoFrame) return in_hole;
  const std::uint32_t granules = GranulesFor(request);
  const std::uint32_t align = request.align / abi::kGranule;
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const std::size_t at = (gap_hint_ + i) % segments_.size();
    const SegmentRecord& segment = segments_[at];
    if (segment.gap == kNoFrame || segment.closed) continue;
    const Block& gap = block(segment.gap);
    const std::uint32_t start = AlignUp(gap.start, align);
    const std::uint64_t keep = into_reserve ? 0 : GapReserve(static_cast<SegmentIndex>(at));
    if (std::uint64_t{start - gap.start + granules} * abi::kGranule + keep > capacity(segment.gap)) continue;
    gap_hint_ = static_cast<std::uint16_t>(at);
    ++stats_.gap_allocations;
    return Carve(segment.gap, start, granules, request);
  }
  return kNoFrame;
}

FrameId FrameAllocator::AllocateInHole(const FrameRequest& request, const Span& avoid) {
  const std::uint32_t granules = GranulesFor(request);
  const std::uint32_t align = request.align / abi::kGranule;
  const FrameId hole = FindHole(granules, align, avoid);
  if (hole == kNoFrame) return kNoFrame;
  return Carve(hole, AlignUp(block(hole).start, align), granules, request);
}

FrameId FrameAllocator::AllocateInGap(const FrameRequest& request, SegmentIndex segment, bool at_end) {
  const FrameId gap = segments_[Raw(segment)].gap;
  if (gap == kNoFrame) return kNoFrame;
  const std::uint32_t granules = GranulesFor(request);
  const std::uint32_t align = request.align / abi::kGranule;
  const std::uint32_t first = block(gap).start;
  const std::uint32_t end = first + Granules(block(gap));
  if (granules > end - first) return kNoFrame;
  const std::uint32_t start = at_end ? (end - granules) / align * align : AlignUp(first, align);
  if (start < first || start + granules > end) return kNoFrame;
  return Carve(gap, start, granules, request);
}

void FrameAllocator::Free(FrameId frame) {
  TIERD_CHECK(IsFrame(frame));
  SegmentRecord& segment = segments_[block(frame).segment];
  CountFrame(frame, block(frame).state(), false);
  --segment.frames;
  FrameId id = frame;
  bool gap = segment.gap == kNoFrame;
  const std::uint32_t left = block(id).prev;
  if (left != kNone && IsFreeState(block(FrameId{left}).state())) {
    gap |= block(FrameId{left}).state() == FrameState::kGap;
    TakeFree(FrameId{left});
    Absorb(FrameId{left}, id);
    id = FrameId{left};
  }
  const std::uint32_t right = block(id).next;
  if (right != kNone && IsFreeState(block(FrameId{right}).state())) {
    gap |= block(FrameId{right}).state() == FrameState::kGap;
    TakeFree(FrameId{right});
    Absorb(id, FrameId{right});
  }
  MakeFree(id, gap ? FrameState::kGap : FrameState::kHole);
  if (!gap && capacity(id) > capacity(segment.gap) && capacity(segment.gap) < GapReserve(static_cast<SegmentIndex>(block(id).segment))) {
    MoveGap(static_cast<SegmentIndex>(block(id).segment), id);
  }
}

// `left` swallows its right neighbour.
void FrameAllocator::Absorb(FrameId left, FrameId right) {
  const std::uint32_t next = block(right).next;
  block(left).next = next;
  if (next != kNone) block(FrameId{next}).prev = Raw(left);
  DropBlock(right);
}

void FrameAllocator::SetState(FrameId frame, FrameState state) {
  Block& b = block(frame);
  const FrameState old = b.state();
  TIERD_CHECK((old == FrameState::kFilling && state == FrameState::kLive) ||
              ((old == FrameState::kFilling || old == FrameState::kLive) && state == FrameState::kLimbo));
  CountFrame(frame, old, false);
  SetBlockState(b, state);
  CountFrame(frame, state, true);
}

void FrameAllocator::AddHold(FrameId frame) {
  TIERD_CHECK(IsFrame(frame) && block(frame).holds < 0xffff);
  ++block(frame).holds;
}

void FrameAllocator::DropHold(FrameId frame) {
  TIERD_CHECK(IsFrame(frame) && block(frame).holds > 0);
  --block(frame).holds;
}

bool FrameAllocator::IsFrame(FrameId frame) const {
  if (Raw(frame) >= used_ids_) return false;
  const FrameState state = block(frame).state();
  return state == FrameState::kFilling || state == FrameState::kLive || state == FrameState::kLimbo;
}

// ---- segments -----------------------------------------------------------------------------------------------------------------

SegmentIndex FrameAllocator::AddSegment(std::uint64_t bytes) {
  TIERD_CHECK(bytes > 0 && bytes % 4096 == 0 && bytes <= abi::kMaxSegmentBytes);
  std::size_t at = 0;
  while (at < segments_.size() && segments_[at].bytes != 0) ++at;
  if (at >= Raw(kNoSegment)) return kNoSegment;
  if (at == segments_.size()) segments_.emplace_back();
  const FrameId first = NewBlock();  // where this fails for want of memory there is no segment
  segments_[at] = SegmentRecord{};
  segments_[at].bytes = bytes;
  block(first) = Block{0, 0, kNone, kNone, 0, 0, static_cast<std::uint16_t>(at), 0};
  segments_[at].first = first;
  MakeFree(first, FrameState::kGap);
  stats_.segment_bytes += bytes;
  return static_cast<SegmentIndex>(at);
}

void FrameAllocator::CloseSegment(SegmentIndex segment, bool closed) {
  SegmentRecord& record = segments_[Raw(segment)];
  if (record.bytes == 0 || record.closed == closed) return;
  // Holes of closed segments are in no list.
  if (!closed) record.closed = false;
  for (FrameId id = record.first; id != kNoFrame; id = Next(id)) {
    if (block(id).state() != FrameState::kHole) continue;
    if (closed) Unlink(id);
    if (!closed) Link(id);
  }
  record.closed = closed;
}

void FrameAllocator::RemoveSegment(SegmentIndex segment) {
  SegmentRecord& record = segments_[Raw(segment)];
  TIERD_CHECK(record.bytes != 0 && record.frames == 0);
  const FrameId only = record.first;
  TIERD_CHECK(block(only).next == kNone);
  TakeFree(only);
  DropBlock(only);
  stats_.segment_bytes -= record.bytes;
  record = SegmentRecord{};
}

void FrameAllocator::MoveGap(SegmentIndex segment, FrameId hole) {
  TIERD_CHECK(block(hole).state() == FrameState::kHole && block(hole).segment == Raw(segment));
  const FrameId old = segments_[Raw(segment)].gap;
  TakeFree(hole);
  if (old != kNoFrame) {
    TakeFree(old);
    MakeFree(old, FrameState::kHole);
  }
  MakeFree(hole, FrameState::kGap);
}

std::uint64_t FrameAllocator::GapReserveOf(std::uint64_t segment_bytes) const {
  // An eighth more than the largest frame: moving aligned frames leaves up to a page beside each.
  return std::min((options_.max_frame_bytes / 8 * 9 + 4096) / abi::kGranule * abi::kGranule, segment_bytes / 16 / abi::kGranule * abi::kGranule);
}

std::uint64_t FrameAllocator::GapSurplus(SegmentIndex segment) const {
  const SegmentRecord& record = segments_[Raw(segment)];
  if (record.gap == kNoFrame || record.closed) return 0;
  const std::uint64_t bytes = capacity(record.gap);
  const std::uint64_t reserve = GapReserve(segment);
  return bytes > reserve ? bytes - reserve : 0;
}

// ---- checking -----------------------------------------------------------------------------------------------------------------

std::optional<const char*> FrameAllocator::VerifySegment(SegmentIndex index, AllocatorStats& sum) const {
  const SegmentRecord& segment = segments_[Raw(index)];
  std::uint32_t frames = 0;
  std::uint64_t free = 0;
  std::uint64_t end = 0;
  bool last_free = false;
  for (FrameId id = segment.first; id != kNoFrame; id = Next(id)) {
    const Block& b = block(id);
    if (b.segment != Raw(index)) return "block of another segment";
    if (offset(id) != end) return "blocks do not tile the segment";
    end += capacity(id);
    const bool is_free = IsFreeState(b.state());
    if (is_free && last_free) return "two free neighbours";
    last_free = is_free;
    if (b.state() == FrameState::kGap && segment.gap != id) return "a second gap";
    if (is_free) {
      free += capacity(id);
      (b.state() == FrameState::kGap ? sum.gap_bytes : sum.hole_bytes) += capacity(id);
      continue;
    }
    if (!IsFrame(id)) return "unused block in a segment";
    if (b.payload() > capacity(id) || offset(id) % b.align() != 0) return "frame too small or misaligned";
    ++frames;
    (b.state() == FrameState::kLimbo ? sum.limbo_bytes : sum.frame_bytes) += capacity(id);
    if (b.state() != FrameState::kLimbo) sum.payload_bytes += b.payload();
  }
  if (end != segment.bytes) return "segment end not reached";
  if (frames != segment.frames || free != segment.free_bytes) return "segment sums";
  return std::nullopt;
}

std::optional<const char*> FrameAllocator::Verify() const {
  AllocatorStats sum;
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    if (segments_[i].bytes == 0) continue;
    sum.segment_bytes += segments_[i].bytes;
    if (const auto defect = VerifySegment(static_cast<SegmentIndex>(i), sum)) return defect;
  }
  if (sum.segment_bytes != stats_.segment_bytes || sum.gap_bytes != stats_.gap_bytes || sum.hole_bytes != stats_.hole_bytes ||
      sum.limbo_bytes != stats_.limbo_bytes || sum.frame_bytes != stats_.frame_bytes || sum.payload_bytes != stats_.payload_bytes) {
    return "sums over all segments";
  }
  for (int c = 0; c < kClasses; ++c) {
    for (std::uint32_t i = lists_[static_cast<std::size_t>(c)]; i != kNone; i = NextLink(block(FrameId{i}).lease_word)) {
      const Block& b = block(FrameId{i});
      if (b.state() != FrameState::kHole || ClassOf(Granules(b)) != c) return "wrong block in a list";
      if (segments_[b.segment].closed) return "hole of a closed segment in a list";
    }
  }
  return std::nullopt;
}

}  // namespace tierd::ram
