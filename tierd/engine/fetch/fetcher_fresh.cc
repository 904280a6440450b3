// Freshness: how long what is known of a file is believed, when the source is asked again, and what becomes of it when the source says something else.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "tierd/engine/fetch/fetcher_impl.h"

namespace tierd::engine {
namespace {

constexpr std::int64_t kUnreachableNs = 5'000'000'000;  // so long nobody is made to wait for another attempt, and no longer is anything believed unasked

// What is on the SSD is served even if the source cannot say that it is still so.
bool OfflineOk(const SourceUnit& unit) { return unit.options.offline_ok && unit.options.staleness == abi::Staleness::kImmutable; }

// An EIO may be of this file alone, and comes at once where it is of all: it says nothing of the others.
bool ConcernsAll(const source::StatReply& reply) { return reply.error != source::ReadError::kErrno || reply.sys_errno != EIO; }

}  // namespace

std::uint32_t Fetcher::DeadlineFor(const SourceUnit& unit, std::int64_t stat_sent_ns, bool racy) const {
  if (unit.options.staleness == abi::Staleness::kImmutable && !racy) return abi::kDeadlineNever;
  return std::max<std::uint32_t>(1, abi::TicksOf(stat_sent_ns + std::int64_t{unit.options.ttl_ms} * 1'000'000));
}

bool Fetcher::IsToldOf(FileId file, std::int64_t since_ns) const {
  return invalidations_.Any(since_ns) &&
         (invalidations_.Covers(catalogue_.file(file).source, catalogue_.PathOf(file), since_ns) || invalidations_.CoversInode(catalogue_.StatOf(file).ino, since_ns));
}

void Fetcher::Confirm(SourceUnit& unit, FileId file, std::int64_t stat_sent_ns, bool racy) {
  if ((catalogue_.file(file).flags & kFileBare) != 0) return;  // its deadline stays over
  FileRecord& record = catalogue_.file(file);
  if (racy) record.flags |= kFileRacy;  // of the bytes that are there now, whoever believes them
  if (IsToldOf(file, stat_sent_ns)) return;  // older than what a client knows: the deadline is over already, or a younger answer's
  record.flags |= kFileChecked;
  record.flags = static_cast<std::uint16_t>(racy ? record.flags | kFileRacy : record.flags & ~kFileRacy);
  catalogue_.SetDeadline(file, BoundByAccess(unit, file, DeadlineFor(unit, stat_sent_ns, racy)));
}

// The source cannot be asked: the file is believed for a while, compared with nothing (HAZARDS 2.16).
void Fetcher::ConfirmUnasked(FileId file, std::int64_t until_ns) {
  const FileRecord& record = catalogue_.file(file);
  const std::int64_t now_ns = clock_.MonotonicNs();
  if ((record.flags & kFileBare) != 0 || IsToldOf(file, now_ns)) return;
  catalogue_.SetDeadline(file, abi::TicksOf(until_ns) + 1);
}

// For who waits just now, and hardly anybody else.
std::uint32_t Fetcher::MomentFrom(const SourceUnit& unit, std::int64_t stat_sent_ns) const { return std::min(NowTicks() + 2, DeadlineFor(unit, stat_sent_ns, true)); }

// What is in the making is half there: its size is believed for a ttl whatever the mode, and that there is nothing at all for a moment.
void Fetcher::ConfirmFacts(SourceUnit& unit, FileId file, std::int64_t stat_sent_ns, bool young) {
  Confirm(unit, file, stat_sent_ns, false);
  if (!young) return;
  const bool empty = catalogue_.SizeOf(file) == 0 && (catalogue_.file(file).flags & kFileNotRegular) == 0;
  const std::uint32_t until = empty ? MomentFrom(unit, stat_sent_ns) : DeadlineFor(unit, stat_sent_ns, true);
  catalogue_.SetDeadline(file, std::min(until, catalogue_.DeadlineOf(file)));
}

// The writer may have ended by the time of the next use, and who reads then was not promised what had been there before (HAZARDS 2.12).
void Fetcher::ConfirmBytes(SourceUnit& unit, FileId file, const source::ReadResult& result, bool awaited) {
  if (result.version.size == 0) return ConfirmFacts(unit, file, result.stat_sent_ns, result.racy);
  NoteOpened(file, result.stat_sent_ns);
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
  const std::int64_t now_ns = clock_.MonotonicNs();
  std::int64_t deadline_ns = waiter->deadline_ns;
  if (OfflineOk(unit)) {
    // Once: who was believed unasked before is asked about, or a source of which only a part is away would never be.
    if (now_ns < unit.unreachable_until_ns && catalogue_.DeadlineOf(file) == abi::kDeadlineExpired) {
      ConfirmUnasked(file, unit.unreachable_until_ns);
      if (++waiter->attempts > kMaxAttempts) return Finish(waiter, BringOutcome::kFailed, abi::Fallback::kSourceSlow, file);
      return ServeFile(unit, file, std::move(waiter), priority);
    }
    if (deadline_ns != 0) deadline_ns = now_ns + (deadline_ns - now_ns) / 2;  // who waits is still there when it is known that there is no answer
  }
  auto [it, first] = revalidations_.try_emplace(Raw(file));
  it->second.waiters.push_back(std::move(waiter));
  it->second.priority = std::min(it->second.priority, priority);
  if (it->second.deadline_ns == 0) it->second.deadline_ns = deadline_ns;
  if (!first) return unit.reader->Promote(it->second.request, priority, deadline_ns);
  ++counters_.revalidations;
  it->second.tag = catalogue_.file(file).version_tag;
  it->second.asked = std::make_shared<const bool>(true);
  AskSource(unit, file);
}

void Fetcher::OnRevalidated(SourceUnit& unit, FileId file, std::uint64_t tag, const source::StatReply& reply, bool opening) {
  const auto it = revalidations_.find(Raw(file));
  if (it == revalidations_.end() || it->second.tag != tag) return;  // the file was forgotten meanwhile
  const bool told = reply.error == source::ReadError::kNone;
  const bool same = told && unit.reader->SameVersion(catalogue_.StatOf(file), reply.stat);
  const bool confirms = !same || StatWillDo(unit, file, reply);
  if (!confirms && !opening) return AskFurther(unit, file, reply);
  if (opening && reply.opened) ++counters_.access_granted;
  if (same && reply.opened) NoteOpened(file, reply.stat_sent_ns);
  Waiters waiters = std::move(it->second.waiters);
  revalidations_.erase(it);
  if (reply.error == source::ReadError::kErrno && reply.sys_errno == ELOOP) return Relinked(unit, file, std::move(waiters));
  const FileRecord& record = catalogue_.file(file);
  if (!confirms || (reply.error == source::ReadError::kErrno && (reply.sys_errno == EACCES || reply.sys_errno == EPERM))) {
    Refused(file);
    const int sys_errno = confirms ? reply.sys_errno : EINVAL;  // EINVAL: the open alone says it
    for (const Waiter& waiter : waiters) Finish(waiter, BringOutcome::kFailed, abi::Fallback::kNone, file, sys_errno);
    return;
  }
  if (!told) {
    if (OfflineOk(unit) && Unreachable(reply)) {
      const std::int64_t until_ns = clock_.MonotonicNs() + kUnreachableNs;
      if (ConcernsAll(reply)) unit.unreachable_until_ns = until_ns;
      ConfirmUnasked(file, until_ns);
    } else if (IsNoAnswer(reply.error)) {
      GiveUp(waiters, file, reply.error);
      return AskAgain(unit, record.key, catalogue_.PathOf(file), std::move(waiters));
    } else {
      for (const Waiter& waiter : waiters) {
        // An ENOENT is passed on, never believed (HAZARDS 2.15): what is cached stays, unserved, until a stat confirms it.
        if (reply.error == source::ReadError::kErrno) Finish(waiter, BringOutcome::kFailed, abi::Fallback::kNone, file, reply.sys_errno);
        else Finish(waiter, BringOutcome::kFailed, ReasonOf(reply.error), file);
      }
      return;
    }
  } else if ((record.flags & kFileBare) != 0) {
    ApplyVersion(unit, file, reply.stat);
    ConfirmFacts(unit, file, reply.stat_sent_ns, reply.racy);
  } else if (!same || !Catalogue::Takes(reply.stat, unit.options.chunk_bytes)) {
    // A record of the SSD does not say the mode: the file may be one that is not taken.
    ++counters_.invalidated_changed;
    ApplyVersion(unit, file, reply.stat);
    ConfirmFacts(unit, file, reply.stat_sent_ns, reply.racy);
  } else if ((record.flags & kFileUnproven) != 0) {
    if (AnyAwaited(waiters)) Prove(unit, file, reply);
  } else if ((record.flags & kFileRacy) != 0) {
    ++counters_.invalidated_racy;
    Invalidate(unit, file, EvictCause::kChanged);
    ConfirmFacts(unit, file, reply.stat_sent_ns, reply.racy);
  } else {
    catalogue_.CompleteAttributes(file, reply.stat);
    ConfirmFacts(unit, file, reply.stat_sent_ns, reply.racy);
  }
  if ((record.flags & kFileBare) != 0) {
    for (const Waiter& waiter : waiters) Finish(waiter, BringOutcome::kFailed, WhyNotTaken(reply.stat), kNoFile);
    return;
  }
  Again(unit, file, std::move(waiters));
}

void Fetcher::Relinked(SourceUnit& unit, FileId file, Waiters waiters) {
  const abi::FileKey key = catalogue_.file(file).key;
  const std::string path = catalogue_.PathOf(file);
  io::FileStat link;
  link.mode = S_IFLNK;
  ApplyVersion(unit, file, link);
  for (Waiter& waiter : waiters) {
    const source::Priority priority = PriorityOf(waiter);
    if (catalogue_.Find(key) == file) DiscoverAnew(unit, file, std::move(waiter), priority);
    else Discover(unit, key, path, std::move(waiter), priority);
  }
}

void Fetcher::ApplyVersion(SourceUnit& unit, FileId file, const io::FileStat& stat) {
  // Records of earlier lives count no more once the dataset was made void in this one.
  const bool has_records = unit.void_before == 0 || (catalogue_.file(file).flags & kFileChecked) != 0;
  // A directory that gains or loses a name: its list is another, each file is what it was until it is asked about itself.
  const bool directory = (catalogue_.file(file).flags & kFileDirectory) != 0 && S_ISDIR(stat.mode);
  const bool bare = (catalogue_.file(file).flags & kFileBare) != 0;
  if (bare && !Catalogue::Takes(stat, unit.options.chunk_bytes)) return;  // nothing is kept of it that could be old
  Waiters orphans;
  const std::uint32_t chunks = catalogue_.ChunkCount(file);
  OrphanFile(file, &orphans);
  placement_.EvictFile(file, EvictCause::kChanged);
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) unit.policy.ObjectForgotten(Raw(catalogue_.ObjectOf(file, chunk)));
  catalogue_.ChangeVersion(file, stat, unit.options.chunk_bytes);
  Announce(unit, file);
  if (unit.options.staleness == abi::Staleness::kImmutable && ssd_ != nullptr && has_records && !directory) {
    // A set that was declared immutable has changed: no record of it may come back after a crash (HAZARDS 2.16).
    ssd_->InvalidateDataset(unit.dataset_id, [](const Status&) {});
    if (on_dataset_void) on_dataset_void(unit);
  }
  for (const Waiter& waiter : orphans) Finish(waiter, BringOutcome::kFailed, abi::Fallback::kChanged, file);
}

