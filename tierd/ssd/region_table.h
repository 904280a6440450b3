// Every region of the directory: its state, epoch, what lives in it, who reads it. 40 bytes each.
//
// Part of the tier; loop thread only. It knows no records and does no I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tierd/ssd/ssd_tier.h"

namespace tierd::ssd {

enum class RegionState : std::uint8_t {
  kAbsent,     // holds no disk space
  kAllocating, // a worker is getting it disk space, or punching it out
  kFree,       // has space, content is of no use
  kOpening,    // the index is told that it will be overwritten
  kPrepared,   // ready to be written
  kOpen,       // being filled or written; its bytes are in a buffer
  kClosed,     // on the device
  kReclaiming, // being moved away; still readable
  kDraining,   // free as soon as its last reader is gone
};

struct Region {
  std::uint64_t epoch = 0;
  std::uint64_t live_payload = 0;
  std::uint32_t live_bytes = 0;
  std::uint32_t live_records = 0;
  std::uint32_t readers = 0;
  RegionState state = RegionState::kAbsent;
};

class RegionTable {
 public:
  explicit RegionTable(std::uint64_t first_epoch) : next_epoch_(first_epoch) {}

  Region& at(std::uint32_t region) { return regions_[region]; }
  const Region& at(std::uint32_t region) const { return regions_[region]; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(regions_.size()); }
  void GrowTo(std::uint32_t count);
  void Set(std::uint32_t region, RegionState state);

  // The region if the location is (still) readable there, else null.
  Region* Readable(const SsdLocation& location);
  void AddLive(const SsdLocation& location, std::uint32_t record_bytes);
  void RemoveLive(const SsdLocation& location, std::uint32_t record_bytes);
  void ClearLive(std::uint32_t region);
  void DropReader(std::uint32_t region);

  // A free region without readers, with a new epoch, state kOpening.
  std::optional<std::uint32_t> OpenFree();
  std::optional<std::uint32_t> FindState(RegionState state) const;
  std::uint32_t Count(RegionState state) const { return counts_[static_cast<std::size_t>(state)]; }
  // A closed region in which nothing lives.
  bool AnyDead() const;
  // Regions that hold disk space.
  std::uint32_t allocated() const { return size() - Count(RegionState::kAbsent); }

  // Closed regions to look at for reclaim: the `least` with the fewest live bytes (ties: longest ago opened first), then the next `rotating`
  // of the others behind *cursor, which moves on: live bytes alone do not tell what a region is worth.
  std::vector<std::uint32_t> Candidates(std::size_t least, std::size_t rotating, std::uint32_t* cursor) const;

  std::uint64_t live_bytes() const { return live_bytes_; }
  std::uint64_t live_payload() const { return live_payload_; }
  std::uint64_t live_records() const { return live_records_; }

 private:
  std::vector<Region> regions_;
  std::uint32_t counts_[9] = {};
  std::uint64_t next_epoch_;
  std::uint64_t live_bytes_ = 0;
  std::uint64_t live_payload_ = 0;
  std::uint64_t live_records_ = 0;
};

}  // namespace tierd::ssd
