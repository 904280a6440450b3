#include "tierd/engine/orders/forerunner.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace tierd::engine {
namespace {

constexpr std::size_t kCandidates = 1024;
constexpr std::size_t kBroughtPerTurn = 128;
constexpr std::size_t kMostWaiting = 1 << 16;
constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kAskEveryNs = kMs;           // the policy, while nothing it wants can be brought
constexpr std::int64_t kAfterNoPlaceNs = 100 * kMs;  // what found none in what is free, without others leaving
constexpr std::int64_t kAfterNoRoomNs = 5 * kMs;     // nor with others leaving: their places may be in use, or apart
constexpr std::int64_t kAfterFailureNs = 100 * kMs;  // the source refuses, or hangs
constexpr std::int64_t kAskForSsdEveryNs = 50 * kMs;
constexpr std::int64_t kAfterSsdFailureNs = 1000 * kMs;       // doubled each time: what the SSD does not take is not read from the source again and again
constexpr std::int64_t kMostAfterSsdFailureNs = 600'000 * kMs;
constexpr std::int64_t kLeastLeadNs = 20 * kMs;     // accesses are heard of in batches
constexpr std::int64_t kMostLeadNs = 2000 * kMs;
constexpr double kLeadFactor = 4;
constexpr std::uint32_t kUsualBytes = 128 << 10;    // of a file of which nothing is known

}  // namespace

void Forerunner::Step() {
  if (!parts_.unit.options.ahead || parts_.foresight.empty()) return;
  const std::int64_t now_ns = parts_.clock.MonotonicNs();
  if (now_ns < again_ns_ || parts_.unit.reader->state() == source::SourceState::kHung) return;
  const source::SourceCounters source = parts_.unit.reader->counters();
  const auto& read = parts_.unit.epochs.bytes();
  const Traffic traffic{.read = std::accumulate(read.begin(), read.end(), std::uint64_t{0}), .from_source = source.bytes_read + read[static_cast<std::size_t>(abi::Tier::kBypass)]};
  if (!gate_.MayBring(parts_.unit.look_ahead, traffic)) return;
  most_ = std::clamp<std::size_t>(2 * source.window, kLeastUnderWay, kUnderWay);
  if (parts_.foresight.declared()) BringWanted(now_ns);
  else BringUndeclared();
}

std::int64_t Forerunner::LeadNs() const { return std::clamp(static_cast<std::int64_t>(kLeadFactor * took_ns_), kLeastLeadNs, kMostLeadNs); }

// The policy does not know the plan yet: what is read first fills what is free, known or not.
void Forerunner::BringUndeclared() {
  const std::uint64_t mean = parts_.unit.MeanFileBytes();
  const auto bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(mean == 0 ? kUsualBytes : mean, parts_.unit.options.chunk_bytes));
  for (std::size_t i = 0; i < kBroughtPerTurn && !Full(bytes); ++i) {
    if (parts_.placement.FreeForResidents() < bytes_under_way_ + bytes || !parts_.placement.HasPlace(bytes)) return;
    FileId file = kNoFile;
    std::string path;
    if (!parts_.foresight.TakeUndeclared(&path, &file)) return;
    const ObjectId first = file == kNoFile ? kNoObject : parts_.catalogue.ObjectOf(file, 0);
    if (first != kNoObject && (parts_.placement.InRam(first) || parts_.placement.OnSsd(first))) continue;
    Bring(std::move(path), 0, bytes, Into::kFreeRam);
  }
}

