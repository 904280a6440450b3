// The SSD tier: what is copied to it, what its records are worth, what becomes of them.
#include <algorithm>
#include <utility>

#include "tierd/base/crc32c.h"
#include "tierd/engine/residency/placement.h"

namespace tierd::engine {
namespace {

constexpr std::size_t kBackfillPerTurn = 256;
constexpr std::int64_t kShortestBackfillPauseNs = 5'000'000;    // a device that is writing takes more within milliseconds
constexpr std::int64_t kLongestBackfillPauseNs = 1'000'000'000;

}  // namespace

ssd::RecordIdentity Placement::IdentityOf(ObjectId object, std::uint64_t generation) const {
  const ObjectRecord& record = catalogue_.object(object);
  const FileRecord& owner = catalogue_.file(record.file);
  const SourceUnit& unit = *sources_[owner.source];
  const io::FileStat stat = catalogue_.StatOf(record.file);
  ssd::RecordIdentity identity;
  identity.source_id = unit.persistent_id;
  identity.dataset_id = unit.dataset_id;
  identity.dataset_generation = generation;
  identity.key = owner.key;
  identity.version = {stat.ino, stat.size, stat.mtime_ns, stat.ctime_ns};
  identity.chunk = record.chunk;
  identity.chunk_bytes = static_cast<std::uint32_t>(unit.options.chunk_bytes);
  identity.fill_sequence = record.ssd.fill_sequence;
  return identity;
}

void Placement::NoteSourceBytes(ObjectId object, std::span<const std::byte> bytes) {
  if (ssd_ == nullptr || (catalogue_.object(object).flags & kObjectListing) != 0) return;
  while (source_crcs_.size() <= Raw(object)) source_crcs_.PushBack(0);
  source_crcs_[Raw(object)] = Crc32c(bytes.data(), bytes.size());
}

void Placement::ForgetSourceBytes(ObjectId object) {
  if (Raw(object) < source_crcs_.size()) source_crcs_[Raw(object)] = 0;
}

Placement::Copied Placement::CopyToSsd(ObjectId object, std::span<const std::byte> payload, CopyOptions options) {
  if (ssd_ == nullptr) return Copied::kRefused;
  if (OnSsd(object)) return Copied::kStored;
  EvictSsd(object, EvictCause::kChanged);  // a void record is in its place
  ObjectRecord& record = catalogue_.object(object);
  // After a restart a stat would confirm it for good; it may come when it has been read again (HAZARDS 2.12).
  if ((catalogue_.file(record.file).flags & kFileRacy) != 0) return Copied::kRefused;
  SourceUnit& unit = UnitOf(object);
  if (!unit.policy.Admit(kTierSsd, Raw(object), ssd_->FreeBytes(), options.why)) {
    ++counters_.ssd_not_admitted;
    backfill_wanted_ |= ssd_->status().recovering;  // until then nothing is free: asked again when something is
    return Copied::kRefused;
  }
  ssd::RecordIdentity identity = IdentityOf(object, options.generation);
  identity.fill_sequence = ssd_->NextFillSequence();
  const auto appended = ssd_->Append(identity, catalogue_.PathOf(record.file), payload, SourceCrc(object));
  if (appended.status().code() == Code::kCorrupt) {
    ++counters_.integrity_ram;
    EvictRam(object, EvictCause::kDamaged);
    return Copied::kChanged;
  }
  if (!appended.ok()) {  // counted by the tier; the object stays where it is
    if (appended.status().code() != Code::kBusy) return Copied::kRefused;
    backfill_wanted_ = true;
    const ssd::SsdStatus state = ssd_->status();
    return state.health == ssd::SsdHealth::kHealthy && state.writable && !state.recovering ? Copied::kBusy : Copied::kRefused;
  }
  AdoptSsd(object, *appended);
  ++counters_.promotions_ram_ssd;
  counters_.promotion_bytes_ram_ssd += record.bytes;
  return Copied::kStored;
}

void Placement::AdoptSsd(ObjectId object, const ssd::SsdLocation& location) {
  ObjectRecord& record = catalogue_.object(object);
  record.ssd = location;
  record.flags |= kObjectOnSsd;
  resident_bytes_[kTierSsd] += record.bytes;
  ++resident_objects_[kTierSsd];
  if ((catalogue_.file(record.file).flags & kFilePinned) != 0) pinned_bytes_[kTierSsd] += record.bytes;
  UnitOf(object).policy.Inserted(kTierSsd, Raw(object));
}

ObjectId Placement::LiveObjectOf(const ssd::SsdRecord& record) {
  const FileId file = catalogue_.Find(record.identity.key);
  if (file == kNoFile) return kNoObject;
  const ObjectId object = catalogue_.ObjectOf(file, record.identity.chunk);
  if (object == kNoObject || !HasSsdRecord(object) || catalogue_.object(object).ssd != record.location) return kNoObject;
  return object;
}

double Placement::Worth(const ssd::SsdRecord& record) {
  const ObjectId object = LiveObjectOf(record);
  if (object == kNoObject) return -1;
  if ((catalogue_.file(catalogue_.object(object).file).flags & kFilePinned) != 0) return 1e18;
  if (InRam(object)) return 0;  // exclusive tiers once space is short: the copy in RAM is demoted when it leaves
  return std::max(0.0, UnitOf(object).policy.Worth(kTierSsd, Raw(object)));
}

void Placement::OnMoved(const ssd::SsdRecord& from, const ssd::SsdLocation& to) {
  const ObjectId object = LiveObjectOf(from);
  if (object != kNoObject) catalogue_.object(object).ssd = to;
}

void Placement::OnGone(const ssd::SsdRecord& record, ssd::SsdGone why) {
  const ObjectId object = LiveObjectOf(record);
  if (object == kNoObject) return;
  const EvictCause cause = why == ssd::SsdGone::kDamaged || why == ssd::SsdGone::kWriteFailed ? EvictCause::kDamaged : EvictCause::kCapacity;
  if (why == ssd::SsdGone::kDamaged) ++counters_.integrity_ssd;
  DropSsdFlag(object);
  ++counters_.evictions[kTierSsd][static_cast<std::size_t>(cause)];
  counters_.evicted_bytes[kTierSsd] += catalogue_.object(object).bytes;
}

// Objects that the SSD tier could not take when they came (recovering, buffers full) are copied from RAM as soon as it can: a warm restart
// must not depend on the moment of the read.
bool Placement::Backfill() {
  const std::int64_t now_ns = clock_.MonotonicNs();
  if (ssd_ == nullptr || ssd_->ailing() || ssd_->status().recovering || ssd_->behind() || now_ns < backfill_again_ns_) return false;
  const std::size_t objects = catalogue_.object_slots();
  for (std::size_t looked = 0; looked < kBackfillPerTurn; ++looked, ++backfill_position_) {
    if (backfill_position_ >= objects) {
      backfill_position_ = 0;
      backfill_wanted_ = false;
      return false;
    }
    const auto object = static_cast<ObjectId>(backfill_position_);
    const ObjectRecord& record = catalogue_.object(object);
    if ((record.flags & kObjectUsed) == 0 || (record.flags & kObjectListing) != 0 || !InRam(object) || OnSsd(object)) continue;
    backfill_wanted_ = false;
    CopyToSsd(object, {ram_.Data(record.frame), record.bytes}, {.generation = ssd_->DatasetGeneration(UnitOf(object).dataset_id), .why = TIERD_COPY});
    const bool busy = std::exchange(backfill_wanted_, true);
    backfill_pause_ns_ = busy ? std::clamp(2 * backfill_pause_ns_, kShortestBackfillPauseNs, kLongestBackfillPauseNs) : 0;
    backfill_again_ns_ = now_ns + backfill_pause_ns_;
    if (busy) return false;  // goes on here at a later turn
  }
  return true;
}

}  // namespace tierd::engine
