// Discovery: the first time a path is asked for. Reading it at once costs the source less than asking for its size first, so the bytes go
// into a staging buffer, with the rest of the first chunk beside it, and from there into a frame of the right size. When there is no room
// for a rest, the file is opened once more and read on in place.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "tierd/base/check.h"
#include "tierd/engine/fetch/fetcher_impl.h"

namespace tierd::engine {
namespace {

constexpr std::size_t kFirstGuess = 128 * 1024;
constexpr std::size_t kSmallestGuess = 8 * 1024;
constexpr std::uint64_t kSizesToTrust = 16;

// Twice the mean of what was read so far: most files fit, little is wasted.
std::size_t GuessBytes(const SourceUnit& unit) {
  if (unit.files_read < kSizesToTrust) return std::min<std::size_t>(kFirstGuess, unit.options.chunk_bytes);
  std::size_t guess = kSmallestGuess;
  while (guess < 2 * unit.MeanFileBytes()) guess *= 2;
  return std::min<std::size_t>(guess, unit.options.chunk_bytes);
}

// Whether bytes that nobody knows yet could find a frame. Where they could not, reading them would be in vain: the client reads them itself.
bool MayFindFrame(const Placement& placement, SourceUnit& unit, std::uint64_t bytes) {
  std::uint32_t victim = 0;
  return placement.has_ssd() || (placement.FreeForResidents() >= bytes && placement.HasPlace(bytes)) || unit.policy.Victims(TIERD_TIER_RAM, bytes, {&victim, 1}) != 0 || placement.OthersMayYield(unit) >= bytes;
}

}  // namespace

void Fetcher::OnRecovered(SourceUnit& unit, FileId file) {
  catalogue_.file(file).flags |= kFileHeld;
  // A stat may have confirmed it before there were bytes.
  catalogue_.SetDeadline(file, BoundByAccess(unit, file, catalogue_.DeadlineOf(file)));
  if (parked_.empty() || catalogue_.ChunkCount(file) != 1) return;  // of a large file more records may come
  const abi::FileKey key = catalogue_.file(file).key;
  auto found = parked_.extract(key);
  if (!found.empty()) ServeParked(std::move(found.mapped()), key);
}

void Fetcher::EndRecovery() {
  recovery_wait_until_ns_ = 0;
  auto parked = std::move(parked_);
  parked_.clear();
  for (auto& [key, of_path] : parked) ServeParked(std::move(of_path), key);
}

void Fetcher::ServeDoubted() {
  for (auto& [key, of_path] : std::exchange(doubted_, {})) {
    for (Waiter& waiter : of_path.waiters) {
      const source::Priority priority = PriorityOf(waiter);
      Serve(*of_path.unit, key, of_path.path, std::move(waiter), priority);
    }
  }
}

void Fetcher::ServeParked(Parked parked, abi::FileKey key) {
  for (Waiter& waiter : parked.waiters) Serve(*parked.unit, key, parked.path, std::move(waiter), parked.priority);
}

void Fetcher::Discover(SourceUnit& unit, abi::FileKey key, std::string_view path, Waiter waiter, source::Priority priority) {
  if ((waiter->flags & abi::kFetchAlias) != 0) {
    // The lease is of what the path led to when the client looked: whether it leads there still, or is a file itself by now, is about to be found out.
    waiter->by_link = waiter->is_awaited();
    waiter->flags = static_cast<std::uint8_t>(waiter->flags & ~abi::kFetchAlias);
  }
  if (recovery_wait_until_ns_ != 0) {
    Parked& parked = parked_[key];
    parked.unit = &unit;
    parked.path = std::string(path);
    parked.priority = parked.waiters.empty() ? priority : std::min(parked.priority, priority);
    parked.waiters.push_back(std::move(waiter));
    return;
  }
  if (const auto it = discoveries_.find(key); it != discoveries_.end()) {
    if (it->second->late && waiter->is_awaited()) return Finish(waiter, BringOutcome::kFailed, abi::Fallback::kSourceSlow, kNoFile);
    ++counters_.fetch_joined;
    if (waiter->is_awaited()) unit.reader->Promote(it->second->request, priority, waiter->deadline_ns);
    it->second->waiters.push_back(std::move(waiter));
    return;
  }
  auto discovery = std::make_shared<Discovery>();
  discovery->key = key;
  discovery->path = std::string(path);
  discovery->unit = unit.index;
  const bool read = waiter->op == abi::FetchOp::kChunk && waiter->chunk == 0 && !path.empty() && (waiter->flags & abi::kFetchHandle) == 0 &&
                    MayFindFrame(placement_, unit, GuessBytes(unit));
  discovery->waiters.push_back(std::move(waiter));
  discoveries_.emplace(key, discovery);
  if (read) DiscoverByRead(unit, discovery, priority);
  else DiscoverByStat(unit, discovery, priority);
}

void Fetcher::DiscoverByStat(SourceUnit& unit, const DiscoveryPtr& discovery, source::Priority priority) {
  source::StatQuery query;
  query.path = discovery->path;
  query.priority = priority;
  query.deadline_ns = DeadlineOf(discovery->waiters);
  query.done = [this, &unit, discovery](const source::StatReply& reply) { Guard([&] { OnDiscoveredStat(unit, discovery, reply); }); };
  discovery->request = unit.reader->Stat(std::move(query));
}

void Fetcher::OnDiscoveredStat(SourceUnit& unit, const DiscoveryPtr& discovery, const source::StatReply& reply) {
  if (reply.error == source::ReadError::kErrno && (reply.sys_errno == ELOOP || reply.sys_errno == ENOTDIR)) return ResolveAlias(unit, discovery);
  if (IsNoAnswer(reply.error)) return Unanswered(unit, discovery, reply.error);
  EndDiscovery(discovery);
  if (reply.error != source::ReadError::kNone) {
    for (const Waiter& waiter : discovery->waiters) {
      if (reply.error == source::ReadError::kErrno) Finish(waiter, BringOutcome::kFailed, abi::Fallback::kNone, kNoFile, reply.sys_errno);
      else Finish(waiter, BringOutcome::kFailed, ReasonOf(reply.error), kNoFile);
    }
    return;
  }
  if (S_ISLNK(reply.stat.mode) && std::any_of(discovery->waiters.begin(), discovery->waiters.end(),
                                              [](const Waiter& w) { return (w->flags & abi::kFetchNoFollow) == 0; })) {
    discoveries_.emplace(discovery->key, discovery);
    return ResolveAlias(unit, discovery);
  }
  FileId file = catalogue_.Find(discovery->key);
  if (file == kNoFile && !Catalogue::Takes(reply.stat, unit.options.chunk_bytes)) {
    for (const Waiter& waiter : discovery->waiters) Finish(waiter, BringOutcome::kFailed, WhyNotTaken(reply.stat), kNoFile);
    return;
  }
  if (file == kNoFile) {
    const auto added = catalogue_.Add(unit.index, discovery->path, discovery->key, reply.stat, unit.options.chunk_bytes);
    if (!added && catalogue_.growing()) {  // there will be room for it in the index soon
      discoveries_.emplace(discovery->key, discovery);
      stalled_.Add([this, &unit, discovery, reply] { OnDiscoveredStat(unit, discovery, reply); });
      return;
    }
    if (!added) {
      for (const Waiter& waiter : discovery->waiters) Finish(waiter, BringOutcome::kFailed, abi::Fallback::kNoFrame, kNoFile);
      return;
    }
    file = *added;
    Announce(unit, file);
  }
  // It may have become known meanwhile, and racy bytes of it been read: only reading them again confirms those (HAZARDS 2.12).
  const bool racy = (catalogue_.file(file).flags & kFileRacy) != 0;
  if (!racy && unit.reader->SameVersion(catalogue_.StatOf(file), reply.stat)) ConfirmFacts(unit, file, reply.stat_sent_ns, reply.racy);
  Again(unit, file, std::move(discovery->waiters));
}

void Fetcher::DiscoverByRead(SourceUnit& unit, const DiscoveryPtr& discovery, source::Priority priority) {
  discovery->capacity = GuessBytes(unit);
  if (discovery->capacity < unit.options.chunk_bytes)
    discovery->rest = std::make_shared<io::RestBuffer>(staging_, unit.options.chunk_bytes - discovery->capacity);
  discovery->generation = GenerationOf(unit);
  source::ReadRequest request;
  request.path = discovery->path;
  request.capacity = discovery->capacity;
  request.rest = discovery->rest;
  request.priority = priority;
  request.deadline_ns = DeadlineOf(discovery->waiters);
  request.acquire = [this, discovery](source::ReadRequest& sent) {
    discovery->asked_ns = clock_.PreciseNs();  // not before: it may stand in the reader's line for long
    if (discovery->staging.size() == 0) Guard([&] { discovery->staging = staging_->Take(discovery->capacity); });
    sent.buffer = discovery->staging.data();
    return discovery->staging.size() != 0;
  };
  discovery->timing = {unit.pace.Begin(), 0, clock_.PreciseNs()};
  request.done = [this, &unit, discovery](const source::ReadResult& result) {
    discovery->timing.bytes = result.bytes;
    discovery->timing.End(unit.pace, result.error, clock_.PreciseNs());
    if (!result.buffer_held) return Guard([&] { OnDiscoveredRead(unit, discovery, result); });
    discovery->late = true;
    Guard([&] { GiveUp(discovery->waiters, kNoFile, result.error); });
  };
  request.on_buffer_free = [this, &unit, discovery](const source::ReadResult& result) {
    discovery->late = false;
    Guard([&] { OnDiscoveredRead(unit, discovery, result); });
  };
  discovery->request = unit.reader->Read(std::move(request));
}

void Fetcher::OnDiscoveredRead(SourceUnit& unit, const DiscoveryPtr& discovery, const source::ReadResult& result) {
  if (result.error == source::ReadError::kErrno && (result.sys_errno == ELOOP || result.sys_errno == ENOTDIR)) {
    EndStaging(discovery);
    return ResolveAlias(unit, discovery);
  }
  if (result.error == source::ReadError::kNone) return Adopt(unit, discovery, result);
  if (IsNoAnswer(result.error)) return Unanswered(unit, discovery, result.error);
  // Every staging buffer is lent, or tierd has no descriptor: with its size known the file is read into a frame of its own.
  if (result.error == source::ReadError::kNoBuffer && !discovery->waiters.empty()) {
    EndStaging(discovery);
    return DiscoverByStat(unit, discovery, PriorityOf(discovery->waiters));
  }
  EndDiscovery(discovery);
  EndStaging(discovery);
  for (const Waiter& waiter : discovery->waiters) {
    switch (result.error) {
      case source::ReadError::kErrno: Finish(waiter, BringOutcome::kFailed, abi::Fallback::kNone, kNoFile, result.sys_errno); break;
      case source::ReadError::kNotRegular: Finish(waiter, BringOutcome::kFailed, abi::Fallback::kNotRegular, kNoFile); break;
      case source::ReadError::kOutside: Finish(waiter, BringOutcome::kFailed, abi::Fallback::kPath, kNoFile); break;
      case source::ReadError::kChanged: Finish(waiter, BringOutcome::kFailed, abi::Fallback::kChanged, kNoFile); break;
      default: Finish(waiter, BringOutcome::kFailed, abi::Fallback::kSourceSlow, kNoFile); break;
    }
  }
}

// An invalidation came after the bytes were asked for: they may be those from before it. Everybody asks again.
bool Fetcher::Doubted(SourceUnit& unit, const DiscoveryPtr& discovery) {
  const bool told = invalidations_.Covers(unit.index, discovery->path, discovery->asked_ns) || invalidations_.CoversInode(discovery->inode, discovery->asked_ns);
  if (!told) return false;
  AskAgain(unit, discovery);
  return true;
}

void Fetcher::AskAgain(SourceUnit& unit, const DiscoveryPtr& discovery) {
  AskAgain(unit, discovery->key, discovery->path, std::exchange(discovery->waiters, {}));
  EndDiscovery(discovery);
  EndStaging(discovery);
}

// Not at once: where there was no memory for a request there is none now.
void Fetcher::AskAgain(SourceUnit& unit, abi::FileKey key, std::string_view path, Waiters waiters) {
  if (waiters.empty()) return;
  Parked& again = doubted_[key];
  again.unit = &unit;
  again.path = path;
  std::move(waiters.begin(), waiters.end(), std::back_inserter(again.waiters));
}

void Fetcher::Unanswered(SourceUnit& unit, const DiscoveryPtr& discovery, source::ReadError error) {
  GiveUp(discovery->waiters, kNoFile, error);
  AskAgain(unit, discovery);
}

// The bytes (or the first of them) are in the staging buffer: the file becomes known.
void Fetcher::Adopt(SourceUnit& unit, const DiscoveryPtr& discovery, const source::ReadResult& result) {
  discovery->inode = result.version.ino;
  if (Doubted(unit, discovery)) return;
  FileId file = catalogue_.Find(discovery->key);
  const bool takes = Catalogue::Takes(result.version, unit.options.chunk_bytes);
  if (file == kNoFile && takes) {
    const auto added = catalogue_.Add(unit.index, discovery->path, discovery->key, result.version, unit.options.chunk_bytes);
    if (added) {
      file = *added;
      Announce(unit, file);
    } else if (catalogue_.growing()) {  // there will be room for it in the index soon
      stalled_.Add([this, &unit, discovery, result] { Adopt(unit, discovery, result); });
      return;
    }
  } else if (file != kNoFile && !unit.reader->SameVersion(catalogue_.StatOf(file), result.version)) {
    ApplyVersion(unit, file, result.version);
  } else if (file != kNoFile && (catalogue_.file(file).flags & kFileRacy) != 0) {
    // Racy bytes of it were read while this stood in the line. These do not confirm them, but take their place (HAZARDS 2.12).
    Invalidate(unit, file, EvictCause::kChanged);
  }
  if (file == kNoFile || !takes) {
    const abi::Fallback reason = takes ? abi::Fallback::kNoFrame : WhyNotTaken(result.version);
    EndDiscovery(discovery);
    EndStaging(discovery);
    for (const Waiter& waiter : discovery->waiters) Finish(waiter, BringOutcome::kFailed, reason, kNoFile);
    return;
  }
  ConfirmBytes(unit, file, result, AnyAwaited(discovery->waiters));
  discovery->file = file;
  discovery->tag = catalogue_.file(file).version_tag;
  discovery->bytes = result.bytes;
  ++unit.files_read;
  unit.bytes_read += std::min<std::uint64_t>(result.version.size, unit.options.chunk_bytes);
  PlaceDiscovered(unit, discovery);
}

// Whoever asked for the first chunk by its path is answered with these bytes. Others joined to learn of the file: another chunk of an open file, its size.
void Fetcher::PlaceDiscovered(SourceUnit& unit, const DiscoveryPtr& discovery) {
  if (Doubted(unit, discovery)) return;  // told while it waited for a frame
  const auto others = std::stable_partition(discovery->waiters.begin(), discovery->waiters.end(), [](const Waiter& waiter) {
    return waiter->op == abi::FetchOp::kChunk && waiter->chunk == 0 && (waiter->flags & abi::kFetchHandle) == 0;
  });
  Waiters later(std::make_move_iterator(others), std::make_move_iterator(discovery->waiters.end()));
  discovery->waiters.erase(others, discovery->waiters.end());
  const FileId file = discovery->file;
  PlaceStaged(unit, discovery);
  if (catalogue_.Find(discovery->key) == file) return Again(unit, file, std::move(later));
  for (const Waiter& waiter : later) Finish(waiter, BringOutcome::kFailed, abi::Fallback::kChanged, kNoFile);
}

// Moves the staged bytes on as the head of an ordinary fill of the file's first chunk; everybody who waited joins it.
void Fetcher::PlaceStaged(SourceUnit& unit, const DiscoveryPtr& discovery) {
  const FileId file = discovery->file;
  const bool same = catalogue_.Find(discovery->key) == file && catalogue_.file(file).version_tag == discovery->tag;
  const ObjectId object = same ? catalogue_.ObjectOf(file, 0) : kNoObject;
  const bool usable = object != kNoObject && !placement_.InRam(object) && !placement_.OnSsd(object) && !fills_.contains(Raw(object)) && discovery->bytes > 0;
  if (!usable) {
    EndDiscovery(discovery);
    EndStaging(discovery);
    if (same) return Again(unit, file, std::move(discovery->waiters));
    for (const Waiter& waiter : discovery->waiters) Finish(waiter, BringOutcome::kFailed, abi::Fallback::kChanged, kNoFile);
    return;
  }
  auto fill = std::make_shared<Fill>();
  fill->object = object;
  fill->file = file;
  fill->unit = unit.index;
  fill->generation = discovery->generation;
  fill->ssd_only = !discovery->waiters.empty();
  fill->evict = false;
  source::ChunkRange ahead;
  for (const Waiter& waiter : discovery->waiters) {
    if (const source::ChunkRange own = AheadOf(unit, file, waiter); own.count != 0) ahead = own;  // each reads the first chunk
    fill->ssd_only &= waiter->ssd_only;
    fill->evict |= waiter->evict;
    if (waiter->is_client()) NoteDemand(unit, file, waiter);
  }
  fill->priority = PriorityOf(discovery->waiters);
  fill->waiters = std::move(discovery->waiters);
  discovery->waiters.clear();
  const std::uint32_t bytes = catalogue_.object(object).bytes;
  if (!AcquireFor(fill, discovery->bytes == bytes && discovery->in_one_piece() ? &discovery->staging : nullptr)) {
    if (fill->no_memory && fill->staging.size() == 0 && fill->grant.outcome == Placement::Outcome::kWait) {
      discovery->waiters = std::move(fill->waiters);  // still reachable for Tick's deadlines
      staged_.Add({&unit, discovery});
      return;
    }
    // No frame: the SSD tier may take the bytes all the same; clients read the source.
    EndDiscovery(discovery);
    AddFill(fill);
    const std::uint32_t why = fill->is_awaited() ? TIERD_FOR_READER : TIERD_AHEAD;
    if (discovery->bytes == bytes && JoinStaged(discovery)) {
      placement_.NoteSourceBytes(object, {discovery->staging.data(), bytes});
      (void)placement_.CopyToSsd(object, {discovery->staging.data(), bytes}, {.generation = discovery->generation, .why = why});
    }
    EndStaging(discovery);
    return Fail(fill, abi::Fallback::kNoFrame, placement_.OnSsd(object) ? BringOutcome::kCached : BringOutcome::kNoRoom);
  }
  EndDiscovery(discovery);
  AddFill(fill);
  fill->head = std::min<std::size_t>(discovery->bytes, bytes);
  std::byte* to = fill->staging.size() != 0 ? fill->staging.data() : placement_.FrameSpan(fill->grant.frame).data();
  if (discovery->staging.size() != 0) discovery->CopyTo(to, fill->head);  // else the fill took the buffer over
  EndStaging(discovery);
  if (fill->head < bytes) {
    FillFromSource(unit, fill);
  } else {
    ++counters_.promotions_source_ram;
    counters_.promotion_bytes_source_ram += bytes;
    Keep(unit, fill);
  }
  ReadAhead(unit, file, ahead);
}

void Fetcher::EndDiscovery(const DiscoveryPtr& discovery) { discoveries_.erase(discovery->key); }

void Fetcher::EndStaging(const DiscoveryPtr& discovery) {
  staging_->Give(std::exchange(discovery->staging, {}));
  discovery->rest.reset();
}

// All bytes in the staging buffer, a larger one if need be. False: there is none.
bool Fetcher::JoinStaged(const DiscoveryPtr& discovery) {
  if (discovery->in_one_piece()) return true;
  io::AlignedBuffer whole = staging_->Take(discovery->bytes);
  if (whole.empty()) return false;
  discovery->CopyTo(whole.data(), discovery->bytes);
  EndStaging(discovery);
  discovery->staging = std::move(whole);
  discovery->capacity = discovery->bytes;
  return true;
}

// The path goes through a symbolic link: finds the one spelling under which the file is cached, and leaves an alias slot behind.
void Fetcher::ResolveAlias(SourceUnit& unit, const DiscoveryPtr& discovery) {
  discovery->asked_ns = clock_.PreciseNs();
  unit.resolver->Resolve(discovery->path, DeadlineOf(discovery->waiters), [this, &unit, discovery](const Result<source::ResolvedPath>& resolved) {
    Guard([&] { OnResolved(unit, discovery, resolved); });
  });
}

void Fetcher::OnResolved(SourceUnit& unit, const DiscoveryPtr& discovery, const Result<source::ResolvedPath>& resolved) {
  const bool late = !resolved.ok() && (resolved.status().code() == Code::kTimeout || resolved.status().code() == Code::kBusy);
  if (late) return Unanswered(unit, discovery, source::ReadError::kTimeout);
  const bool found = resolved.ok() && resolved->was_alias;
  const bool doubted = discovery->asked_ns <= unit.links_doubted_ns || invalidations_.CoversWay(unit.index, discovery->path, discovery->asked_ns);
  if (found && doubted) return AskAgain(unit, discovery);  // it may be where the link led before
  const abi::FileKey target = found ? catalogue_.KeyOf(unit.wire_id, resolved->canonical) : abi::FileKey{};
  if (found && catalogue_.Find(discovery->key) == kNoFile) {
    const auto alias = catalogue_.AddAlias(unit.index, discovery->path, discovery->key, target);
    if (!alias && catalogue_.growing()) return stalled_.Add([this, &unit, discovery, resolved] { OnResolved(unit, discovery, resolved); });
    unit.has_aliases |= alias.has_value();
    if (alias) catalogue_.SetDeadline(*alias, abi::TicksOf(std::min(discovery->asked_ns, resolved->stat_sent_ns) + std::int64_t{unit.options.ttl_ms} * 1'000'000));
  }
  EndDiscovery(discovery);
  while (found && catalogue_.TooManyAliases() && Forget(unit, catalogue_.OldestAlias())) {
  }
  Waiters waiters = std::move(discovery->waiters);
  if (!found) {
    const int sys_errno = resolved.ok() ? 0 : resolved.status().sys_errno();
    const bool outside = resolved.ok() || resolved.status().code() == Code::kPermission;
    for (const Waiter& waiter : waiters) {
      if (sys_errno != 0 && !outside) Finish(waiter, BringOutcome::kFailed, abi::Fallback::kNone, kNoFile, sys_errno);
      else Finish(waiter, BringOutcome::kFailed, abi::Fallback::kPath, kNoFile);
    }
    return;
  }
  for (Waiter& waiter : waiters) {
    // The client's lease names the alias, not the target.
    waiter->by_link = waiter->is_awaited();
    waiter->flags = 0;
    const source::Priority priority = PriorityOf(waiter);
    Serve(unit, target, resolved->canonical, std::move(waiter), priority);
  }
}

}  // namespace tierd::engine
