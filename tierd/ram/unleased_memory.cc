#include "tierd/ram/unleased_memory.h"

#include <sys/mman.h>

#include <algorithm>

namespace tierd::ram {
namespace {

constexpr std::uint64_t kPiece = 64 << 20;

// The whole pages of [from, to). MADV_REMOVE is the hole in the file, made through our own writable mapping of it.
std::uint64_t GiveBack(const Segment& segment, std::uint64_t from, std::uint64_t to, const std::function<bool()>& go_on) {
  const std::uint64_t unit = segment.PunchUnit();
  std::uint64_t given = 0;
  for (std::uint64_t at = (from + unit - 1) / unit * unit; at + unit <= to && go_on();) {
    const std::uint64_t bytes = std::min(kPiece, (to - at) / unit * unit);
    if (::madvise(segment.data() + at, bytes, MADV_REMOVE) != 0) break;
    given += bytes;
    at += bytes;
  }
  return given;
}

}  // namespace

std::uint64_t GiveBackUnleased(RamTier& ram, const std::function<bool()>& go_on) {
  // A reader leases, then looks whether the index is retired; it was retired, now we look at the leases: whom we do not see here gives up what it found.
  const LeaseSet& leased = ram.leases().Scan();
  const FrameAllocator& allocator = ram.allocator();
  std::uint64_t given = 0;
  for (std::uint16_t i = 0; i < allocator.segment_slots(); ++i) {
    const SegmentIndex index{i};
    if (!allocator.in_use(index)) continue;
    const FrameId first = allocator.First(index);
    const Segment* const segment = ram.FindSegment(abi::DecodeLocation(ram.LocationWord(first)).segment);
    if (segment == nullptr) continue;
    std::uint64_t from = 0;
    for (FrameId at = first; at != kNoFrame; at = allocator.Next(at)) {
      if (!allocator.IsFrame(at) || (!leased.Covers(allocator.lease_word(at)) && allocator.holds(at) == 0)) continue;
      given += GiveBack(*segment, from, allocator.offset(at), go_on);
      from = allocator.offset(at) + allocator.capacity(at);
    }
    given += GiveBack(*segment, from, segment->bytes(), go_on);
  }
  return given;
}

}  // namespace tierd::ram
