// Fills: one chunk from the SSD tier or the source into a frame (or, for the SSD tier alone, a staging buffer).
#include <algorithm>
#include <cstring>
#include <utility>

#include "tierd/base/check.h"
#include "tierd/engine/fetch/fetcher_impl.h"

namespace tierd::engine {
namespace {

constexpr std::int64_t kSliceNs = 1'000'000;  // of a turn, for what had to wait (HAZARDS 5)

}  // namespace

void Fetcher::StartFill(SourceUnit& unit, ObjectId object, Waiter waiter, source::Priority priority) {
  const bool satisfied = waiter->ssd_only ? placement_.OnSsd(object) : placement_.InRam(object);
  const FileId file = catalogue_.object(object).file;
  if (satisfied || (!waiter->is_client() && placement_.OnSsd(object) && !waiter->evict && placement_.FreeForResidents() < catalogue_.object(object).bytes)) {
    if (!waiter->is_client()) return Finish(waiter, BringOutcome::kCached, abi::Fallback::kNone, file);
    ++counters_.fetch_hits;
    return ReplyFrame(waiter, object, placement_.LocationWordOf(object), abi::Tier::kRam);
  }
  if (const Placement::PassedFrame passed = waiter->is_client() ? placement_.PassedOf(object, waiter->part) : Placement::PassedFrame(); passed.word != 0) {
    ++counters_.fetch_hits;
    return ReplyFrame(waiter, object, passed.word, abi::Tier::kRam, passed.range);
  }
  if (const auto it = fills_.find(Raw(object)); it != fills_.end()) {
    FillPtr fill = it->second;
    if (fill->late && waiter->is_awaited()) return Finish(waiter, BringOutcome::kFailed, abi::Fallback::kSourceSlow, file);
    if (fill->sent_ns != 0 && IsToldOf(file, fill->sent_ns)) {  // its bytes may be older than the change that who asks now was told of
      Waiters waiters;
      OrphanFile(file, &waiters);
      waiters.push_back(std::move(waiter));
      return Again(unit, file, std::move(waiters));
    }
    ++counters_.fetch_joined;
    if (waiter->is_awaited() && !fill->is_awaited()) ++counters_.prefetch_late;
    if (waiter->is_awaited()) {
      fill->priority = std::min(fill->priority, priority);  // also of what is asked of the source later
      if (const auto read = fill->read.lock()) unit.reader->Promote(read->request, priority, waiter->deadline_ns);
    }
    if (waiter->is_awaited() && placement_.OnSsd(object)) ssd_->Hasten(catalogue_.object(object).ssd);
    fill->evict |= waiter->evict;
    fill->ssd_only &= waiter->ssd_only;
    if (!fill->wanted.Covers(waiter->part) || waiter->part.bytes == 0) {
      fill->wanted = {};
      fill->little = false;
    }
    const bool client = waiter->is_client();
    fill->waiters.push_back(std::move(waiter));
    // A client may have what the promotion may not, a frame in transit: it does not wait for memory, nor for the SSD tier.
    const auto is_fill = [&](const auto& waiting) { return waiting.second == fill; };
    if (!client) return;
    if (std::erase_if(waiting_for_ssd_, is_fill) + waiting_for_memory_.EraseIf(is_fill) != 0) RunFill(unit, fill);
    return;
  }
  auto fill = std::make_shared<Fill>();
  fill->object = object;
  fill->file = file;
  fill->unit = unit.index;
  fill->priority = priority;
  fill->ssd_only = waiter->ssd_only;
  fill->evict = waiter->evict;
  if (waiter->is_client() && (waiter->flags & abi::kFetchSequential) == 0) {
    const Placement::PartPlan plan = placement_.PlanParts(object, waiter->part);
    fill->wanted = plan.range;
    fill->little = plan.little;
  }
  fill->waiters.push_back(std::move(waiter));
  if (JoinParts(fill)) return;
  AddFill(fill);
  if (fill->ssd_only && placement_.InRam(object)) return CopyDown(unit, fill);
  RunFill(unit, fill);
}

// The SSD tier alone is asked for, and RAM has the bytes: the source is not read again.
void Fetcher::CopyDown(SourceUnit& unit, const FillPtr& fill) {
  const ObjectRecord& record = catalogue_.object(fill->object);
  fill->staging = staging_->Take(record.bytes);
  if (fill->staging.size() == 0) return Fail(fill, abi::Fallback::kNoFrame, BringOutcome::kNoRoom);
  std::memcpy(fill->staging.data(), placement_.FrameSpan(record.frame).data(), record.bytes);
  fill->generation = GenerationOf(unit);
  Complete(unit, fill, abi::Tier::kRam, true);
}

void Fetcher::RunFill(SourceUnit& unit, const FillPtr& fill) {
  fill->no_memory = false;
  if (fill->staged) return CompleteFromSource(unit, fill);
  if (FillFromSsd(unit, fill)) return;
  if (fill->part.bytes != 0) return Fail(fill, abi::Fallback::kNoFrame, BringOutcome::kCached);  // the reader needs less than the source would be asked for
  FillFromSource(unit, fill);
}

// Memory for the bytes. False: the fill waits for memory (no_memory) or cannot have any. `filled`: a buffer with all of them, taken over where no frame
// is needed.
bool Fetcher::AcquireFor(const FillPtr& fill, io::AlignedBuffer* filled, bool part_will_do) {
  if (fill->has_memory()) return true;
  if (!fill->ssd_only) {
    fill->grant = placement_.Acquire(fill->object, {.may_transit = fill->has_client(), .may_evict = fill->evict, .little = fill->little, .part_bytes = part_will_do ? fill->wanted.bytes : 0});
    if (fill->grant.outcome == Placement::Outcome::kGranted) {
      if (fill->grant.part) fill->part = fill->wanted;
      if (fill->grant.transit) no_transit_until_ns_ = 0;
      return true;
    }
    if (fill->grant.outcome == Placement::Outcome::kWait) {
      fill->no_memory = true;
      return false;
    }
    // What only the source has is read there by the client itself, and sooner than after a wait.
    if (fill->has_client() && placement_.OnSsd(fill->object) && placement_.TransitInUse() && MayWaitForTransit(*fill)) {
      fill->no_memory = true;
      return false;
    }
  }
  // Nobody waits for the bytes themselves: they may go to the SSD tier without a frame.
  const std::uint32_t bytes = catalogue_.object(fill->object).bytes;
  if (fill->has_client() || placement_.SsdFree() < bytes || placement_.OnSsd(fill->object)) return false;
  fill->staging = filled != nullptr ? std::exchange(*filled, {}) : staging_->Take(bytes);
  fill->no_memory = fill->staging.size() == 0;
  return !fill->no_memory;
}

void Fetcher::ReleaseMemory(const FillPtr& fill) {
  if (fill->grant.outcome == Placement::Outcome::kGranted) placement_.Abandon(fill->grant);
  fill->grant = {};
  staging_->Give(std::exchange(fill->staging, {}));
}

// F08: a reader waits, and what the SSD may cost readers is used up.
bool Fetcher::SsdIsSlower(SourceUnit& unit, Fill& fill, std::uint32_t bytes) {
  if (fill.priority != source::Priority::kDemand || unit.reader->state() != source::SourceState::kUp) return false;
  SsdAccount& account = unit.ssd_accounts[ServicePace::ClassOf(bytes)];
  if (!fill.has_paid) account.Pay(unit.pace.PerRequestNs(bytes));
  fill.has_paid = true;
  return !account.has_credit();
}

bool Fetcher::FillFromSsd(SourceUnit& unit, const FillPtr& fill) {
  if (fill->skip_ssd || fill->ssd_only || ssd_ == nullptr || !placement_.OnSsd(fill->object)) return false;
  if (HungFramesFull()) {
    Fail(fill, abi::Fallback::kSourceSlow, BringOutcome::kCached);  // it is on SSD: a prefetch has what it asked for
    return true;
  }
  if (SsdIsSlower(unit, *fill, fill->part.bytes != 0 ? fill->part.bytes : catalogue_.object(fill->object).bytes)) {
    ++counters_.ssd_slow_bypass;
    fill->skip_ssd = true;
    return false;
  }
  if (!AcquireFor(fill, nullptr, true)) {
    if (fill->no_memory) {
      waiting_for_memory_.Add({&unit, fill});
    } else {
      Fail(fill, abi::Fallback::kNoFrame, BringOutcome::kCached);
    }
    return true;
  }
  const ObjectRecord& record = catalogue_.object(fill->object);
  const auto expected = placement_.IdentityOf(fill->object, GenerationOf(unit));
  const auto dest = placement_.FrameSpan(fill->grant.frame);
  const auto read_class = fill->is_awaited() ? ssd::ReadClass::kForeground : ssd::ReadClass::kBackground;
  const auto done = [this, &unit, fill](const ssd::ReadResult& result) { Guard([&] { OnSsdRead(unit, fill, result); }); };
  const auto on_hung = [this, fill] { Guard([&] { BeginHung(*fill, source::ReadError::kHung); }); };
  const bool parts = fill->part.bytes != 0;
  fill->read_from = record.ssd;
  const Status status = parts ? ssd_->ReadParts(record.ssd, expected, fill->part, dest, done, on_hung) : ssd_->Read(record.ssd, expected, dest, done, read_class, on_hung);
  if (status.ok()) {
    fill->timing = read_class == ssd::ReadClass::kForeground ? Timing{ssd_pace_.Begin(), parts ? fill->part.bytes : record.bytes, clock_.PreciseNs()} : Timing{};
    return true;
  }
  if (status.code() == Code::kNotFound && !fill->orphan) placement_.EvictSsd(fill->object, EvictCause::kDamaged);
  if (status.code() == Code::kBusy) ++counters_.ssd_slow_bypass;
  fill->skip_ssd = true;
  return false;
}

void Fetcher::OnSsdRead(SourceUnit& unit, const FillPtr& fill, const ssd::ReadResult& result) {
  if (const Timing& timing = fill->timing; timing.depth != 0) {
    const double took_ns = ssd_pace_.End(timing.depth, timing.bytes, clock_.PreciseNs() - timing.begun_ns);
    if (result.outcome == ssd::ReadOutcome::kOk) unit.ssd_accounts[ServicePace::ClassOf(timing.bytes)].Took(took_ns, unit.pace.PerRequestNs(timing.bytes));
  }
  EndHung(*fill);
  if (fill->orphan) return ReleaseMemory(fill);
  if (fill->part.bytes != 0) return OnPartsRead(unit, fill, result);
  if (result.outcome == ssd::ReadOutcome::kOk && result.bytes == catalogue_.object(fill->object).bytes) {
    ++counters_.promotions_ssd_ram;
    counters_.promotion_bytes_ssd_ram += result.bytes;
    return Complete(unit, fill, abi::Tier::kSsd, false);
  }
  ++counters_.promotions_failed;
  // It may have been moved meanwhile: what stands there now is not what could not be read.
  if (placement_.OnSsd(fill->object) && catalogue_.object(fill->object).ssd != fill->read_from) return RunFill(unit, fill);
  DropRecord(fill->object, result);
  fill->skip_ssd = true;
  FillFromSource(unit, fill);  // that read is completed from the source (F05, F12)
}

void Fetcher::DropRecord(ObjectId object, const ssd::ReadResult& result) {
  if (result.is_shortage()) return;
  if (result.outcome == ssd::ReadOutcome::kIoError) {
    ++counters_.ssd_read_errors;
  } else if (result.outcome != ssd::ReadOutcome::kMiss || placement_.OnSsd(object)) {
    ++counters_.integrity_ssd;  // damaged, or another file's record stands there (F13); not: the dataset became void meanwhile
  }
  placement_.EvictSsd(object, EvictCause::kDamaged);
}

void Fetcher::OnFilled(SourceUnit& unit, const FillPtr& fill, const source::ReadResult& result) {
  if (fill->orphan) return ReleaseMemory(fill);
  const ObjectRecord& record = catalogue_.object(fill->object);
  switch (result.error) {
    case source::ReadError::kNone: break;
    case source::ReadError::kNoBuffer:
      if (fill->no_memory) {
        waiting_for_memory_.Add({&unit, fill});
        return;
      }
      return Fail(fill, abi::Fallback::kNoFrame, placement_.OnSsd(fill->object) ? BringOutcome::kCached : BringOutcome::kNoRoom);
    case source::ReadError::kErrno: return Fail(fill, abi::Fallback::kNone, BringOutcome::kFailed, result.sys_errno);
    case source::ReadError::kNotRegular: return Fail(fill, abi::Fallback::kNotRegular, BringOutcome::kFailed);
    case source::ReadError::kOutside: return Fail(fill, abi::Fallback::kPath, BringOutcome::kFailed);
    case source::ReadError::kTimeout:
    case source::ReadError::kHung:
    case source::ReadError::kStopped: return Unanswered(unit, fill, result.error);
    case source::ReadError::kChanged: {
      // Another version is there now: the slot follows, and the waiters go round again.
      Waiters waiters = std::move(fill->waiters);
      fill->waiters.clear();
      const FileId file = fill->file;
      Fail(fill, abi::Fallback::kChanged, BringOutcome::kFailed);
      ++counters_.invalidated_changed;
      ApplyVersion(unit, file, result.version);
      Again(unit, file, std::move(waiters));
      return;
    }
  }
  const bool same = unit.reader->SameVersion(catalogue_.StatOf(fill->file), result.version);
  if (!same || fill->head + result.bytes != record.bytes) {
    Waiters waiters = std::move(fill->waiters);
    fill->waiters.clear();
    const FileId file = fill->file;
    Fail(fill, abi::Fallback::kChanged, BringOutcome::kFailed);
    ++counters_.invalidated_changed;
    ApplyVersion(unit, file, result.version);
    Again(unit, file, std::move(waiters));
    return;
  }
  ++unit.files_read;
  unit.bytes_read += record.bytes;
  ++counters_.promotions_source_ram;
  counters_.promotion_bytes_source_ram += record.bytes;
  catalogue_.CompleteAttributes(fill->file, result.version);
  // One chunk of a racy file says nothing about the others, which were read earlier: only all of it, read again, ends that (HAZARDS 2.12).
  const FileRecord& owner = catalogue_.file(fill->file);
  if ((owner.flags & kFileChunked) == 0 || (owner.flags & kFileRacy) == 0) ConfirmBytes(unit, fill->file, result, fill->is_awaited());
  Keep(unit, fill);
}

// Not at once: where there was no memory for the request it would be tried again and again.
void Fetcher::Unanswered(SourceUnit& unit, const FillPtr& fill, source::ReadError error) {
  GiveUp(fill->waiters, fill->file, error);
  if (fill->waiters.empty()) return Fail(fill, abi::Fallback::kSourceSlow, BringOutcome::kFailed);
  fill->priority = source::Priority::kPrefetch;
  waiting_for_memory_.Add({&unit, fill});
}

void Fetcher::Again(SourceUnit& unit, FileId file, Waiters waiters) {
  const abi::FileKey key = catalogue_.file(file).key;
  const std::string path = waiters.size() > 1 ? catalogue_.PathOf(file) : std::string();
  for (Waiter& waiter : waiters) {
    const source::Priority priority = PriorityOf(waiter);
    const FileId now = catalogue_.Find(key);  // what has become a link goes with the first one who follows it
    if (++waiter->attempts > kMaxAttempts) Finish(waiter, BringOutcome::kFailed, abi::Fallback::kChanged, now);
    else if (now != kNoFile) ServeFile(unit, now, std::move(waiter), priority);
    else Discover(unit, key, path, std::move(waiter), priority);
  }
}

void Fetcher::Complete(SourceUnit& unit, const FillPtr& fill, abi::Tier tier, bool copy_to_ssd) {
  const ObjectId object = fill->object;
  const std::uint32_t bytes = catalogue_.object(object).bytes;
  bool framed = fill->grant.outcome == Placement::Outcome::kGranted;
  const bool part = fill->part.bytes != 0;
  if (framed && !part && !fill->has_client() && catalogue_.SlotWaits(object)) {  // nobody waits for the bytes alone: without a slot they would be lost
    stalled_.Add([this, &unit, fill, tier, copy_to_ssd] {
      if (fill->orphan) ReleaseMemory(fill);
      else Complete(unit, fill, tier, copy_to_ssd);
    });
    return;
  }
  Placement::Copied copied = Placement::Copied::kRefused;
  const std::byte* data = framed ? placement_.FrameSpan(fill->grant.frame).data() : fill->staging.data();
  const bool stays = framed && !fill->grant.transit;
  if (copy_to_ssd && !stays) {
    const std::uint32_t why = fill->is_awaited() ? TIERD_FOR_READER : TIERD_AHEAD;
    copied = placement_.CopyToSsd(object, {data, bytes}, {.generation = fill->generation, .why = why});
    // Without a frame this is the only place for them: the source was read, and is not read again because the device is slower.
    if (copied == Placement::Copied::kBusy && !framed && !fill->has_client() && MayWaitForSsd(*fill)) {
      waiting_for_ssd_.emplace_back(&unit, fill);
      return;
    }
  }
  RemoveFill(*fill);
  if (copied == Placement::Copied::kChanged) {
    ReleaseMemory(fill);
    framed = false;
  }
  if (!part && !fill->is_awaited()) {
    ++counters_.prefetch_files;
    counters_.prefetch_bytes += bytes;
    placement_.NotePrefetched(object);
  }
  std::uint64_t word = 0;
  if (framed) {
    word = placement_.Publish(object, fill->grant, fill->part);
    fill->grant = {};
    // The policy knows by now that RAM has it. Where the index had no room for it, the frame has left and its bytes are untouched as yet.
    if (copy_to_ssd && stays) copied = placement_.CopyToSsd(object, {data, bytes}, {.generation = fill->generation, .why = TIERD_COPY});
  }
  const bool in_ram = placement_.InRam(object), on_ssd = placement_.OnSsd(object);
  const BringResult none{.outcome = BringOutcome::kNoRoom, .file = fill->file, .reason = copied == Placement::Copied::kBusy ? abi::Fallback::kNoFrame : abi::Fallback::kNone};
  Waiters waiters = std::move(fill->waiters);
  for (Waiter& waiter : waiters) {
    if (!waiter->is_client()) {
      const bool kept = on_ssd || (in_ram && !waiter->ssd_only);
      Answer(waiter, kept ? BringResult{.outcome = BringOutcome::kCached, .file = fill->file} : none);
    } else if (copied == Placement::Copied::kChanged) {
      ReplyBypass(waiter, abi::Fallback::kChanged, fill->file);
    } else if (framed) {
      const bool covered = !part || (waiter->part.bytes != 0 && fill->part.Covers(waiter->part));
      if (covered) ReplyFrame(waiter, object, word, tier, fill->part);
      else StartFill(unit, object, std::move(waiter), source::Priority::kDemand);  // it joined when the frame was there already
    } else {
      ReplyBypass(waiter, abi::Fallback::kNoFrame, fill->file);  // joined a promotion to the SSD tier alone, and RAM has no frame for it
    }
  }
  staging_->Give(std::exchange(fill->staging, {}));
}

// The source's bytes are all there. Staged ones, which were meant for the SSD tier alone, move into a frame for a client who has joined meanwhile.
void Fetcher::CompleteFromSource(SourceUnit& unit, const FillPtr& fill) {
  fill->staged = fill->staging.size() != 0;
  if (fill->staged && fill->has_client()) {
    fill->grant = placement_.Acquire(fill->object, {.may_transit = true, .may_evict = fill->evict});
    const bool granted = fill->grant.outcome == Placement::Outcome::kGranted;
    // Without one the client would read the source again.
    if (fill->grant.outcome == Placement::Outcome::kWait || (!granted && placement_.TransitInUse() && MayWaitForTransit(*fill))) {
      waiting_for_memory_.Add({&unit, fill});
      return;
    }
    if (granted) std::memcpy(placement_.FrameSpan(fill->grant.frame).data(), fill->staging.data(), catalogue_.object(fill->object).bytes);
  }
  Complete(unit, fill, abi::Tier::kSource, true);  // also without a frame: the SSD tier may take them, the client reads the source
}

bool Fetcher::ResumeWrites() {
  std::erase_if(waiting_for_ssd_, [&](const auto& waiting) {
    if (!waiting.second->orphan) return false;
    ReleaseMemory(waiting.second);
    return true;
  });
  if (waiting_for_ssd_.empty() || (ssd_->behind() && MayWaitForSsd(*waiting_for_ssd_.front().second))) return false;
  auto waiting = std::exchange(waiting_for_ssd_, {});
  const std::int64_t until_ns = clock_.PreciseNs() + kSliceNs;
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    if (waiting[i].second->orphan) ReleaseMemory(waiting[i].second);  // since the look above
    else Complete(*waiting[i].first, waiting[i].second, abi::Tier::kSource, true);
    const bool refused = !waiting_for_ssd_.empty();  // it would be no better for the others
    if (!refused && clock_.PreciseNs() < until_ns) continue;
    waiting_for_ssd_.insert(waiting_for_ssd_.end(), waiting.begin() + static_cast<std::ptrdiff_t>(i) + 1, waiting.end());
    return !refused && !waiting_for_ssd_.empty();
  }
  return false;
}

