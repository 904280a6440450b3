// Parts of a chunk: who reads a little of a large file at a time, here and there, and finds RAM full, gets what it needs of the SSD tier's record and not all of it.
//
// A part only passes through. It is no fill of the chunk, and joins none: fills of parts stand beside one another in fills_, each with a frame of its own from the
// begin. Whatever is in the way sends the reader to the source, for as few bytes.
#include <new>
#include <utility>

#include "tierd/engine/fetch/fetcher_impl.h"

namespace tierd::engine {

void Fetcher::AddFill(const FillPtr& fill) {
  if (!Survives([&] { fills_.emplace(FillKey(fill->object, fill->part), fill); })) {
    ReleaseMemory(fill);
    throw std::bad_alloc();  // to whoever answers its waiters
  }
  if (fill->part.bytes != 0) ++parts_under_way_;
}

// Nothing where another fill of the object has that place: the frame of a part that had to wait for one was granted under the key of all of it.
void Fetcher::RemoveFill(const Fill& fill) {
  for (const ssd::PayloadRange part : {fill.part, ssd::PayloadRange{}}) {
    const auto it = fills_.find(FillKey(fill.object, part));
    if (it == fills_.end() || it->second.get() != &fill) continue;
    if (part.bytes != 0) --parts_under_way_;
    fills_.erase(it);
    return;
  }
}

bool Fetcher::JoinParts(const FillPtr& fill) {
  const ssd::PayloadRange part = fill->wanted;
  if (part.bytes == 0 || !placement_.OnSsd(fill->object)) return false;
  if (const auto it = fills_.find(FillKey(fill->object, part)); it != fills_.end()) {
    Fill& other = *it->second;
    if (other.late) return Finish(fill->waiters.front(), BringOutcome::kFailed, abi::Fallback::kSourceSlow, fill->file), true;
    if (!other.part.Covers(fill->waiters.front()->part)) return false;
    ++counters_.fetch_joined;
    other.waiters.push_back(std::move(fill->waiters.front()));
    return true;
  }
  fill->grant = placement_.Acquire(fill->object, {.may_transit = true, .may_evict = fill->evict, .little = fill->little, .part_bytes = part.bytes});
  if (!fill->grant.part) return false;
  no_transit_until_ns_ = 0;
  fill->part = part;
  return false;
}

void Fetcher::OnPartsRead(SourceUnit& unit, const FillPtr& fill, const ssd::ReadResult& result) {
  if (result.outcome == ssd::ReadOutcome::kOk && result.bytes == fill->part.bytes) {
    ++counters_.promotions_ssd_ram;
    counters_.promotion_bytes_ssd_ram += result.bytes;
    return Complete(unit, fill, abi::Tier::kSsd, false);
  }
  const bool whole = result.outcome == ssd::ReadOutcome::kNoParts;
  if (!whole) {
    ++counters_.promotions_failed;
    if (result.is_shortage()) return Fail(fill, abi::Fallback::kNoFrame, BringOutcome::kCached);  // tried again, it would be again and again
    // Others may have found out before, and what stands there now may be a new one.
    if (catalogue_.object(fill->object).ssd == fill->read_from) DropRecord(fill->object, result);
  }
  RemoveFill(*fill);
  ReleaseMemory(fill);
  Waiters waiters = std::exchange(fill->waiters, {});
  for (Waiter& waiter : waiters) {
    if (whole) waiter->part = {};
    StartFill(unit, fill->object, std::move(waiter), source::Priority::kDemand);
  }
}

}  // namespace tierd::engine