void Forerunner::BringWanted(std::int64_t now_ns) {
  if (Full(0)) return;
  std::array<tierd_candidate, kCandidates> candidates;
  const std::size_t count = parts_.unit.policy.Next(TIERD_TIER_RAM, now_ns, candidates);
  std::size_t brought = 0;
  for (std::size_t i = 0; i < count && brought < kBroughtPerTurn; ++i) {
    const auto object = static_cast<ObjectId>(candidates[i].id);
    const ObjectRecord& record = parts_.catalogue.object(object);
    if (asked_.contains(candidates[i].id)) continue;
    if (Full(record.bytes)) break;
    const bool doubtful = no_place_bytes_ != 0 && record.bytes >= no_place_bytes_;
    const std::uint64_t free = doubtful && now_ns < no_place_until_ns_ ? 0 : parts_.placement.FreeForResidents();
    const std::uint64_t room = free - std::min(free, bytes_under_way_);
    const bool fits = record.bytes <= room;
    if (fits && doubtful && under_way_ != 0) break;  // one tries
    if (!fits) {
      if (candidates[i].due_ns > now_ns + LeadNs() || now_ns < leave_again_ns_) break;
      const std::uint64_t waits = waiting_bytes_ + bytes_under_way_;
      if (waits != 0 && waits + record.bytes > parts_.placement.ram_resident_bytes() / 4) break;
    }
    if (!parts_.unit.policy.Admit(TIERD_TIER_RAM, candidates[i].id, room, TIERD_AHEAD)) break;  // what comes behind it is used later still
    ++brought;
    asked_.insert(candidates[i].id);
    Bring(parts_.catalogue.PathOf(record.file), record.chunk, record.bytes, fits ? Into::kFreeRam : Into::kRam);
  }
  if (brought == 0 && !FillSsd(now_ns)) again_ns_ = now_ns + kAskEveryNs;
}

// RAM has what fits in it and is due. What the SSD has room for, and is nowhere on the node, is read from the source while there is nothing more urgent: with half of what may be
// under way, so that what becomes due does not wait long.
bool Forerunner::FillSsd(std::int64_t now_ns) {
  if (now_ns < ssd_again_ns_ || 2 * under_way_ >= most_ || !parts_.placement.SsdRecovered()) return false;
  std::array<tierd_candidate, kCandidates> candidates;
  const std::size_t count = parts_.unit.policy.Next(TIERD_TIER_SSD, now_ns, candidates);
  std::size_t brought = 0;
  for (std::size_t i = 0; i < count && 2 * under_way_ < most_; ++i) {
    const auto object = static_cast<ObjectId>(candidates[i].id);
    const ObjectRecord& record = parts_.catalogue.object(object);
    if (asked_.contains(candidates[i].id) || parts_.placement.InRam(object)) continue;
    if ((parts_.catalogue.file(record.file).flags & kFileRacy) != 0) continue;  // the SSD takes none of these
    const std::uint64_t free = parts_.placement.SsdFree();
    if (Full(record.bytes) || free < bytes_under_way_ + record.bytes) break;
    if (!parts_.unit.policy.Admit(TIERD_TIER_SSD, candidates[i].id, free - bytes_under_way_, TIERD_AHEAD)) break;
    ++brought;
    asked_.insert(candidates[i].id);
    Bring(parts_.catalogue.PathOf(record.file), record.chunk, record.bytes, Into::kSsd);
  }
  if (brought == 0) ssd_again_ns_ = now_ns + kAskForSsdEveryNs;
  return brought != 0;
}

void Forerunner::Bring(std::string path, std::uint32_t chunk, std::uint32_t bytes, Into into) {
  ++under_way_;
  bytes_under_way_ += bytes;
  const std::int64_t begun_ns = parts_.clock.PreciseNs();
  parts_.fetcher.Bring(parts_.unit, {.path = std::move(path),
                                     .chunk = chunk,
                                     .ssd_only = into == Into::kSsd,
                                     .evict = into == Into::kRam,
                                     .priority = source::Priority::kPrefetch,
                                     .done = [this, chunk, bytes, into, begun_ns, alive = alive_](const BringResult& result) {
                                       if (*alive) OnBrought(chunk, bytes, into, begun_ns, result);
                                     }});
}

