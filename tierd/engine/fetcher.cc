#include "tierd/engine/fetcher.h"

#include <sys/stat.h>

#include <algorithm>
#include <new>

#include "tierd/base/check.h"
#include "tierd/engine/fetcher_impl.h"

namespace tierd::engine {
namespace {

constexpr std::size_t kLostPerTick = 1024;

}  // namespace

Fetcher::Fetcher(const Parts& parts)
    : catalogue_(parts.catalogue), placement_(parts.placement), replies_(parts.replies), workers_(parts.workers), clock_(parts.clock), counters_(parts.counters) {}

Fetcher::~Fetcher() { lost_waiters_->Close(); }

// ---- requests --------------------------------------------------------------------------------------------------------------

void Fetcher::Fetch(SourceUnit& unit, const FetchRequest& request) {
  ++counters_.fetches;
  Waiter waiter(lost_waiters_);
  waiter->session = request.session;
  waiter->request_id = request.entry.request_id;
  waiter->op = static_cast<abi::FetchOp>(request.entry.op);
  waiter->flags = request.entry.flags;
  waiter->chunk = request.entry.chunk;
  waiter->deadline_ns = clock_.MonotonicNs() + std::int64_t{unit.options.demand_timeout_ms} * 1'000'000;
  waiter->expected.ino = request.entry.expected_ino;
  waiter->expected.size = request.entry.expected_size;
  waiter->expected.mtime_ns = request.entry.expected_mtime_ns;
  waiter->expected.ctime_ns = request.entry.expected_ctime_ns;
  const abi::FileKey key = catalogue_.KeyOf(unit.wire_id, request.path);
  if (waiter->op == abi::FetchOp::kList) {
    ServeListing(unit, key, request.path, std::move(waiter));
  } else {
    Serve(unit, key, request.path, std::move(waiter), source::Priority::kDemand);
  }
}

// The daemon's own requests do not throw, and end like any other when memory runs out on the way.
template <typename Begin>
void Fetcher::ForDaemon(BringCallback done, Begin&& begin) {
  auto* const waiting = new (std::nothrow) Waiting;
  if (waiting == nullptr) {
    NoteLost();
    return Guard([&] { done({BringOutcome::kFailed, kNoFile, abi::Fallback::kNoFrame, 0}); });
  }
  waiting->done = std::move(done);
  waiting->lost = lost_waiters_;
  Guard([&] { begin(Waiter(waiting)); });
}

void Fetcher::Bring(SourceUnit& unit, BringRequest request) {
  ForDaemon(std::move(request.done), [&](Waiter waiter) {
    waiter->chunk = request.chunk;
    waiter->ssd_only = request.ssd_only;
    waiter->evict = request.evict;
    Serve(unit, catalogue_.KeyOf(unit.wire_id, request.path), request.path, std::move(waiter), request.priority);
  });
}

void Fetcher::Refresh(SourceUnit& unit, FileId file, BringCallback done) {
  ForDaemon(std::move(done), [&](Waiter waiter) {
    waiter->op = abi::FetchOp::kStat;
    ServeFile(unit, file, std::move(waiter), source::Priority::kPrefetch);
  });
}

void Fetcher::RefreshAhead(SourceUnit& unit, FileId file, BringCallback done) {
  ForDaemon(std::move(done), [&](Waiter waiter) {
    waiter->op = abi::FetchOp::kStat;
    Revalidate(unit, file, std::move(waiter), source::Priority::kPrefetch);
  });
}

void Fetcher::Serve(SourceUnit& unit, abi::FileKey key, std::string_view path, Waiter waiter, source::Priority priority) {
  if (++waiter->attempts > kMaxAttempts) return Finish(waiter, BringOutcome::kFailed, abi::Fallback::kChanged, kNoFile);
  const FileId file = catalogue_.Find(key);
  if (file == kNoFile) return Discover(unit, key, path, std::move(waiter), priority);
  ServeFile(unit, file, std::move(waiter), priority);
}

void Fetcher::ServeFile(SourceUnit& unit, FileId file, Waiter waiter, source::Priority priority) {
  const std::uint16_t flags = catalogue_.file(file).flags;
  if ((flags & kFileAlias) != 0) {
    // An alias is resolved anew when its deadline is over; the record goes, so that discovery does it.
    const io::FileStat link = catalogue_.StatOf(file);
    const abi::FileKey target{static_cast<std::uint64_t>(link.mtime_ns), static_cast<std::uint64_t>(link.ctime_ns)};
    const FileId behind = catalogue_.Find(target);
    const bool known = behind != kNoFile && (catalogue_.file(behind).flags & kFileAlias) == 0;
    if (known && NowTicks() < catalogue_.DeadlineOf(file) && waiter->is_client()) {
      // A client that followed the alias holds the target's lease and says so; any other one looks up again first.
      if ((waiter->flags & abi::kFetchAlias) != 0 && waiter->expected.ino == target.lo && waiter->expected.size == target.hi) {
        waiter->flags = static_cast<std::uint8_t>(waiter->flags & ~(abi::kFetchAlias | abi::kFetchHandle));
        return ServeFile(unit, behind, std::move(waiter), priority);
      }
      abi::FetchReply reply{};
      reply.request_id = waiter->request_id;
      reply.status = static_cast<std::uint8_t>(abi::FetchStatus::kRetry);
      return Answer(waiter, reply);
    }
    const std::string path = catalogue_.PathOf(file);
    const abi::FileKey key = catalogue_.file(file).key;
    catalogue_.Remove(file);
    return Discover(unit, key, path, std::move(waiter), priority);
  }
  const bool ours = !waiter->is_client() && (flags & kFileUnproven) != 0;  // to have it is enough
  if (!ours && NowTicks() >= catalogue_.DeadlineOf(file)) {
    const ObjectId only = catalogue_.ChunkCount(file) == 1 ? catalogue_.ObjectOf(file, 0) : kNoObject;
    const bool cached = only == kNoObject || placement_.InRam(only) || placement_.OnSsd(only);
    // Nothing cached of a file of one chunk: the read brings its own confirmation.
    if (waiter->op != abi::FetchOp::kChunk || cached) return Revalidate(unit, file, std::move(waiter), priority);
  }
  if (waiter->op == abi::FetchOp::kStat) return Finish(waiter, BringOutcome::kCached, abi::Fallback::kNone, file);
  if ((flags & (kFileDirectory | kFileSymlink)) != 0) return Finish(waiter, BringOutcome::kFailed, abi::Fallback::kNotRegular, file);
  ServeChunk(unit, file, std::move(waiter), priority);
}

void Fetcher::ServeChunk(SourceUnit& unit, FileId file, Waiter waiter, source::Priority priority) {
  if ((waiter->flags & abi::kFetchHandle) != 0) {
    const io::FileStat stat = catalogue_.StatOf(file);
    const io::FileStat& expected = waiter->expected;
    if (stat.ino != expected.ino || stat.size != expected.size || stat.mtime_ns != expected.mtime_ns || stat.ctime_ns != expected.ctime_ns)
      return Finish(waiter, BringOutcome::kFailed, abi::Fallback::kChanged, file);
  }
  NoteDemand(unit, file, waiter);
  const std::uint32_t chunks = catalogue_.ChunkCount(file);
  if (chunks == 0) return Finish(waiter, BringOutcome::kCached, abi::Fallback::kNone, file);  // 0 bytes
  const ObjectId object = catalogue_.ObjectOf(file, waiter->chunk);
  if (object == kNoObject) return Finish(waiter, BringOutcome::kFailed, abi::Fallback::kChanged, file);
  if (waiter->is_client() && chunks > 1) {
    const source::StreamKey stream{static_cast<std::uint64_t>(waiter->session), Raw(file)};
    const source::ChunkRange ahead = unit.read_ahead.OnAccess(stream, waiter->chunk, chunks);
    StartFill(unit, object, std::move(waiter), priority);
    ReadAhead(unit, file, ahead);
    return;
  }
  StartFill(unit, object, std::move(waiter), priority);
}

void Fetcher::ReadAhead(SourceUnit& unit, FileId file, source::ChunkRange range) {
  for (std::uint32_t i = 0; i < range.count; ++i) {
    const ObjectId object = catalogue_.ObjectOf(file, range.first + i);
    if (object == kNoObject || placement_.InRam(object) || fills_.contains(Raw(object))) continue;
    Waiter waiter(lost_waiters_);
    waiter->chunk = range.first + i;
    waiter->done = [](const BringResult&) {};
    StartFill(unit, object, std::move(waiter), source::Priority::kReadAhead);
  }
}

void Fetcher::NoteDemand(SourceUnit& unit, FileId file, const Waiter& waiter) {
  FileRecord& record = catalogue_.file(file);
  if (!waiter->is_client() || (record.flags & kFileDemanded) != 0) return;
  record.flags |= kFileDemanded;
  if (on_first_demand) on_first_demand(unit, file);
}

// ---- freshness -------------------------------------------------------------------------------------------------------------

std::uint32_t Fetcher::DeadlineFor(const SourceUnit& unit, std::int64_t stat_sent_ns, bool racy) const {
  if (unit.options.staleness == abi::Staleness::kImmutable && !racy) return abi::kDeadlineNever;
  return std::max<std::uint32_t>(1, abi::TicksOf(stat_sent_ns + std::int64_t{unit.options.ttl_ms} * 1'000'000));
}

void Fetcher::Confirm(SourceUnit& unit, FileId file, std::int64_t stat_sent_ns, bool racy) {
  if (invalidations_.Any(stat_sent_ns) && invalidations_.Covers(unit.index, catalogue_.PathOf(file), stat_sent_ns)) {
    catalogue_.SetDeadline(file, abi::kDeadlineExpired);  // older than what a client knows: the next one to ask compares again
    return;
  }
  FileRecord& record = catalogue_.file(file);
  record.flags |= kFileChecked;
  record.flags = static_cast<std::uint16_t>(racy ? record.flags | kFileRacy : record.flags & ~kFileRacy);
  catalogue_.SetDeadline(file, DeadlineFor(unit, stat_sent_ns, racy));
}

// For who waits just now, and hardly anybody else.
std::uint32_t Fetcher::MomentFrom(const SourceUnit& unit, std::int64_t stat_sent_ns) const { return std::min(NowTicks() + 2, DeadlineFor(unit, stat_sent_ns, true)); }

// What is in the making is half there: its size is believed for a ttl whatever the mode, and that there is nothing at all for a moment.
void Fetcher::ConfirmFacts(SourceUnit& unit, FileId file, std::int64_t stat_sent_ns, bool young) {
  Confirm(unit, file, stat_sent_ns, false);
  if (!young) return;
  constexpr std::uint16_t kOther = kFileDirectory | kFileSymlink | kFileAlias;
  const bool empty = catalogue_.SizeOf(file) == 0 && (catalogue_.file(file).flags & kOther) == 0;
  const std::uint32_t until = empty ? MomentFrom(unit, stat_sent_ns) : DeadlineFor(unit, stat_sent_ns, true);
  catalogue_.SetDeadline(file, std::min(until, catalogue_.DeadlineOf(file)));
}

// The writer may have ended by the time of the next use, and who reads then was not promised what had been there before (HAZARDS 2.12).
void Fetcher::ConfirmBytes(SourceUnit& unit, FileId file, const source::ReadResult& result, bool awaited) {
  if (result.version.size == 0) return ConfirmFacts(unit, file, result.stat_sent_ns, result.racy);
  Confirm(unit, file, result.stat_sent_ns, result.racy);
  std::uint16_t& flags = catalogue_.file(file).flags;
  flags = static_cast<std::uint16_t>(flags & ~kFileUnproven);
  if (!result.in_the_making && (awaited || !result.racy)) return;
  flags |= kFileUnproven;
  catalogue_.SetDeadline(file, awaited ? std::min(MomentFrom(unit, result.stat_sent_ns), catalogue_.DeadlineOf(file)) : abi::kDeadlineExpired);
}

// A stat of a file whose bytes are unproven shows the version that they were read as. They are read again at a deadline all the same, as of any racy file.
void Fetcher::Prove(SourceUnit& unit, FileId file, const source::StatReply& reply) {
  Confirm(unit, file, reply.stat_sent_ns, true);
  if (reply.in_the_making) return catalogue_.SetDeadline(file, std::min(MomentFrom(unit, reply.stat_sent_ns), catalogue_.DeadlineOf(file)));
  std::uint16_t& flags = catalogue_.file(file).flags;
  flags = static_cast<std::uint16_t>(flags & ~kFileUnproven);
}

void Fetcher::Revalidate(SourceUnit& unit, FileId file, Waiter waiter, source::Priority priority) {
  auto [it, first] = revalidations_.try_emplace(Raw(file));
  const std::int64_t deadline_ns = waiter->deadline_ns;
  it->second.waiters.push_back(std::move(waiter));
  if (!first) return unit.reader->Promote(it->second.request, priority, deadline_ns);
  ++counters_.revalidations;
  const std::uint64_t tag = catalogue_.file(file).version_tag;
  it->second.tag = tag;
  source::StatQuery query;
  query.path = catalogue_.PathOf(file);
  query.priority = priority;
  query.deadline_ns = deadline_ns;
  it->second.asked = std::make_shared<const bool>(true);
  query.done = [this, &unit, file, tag, asked = it->second.asked](const source::StatReply& reply) {
    Guard([&] { OnRevalidated(unit, file, tag, reply); });
  };
  it->second.request = unit.reader->Stat(std::move(query));
}

void Fetcher::OnRevalidated(SourceUnit& unit, FileId file, std::uint64_t tag, const source::StatReply& reply) {
  const auto it = revalidations_.find(Raw(file));
  if (it == revalidations_.end() || it->second.tag != tag) return;  // the file was forgotten meanwhile
  Waiters waiters = std::move(it->second.waiters);
  revalidations_.erase(it);
  const FileRecord& record = catalogue_.file(file);
  const bool offline = unit.options.offline_ok && unit.options.staleness == abi::Staleness::kImmutable;
  if (reply.error != source::ReadError::kNone) {
    if (offline && reply.error != source::ReadError::kErrno) {
      Confirm(unit, file, clock_.MonotonicNs(), (record.flags & kFileRacy) != 0);
    } else {
      for (const Waiter& waiter : waiters) {
        // An ENOENT is passed on, never believed (HAZARDS 2.15): what is cached stays, unserved, until a stat confirms it.
        if (reply.error == source::ReadError::kErrno) Finish(waiter, BringOutcome::kFailed, abi::Fallback::kNone, file, reply.sys_errno);
        else Finish(waiter, BringOutcome::kFailed, abi::Fallback::kSourceSlow, file);
      }
      return;
    }
  } else if (!unit.reader->SameVersion(catalogue_.StatOf(file), reply.stat)) {
    ++counters_.invalidated_changed;
    ApplyVersion(unit, file, reply.stat);
    ConfirmFacts(unit, file, reply.stat_sent_ns, reply.racy);
  } else if ((record.flags & kFileUnproven) != 0) {
    if (std::any_of(waiters.begin(), waiters.end(), [](const Waiter& waiter) { return waiter->is_client(); })) Prove(unit, file, reply);
  } else if ((record.flags & kFileRacy) != 0) {
    ++counters_.invalidated_racy;
    Invalidate(unit, file, EvictCause::kChanged);
    ConfirmFacts(unit, file, reply.stat_sent_ns, reply.racy);
  } else {
    catalogue_.CompleteAttributes(file, reply.stat);
    ConfirmFacts(unit, file, reply.stat_sent_ns, reply.racy);
  }
  for (Waiter& waiter : waiters) {
    const auto priority = waiter->is_client() ? source::Priority::kDemand : source::Priority::kPrefetch;
    if (++waiter->attempts > kMaxAttempts) Finish(waiter, BringOutcome::kFailed, abi::Fallback::kChanged, file);
    else ServeFile(unit, file, std::move(waiter), priority);
  }
}

void Fetcher::ApplyVersion(SourceUnit& unit, FileId file, const io::FileStat& stat) {
  Waiters orphans;
  const std::uint32_t chunks = catalogue_.ChunkCount(file);
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) Orphan(catalogue_.ObjectOf(file, chunk), &orphans);
  placement_.EvictFile(file, EvictCause::kChanged);
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) unit.policy.ObjectForgotten(Raw(catalogue_.ObjectOf(file, chunk)));
  catalogue_.ChangeVersion(file, stat, unit.options.chunk_bytes);
  Announce(unit, file);
  if (unit.options.staleness == abi::Staleness::kImmutable && ssd_ != nullptr) {
    // A set that was declared immutable has changed: no record of it may come back after a crash (HAZARDS 2.16).
    ssd_->InvalidateDataset(unit.dataset_id, [](const Status&) {});
    if (on_dataset_void) on_dataset_void(unit);
  }
  for (const Waiter& waiter : orphans) Finish(waiter, BringOutcome::kFailed, abi::Fallback::kChanged, file);
}

