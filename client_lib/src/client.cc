#include "client_lib/src/client.h"

#include <errno.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "client_lib/src/accounting.h"
#include "client_lib/src/clock.h"
#include "client_lib/src/fork_mark.h"
#include "client_lib/src/invalidations.h"
#include "client_lib/src/older_libc.h"
#include "client_lib/src/shared_mapping.h"

namespace tierd::client {
namespace {

constexpr std::int64_t kProbeEveryNs = 5'000'000'000;      // looking for a daemon while there is none
constexpr std::int64_t kLookEveryNs = 500'000'000;         // at a daemon that nobody needs to ask, since all are hits
constexpr std::int64_t kFirstPauseNs = 100'000'000;        // of the breaker, doubled at each further timeout
constexpr std::int64_t kLongestPauseNs = kProbeEveryNs;
constexpr std::uint32_t kGreetingMs = 500;                 // how long a greeting is waited for: the daemon may be slow, and who reads goes on within a second
constexpr std::int64_t kGreetingPauseNs = 1'000'000'000;   // after the first one that did not come, doubled at each further one

std::atomic<Client*> all_clients{nullptr};
constinit std::atomic<int> fork_handlers_made{0};

class Lock {
 public:
  explicit Lock(Mutex& mutex, bool patient = true) : mutex_(mutex), held_(!patient ? mutex.TryLock() : (mutex.Lock(), true)) {}
  ~Lock() {
    if (held_) mutex_.Unlock();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  bool held() const { return held_; }

 private:
  Mutex& mutex_;
  const bool held_;
};

void BeforeFork() {
  ForkBegins();
  for (Client* client = FirstClient(); client != nullptr; client = client->next_client) client->CountFrozenLeases();
}

void TakeOver(bool counted) {
  TakeOverInvalidations();
  for (Client* client = FirstClient(); client != nullptr; client = client->next_client) client->TakeOverInChild(counted);
  EndTakeOver();
}

void InChild() {
  (void)BeginTakeOver();  // one thread here; without MADV_WIPEONFORK this is all that notices a fork
  TakeOver(true);
}

void InstallForkHandlers() {
  InitForkMark();
  CallAtFork(&BeforeFork, &ForkIsOver, &InChild);
  FindSingleThreaded();
}

}  // namespace

Client* FirstClient() { return all_clients.load(std::memory_order_acquire); }

void NoticeFork() {
  if (BeginTakeOver()) TakeOver(false);
}

// ---- life ------------------------------------------------------------------------------------------------------------------

void Client::Init(const Settings& settings) {
  // Made anew after Shutdown it has its lock, which a view of its former life that is given back now may hold.
  if (!in_use.load(std::memory_order_acquire)) mutex_.Reset();
  {
    const Lock lock(mutex_);  // another client may be looking whose socket it is (Distrust)
    settings_ = settings;
    disabled_ = settings.disabled;
    // The prefixes point into the settings they came with.
    for (std::size_t i = 0; i < settings_.prefixes.count; ++i)
      settings_.prefixes.text[i] = settings_.prefix_text + (settings.prefixes.text[i] - settings.prefix_text);
  }
  next_probe_.SetTo(0);
  missed_greetings_.store(0, std::memory_order_relaxed);
  timeouts_.store(0, std::memory_order_relaxed);
  closed_until_ns_.store(0, std::memory_order_relaxed);
  sessions_opened_.store(0, std::memory_order_relaxed);
  CallOnce(fork_handlers_made, &InstallForkHandlers);
  if (in_use.exchange(true, std::memory_order_acq_rel)) return;
  for (Client* known = FirstClient(); known != nullptr; known = known->next_client) {
    if (known == this) return;  // made anew after Shutdown
  }
  next_client = FirstClient();
  while (!all_clients.compare_exchange_weak(next_client, this, std::memory_order_acq_rel)) {
  }
}

void Client::Shutdown() {
  EndAll();
  in_use.store(false, std::memory_order_release);  // from here on tier_connect may make it anew, lock and all
}

void Client::EndAll() {
  const Lock lock(mutex_);
  if (Session* const session = session_.exchange(nullptr, std::memory_order_acq_rel); session != nullptr) Close(*session);
  Sweep();
  FreeAll();
  alone_reads_.Forget();
  std::memset(static_cast<void*>(&own_), 0, sizeof own_);
  std::memset(static_cast<void*>(&past_), 0, sizeof past_);
}

// ---- finding the daemon ----------------------------------------------------------------------------------------------------

bool NextProbe::LookAtClock() {
  const std::int64_t now_ns = CoarseNs();
  const bool close = now_ns - looked_ns_.load(std::memory_order_relaxed) < kCloseNs;
  looked_ns_.store(now_ns, std::memory_order_relaxed);
  const std::uint32_t row = close ? row_.load(std::memory_order_relaxed) + 1 : 0;
  row_.store(row < kRow ? row : kRow, std::memory_order_relaxed);
  if (Due(now_ns)) return true;  // and the next one may be due as well: the session that this one opens can be gone by then
  if (row >= kRow) unseen_.store(kBurst - 1, std::memory_order_relaxed);
  return false;
}

Session* Client::Acquire(std::int64_t now_ns, abi::Fallback* why, bool patient) {
  *why = abi::Fallback::kNoDaemon;
  if (settings_.disabled) {
    *why = abi::Fallback::kDisabled;
    return nullptr;
  }
  if (!SameProcess()) {
    NoticeFork();
    if (!SameProcess()) return nullptr;  // another thread of a raw clone is at it
  }
  Session* session = session_.load(std::memory_order_acquire);
  if (session != nullptr && now_ns >= session->look_at_ns.load(std::memory_order_relaxed)) {
    LookAtDaemon(*session, now_ns);
    session = session_.load(std::memory_order_acquire);
  }
  if (session != nullptr && !session->channel.dead()) return session;
  if (!next_probe_.Due(now_ns)) return session;
  if (!patient && now_ns < impatient_from_ns_.load(std::memory_order_relaxed)) return session;
  const Lock lock(mutex_, patient && missed_greetings_.load(std::memory_order_relaxed) == 0);  // a daemon that does not greet keeps one thread
  if (!lock.held()) return session;
  session = session_.load(std::memory_order_acquire);
  if ((session == nullptr || session->channel.dead()) && next_probe_.Due(now_ns) && Connect(now_ns, GreetingMs(patient), patient) == -ETIMEDOUT) *why = abi::Fallback::kTimeout;
  return session_.load(std::memory_order_acquire);
}

// Hits ask nobody: without this, a process that only hits would never learn that its daemon has died, that a successor knows of a change, or that something
// was mounted below a source.
void Client::LookAtDaemon(Session& session, std::int64_t now_ns) {
  std::int64_t due_ns = session.look_at_ns.load(std::memory_order_relaxed);
  if (now_ns < due_ns || !session.look_at_ns.compare_exchange_strong(due_ns, now_ns + kLookEveryNs, std::memory_order_relaxed)) return;
  if (const std::uint32_t mounts = session.page->mounts_changed.load(std::memory_order_acquire); session.mounts_seen.exchange(mounts, std::memory_order_relaxed) != mounts)
    session.sources.load(std::memory_order_acquire)->DoubtMounts();
  if (!session.channel.dead() && session.Hung(now_ns) && session.channel.PeerGone()) NoteDead(session, now_ns);
  GiveBackGone(session);
}

// Memory that the daemon cannot take back comes back when it is unmapped.
void Client::GiveBackGone(Session& session) {
  const abi::IndexHeader& index = *session.index.load(std::memory_order_acquire)->header;
  const std::uint32_t count = index.segments_gone.load(std::memory_order_relaxed);
  if (session.page->gone_seen.load(std::memory_order_relaxed) == count) return;
  if (!mutex_.TryLock()) return;  // the next look finds it again
  if (session.serves() && !session.inherited) session.page->gone_seen.store(session.arena->GiveBackGone(index), std::memory_order_release);
  mutex_.Unlock();
}

int Client::ConnectNow() {
  const Lock lock(mutex_);
  Session* const session = session_.load(std::memory_order_acquire);
  if (session != nullptr && !session->channel.dead()) return 0;
  return settings_.disabled ? -ECONNREFUSED : Connect(CoarseNs(), settings_.timeout_ms);
}

std::uint32_t Client::GreetingMs(bool patient) const {
  const std::uint32_t most_ms = patient ? kGreetingMs : static_cast<std::uint32_t>(kWhereaboutsNs / 1'000'000);
  return settings_.timeout_ms < most_ms ? settings_.timeout_ms : most_ms;
}

std::int64_t Client::ProbePauseNs(int error) {
  if (error != -ETIMEDOUT) {
    missed_greetings_.store(0, std::memory_order_relaxed);
    return kProbeEveryNs;
  }
  const std::uint32_t missed = missed_greetings_.fetch_add(1, std::memory_order_relaxed);
  const std::int64_t pause_ns = kGreetingPauseNs << (missed < 3 ? missed : 3);
  return pause_ns < kProbeEveryNs ? pause_ns : kProbeEveryNs;
}

int Client::Connect(std::int64_t now_ns, std::uint32_t greeting_ms, bool patient) {
  Sweep();
  MakeRoomInChild();
  OpenResult opened = OpenSession(settings_, greeting_ms, &Client::ReuseArena, this);
  if (opened.session != nullptr && !TellInvalidations(settings_.socket, *opened.session, patient ? settings_.timeout_ms : greeting_ms)) {
    // What this process has changed is not known there yet: nothing may be served from it. Nobody else has seen it.
    opened.session->page->left.store(1, std::memory_order_release);
    opened.session->channel.End();
    if (opened.session->channel.TryClose()) FreeSession(opened.session);
    opened = {nullptr, -ETIMEDOUT};
  }
  Session* const old = session_.load(std::memory_order_acquire);
  unanswered_.store(opened.session == nullptr && opened.error == -ETIMEDOUT, std::memory_order_relaxed);
  if (opened.session == nullptr) {
    if (!patient && opened.error == -ETIMEDOUT) impatient_from_ns_.store(CoarseNs() + kFirstPauseNs, std::memory_order_relaxed);
    else next_probe_.SetTo(CoarseNs() + ProbePauseNs(opened.error));
    if (old == nullptr) return opened.error;
    // Without a daemon its memory is worth keeping only as long as something in it may still be served.
    const std::int64_t validity_ns = old->sources.load(std::memory_order_acquire)->LongestValidityNs();
    if (validity_ns >= 0 && old->orphan_since_ns != 0 && now_ns - old->orphan_since_ns > validity_ns) {
      session_.store(nullptr, std::memory_order_release);
      Close(*old);
      Sweep();
    }
    return opened.error;
  }
  Session& session = *opened.session;
  Add(session);
  alone_reads_.MoveTo(own_);
  Fold(session.page->counters, own_, true);
  timeouts_.store(0, std::memory_order_relaxed);
  closed_until_ns_.store(0, std::memory_order_relaxed);
  missed_greetings_.store(0, std::memory_order_relaxed);
  next_probe_.SetTo(now_ns);  // when this daemon goes the next one is looked for at once
  sessions_opened_.fetch_add(1, std::memory_order_relaxed);
  session_.store(&session, std::memory_order_release);
  Log(settings_, "session %u at %s", session.session_id, settings_.socket);
  if (old != nullptr) {
    Close(*old);
    Sweep();
  }
  return 0;
}

void Client::Add(Session& session) {
  session.next = sessions_.load(std::memory_order_relaxed);
  sessions_.store(&session, std::memory_order_release);
  ++session.arena->sessions;
}

Arena* Client::ReuseArena(void* context, const std::uint8_t instance[16]) {
  auto& client = *static_cast<Client*>(context);
  for (Arena* arena = client.arenas_; arena != nullptr; arena = arena->next) {
    if (arena->IsOf(instance) && !arena->full()) return arena;
  }
  Arena* const arena = Arena::Create(instance);
  if (arena == nullptr) return nullptr;
  arena->next = client.arenas_;
  client.arenas_ = arena;
  return arena;
}

void Client::Distrust(const char* socket, std::int64_t now_ns) {
  const Lock lock(mutex_);
  if (std::strcmp(settings_.socket, socket) != 0) return;
  Session* const session = session_.exchange(nullptr, std::memory_order_acq_rel);
  if (session != nullptr) session->page->untold.fetch_add(1, std::memory_order_release);
  else if (unanswered_.load(std::memory_order_relaxed)) SayUntold(settings_);
  if (session == nullptr) return;  // a daemon is looked for as before: who changes files all the time finds one, too
  unanswered_.store(true, std::memory_order_relaxed);
  next_probe_.SetTo(now_ns + kProbeEveryNs);
  Close(*session);
  Sweep();
}

// ---- whether to ask --------------------------------------------------------------------------------------------------------

bool Client::MayAsk(Session& session, std::int64_t now_ns, abi::Fallback* why) {
  if (session.channel.dead() || !session.serves()) {
    *why = session.channel.protocol_error() ? abi::Fallback::kProtocol : abi::Fallback::kNoDaemon;
    return false;
  }
  *why = abi::Fallback::kHung;
  if (session.Hung(now_ns)) return false;
  std::int64_t until_ns = closed_until_ns_.load(std::memory_order_acquire);
  if (until_ns == 0) return true;
  // One call per pause tries again; the others are not made to wait.
  return now_ns >= until_ns && closed_until_ns_.compare_exchange_strong(until_ns, now_ns + kFirstPauseNs, std::memory_order_acq_rel);
}

void Client::NoteAnswer() {
  if (closed_until_ns_.load(std::memory_order_relaxed) == 0) return;
  timeouts_.store(0, std::memory_order_relaxed);
  closed_until_ns_.store(0, std::memory_order_release);
}

void Client::NoteTimeout(std::int64_t now_ns) {
  const std::uint32_t count = timeouts_.fetch_add(1, std::memory_order_relaxed);
  std::int64_t pause_ns = kFirstPauseNs << (count < 6 ? count : 6);
  if (pause_ns > kLongestPauseNs) pause_ns = kLongestPauseNs;
  closed_until_ns_.store(now_ns + pause_ns, std::memory_order_release);
  if (count == 0) Log(settings_, "the daemon did not answer in time; reading the source meanwhile");
}

void Client::NoteDead(Session& session, std::int64_t now_ns) {
  const Lock lock(mutex_);
  if (session_.load(std::memory_order_acquire) != &session) return;
  if (session.page->revoked.load(std::memory_order_acquire) != 0) session.channel.End();
  if (session.orphan_since_ns == 0) {
    session.orphan_since_ns = now_ns;
    Log(settings_, "session %u: the daemon has gone", session.session_id);
  }
  if (!session.channel.protocol_error() && !session.index.load(std::memory_order_acquire)->Retired()) return;
  // Nothing in it can be served, or nothing should.
  session_.store(nullptr, std::memory_order_release);
  if (session.channel.protocol_error()) next_probe_.SetTo(now_ns + kProbeEveryNs);
  Close(session);
  Sweep();
}

void Client::Drop(Session& session, std::int64_t next_probe_ns) {
  const Lock lock(mutex_);
  if (session_.load(std::memory_order_acquire) != &session) return;
  session_.store(nullptr, std::memory_order_release);
  next_probe_.SetTo(next_probe_ns);
  Close(session);
  Sweep();
}

// Of a question that was put under the lock; without the lock.
void Client::NoteOutcome(Session& session, abi::Fallback outcome, bool fair) {
  if (outcome == abi::Fallback::kTimeout && !fair) return impatient_from_ns_.store(CoarseNs() + kFirstPauseNs, std::memory_order_relaxed);
  if (outcome == abi::Fallback::kTimeout) NoteTimeout(CoarseNs());
  else if (outcome == abi::Fallback::kNoDaemon) NoteDead(session, CoarseNs());
  else NoteAnswer();
}

abi::Fallback Client::NewerIndex(Session& session, std::int64_t deadline_ns, bool patient) {
  if (!patient && CoarseNs() < impatient_from_ns_.load(std::memory_order_relaxed)) return abi::Fallback::kTimeout;
  abi::Fallback outcome;
  bool fair = false;
  {
    const Lock lock(mutex_, patient);
    if (!lock.held()) return abi::Fallback::kTimeout;
    fair = patient && IsFair(deadline_ns - PreciseNs());
    if (!session.serves()) return abi::Fallback::kNoDaemon;
    if (!session.index.load(std::memory_order_acquire)->Retired()) return abi::Fallback::kNone;  // another thread was here first
    if (!MayAsk(session, CoarseNs(), &outcome) && outcome == abi::Fallback::kHung) return outcome;
    outcome = session.channel.dead() ? abi::Fallback::kNoDaemon : RefreshIndex(session, deadline_ns);
  }
  NoteOutcome(session, outcome, fair);
  if (outcome != abi::Fallback::kNoFrame) return outcome;
  Drop(session, CoarseNs());
  return abi::Fallback::kNoDaemon;
}

abi::Fallback Client::Map(Session& session, std::uint32_t serial, std::int64_t deadline_ns, bool patient) {
  if (session.arena->Knows(serial)) return abi::Fallback::kNone;
  if (!patient && CoarseNs() < impatient_from_ns_.load(std::memory_order_relaxed)) return abi::Fallback::kTimeout;
  abi::Fallback outcome;
  bool fair = false;
  {
    const Lock lock(mutex_, patient);
    if (!lock.held()) return abi::Fallback::kTimeout;
    fair = patient && IsFair(deadline_ns - PreciseNs());
    if (session.arena->Knows(serial)) return abi::Fallback::kNone;
    if (!MayAsk(session, CoarseNs(), &outcome)) return outcome;
    outcome = MapSegment(session, serial, deadline_ns);
  }
  NoteOutcome(session, outcome, fair);
  if (session.arena->full()) Drop(session, CoarseNs());  // most of what it has mapped is gone by now: the next call begins afresh
  return outcome;
}

}  // namespace tierd::client