Fetcher::Observed Fetcher::Observe(SourceUnit& unit, std::string_view path, const io::FileStat& stat, std::int64_t stat_sent_ns) {
  const abi::FileKey key = catalogue_.KeyOf(unit.wire_id, path);
  if (S_ISDIR(stat.mode)) NoteDirectory(unit, path, stat.mode, stat_sent_ns);
  FileId file = catalogue_.Find(key);
  if (file == kNoFile && !Catalogue::Takes(stat, unit.options.chunk_bytes)) return Observed::kKnown;
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
void Fetcher::Orphan(const FillPtr& fill, Waiters* waiters) {
  RemoveFill(*fill);
  fill->orphan = true;
  for (Waiter& waiter : fill->waiters) waiters->push_back(std::move(waiter));
  fill->waiters.clear();
}

void Fetcher::OrphanFile(FileId file, Waiters* waiters) {
  std::vector<FillPtr> fills;
  if (parts_under_way_ != 0) {
    for (const auto& [key, fill] : fills_) {
      if (fill->file == file) fills.push_back(fill);
    }
  } else {
    const std::uint32_t chunks = catalogue_.ChunkCount(file);
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
      if (const auto it = fills_.find(Raw(catalogue_.ObjectOf(file, chunk))); it != fills_.end()) fills.push_back(it->second);
    }
  }
  for (const FillPtr& fill : fills) Orphan(fill, waiters);
}