Fetcher::Observed Fetcher::Observe(SourceUnit& unit, std::string_view path, const io::FileStat& stat, std::int64_t stat_sent_ns) {
  const abi::FileKey key = catalogue_.KeyOf(unit.wire_id, path);
  FileId file = catalogue_.Find(key);
  if (file == kNoFile) {
    const auto added = catalogue_.Add(unit.index, path, key, stat, unit.options.chunk_bytes);
    if (!added) return catalogue_.growing() ? Observed::kLater : Observed::kNoRoom;
    file = *added;
    Announce(unit, file);
  } else if ((catalogue_.file(file).flags & kFileAlias) != 0) {
    return Observed::kKnown;  // a link: what it leads to is known under its own name
  } else if (!unit.reader->SameVersion(catalogue_.StatOf(file), stat)) {
    // Which of the two is older nobody knows: the walk may have waited for room since it saw this. The source is asked.
    if ((catalogue_.file(file).flags & kFileChecked) != 0) {
      RefreshAhead(unit, file, [](const BringResult&) {});
      return Observed::kKnown;
    }
    ++counters_.invalidated_changed;
    ApplyVersion(unit, file, stat);
  } else if ((catalogue_.file(file).flags & kFileRacy) != 0) {
    return Observed::kKnown;  // only reading it again confirms it (HAZARDS 2.12)
  } else {
    catalogue_.CompleteAttributes(file, stat);
    const bool younger = (catalogue_.file(file).flags & kFileChecked) != 0 && catalogue_.DeadlineOf(file) >= DeadlineFor(unit, stat_sent_ns, false);
    if (younger) return Observed::kKnown;  // confirmed since
  }
  ConfirmFacts(unit, file, stat_sent_ns, unit.reader->IsYoung(stat, stat_sent_ns));
  return Observed::kKnown;
}

