#include "tierd/ssd/region_table.h"

#include <algorithm>
#include <cstring>

#include "tierd/base/check.h"

namespace tierd::ssd {

void RegionTable::GrowTo(std::uint32_t count) {
  if (count <= size()) return;
  while (pages_.size() * kPageRegions < count) pages_.push_back(std::make_unique<std::array<Region, kPageRegions>>());
  const std::uint32_t more = count - size();
  states_.resize(count, static_cast<std::uint8_t>(RegionState::kAbsent));
  counts_[static_cast<std::size_t>(RegionState::kAbsent)] += more;
}

template <typename Change>
void RegionTable::Update(std::uint32_t region, Change&& change) {
  Region& r = at(region);
  dead_ -= IsDead(r) ? 1 : 0;
  change(r);
  dead_ += IsDead(r) ? 1 : 0;
}

void RegionTable::Set(std::uint32_t region, RegionState state) {
  Update(region, [&](Region& r) {
    --counts_[static_cast<std::size_t>(r.state)];
    ++counts_[static_cast<std::size_t>(state)];
    r.state = state;
  });
  states_[region] = static_cast<std::uint8_t>(state);
}

Region* RegionTable::Readable(const SsdLocation& location) {
  if (location.region >= size()) return nullptr;
  Region& r = at(location.region);
  const bool has_bytes = r.state == RegionState::kOpen || r.state == RegionState::kClosed || r.state == RegionState::kReclaiming;
  return has_bytes && static_cast<std::uint32_t>(r.epoch) == location.epoch ? &r : nullptr;
}

void RegionTable::AddLive(const SsdLocation& location, std::uint32_t record_bytes) {
  Update(location.region, [&](Region& r) {
    r.live_bytes += record_bytes;
    r.live_payload += location.stored_bytes;
    ++r.live_records;
  });
  live_bytes_ += record_bytes;
  live_payload_ += location.stored_bytes;
  ++live_records_;
}

void RegionTable::RemoveLive(const SsdLocation& location, std::uint32_t record_bytes) {
  const Region& now = at(location.region);
  // A location that was forgotten twice must not take what is not there.
  if (now.live_records == 0 || now.live_bytes < record_bytes || now.live_payload < location.stored_bytes) return;
  Update(location.region, [&](Region& r) {
    r.live_bytes -= record_bytes;
    r.live_payload -= location.stored_bytes;
    --r.live_records;
  });
  live_bytes_ -= record_bytes;
  live_payload_ -= location.stored_bytes;
  --live_records_;
}

void RegionTable::ClearLive(std::uint32_t region) {
  Update(region, [&](Region& r) {
    live_bytes_ -= r.live_bytes;
    live_payload_ -= r.live_payload;
    live_records_ -= r.live_records;
    r.live_bytes = r.live_records = 0;
    r.live_payload = 0;
  });
}

void RegionTable::DropReader(std::uint32_t region) {
  Region& r = at(region);
  TIERD_CHECK(r.readers > 0);
  if (--r.readers == 0 && r.state == RegionState::kDraining) Set(region, RegionState::kFree);
}

std::optional<std::uint32_t> RegionTable::OpenFree() {
  const std::optional<std::uint32_t> region = FindState(RegionState::kFree);
  if (!region) return std::nullopt;
  Region& r = at(*region);
  TIERD_CHECK(r.readers == 0 && r.live_records == 0);
  r.epoch = next_epoch_++;
  Set(*region, RegionState::kOpening);
  return region;
}

std::uint32_t RegionTable::NextOf(RegionState state, std::uint32_t from) const {
  if (from >= size()) return size();
  const void* const found = std::memchr(states_.data() + from, static_cast<int>(state), size() - from);
  return found == nullptr ? size() : static_cast<std::uint32_t>(static_cast<const std::uint8_t*>(found) - states_.data());
}

std::optional<std::uint32_t> RegionTable::FindState(RegionState state, std::uint32_t from) const {
  if (Count(state) == 0) return std::nullopt;
  const std::uint32_t found = NextOf(state, from);
  return found < size() ? found : NextOf(state, 0);
}

std::vector<std::uint32_t> RegionTable::Candidates(std::size_t least, std::size_t rotating, std::uint32_t* cursor) const {
  const auto before = [this](std::uint32_t a, std::uint32_t b) {
    const Region& x = at(a);
    const Region& y = at(b);
    return x.live_bytes != y.live_bytes ? x.live_bytes < y.live_bytes : x.epoch < y.epoch;
  };
  std::vector<std::uint32_t> out;  // the few that come first, in order
  for (std::uint32_t i = NextOf(RegionState::kClosed, 0); i < size(); i = NextOf(RegionState::kClosed, i + 1)) {
    if (out.size() == least && (least == 0 || !before(i, out.back()))) continue;
    if (out.size() == least) out.pop_back();
    out.insert(std::upper_bound(out.begin(), out.end(), i, before), i);
  }
  // From the first one behind the cursor on, around the end, each once.
  const std::size_t closed = Count(RegionState::kClosed);
  const std::size_t chosen = out.size();
  const std::size_t wanted = chosen + std::min(rotating, closed - chosen);
  for (std::uint32_t next = *cursor; out.size() < wanted;) {
    next = NextOf(RegionState::kClosed, next + 1);
    if (next == size()) next = NextOf(RegionState::kClosed, 0);
    const auto rest = out.begin() + static_cast<std::ptrdiff_t>(chosen);
    if (std::find(out.begin(), rest, next) == rest) out.push_back(next);
  }
  if (out.size() > chosen) *cursor = out.back();
  return out;
}

}  // namespace tierd::ssd
