#include "tierd/engine/fetch/fetcher.h"

#include <algorithm>
#include <iterator>
#include <new>

#include "tierd/base/check.h"
#include "tierd/engine/fetch/fetcher_impl.h"

namespace tierd::engine {
namespace {

constexpr std::size_t kLostPerTick = 1024;
constexpr std::int64_t kLookPauseNs = 25'000'000;       // between two looks at all deadlines
constexpr std::int64_t kLongLookPauseNs = 100'000'000;  // where a look takes long; clients wait for 200 ms more than we do
constexpr std::int64_t kLookShare = 20;                 // of the time goes into them
constexpr std::int64_t kSsdPatienceNs = 30'000'000'000;  // for a device that is behind with writing
constexpr std::int64_t kTransitPatienceNs = 50'000'000;       // for a frame of others that only pass through; then the reader goes to the source
constexpr std::int64_t kNoTransitNs = 20 * kTransitPatienceNs;  // after that wait was in vain

}  // namespace

Fetcher::Fetcher(const Parts& parts)
    : catalogue_(parts.catalogue), placement_(parts.placement), replies_(parts.replies), workers_(parts.workers), clock_(parts.clock), counters_(parts.counters) {}

Fetcher::~Fetcher() { lost_waiters_->Close(); }

// ---- requests --------------------------------------------------------------------------------------------------------------

void Fetcher::Fetch(SourceUnit& unit, const FetchRequest& request) {
  ++counters_.fetches;
  ++asking_[request.session];
  Waiter waiter(lost_waiters_);
  waiter->session = request.session;
  waiter->request_id = request.entry.request_id;
  waiter->op = static_cast<abi::FetchOp>(request.entry.op);
  waiter->flags = request.entry.flags;
  waiter->chunk = request.entry.chunk;
  if (request.part.bytes <= ~std::uint32_t{0} - request.part.begin) waiter->part = {request.part.begin, request.part.bytes};
  waiter->deadline_ns = clock_.MonotonicNs() + std::int64_t{unit.options.demand_timeout_ms} * 1'000'000;
  waiter->begun_ns = clock_.PreciseNs();
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
  // It may have become known by a stat while it is being read: what the daemon brings for itself is not read twice for that.
  const bool is_read = !waiter->is_client() && discoveries_.contains(key);
  if (file == kNoFile || is_read) return Discover(unit, key, path, std::move(waiter), priority);
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
      return ReplyRetry(waiter);
    }
    return DiscoverAnew(unit, file, std::move(waiter), priority);
  }
  // Known as a link because somebody asked for just that, or walked past it; who follows it finds its alias from now on. (Asked for itself, it is the source's again.)
  const bool follows = waiter->op == abi::FetchOp::kChunk || (waiter->is_client() && (waiter->flags & abi::kFetchNoFollow) == 0);
  if ((flags & kFileSymlink) != 0 && follows) {
    return DiscoverAnew(unit, file, std::move(waiter), priority);
  }
  // No link is on its way any more, and the client's lease is of the file that one led to: no frame of this one may be handed out under that (HAZARDS 2.3).
  if ((waiter->flags & abi::kFetchAlias) != 0 && waiter->is_client()) return ReplyRetry(waiter);
  const bool ours = !waiter->is_awaited() && (flags & kFileUnproven) != 0;  // to have it is enough
  if (!ours && NowTicks() >= catalogue_.DeadlineOf(file)) {
    const ObjectId only = catalogue_.ChunkCount(file) == 1 ? catalogue_.ObjectOf(file, 0) : kNoObject;
    // Nothing is here of a file of one chunk: the read brings its own confirmation.
    if (waiter->op != abi::FetchOp::kChunk || only == kNoObject || HasBytes(only)) return Revalidate(unit, file, std::move(waiter), priority);
  }
  if (waiter->op == abi::FetchOp::kStat) return Finish(waiter, BringOutcome::kCached, abi::Fallback::kNone, file);
  if ((flags & kFileNotRegular) != 0) return Finish(waiter, BringOutcome::kFailed, abi::Fallback::kNotRegular, file);
  ServeChunk(unit, file, std::move(waiter), priority);
}

bool Fetcher::HasBytes(ObjectId object) const {
  if (placement_.InRam(object) || placement_.OnSsd(object) || placement_.HasPassed(object)) return true;
  const auto fill = fills_.find(Raw(object));
  return fill != fills_.end() && fill->second->landed;
}

// The record of a link goes, and its id may be another file's before the source has answered those who asked about it: they are told by the discovery, too.
void Fetcher::DiscoverAnew(SourceUnit& unit, FileId file, Waiter waiter, source::Priority priority) {
  const std::string path = catalogue_.PathOf(file);
  const abi::FileKey key = catalogue_.file(file).key;
  auto asked = revalidations_.extract(Raw(file));
  catalogue_.Remove(file);
  Discover(unit, key, path, std::move(waiter), priority);
  if (asked.empty()) return;
  for (Waiter& other : asked.mapped().waiters) {
    const source::Priority its = PriorityOf(other);
    Discover(unit, key, path, std::move(other), its);
  }
}