void Fetcher::Announce(SourceUnit& unit, FileId file) {
  const std::uint32_t chunks = catalogue_.ChunkCount(file);
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    const ObjectId object = catalogue_.ObjectOf(file, chunk);
    unit.policy.ObjectKnown({Raw(object), Raw(file), chunk, catalogue_.object(object).bytes});
  }
}

// Takes the fill of an object away from it: its waiters are handed over, its I/O ends for nobody.
void Fetcher::Orphan(ObjectId object, Waiters* waiters) {
  const auto it = fills_.find(Raw(object));
  if (it == fills_.end()) return;
  const FillPtr fill = it->second;
  fills_.erase(it);
  fill->orphan = true;
  for (Waiter& waiter : fill->waiters) waiters->push_back(std::move(waiter));
  fill->waiters.clear();
}

void Fetcher::NoteInvalidation(const SourceUnit& unit, std::string_view path, bool recursive) {
  invalidations_.Add(unit.index, path, recursive, clock_.PreciseNs());
}

bool Fetcher::Invalidate(SourceUnit& unit, FileId file, EvictCause cause) {
  Waiters orphans;
  const std::uint32_t chunks = catalogue_.ChunkCount(file);
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) Orphan(catalogue_.ObjectOf(file, chunk), &orphans);
  catalogue_.SetDeadline(file, abi::kDeadlineExpired);
  placement_.EvictFile(file, cause);
  for (const Waiter& waiter : orphans) Finish(waiter, BringOutcome::kFailed, abi::Fallback::kChanged, file);
  (void)unit;
  return true;
}