bool Fetcher::IsFilling(FileId file) const {
  if (parts_under_way_ != 0) return std::any_of(fills_.begin(), fills_.end(), [file](const auto& one) { return one.second->file == file; });
  const std::uint32_t chunks = catalogue_.ChunkCount(file);
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    if (fills_.contains(Raw(catalogue_.ObjectOf(file, chunk)))) return true;
  }
  return false;
}

void Fetcher::NoteInvalidation(const SourceUnit& unit, std::string_view path, bool recursive) {
  invalidations_.Add(unit.index, path, recursive, clock_.PreciseNs());
  directories_.erase(catalogue_.KeyOf(unit.wire_id, path));
  if (recursive && path.empty()) directories_.clear();
  catalogue_.NoteChange();
}

void Fetcher::NoteInvalidation(std::uint64_t inode) {
  invalidations_.AddInode(inode, clock_.PreciseNs());
  catalogue_.NoteChange();
}

bool Fetcher::Invalidate(SourceUnit& unit, FileId file, EvictCause cause) {
  Waiters orphans;
  OrphanFile(file, &orphans);
  catalogue_.SetDeadline(file, abi::kDeadlineExpired);
  placement_.EvictFile(file, cause);
  for (const Waiter& waiter : orphans) Finish(waiter, BringOutcome::kFailed, abi::Fallback::kChanged, file);
  (void)unit;
  return true;
}

bool Fetcher::Forget(SourceUnit& unit, FileId file) {
  const FileRecord& record = catalogue_.file(file);
  if ((record.flags & kFilePinned) != 0) return false;
  // What was asked for says of which version it is the answer (tags are used once); but who waits for it waits for this record.
  if (revalidations_.contains(Raw(file)) || discoveries_.contains(record.key) || listings_.contains(record.key)) return false;
  const std::uint32_t chunks = catalogue_.ChunkCount(file);
  const ObjectId listing = catalogue_.ListingOf(file, false);
  if (listing != kNoObject && placement_.InRam(listing)) return false;
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    const ObjectId object = catalogue_.ObjectOf(file, chunk);
    if (placement_.InRam(object) || placement_.HasSsdRecord(object)) return false;
  }
  if (IsFilling(file)) return false;
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    const ObjectId object = catalogue_.ObjectOf(file, chunk);
    placement_.ForgetPassed(object);
    unit.policy.ObjectForgotten(Raw(object));
  }
  catalogue_.Remove(file);
  return true;
}

}  // namespace tierd::engine
