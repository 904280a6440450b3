// A client: finds the daemon, keeps one session with it, knows when not to ask it, and survives forks.
//
// Thread rule: any thread. `session()` is all that a hit touches; the rest is the slow path, behind one lock.
#pragma once


#include <atomic>
#include <cstdint>

#include "client_lib/abi/layout.h"
#include "client_lib/src/fork_mark.h"
#include "client_lib/src/mutex.h"
#include "client_lib/src/session.h"
#include "client_lib/src/settings.h"
#include "client_lib/src/thread_state.h"

namespace tierd::client {

// TIER_NOWAIT: how long the daemon may take to say where memory is that this process meets for the first time, or to greet it.
inline constexpr std::int64_t kWhereaboutsNs = 20'000'000;

// Reads of the source for want of a daemon: what a process without one counts, in one place, since each cache line that is touched between two system calls
// costs more than all that is done with it. One in kLatencySampling is timed.
class AloneReads {
 public:
  bool Due() const { return (reads_.load(std::memory_order_relaxed) & (abi::kLatencySampling - 1)) == abi::kLatencySampling - 1; }
  void Count(std::uint64_t bytes) {
    AddOwn(reads_, 1, bytes_, bytes);
  }
  // To where all others are counted, and from nothing on.
  void MoveTo(abi::SessionCounters& counters);
  void Forget();

 private:
  std::atomic<std::uint64_t> reads_{0};
  std::atomic<std::uint64_t> bytes_{0};
};

// When a client without a session looks for a daemon next. Any thread.
class NextProbe {
 public:
  void SetTo(std::int64_t at_ns) {
    at_ns_.store(at_ns, std::memory_order_release);
    unseen_.store(0, std::memory_order_relaxed);
  }
  bool Due(std::int64_t now_ns) const { return now_ns >= at_ns_.load(std::memory_order_acquire); }
  // The same for an open that needs the time for nothing else: to look at the clock is a large part of what it costs. Where opens follow each other closely
  // only one in kBurst looks, so that after such a row as many may come too early to find the daemon.
  bool DueNow() {
    const std::uint32_t unseen = unseen_.load(std::memory_order_relaxed);
    if (unseen == 0) [[unlikely]] return LookAtClock();
    unseen_.store(unseen - 1, std::memory_order_relaxed);
    return false;
  }

 private:
  static constexpr std::uint32_t kBurst = 16;
  static constexpr std::uint32_t kRow = 64;  // looks that followed each other closely, before some are left out
  static constexpr std::int64_t kCloseNs = 100'000'000;
  bool LookAtClock();

  std::atomic<std::int64_t> at_ns_{0};
  std::atomic<std::uint32_t> unseen_{0};  // opens that need not look any more
  std::atomic<std::uint32_t> row_{0};
  std::atomic<std::int64_t> looked_ns_{0};
};

// Memory for one open file in the client itself, beside what each open and close touches anyway: all that malloc and free touch costs more between system
// calls than what they do. Who finds it taken asks malloc. Outlives Shutdown and Init, as an open file does. Any thread.
class RoomForOne {
 public:
  static constexpr std::size_t kBytes = 168;
  void* Take() {
    if (taken_.load(std::memory_order_relaxed) || taken_.exchange(true, std::memory_order_acquire)) [[unlikely]] return nullptr;
    return room_;
  }
  // False: it is not from here.
  bool GiveBack(const void* memory) {
    if (memory != room_) [[unlikely]] return false;
    taken_.store(false, std::memory_order_release);
    return true;
  }

 private:
  std::atomic<bool> taken_{false};
  alignas(8) unsigned char room_[kBytes];
};

class Client {
 public:
  // Starts on zeroed memory. Registers the client for forks.
  void Init(const Settings& settings);
  // Gives up every session and all that they had, but for what views need that were not released. The memory of the client stays (a fork may look at it) and can be
  // Init-ed again. No other call on the client may run.
  void Shutdown();

  const Settings& settings() const { return settings_; }
  // Checks that the process is the one that opened the session; null when it is not.
  Session* session() const { return SameProcess() ? session_.load(std::memory_order_acquire) : nullptr; }

  // Why the source is all there is, known without asking anybody: no session, and none is due to be looked for. kNone: look closer (Acquire).
  // Inlined, and beside what an open touches anyway: it is most of what one costs without a daemon. A child that nobody told of its fork has no session either, and takes over when one is due.
  abi::Fallback WithoutDaemon(std::int64_t now_ns) const {
    if (!alone()) return abi::Fallback::kNone;
    return disabled_ ? abi::Fallback::kDisabled : next_probe_.Due(now_ns) ? abi::Fallback::kNone : abi::Fallback::kNoDaemon;
  }
  // The same for who has not looked at the clock (NextProbe::DueNow).
  abi::Fallback WithoutDaemon() {
    if (!alone()) return abi::Fallback::kNone;
    if (disabled_) [[unlikely]] return abi::Fallback::kDisabled;
    return next_probe_.DueNow() ? abi::Fallback::kNone : abi::Fallback::kNoDaemon;
  }
  // Without a session.
  bool alone() const { return session_.load(std::memory_order_acquire) == nullptr; }
  AloneReads& alone_reads() { return alone_reads_; }
  RoomForOne& room_for_one() { return room_for_one_; }
  const AloneReads& alone_reads() const { return alone_reads_; }
  // The session, opened or renewed if that is due. Null: `why` says the reason. It may be one whose daemon is gone: hits go on.
  // A greeting is waited for 500 ms; after one that did not come the next one is looked for a second later, and twice as late each time (5 s at most), by one thread
  // while the others go on.
  // Who is not `patient` does not wait for other threads, gives a daemon kWhereaboutsNs to greet us, and does not hold it against it.
  Session* Acquire(std::int64_t now_ns, abi::Fallback* why, bool patient = true);
  // Connects now, whatever the probe clock says, within `timeout_ms` of the settings. 0 or -errno.
  int ConnectNow();