void Fetcher::ServeChunk(SourceUnit& unit, FileId file, Waiter waiter, source::Priority priority) {
  if ((waiter->flags & abi::kFetchHandle) != 0) {
    const io::FileStat stat = catalogue_.StatOf(file);
    const io::FileStat& expected = waiter->expected;
    if (stat.ino != expected.ino || stat.size != expected.size || stat.mtime_ns != expected.mtime_ns || stat.ctime_ns != expected.ctime_ns)
      return Finish(waiter, BringOutcome::kFailed, abi::Fallback::kChanged, file);
  }
  NoteDemand(unit, file, waiter);
  if (catalogue_.ChunkCount(file) == 0) return Finish(waiter, BringOutcome::kCached, abi::Fallback::kNone, file);  // 0 bytes
  const ObjectId object = catalogue_.ObjectOf(file, waiter->chunk);
  if (object == kNoObject) return Finish(waiter, BringOutcome::kFailed, abi::Fallback::kChanged, file);
  const source::ChunkRange ahead = AheadOf(unit, file, waiter);
  StartFill(unit, object, std::move(waiter), priority);
  ReadAhead(unit, file, ahead);
}

source::ChunkRange Fetcher::AheadOf(SourceUnit& unit, FileId file, const Waiter& waiter) {
  if (!waiter->is_client()) return {};
  const source::StreamKey stream{static_cast<std::uint64_t>(waiter->session), Raw(file)};
  const ObjectId object = catalogue_.ObjectOf(file, waiter->chunk);
  if (!placement_.InRam(object) && !placement_.OnSsd(object) && !fills_.contains(Raw(object))) unit.read_ahead.NoteMissing(stream, waiter->chunk);
  const source::Hint hint = (waiter->flags & abi::kFetchSequential) != 0 ? source::Hint::kSequential : source::Hint::kNone;
  return unit.read_ahead.OnAccess(stream, waiter->chunk, catalogue_.ChunkCount(file), hint);
}

