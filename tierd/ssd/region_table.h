// Every region of the directory: its state, epoch, what lives in it, who reads it. 41 bytes each: a tier of 10 TB has 600,000 of them, so nothing here
// moves them when there are more, sorts them, or looks at each for one (HAZARDS 5); a state is found by a look at a byte of each.
//
// Part of the tier; loop thread only. It knows no records and does no I/O.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
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
  kRetired,    // has space that cannot be written, and keeps it: given back, it would be what the next region gets; or could not be read at the start
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

  // Epoch and readers are written through it; state and what lives there have methods of their own. It stays where it is.
  Region& at(std::uint32_t region) { return (*pages_[region / kPageRegions])[region % kPageRegions]; }
  const Region& at(std::uint32_t region) const { return (*pages_[region / kPageRegions])[region % kPageRegions]; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(states_.size()); }
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
  // The first one from `from` on, around the end.
  std::optional<std::uint32_t> FindState(RegionState state, std::uint32_t from = 0) const;
  std::uint32_t Count(RegionState state) const { return counts_[static_cast<std::size_t>(state)]; }
  // A closed region in which nothing lives.
  bool AnyDead() const { return dead_ > 0; }
  // Regions that hold disk space.
  std::uint32_t allocated() const { return size() - Count(RegionState::kAbsent); }

  // Closed regions to look at for reclaim: the `least` with the fewest live bytes (ties: longest ago opened first), then the next `rotating`
  // of the others behind *cursor, which moves on: live bytes alone do not tell what a region is worth.
  std::vector<std::uint32_t> Candidates(std::size_t least, std::size_t rotating, std::uint32_t* cursor) const;

  std::uint64_t live_bytes() const { return live_bytes_; }
  std::uint64_t live_payload() const { return live_payload_; }
  std::uint64_t live_records() const { return live_records_; }

 private:
  static constexpr std::uint32_t kPageRegions = 1024;
  static bool IsDead(const Region& region) { return region.state == RegionState::kClosed && region.live_records == 0; }
  // Changes a region by `change`, and the number of dead ones with it.
  template <typename Change>
  void Update(std::uint32_t region, Change&& change);
  // The first one from `from` on in that state, or size().
  std::uint32_t NextOf(RegionState state, std::uint32_t from) const;

  std::vector<std::unique_ptr<std::array<Region, kPageRegions>>> pages_;
  std::vector<std::uint8_t> states_;  // Region::state once more, side by side
  std::uint32_t counts_[10] = {};
  std::uint32_t dead_ = 0;
  std::uint64_t next_epoch_;
  std::uint64_t live_bytes_ = 0;
  std::uint64_t live_payload_ = 0;
  std::uint64_t live_records_ = 0;
};

}  // namespace tierd::ssd