  // Whether to put a question to the daemon, or to leave it alone because it is gone, hung, or did not answer lately (HAZARDS 2.11, W12).
  bool MayAsk(Session& session, std::int64_t now_ns, abi::Fallback* why);
  void NoteAnswer();
  void NoteTimeout(std::int64_t now_ns);
  // Whether no answer within `given_ns` says that the daemon does not answer: other questions of the call may have left hardly any time.
  bool IsFair(std::int64_t given_ns) const { return given_ns >= std::int64_t{settings_.timeout_ms} * 500'000; }
  // The conversation is over or must end: misses go to the source, the next one looks for a daemon.
  void NoteDead(Session& session, std::int64_t now_ns);
  // Nothing more may be served from this session.
  void Drop(Session& session, std::int64_t next_probe_ns);

  // Makes the newer index, the segment, known; asks the daemon for it if that may be asked. kNone: it is there. Without a newer index the session is
  // dropped: a daemon that goes away retires its index last of all.
  // Who is not `patient` does not wait for other threads either, and that no answer came in time says nothing about the daemon.
  abi::Fallback NewerIndex(Session& session, std::int64_t deadline_ns, bool patient = true);
  abi::Fallback Map(Session& session, std::uint32_t serial, std::int64_t deadline_ns, bool patient = true);

  // Counters to write to: the session page's, or private ones while there is no session.
  abi::SessionCounters& Counters(Session* session) { return session != nullptr && session->serves() ? session->page->counters : own_; }
  // Sum of everything counted in this process.
  void AddUp(abi::SessionCounters& sum);
  std::uint64_t sessions_opened() const { return sessions_opened_.load(std::memory_order_relaxed); }

  // The daemon at that socket may not know what this process has changed (invalidations.h): if it is this client's, the session is dropped.
  void Distrust(const char* socket, std::int64_t now_ns);

  // Around fork().
  void CountFrozenLeases();
  // Gives back what closed sessions keep for views that have gone by now, unless another thread is at it.
  void TrySweep();
  // `counted`: the fork handlers ran; else nobody knows how many views were inherited.
  void TakeOverInChild(bool counted);

  Client* next_client = nullptr;  // chain of all clients of the process
  std::atomic<bool> in_use{false};

 private:
  // Under the lock.
  int Connect(std::int64_t now_ns, std::uint32_t greeting_ms, bool patient = true);
  std::uint32_t GreetingMs(bool patient) const;
  std::int64_t ProbePauseNs(int error);  // after a Connect that ended so
  void LookAtDaemon(Session& session, std::int64_t now_ns);
  void GiveBackGone(Session& session);
  void NoteOutcome(Session& session, abi::Fallback outcome, bool fair);
  void EndAll();
  void Add(Session& session);
  void Close(Session& session);
  void Sweep();
  bool Unmap(Session& session);
  void FreeAll();
  void MakeRoomInChild();
  void Fold(abi::SessionCounters& into, abi::SessionCounters& from, bool take) const;
  static Arena* ReuseArena(void* context, const std::uint8_t instance[16]);

  std::atomic<Session*> session_{nullptr};
  NextProbe next_probe_;
  std::atomic<std::uint32_t> missed_greetings_{0};  // in a row
  std::atomic<bool> unanswered_{false};             // a daemon is there that did not answer when it was asked last
  AloneReads alone_reads_;
  bool disabled_ = false;  // as the settings say
  RoomForOne room_for_one_;
  // Breaker.
  std::atomic<std::int64_t> closed_until_ns_{0};
  std::atomic<std::uint32_t> timeouts_{0};
  std::atomic<std::int64_t> impatient_from_ns_{0};  // who may hardly wait does not ask before: there was no answer a moment ago

  Settings settings_;
  Mutex mutex_;
  abi::SessionCounters own_{};
  std::atomic<std::uint64_t> sessions_opened_{0};
  // Guarded by mutex_.
  abi::SessionCounters past_{};  // of sessions that are unmapped
  std::atomic<Session*> sessions_{nullptr};  // grows at its head, or ends at once; read by the fork handlers without the lock
  Arena* arenas_ = nullptr;
};

// Every client of the process, for the fork handlers.
Client* FirstClient();
// In a child that no atfork handler told (raw clone): takes over once.
void NoticeFork();

}  // namespace tierd::client

struct tier_client {
  tierd::client::Client client;
};