bool Fetcher::OnRead(SourceUnit& unit, SessionId session, ObjectId object) {
  const FileId file = catalogue_.object(object).file;
  source::ChunkRange ahead;
  Guard([&] {
    ahead = unit.read_ahead.OnAccess({static_cast<std::uint64_t>(session), Raw(file)}, catalogue_.object(object).chunk, catalogue_.ChunkCount(file));
    ReadAhead(unit, file, ahead);
  });
  return ahead.count != 0;
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

// ---- time ------------------------------------------------------------------------------------------------------------------

template <typename Is>
Waiters Fetcher::Take(Is&& is) {
  Waiters taken;
  const auto take_from = [&](Waiters& waiters) {
    for (std::size_t i = 0; i < waiters.size();) {
      if (is(*waiters[i].operator->())) {
        taken.push_back(std::move(waiters[i]));
        if (&waiters[i] != &waiters.back()) waiters[i] = std::move(waiters.back());
        waiters.pop_back();
      } else {
        ++i;
      }
    }
  };
  for (auto& [id, fill] : fills_) take_from(fill->waiters);
  for (auto& [key, discovery] : discoveries_) take_from(discovery->waiters);
  for (auto& [id, revalidation] : revalidations_) take_from(revalidation.waiters);
  for (auto& [key, listing] : listings_) take_from(listing->waiters);
  for (auto& [key, parked] : parked_) take_from(parked.waiters);
  for (auto& [key, doubted] : doubted_) take_from(doubted.waiters);
  return taken;
}

// An answer would be noted as an access of its, after all else has forgotten it.
void Fetcher::OnSessionEnd(SessionId session) {
  const auto asking = asking_.extract(session);
  if (asking.empty() || asking.mapped() == 0) return;  // sessions end by the thousand, and many may wait
  Guard([&] {
    for (const Waiter& waiter : Take([session](const Waiting& waiting) { return waiting.session == session; })) waiter->answered = true;
  });
}

bool Fetcher::Tick() {
  if (std::exchange(lost_, false) && !Survives([&] { Reap(); })) NoteLost();
  AnswerLost();
  const std::int64_t now = clock_.MonotonicNs();
  if (now >= next_look_ns_) AnswerLate(now);
  ServeDoubted();
  if (recovery_wait_until_ns_ != 0 && now >= recovery_wait_until_ns_) EndRecovery();
  const bool more = Resume();  // staging buffers come back without a word
  return ResumeWrites() || more;
}

void Fetcher::AnswerLate(std::int64_t now_ns) {
  const std::int64_t begin_ns = clock_.PreciseNs();
  const Waiters expired = Take([now_ns](const Waiting& waiting) { return waiting.is_awaited() && waiting.deadline_ns <= now_ns; });
  for (const Waiter& waiter : expired) ReplyBypass(waiter, abi::Fallback::kSourceSlow);
  DropUnawaitedWalks();
  next_look_ns_ = now_ns + std::clamp(kLookShare * (clock_.PreciseNs() - begin_ns), kLookPauseNs, kLongLookPauseNs);
}

// Who keeps a view of such a frame may do so for ever: behind a wait in vain nobody waits for a while, unless somebody was given one.
bool Fetcher::MayWaitForTransit(Fill& fill) {
  const std::int64_t now_ns = clock_.MonotonicNs();
  if (fill.transit_wait_until_ns == 0) {
    if (now_ns < no_transit_until_ns_) return false;
    fill.transit_wait_until_ns = now_ns + kTransitPatienceNs;
  }
  if (now_ns < fill.transit_wait_until_ns) return true;
  no_transit_until_ns_ = now_ns + kNoTransitNs;
  return false;
}

bool Fetcher::MayWaitForSsd(Fill& fill) const {
  const std::int64_t now_ns = clock_.MonotonicNs();
  if (fill.ssd_wait_until_ns == 0) fill.ssd_wait_until_ns = now_ns + kSsdPatienceNs;
  return now_ns < fill.ssd_wait_until_ns;
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
  std::vector<std::uint64_t> keys;
  for (const auto& [key, fill] : fills_) {
    if (lost(fill)) keys.push_back(key);
  }
  for (const std::uint64_t key : keys) {
    if (const auto it = fills_.find(key); it != fills_.end()) Fail(FillPtr(it->second), abi::Fallback::kNoFrame, BringOutcome::kFailed);
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
  std::vector<std::uint32_t> ids;
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
  if (const auto asking = asking_.find(waiter->session); asking != asking_.end() && asking->second > 0) --asking->second;
  replies_.OnFetchReply(waiter->session, reply);
}

void Fetcher::Answer(const Waiter& waiter, const BringResult& result) {
  if (waiter->by_link) return AnswerByLink(waiter, result);
  waiter->answered = true;
  if (waiter->done) Guard([&] { waiter->done(result); });
}

// Also where no tier had room: it is asked for anew then, by its own name and under its own lease.
void Fetcher::AnswerByLink(const Waiter& waiter, const BringResult& result) {
  if (result.sys_errno != 0) return ReplyError(waiter, result.sys_errno);
  if (result.outcome == BringOutcome::kFailed) return ReplyBypass(waiter, result.reason, result.file);
  ReplyRetry(waiter);
}

void Fetcher::ReplyRetry(const Waiter& waiter) {
  abi::FetchReply reply{};
  reply.request_id = waiter->request_id;
  reply.status = static_cast<std::uint8_t>(abi::FetchStatus::kRetry);
  Answer(waiter, reply);
}

void Fetcher::ReplyFrame(const Waiter& waiter, ObjectId object, std::uint64_t word, abi::Tier tier, ssd::PayloadRange part) {
  const ObjectRecord& record = catalogue_.object(object);
  abi::FetchReply reply = ReplyFor(waiter, record.file);
  reply.status = static_cast<std::uint8_t>(abi::FetchStatus::kFrame);
  reply.tier = static_cast<std::uint8_t>(tier);
  reply.location = word;
  reply.length = part.bytes != 0 ? part.bytes : record.bytes;
  reply.begin = part.begin;
  reply.ordinal = catalogue_.OrdinalOf(object);
  placement_.NoteRead(object);
  if (tier != abi::Tier::kRam) counters_.reader_wait_ns += static_cast<std::uint64_t>(std::max<std::int64_t>(0, clock_.PreciseNs() - waiter->begun_ns));
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
    if (object != kNoObject && waiter->op == abi::FetchOp::kChunk && on_bypass) on_bypass(waiter->session, object);
  }
  Answer(waiter, reply);
}

void Fetcher::ReplyError(const Waiter& waiter, int sys_errno) {
  abi::FetchReply reply = ReplyFor(waiter, kNoFile);
  reply.status = static_cast<std::uint8_t>(abi::FetchStatus::kError);
  reply.sys_errno = static_cast<std::uint16_t>(sys_errno);
  Answer(waiter, reply);
}

// Readers go to the source themselves. What the daemon waits for takes as long as it takes, until it stops: a reader who joined it has no patience but his own.
void Fetcher::GiveUp(Waiters& waiters, FileId file, source::ReadError error) {
  const auto who_gives_up = [error](const Waiter& waiter) { return waiter->is_awaited() || error == source::ReadError::kStopped; };
  const auto others = std::stable_partition(waiters.begin(), waiters.end(), who_gives_up);
  const Waiters over(std::make_move_iterator(waiters.begin()), std::make_move_iterator(others));
  waiters.erase(waiters.begin(), others);
  for (const Waiter& waiter : waiters) waiter->attempts = 0;  // those are for what changes all the time
  for (const Waiter& waiter : over) Finish(waiter, BringOutcome::kFailed, abi::Fallback::kSourceSlow, file);
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
