#include "tierd/ssd/region_table.h"

#include <algorithm>

#include "tierd/base/check.h"

namespace tierd::ssd {

void RegionTable::GrowTo(std::uint32_t count) {
  if (count <= size()) return;
  counts_[static_cast<std::size_t>(RegionState::kAbsent)] += count - size();
  regions_.resize(count);
}

void RegionTable::Set(std::uint32_t region, RegionState state) {
  Region& r = regions_[region];
  --counts_[static_cast<std::size_t>(r.state)];
  ++counts_[static_cast<std::size_t>(state)];
  r.state = state;
}

Region* RegionTable::Readable(const SsdLocation& location) {
  if (location.region >= size()) return nullptr;
  Region& r = regions_[location.region];
  const bool has_bytes = r.state == RegionState::kOpen || r.state == RegionState::kClosed || r.state == RegionState::kReclaiming;
  return has_bytes && static_cast<std::uint32_t>(r.epoch) == location.epoch ? &r : nullptr;
}

void RegionTable::AddLive(const SsdLocation& location, std::uint32_t record_bytes) {
  Region& r = regions_[location.region];
  r.live_bytes += record_bytes;
  r.live_payload += location.stored_bytes;
  ++r.live_records;
  live_bytes_ += record_bytes;
  live_payload_ += location.stored_bytes;
  ++live_records_;
}

void RegionTable::RemoveLive(const SsdLocation& location, std::uint32_t record_bytes) {
  Region& r = regions_[location.region];
  // A location that was forgotten twice must not take what is not there.
  if (r.live_records == 0 || r.live_bytes < record_bytes || r.live_payload < location.stored_bytes) return;
  r.live_bytes -= record_bytes;
  r.live_payload -= location.stored_bytes;
  --r.live_records;
  live_bytes_ -= record_bytes;
  live_payload_ -= location.stored_bytes;
  --live_records_;
}

void RegionTable::ClearLive(std::uint32_t region) {
  Region& r = regions_[region];
  live_bytes_ -= r.live_bytes;
  live_payload_ -= r.live_payload;
  live_records_ -= r.live_records;
  r.live_bytes = r.live_records = 0;
  r.live_payload = 0;
}

void RegionTable::DropReader(std::uint32_t region) {
  Region& r = regions_[region];
  TIERD_CHECK(r.readers > 0);
  if (--r.readers == 0 && r.state == RegionState::kDraining) Set(region, RegionState::kFree);
}

std::optional<std::uint32_t> RegionTable::OpenFree() {
  const std::optional<std::uint32_t> region = FindState(RegionState::kFree);
  if (!region) return std::nullopt;
  Region& r = regions_[*region];
  TIERD_CHECK(r.readers == 0 && r.live_records == 0);
  r.epoch = next_epoch_++;
  Set(*region, RegionState::kOpening);
  return region;
}

std::optional<std::uint32_t> RegionTable::FindState(RegionState state) const {
  if (Count(state) == 0) return std::nullopt;
  for (std::uint32_t i = 0; i < size(); ++i) {
    if (regions_[i].state == state) return i;
  }
  return std::nullopt;
}

bool RegionTable::AnyDead() const {
  return std::any_of(regions_.begin(), regions_.end(), [](const Region& r) { return r.state == RegionState::kClosed && r.live_records == 0; });
}

std::vector<std::uint32_t> RegionTable::Candidates(std::size_t least, std::size_t rotating, std::uint32_t* cursor) const {
  std::vector<std::uint32_t> closed;
  for (std::uint32_t i = 0; i < size(); ++i) {
    if (regions_[i].state == RegionState::kClosed) closed.push_back(i);
  }
  const auto n = static_cast<std::ptrdiff_t>(std::min(least, closed.size()));
  std::partial_sort(closed.begin(), closed.begin() + n, closed.end(), [&](std::uint32_t a, std::uint32_t b) {
    const Region& x = regions_[a];
    const Region& y = regions_[b];
    return x.live_bytes != y.live_bytes ? x.live_bytes < y.live_bytes : x.epoch < y.epoch;
  });
  std::vector<std::uint32_t> out(closed.begin(), closed.begin() + n);
  std::sort(closed.begin() + n, closed.end());
  // From the first one behind the cursor on, around the end.
  const auto behind = std::upper_bound(closed.begin() + n, closed.end(), *cursor);
  std::rotate(closed.begin() + n, behind, closed.end());
  const std::size_t more = std::min(rotating, closed.size() - static_cast<std::size_t>(n));
  out.insert(out.end(), closed.begin() + n, closed.begin() + n + static_cast<std::ptrdiff_t>(more));
  if (more > 0) *cursor = out.back();
  return out;
}

}  // namespace tierd::ssd
