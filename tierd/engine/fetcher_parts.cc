// Parts of a chunk: who reads a little of a large file at a time, here and there, and finds RAM full, gets what it needs of the SSD tier's record and not all of it.
//
// A part only passes through. It is no fill of the chunk, and joins none: fills of parts stand beside one another in fills_, each with a frame of its own from the
// begin. Whatever is in the way sends the reader to the source, for as few bytes.
#include <utility>

#include "tierd/engine/fetcher_impl.h"

namespace tierd::engine {

void Fetcher::AddFill(const FillPtr& fill) {
  if (fills_.emplace(FillKey(fill->object, fill->part), fill).second && fill->part.bytes != 0) ++parts_under_way_;
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

bool Fetcher::StartParts(SourceUnit& unit, ObjectId object, Waiter& waiter, source::Priority priority, Placement::Grant* grant) {
  if (!waiter->is_client() || waiter->part.bytes == 0 || (waiter->flags & abi::kFetchSequential) != 0 || !placement_.OnSsd(object)) return false;
  const ssd::PayloadRange part = placement_.PartsFor(object, waiter->part);
  if (part.bytes == 0) return false;
  if (const auto it = fills_.find(FillKey(object, part)); it != fills_.end()) {
    if (it->second->late) {
      Finish(waiter, BringOutcome::kFailed, abi::Fallback::kSourceSlow, it->second->file);
      return true;
    }
    if (!it->second->part.Covers(waiter->part)) return false;
    ++counters_.fetch_joined;
    it->second->waiters.push_back(std::move(waiter));
    return true;
  }
  *grant = placement_.Acquire(object, {.may_transit = true, .may_evict = waiter->evict, .part_bytes = part.bytes, .part_will_do = true});
  if (!grant->part) return false;
  no_transit_until_ns_ = 0;
  auto fill = std::make_shared<Fill>();
  fill->object = object;
  fill->file = catalogue_.object(object).file;
  fill->unit = unit.index;
  fill->priority = priority;
  fill->wanted = fill->part = part;
  fill->grant = *grant;
  fill->waiters.push_back(std::move(waiter));
  AddFill(fill);
  RunFill(unit, fill);
  return true;
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
    DropRecord(fill->object, result);
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