void Fetcher::Forget(SourceUnit& unit, FileId file) {
  Invalidate(unit, file, EvictCause::kRequest);
  if (const auto it = revalidations_.find(Raw(file)); it != revalidations_.end()) {
    Waiters waiters = std::move(it->second.waiters);
    revalidations_.erase(it);
    for (const Waiter& waiter : waiters) Finish(waiter, BringOutcome::kFailed, abi::Fallback::kChanged, kNoFile);
  }
  const std::uint32_t chunks = catalogue_.ChunkCount(file);
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) unit.policy.ObjectForgotten(Raw(catalogue_.ObjectOf(file, chunk)));
  catalogue_.Remove(file);
}

// ---- time ------------------------------------------------------------------------------------------------------------------

void Fetcher::Tick() {
  if (std::exchange(lost_, false) && !Survives([&] { Reap(); })) NoteLost();
  AnswerLost();
  const std::int64_t now = clock_.MonotonicNs();
  Waiters expired;
  const auto collect = [&](Waiters& waiters) {
    for (std::size_t i = 0; i < waiters.size();) {
      if (waiters[i]->is_client() && waiters[i]->deadline_ns <= now) {
        expired.push_back(std::move(waiters[i]));
        if (&waiters[i] != &waiters.back()) waiters[i] = std::move(waiters.back());
        waiters.pop_back();
      } else {
        ++i;
      }
    }
  };
  for (auto& [id, fill] : fills_) collect(fill->waiters);
  for (auto& [key, discovery] : discoveries_) collect(discovery->waiters);
  for (auto& [id, revalidation] : revalidations_) collect(revalidation.waiters);
  for (auto& [key, listing] : listings_) collect(listing->waiters);
  for (auto& [key, parked] : parked_) collect(parked.waiters);
  for (const Waiter& waiter : expired) ReplyBypass(waiter, abi::Fallback::kSourceSlow);
  ServeDoubted();
  if (recovery_wait_until_ns_ != 0 && now >= recovery_wait_until_ns_) EndRecovery();
  if (!waiting_for_memory_.empty() || !staged_.empty() || !stalled_.empty()) Resume();  // staging buffers come back without a word
  ResumeWrites();
}