void Fetcher::Fail(const FillPtr& fill, abi::Fallback reason, BringOutcome outcome, int sys_errno) {
  RemoveFill(*fill);
  ReleaseMemory(fill);
  if (outcome == BringOutcome::kFailed) ++counters_.promotions_failed;
  Waiters waiters = std::move(fill->waiters);
  fill->waiters.clear();
  for (const Waiter& waiter : waiters) {
    if (waiter->is_client() && outcome != BringOutcome::kFailed) ReplyBypass(waiter, reason, fill->file);
    else Finish(waiter, outcome, reason, fill->file, sys_errno);
  }
}

bool Fetcher::Resume() {
  waiting_for_memory_.BeginRound();
  staged_.BeginRound();
  stalled_.BeginRound();
  return ResumeRest();
}

bool Fetcher::ResumeRest() {
  const std::int64_t until_ns = clock_.PreciseNs() + kSliceNs;
  bool all = waiting_for_memory_.Run(clock_, until_ns, [&](const auto& waiting) {
    const auto& [unit, fill] = waiting;
    if (fill->orphan) ReleaseMemory(fill);
    else if (fill->waiters.empty()) Fail(fill, abi::Fallback::kNoFrame, BringOutcome::kNoRoom);  // everybody gave up meanwhile
    else RunFill(*unit, fill);
  });
  all &= staged_.Run(clock_, until_ns, [&](const auto& waiting) { PlaceDiscovered(*waiting.first, waiting.second); });
  all &= stalled_.Run(clock_, until_ns, [](const auto& step) { step(); });
  return !all;
}

}  // namespace tierd::engine
