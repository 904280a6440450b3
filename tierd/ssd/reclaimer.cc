#include "tierd/ssd/reclaimer.h"

#include <algorithm>
#include <new>
#include <utility>

#include "tierd/base/kill_point.h"

namespace tierd::ssd {

namespace {

constexpr std::size_t kLeastLive = 3;
constexpr std::size_t kInTurn = 5;
constexpr std::size_t kInTurnStuck = 13;  // what is worth keeping may be lost
// Of a turn, each below a millisecond: records whose worth is asked, bytes copied. A record costs as much as a kilobyte.
constexpr std::size_t kAskedPerTurn = 2048;
constexpr std::uint32_t kMoveQuantum = 1u << 20;
constexpr std::uint32_t kRecordQuantum = 1u << 10;
// A region that could not be read is not tried again for so long.
constexpr std::int64_t kSpareNs = 60'000'000'000;

// A region is worth its writes if at least 1/8 of one comes free. What is moved leaves a gap of up to its longest record where it goes:
// without that term a tier near its limit would move the same records round for ever and gain nothing.
bool WorthReclaiming(std::uint64_t kept_bytes, std::uint64_t longest_kept, std::uint32_t region_bytes) {
  return kept_bytes == 0 || (kept_bytes + longest_kept) * 8 <= std::uint64_t{region_bytes} * 7;
}

}  // namespace

void Reclaimer::Step(bool wanted, bool shrink) {
  if (phase_ == Phase::kMoving) return Move();
  if (phase_ == Phase::kSettled) return End();
  if (phase_ == Phase::kChoosing) return Choose();
  if (phase_ != Phase::kIdle || (!wanted && !shrink)) return;
  // Space that is owed to the file system does not wait for anything to become dead.
  if (!shrink && looks_ == 0 && forgotten_ < context_.format.region_bytes / 8) return;
  if (forgotten_ >= context_.format.region_bytes / 8) {
    forgotten_ = 0;
    looks_ = kLooks;
  }
  if (looks_ > 0) --looks_;
  Look(shrink);
}

void Reclaimer::Look(bool shrink) {
  const std::vector<std::uint32_t> regions = context_.regions.Candidates(kLeastLive, IsStuck() ? kInTurnStuck : kInTurn, &cursor_);
  if (regions.empty()) return;
  if (context_.regions.at(regions[0]).live_records == 0) {
    chosen_ = std::make_shared<Candidate>();
    chosen_->region = regions[0];
    return Load(true);
  }
  drop_all_ = shrink;
  struct Asked {
    std::uint32_t region;
    RegionAddress address;
    std::uint64_t epoch;
  };
  std::vector<Asked> all;
  for (const std::uint32_t region : regions) all.push_back({region, context_.files.AddressOf(region), context_.regions.at(region).epoch});
  context_.maintenance.Post([this, all, &format = context_.format, &mailbox = context_.mailbox] {
    auto choice = std::make_shared<Choice>();
    io::AlignedBuffer scratch;
    for (const Asked& asked : all) {
      RegionContents contents = ReadKnownContents(format, asked.region, asked.address, asked.epoch, &scratch);
      const bool listed = contents.from_toc;
      choice->candidates.push_back({asked.region, std::move(contents), listed});
    }
    mailbox.Post([this, choice] { List(choice); });
  });
  phase_ = Phase::kLooking;
}

// A walk finds what can be read, and a device that fails has nothing to say: what is there all the same, the index knows.
void Reclaimer::List(const std::shared_ptr<Choice>& choice) {
  std::size_t& next = choice->candidate;
  while (next < choice->candidates.size() && choice->candidates[next].listed) ++next;
  if (next == choice->candidates.size()) {
    next = 0;
    choice_ = choice;
    phase_ = Phase::kChoosing;
    return;
  }
  Candidate& asked = choice->candidates[next];
  const std::shared_ptr<RecordBatch> records(choice, &asked.contents.records);
  try {
    context_.index.ReadContents(asked.region, context_.regions.at(asked.region).epoch, records, [this, choice](bool found) {
      choice->candidates[choice->candidate++].listed = found;
      List(choice);
    });
  } catch (const std::bad_alloc&) {
    phase_ = Phase::kIdle;  // there will be another look
  }
}

bool Reclaimer::Ask() {
  Choice& c = *choice_;
  const std::span<const RecoveredRecord> records = c.candidates[c.candidate].contents.records.records();
  const std::size_t end = std::min(records.size(), c.record + kAskedPerTurn);
  for (; c.record < end; ++c.record) {
    const double worth = context_.owner.Worth({records[c.record].identity, records[c.record].location});
    c.live += worth >= 0 ? 1 : 0;
    if (worth <= 0) continue;
    c.value += worth;
    const std::uint64_t bytes = context_.RecordBytesOf(records[c.record].location) + TocBuilder::EntryBytes(records[c.record].path.size());
    c.kept_bytes += bytes;
    c.longest_kept = std::max(c.longest_kept, bytes);
  }
  return c.record == records.size();
}

bool Reclaimer::IsStuck() const {
  const RegionTable& r = context_.regions;
  return !writer_.has_spare() && r.Count(RegionState::kAllocating) + r.Count(RegionState::kDraining) == 0;
}

// The candidate that was asked about with the best one before it.
void Reclaimer::Compare() {
  Choice& c = *choice_;
  const Candidate& candidate = c.candidates[c.candidate];
  const bool keeps = c.kept_bytes > 0 && !drop_all_ && HasRoomFor(c.kept_bytes + c.longest_kept);
  // Records live there that nobody could name: they may be the dearest, and their owner would not hear of it.
  const bool hides = !candidate.listed && c.live < context_.regions.at(candidate.region).live_records;
  const bool loses = hides || (c.kept_bytes > 0 && !keeps);
  if (!drop_all_ && loses && !IsStuck()) return;
  if (!drop_all_ && hides && !candidate.contents.status.ok()) return;  // it may be read later
  if (keeps && !WorthReclaiming(c.kept_bytes, c.longest_kept, context_.format.region_bytes)) return;  // without a move the whole region comes free
  if (keeps && IsSpared(candidate.region)) return;
  const double value = hides ? std::numeric_limits<double>::max() : c.value;
  if (std::pair(loses, value) >= c.least) return;
  c.least = {loses, value};
  c.best = c.candidate;
  c.best_keeps = keeps;
}

void Reclaimer::Choose() {
  Choice& c = *choice_;
  if (c.candidate < c.candidates.size()) {
    if (!Ask()) return;
    Compare();
    ++c.candidate;
    c.record = 0;
    c.value = 0;
    c.live = 0;
    c.kept_bytes = c.longest_kept = 0;
    return;
  }
  phase_ = Phase::kIdle;
  // Where nothing may be written nothing can be moved; what must go goes all the same.
  const bool found = c.least.second < std::numeric_limits<double>::infinity() && (drop_all_ || writer_.writable());
  if (found) chosen_ = std::make_shared<Candidate>(std::move(c.candidates[c.best]));
  const bool drop_all = !c.best_keeps;
  context_.maintenance.Post([choice = std::exchange(choice_, nullptr)] { choice->candidates.clear(); });  // tens of megabytes
  if (!found) return;
  TIERD_KILL_POINT("ssd.reclaim.before_move");
  Load(drop_all);
}

// Once the region's state has changed nothing may ask for memory until it can be put back: what throws before leaves it as it was.
void Reclaimer::Load(bool drop_all) {
  const std::uint32_t region = chosen_->region;
  spared_.try_emplace(region, 0);
  if (!drop_all) {
    context_.maintenance.Post([this, chosen = chosen_, address = context_.files.AddressOf(region), epoch = context_.regions.at(region).epoch,
                               &format = context_.format, &mailbox = context_.mailbox] {
      auto image = std::make_shared<Image>();
      image->status = ReadRegionImage(format, address, &image->bytes);
      const std::span<const RecoveredRecord> records = chosen->contents.records.records();
      if (image->status.ok()) image->sound = SoundRecords(format, epoch, image->bytes.span(), records);
      image->copies.reserve(records.size());
      mailbox.Post([this, image] {
        image_ = std::move(*image);
        OnLoaded();
      });
    });
  }
  context_.regions.Set(region, RegionState::kReclaiming);
  drop_all_ = drop_all;
  next_ = 0;
  stalled_ = put_back_ = false;
  phase_ = drop_all ? Phase::kMoving : Phase::kLoading;
}

void Reclaimer::OnLoaded() {
  if (!image_.status.ok()) return PutBack();
  phase_ = Phase::kMoving;
}

// No memory, or a device that fails or takes no writes: this says nothing about the records. Others are looked at meanwhile.
void Reclaimer::PutBack() {
  context_.regions.Set(chosen_->region, RegionState::kClosed);
  spared_[chosen_->region] = context_.clock.MonotonicNs() + kSpareNs;
  phase_ = Phase::kIdle;
  Discard();
}

bool Reclaimer::IsSpared(std::uint32_t region) const {
  const auto at = spared_.find(region);
  return at != spared_.end() && at->second > context_.clock.MonotonicNs();
}

void Reclaimer::Move() {
  const std::span<const RecoveredRecord> records = chosen_->contents.records.records();
  std::uint32_t moved = 0;
  stalled_ = false;
  while (!put_back_ && next_ < records.size() && moved < kMoveQuantum) {
    if (!MoveOne(next_)) {
      stalled_ = writer_.writable();
      if (stalled_) return;
      put_back_ = true;
      break;
    }
    moved += kRecordQuantum + (drop_all_ ? 0 : records[next_].location.stored_bytes);
    ++next_;
  }
  if (put_back_ || next_ == records.size()) {
    TIERD_KILL_POINT("ssd.reclaim.after_move");
    Settle();
  }
}

bool Reclaimer::MoveOne(std::size_t number) {
  const RecoveredRecord& found = chosen_->contents.records.records()[number];
  // Asked in this very turn: a newer version may have been appended since the region was read (HAZARDS 2.16 c).
  const SsdRecord record{found.identity, found.location};
  const double worth = context_.owner.Worth(record);
  if (worth < 0) return true;
  if (worth == 0 || drop_all_) {
    Lose(record, worth == 0 ? SsdGone::kReclaimed : SsdGone::kNoRoom);
    return true;
  }
  if (!image_.sound[number]) {
    Lose(record, SsdGone::kDamaged);
    return true;
  }
  const std::uint32_t at = record.location.offset() + record.location.header_bytes();
  const std::span<const std::byte> payload = std::span<const std::byte>(image_.bytes.span()).subspan(at, record.location.stored_bytes);
  const Result<SsdLocation> moved = writer_.Append(record.identity, found.path, payload, RegionWriter::Use::kMove);
  if (!moved.ok()) {
    if (moved.status().code() == Code::kBusy) return false;
    Lose(record, SsdGone::kNoRoom);
    return true;
  }
  image_.copies.push_back({*moved, number});
  ++context_.counters.moved_records;
  context_.counters.moved_bytes += record.location.stored_bytes;
  context_.regions.RemoveLive(record.location, context_.RecordBytesOf(record.location));
  context_.owner.OnMoved(record, *moved);
  return true;
}

void Reclaimer::Lose(const SsdRecord& record, SsdGone why) {
  context_.regions.RemoveLive(record.location, context_.RecordBytesOf(record.location));
  context_.owner.OnGone(record, why);
}

const SsdLocation* Reclaimer::OriginOf(const SsdLocation& copy) const {
  // Regions are filled in the order of their epochs.
  const auto before = [](const Copy& a, const SsdLocation& b) { return std::pair(a.to.epoch, a.to.offset()) < std::pair(b.epoch, b.offset()); };
  const auto at = std::lower_bound(image_.copies.begin(), image_.copies.end(), copy, before);
  return at == image_.copies.end() || !(at->to == copy) ? nullptr : &chosen_->contents.records.records()[at->number].location;
}

bool Reclaimer::TakeBack(const SsdRecord& copy) {
  const SsdLocation* const from = OriginOf(copy.location);
  if (from == nullptr) return false;
  put_back_ = true;
  context_.regions.AddLive(*from, context_.RecordBytesOf(*from));
  context_.owner.OnMoved(copy, *from);
  return true;
}

// What replaces these records may still be in a buffer: were the region overwritten first, a kill in between would lose both.
void Reclaimer::Settle() {
  writer_.Sync([this](Status status) {
    put_back_ = put_back_ || (!status.ok() && !image_.copies.empty());
    phase_ = Phase::kSettled;
  });
  phase_ = Phase::kSettling;
}

void Reclaimer::End() {
  if (!image_.copies.empty() && writer_.failing()) return;  // some may come back
  return put_back_ ? PutBack() : Free();
}

void Reclaimer::Free() {
  TIERD_KILL_POINT("ssd.reclaim.before_free");
  // First: it may throw. Without this word the next start would find it all again, also what is forgotten from now on where it has been moved to.
  context_.index.EndEmpty(chosen_->region, context_.regions.at(chosen_->region).epoch);
  // What the owner lost, and what nobody could name, goes with the region.
  context_.regions.ClearLive(chosen_->region);
  context_.regions.Set(chosen_->region, context_.regions.at(chosen_->region).readers == 0 ? RegionState::kFree : RegionState::kDraining);
  spared_.erase(chosen_->region);
  ++context_.counters.regions_reclaimed;
  phase_ = Phase::kIdle;
  looks_ = kLooks;
  Discard();
}

// On the worker: tens of megabytes.
void Reclaimer::Discard() {
  const auto image = std::make_shared<Image>(std::exchange(image_, {}));
  context_.maintenance.Post([chosen = std::exchange(chosen_, nullptr), image] {
    chosen->contents = RegionContents();
    *image = Image();
  });
}

}  // namespace tierd::ssd