// Waiters whose work went away without answering them.
void Fetcher::AnswerLost() {
  for (std::size_t i = 0; i < kLostPerTick && !lost_waiters_->empty(); ++i) {
    Finish(Waiter(lost_waiters_->Take()), BringOutcome::kFailed, abi::Fallback::kNoFrame, kNoFile);
  }
}

// Work that only the maps know of has lost its request, or the step that would have gone on with it: nothing will ever complete it.
void Fetcher::Reap() {
  const auto lost = [](const auto& work) { return work.use_count() == 1; };
  const auto bypass = [this](const Waiter& waiter) { Finish(waiter, BringOutcome::kFailed, abi::Fallback::kNoFrame, kNoFile); };
  std::vector<std::uint32_t> ids;
  for (const auto& [id, fill] : fills_) {
    if (lost(fill)) ids.push_back(id);
  }
  for (const std::uint32_t id : ids) {
    if (const auto it = fills_.find(id); it != fills_.end()) Fail(FillPtr(it->second), abi::Fallback::kNoFrame, BringOutcome::kFailed);
  }
  std::vector<abi::FileKey> gone;
  for (const auto& [key, discovery] : discoveries_) {
    if (lost(discovery)) gone.push_back(key);
  }
  for (const abi::FileKey& key : gone) {
    const DiscoveryPtr discovery = discoveries_.extract(key).mapped();
    EndStaging(discovery);
    for (const Waiter& waiter : discovery->waiters) bypass(waiter);
  }
  gone.clear();
  for (const auto& [key, listing] : listings_) {
    if (lost(listing)) gone.push_back(key);
  }
  for (const abi::FileKey& key : gone) EndListing(key, bypass);
  ids.clear();
  for (const auto& [id, revalidation] : revalidations_) {
    if (revalidation.asked == nullptr || lost(revalidation.asked)) ids.push_back(id);
  }
  for (const std::uint32_t id : ids) {
    const auto revalidation = revalidations_.extract(id);
    for (const Waiter& waiter : revalidation.mapped().waiters) bypass(waiter);
  }
}

