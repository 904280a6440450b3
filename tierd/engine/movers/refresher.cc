#include "tierd/engine/movers/refresher.h"

#include <algorithm>

namespace tierd::engine {
namespace {

constexpr std::size_t kLooksPerStep = 32'768;  // ~0.3 ms
constexpr std::size_t kLooksPerRecord = 16;    // a file's record, and where its objects are, take as long
constexpr std::size_t kChunksLookedAt = 16;  // of a large file, to see whether it is cached

// How long a confirmation holds, at least.
std::int64_t HoldsNs(const SourceUnit& unit) {
  const std::int64_t access_ns = unit.options.AccessRecheckNs();
  if (unit.options.staleness == abi::Staleness::kImmutable) return access_ns;
  return std::min(access_ns, std::int64_t{unit.options.ttl_ms} * 1'000'000);
}

}  // namespace

bool Refresher::Wanted(const SourceUnit& unit) const {
  return unit.options.staleness != abi::Staleness::kOpen && unit.refresh_credit > 0 && unit.reader->state() == source::SourceState::kUp;
}

bool Refresher::Worth(FileId file) const {
  const FileRecord& record = catalogue_.file(file);
  constexpr std::uint16_t kNever = kFileRacy | kFileNotRegular | kFileRefused;
  if ((record.flags & kFileUsed) == 0 || (record.flags & kFileChecked) == 0 || (record.flags & kNever) != 0) return false;
  const std::uint32_t chunks = std::min<std::uint32_t>(catalogue_.ChunkCount(file), kChunksLookedAt);
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    const ObjectId object = catalogue_.ObjectOf(file, chunk);
    if (placement_.InRam(object) || placement_.OnSsd(object)) return true;
  }
  return false;
}

bool Refresher::Step() {
  const std::int64_t now_ns = clock_.MonotonicNs();
  const std::int64_t passed_ns = std::min<std::int64_t>(now_ns - last_step_ns_, kIdleNs);
  last_step_ns_ = now_ns;
  std::int64_t shortest_ns = 0;
  for (const auto& unit : sources_) {
    if (now_ns - unit->last_read_ns > kIdleNs) unit->refresh_credit = 0;
    if (!Wanted(*unit)) continue;
    shortest_ns = shortest_ns == 0 ? HoldsNs(*unit) : std::min(shortest_ns, HoldsNs(*unit));
  }
  if (shortest_ns == 0) {
    to_look_at_ = 0;
    return false;
  }
  // Files of an immutable set are met as often as the others, and so many need not be looked at so long before.
  const auto near_end = [now_ns, shortest_ns](const SourceUnit& unit) {
    const bool immutable = unit.options.staleness == abi::Staleness::kImmutable;
    return abi::TicksOf(now_ns + (immutable ? shortest_ns : HoldsNs(unit)) / 4);
  };
  std::uint32_t latest = 0;
  for (const auto& unit : sources_) {
    if (Wanted(*unit)) latest = std::max(latest, near_end(*unit));
  }
  const std::uint64_t slots = catalogue_.index_slots();
  // Twice round in the last quarter of that time: every file is met before its time is over.
  to_look_at_ += static_cast<double>(slots) * static_cast<double>(passed_ns) / (static_cast<double>(shortest_ns) / 8);
  to_look_at_ = std::min(to_look_at_, static_cast<double>(slots));
  for (std::size_t looked = 0; looked < kLooksPerStep && to_look_at_ >= 1 && under_way_ < kUnderWay; ++looked, to_look_at_ -= 1) {
    if (++position_ >= slots) position_ = 0;
    const auto ordinal = static_cast<std::uint32_t>(position_);
    const FileId file = catalogue_.FileAt(ordinal);
    const std::uint32_t deadline = catalogue_.DeadlineAt(ordinal);
    if (file == kNoFile || deadline > latest) continue;  // before the file's record, which has to be found
    looked += kLooksPerRecord;
    SourceUnit& unit = *sources_[catalogue_.file(file).source];
    if (!Wanted(unit) || deadline > near_end(unit) || !Worth(file)) continue;
    --unit.refresh_credit;
    ++under_way_;
    fetcher_.RefreshAhead(unit, file, [this](const BringResult&) { --under_way_; });
  }
  return to_look_at_ >= 1 && under_way_ < kUnderWay;
}

}  // namespace tierd::engine
