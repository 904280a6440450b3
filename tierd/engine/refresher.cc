#include "tierd/engine/refresher.h"

#include <algorithm>

namespace tierd::engine {
namespace {

constexpr std::size_t kLooksPerStep = 4096;  // ~0.4 ms
constexpr std::size_t kChunksLookedAt = 16;  // of a large file, to see whether it is cached

std::int64_t TtlNs(const SourceUnit& unit) { return std::int64_t{unit.options.ttl_ms} * 1'000'000; }

}  // namespace

void Refresher::OnRead(SourceUnit& unit) {
  unit.refresh_credit = std::min(unit.refresh_credit + kStatsPerRead, kMostCredit);
  unit.last_read_ns = clock_.MonotonicNs();
}

bool Refresher::Wanted(const SourceUnit& unit) const {
  return unit.options.staleness == abi::Staleness::kTtl && unit.refresh_credit > 0 && unit.reader->state() == source::SourceState::kUp;
}

bool Refresher::Due(const SourceUnit& unit, FileId file, std::int64_t now_ns) const {
  const FileRecord& record = catalogue_.file(file);
  constexpr std::uint16_t kNever = kFileRacy | kFileNotRegular;
  if ((record.flags & kFileUsed) == 0 || (record.flags & kFileChecked) == 0 || (record.flags & kNever) != 0) return false;
  const std::uint32_t chunks = std::min<std::uint32_t>(catalogue_.ChunkCount(file), kChunksLookedAt);
  bool cached = false;
  for (std::uint32_t chunk = 0; chunk < chunks && !cached; ++chunk) {
    const ObjectId object = catalogue_.ObjectOf(file, chunk);
    cached = placement_.InRam(object) || placement_.OnSsd(object);
  }
  return cached && catalogue_.DeadlineOf(file) <= abi::TicksOf(now_ns + TtlNs(unit) / 4);
}

bool Refresher::Step() {
  const std::int64_t now_ns = clock_.MonotonicNs();
  const std::int64_t passed_ns = std::min<std::int64_t>(now_ns - last_step_ns_, kIdleNs);
  last_step_ns_ = now_ns;
  std::int64_t shortest_ns = 0;
  for (const auto& unit : sources_) {
    if (now_ns - unit->last_read_ns > kIdleNs) unit->refresh_credit = 0;
    if (Wanted(*unit)) shortest_ns = shortest_ns == 0 ? TtlNs(*unit) : std::min(shortest_ns, TtlNs(*unit));
  }
  const std::size_t slots = catalogue_.file_slots();
  if (shortest_ns == 0 || slots == 0) {
    to_look_at_ = 0;
    return false;
  }
  // Twice round in the last quarter of a ttl: every file is met before its time is over.
  to_look_at_ += static_cast<double>(slots) * static_cast<double>(passed_ns) / (static_cast<double>(shortest_ns) / 8);
  to_look_at_ = std::min(to_look_at_, static_cast<double>(slots));
  for (std::size_t looked = 0; looked < kLooksPerStep && to_look_at_ >= 1 && under_way_ < kUnderWay; ++looked, to_look_at_ -= 1) {
    if (++position_ >= slots) position_ = 0;
    const auto file = static_cast<FileId>(position_);
    if ((catalogue_.file(file).flags & kFileUsed) == 0) continue;
    SourceUnit& unit = *sources_[catalogue_.file(file).source];
    if (!Wanted(unit) || !Due(unit, file, now_ns)) continue;
    --unit.refresh_credit;
    ++under_way_;
    fetcher_.RefreshAhead(unit, file, [this](const BringResult&) { --under_way_; });
  }
  return to_look_at_ >= 1 && under_way_ < kUnderWay;
}

}  // namespace tierd::engine