// ---- answers ---------------------------------------------------------------------------------------------------------------

abi::FetchReply Fetcher::ReplyFor(const Waiter& waiter, FileId file) const {
  abi::FetchReply reply{};
  reply.request_id = waiter->request_id;
  reply.ordinal = 0xffffffffu;
  if (file == kNoFile) return reply;
  const io::FileStat stat = catalogue_.StatOf(file);
  reply.kind = static_cast<std::uint8_t>(catalogue_.KindOf(file));
  reply.size = stat.size;
  reply.dev = stat.dev;
  reply.ino = stat.ino;
  reply.mtime_ns = stat.mtime_ns;
  reply.ctime_ns = stat.ctime_ns;
  reply.mode = stat.mode;
  reply.uid = stat.uid;
  reply.gid = stat.gid;
  reply.nlink = stat.nlink;
  reply.deadline = catalogue_.DeadlineOf(file);
  reply.generation = catalogue_.generation();
  return reply;
}

void Fetcher::Answer(const Waiter& waiter, const abi::FetchReply& reply) {
  waiter->answered = true;
  replies_.OnFetchReply(waiter->session, reply);
}

void Fetcher::Answer(const Waiter& waiter, const BringResult& result) {
  waiter->answered = true;
  if (waiter->done) Guard([&] { waiter->done(result); });
}