void Forerunner::OnBrought(std::uint32_t chunk, std::uint32_t bytes, Into into, std::int64_t begun_ns, const BringResult& result) {
  --under_way_;
  bytes_under_way_ -= bytes;
  const ObjectId object = result.file == kNoFile ? kNoObject : parts_.catalogue.ObjectOf(result.file, chunk);
  if (object != kNoObject) asked_.erase(Raw(object));
  if (under_way_ == 0) asked_.clear();  // of objects that are gone by now
  const std::int64_t now_ns = parts_.clock.PreciseNs();
  if (into == Into::kSsd) NoteSsdTook(result.outcome == BringOutcome::kCached);
  const bool failed = result.outcome == BringOutcome::kFailed;
  // Of what is on the SSD it is said that it is cached, be there a frame or not.
  if (failed || result.outcome != BringOutcome::kCached || (into != Into::kSsd && object != kNoObject && !parts_.placement.InRam(object))) {
    if (!failed) NoteNoRoom(bytes, into);
    again_ns_ = parts_.clock.MonotonicNs() + (failed ? kAfterFailureNs : kAskEveryNs);
    return;
  }
  parts_.wake();
  if (into == Into::kFreeRam && bytes >= no_place_bytes_) no_place_bytes_ = 0;
  if (into == Into::kSsd) return;
  took_ns_ += (static_cast<double>(now_ns - begun_ns) - took_ns_) / 32;
  // Not what a reader was waiting for by the time it came: that is late, and read.
  const bool unread = object != kNoObject && (parts_.catalogue.object(object).flags & kObjectUnread) != 0;
  if (!unread || !parts_.placement.InRam(object) || waiting_.size() >= kMostWaiting) return;
  const std::uint32_t size = parts_.catalogue.object(object).bytes;
  const auto [at, is_new] = waiting_.try_emplace(Raw(object));
  // It had left, and came again, perhaps with another size.
  if (!is_new && parts_.placement.OnSsd(object)) parts_.counters.prefetch_unused_bytes += at->second.bytes;
  waiting_bytes_ = waiting_bytes_ - at->second.bytes + size;
  at->second = Brought{parts_.clock.MonotonicNs(), size};
}

void Forerunner::NoteNoRoom(std::uint32_t bytes, Into into) {
  const std::int64_t now_ns = parts_.clock.MonotonicNs();
  if (into == Into::kRam) leave_again_ns_ = now_ns + kAfterNoRoomNs;
  if (into != Into::kFreeRam) return;
  no_place_bytes_ = no_place_bytes_ == 0 ? bytes : std::min(no_place_bytes_, bytes);
  no_place_until_ns_ = now_ns + kAfterNoPlaceNs;
}

// Of those that were under way together the first one that was refused counts.
void Forerunner::NoteSsdTook(bool took) {
  const std::int64_t now_ns = parts_.clock.MonotonicNs();
  if (took) ssd_pause_ns_ = kAfterSsdFailureNs;
  if (took || now_ns < ssd_again_ns_) return;
  ssd_again_ns_ = now_ns + ssd_pause_ns_;
  ssd_pause_ns_ = std::min(2 * ssd_pause_ns_, kMostAfterSsdFailureNs);
}

void Forerunner::OnAccess(ObjectId object) {
  if (waiting_.empty()) return;
  const auto at = waiting_.find(Raw(object));
  if (at == waiting_.end()) return;
  ++parts_.counters.ahead_used;
  parts_.counters.ahead_lead_ns += static_cast<std::uint64_t>(std::max<std::int64_t>(0, parts_.clock.MonotonicNs() - at->second.ready_ns));
  waiting_bytes_ -= at->second.bytes;
  waiting_.erase(at);
}

void Forerunner::Tick() {
  std::erase_if(waiting_, [&](const auto& entry) {
    const auto object = static_cast<ObjectId>(entry.first);
    const bool there = entry.first < parts_.catalogue.object_slots();
    if (there && parts_.placement.InRam(object)) return false;
    waiting_bytes_ -= entry.second.bytes;
    // What the SSD has as well has left RAM alone; what left the node was counted then.
    if (there && parts_.placement.OnSsd(object)) parts_.counters.prefetch_unused_bytes += entry.second.bytes;
    return true;
  });
}

}  // namespace tierd::engine