void Fetcher::ReplyFrame(const Waiter& waiter, ObjectId object, std::uint64_t word, abi::Tier tier) {
  const ObjectRecord& record = catalogue_.object(object);
  abi::FetchReply reply = ReplyFor(waiter, record.file);
  reply.status = static_cast<std::uint8_t>(abi::FetchStatus::kFrame);
  reply.tier = static_cast<std::uint8_t>(tier);
  reply.location = word;
  reply.length = record.bytes;
  reply.ordinal = catalogue_.OrdinalOf(object);
  placement_.NoteRead(object);
  Answer(waiter, reply);
}

void Fetcher::ReplyMeta(const Waiter& waiter, FileId file) {
  abi::FetchReply reply = ReplyFor(waiter, file);
  reply.status = static_cast<std::uint8_t>(abi::FetchStatus::kMeta);
  Answer(waiter, reply);
}

void Fetcher::ReplyBypass(const Waiter& waiter, abi::Fallback reason, FileId file) {
  ++counters_.fetch_bypassed;
  abi::FetchReply reply = ReplyFor(waiter, file);
  reply.status = static_cast<std::uint8_t>(abi::FetchStatus::kBypass);
  reply.reason = static_cast<std::uint8_t>(reason);
  if (file != kNoFile) {
    const ObjectId object = catalogue_.ObjectOf(file, waiter->chunk);
    if (object != kNoObject) reply.ordinal = catalogue_.OrdinalOf(object);
  }
  Answer(waiter, reply);
}

void Fetcher::ReplyError(const Waiter& waiter, int sys_errno) {
  abi::FetchReply reply = ReplyFor(waiter, kNoFile);
  reply.status = static_cast<std::uint8_t>(abi::FetchStatus::kError);
  reply.sys_errno = static_cast<std::uint16_t>(sys_errno);
  Answer(waiter, reply);
}

// Ends one waiter without bytes: metadata when the outcome is good, an errno, or a bypass with its reason.
void Fetcher::Finish(const Waiter& waiter, BringOutcome outcome, abi::Fallback reason, FileId file, int sys_errno) {
  if (!waiter->is_client()) {
    return Answer(waiter, BringResult{outcome, file, reason, sys_errno});
  }
  if (outcome == BringOutcome::kCached) return ReplyMeta(waiter, file);
  if (sys_errno != 0) return ReplyError(waiter, sys_errno);
  ReplyBypass(waiter, reason, file);
}

}  // namespace tierd::engine
