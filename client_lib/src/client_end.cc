// How sessions end: closed at once, their mappings and their socket given back when no view points into them any more; and what a fork does to them.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "client_lib/src/client.h"
#include "client_lib/src/clock.h"
#include "client_lib/src/process.h"
#include "client_lib/src/fork_mark.h"
#include "client_lib/src/shared_mapping.h"
#include "client_lib/src/thread_state.h"

namespace tierd::client {

// Under the lock, as all here but the fork handlers.
void Client::Close(Session& session) {
  session.closed.store(1, std::memory_order_seq_cst);
  if (!session.inherited) session.channel.End();
}

void Client::Sweep() {
  for (Session* session = sessions_.load(std::memory_order_acquire); session != nullptr; session = session->next) {
    if (session->closed.load(std::memory_order_relaxed) == 0) continue;
    if (!session->unmapped.load(std::memory_order_relaxed)) {
      if (!Unmap(*session)) continue;  // the socket stays too: as long as it is open, the leases count
      session->unmapped.store(true, std::memory_order_release);
    }
    if (!session->channel_closed && !session->inherited) session->channel_closed = session->channel.TryClose();
  }
}

void Client::TrySweep() {
  if (!mutex_.TryLock()) return;  // whoever holds it may look too early: the next release, or the next session, looks again
  Sweep();
  mutex_.Unlock();
}

void SweepClosed() {
  const KeepErrno keep;
  const SlowPath slow;
  if (!slow.entered()) return;  // a signal handler in the middle of us
  for (Client* client = FirstClient(); client != nullptr; client = client->next_client) client->TrySweep();
}

// True when no view of the session is left and its memory is given back. A reader on its way takes its lease first and looks at `closed` then:
// either its lease is seen here, or it sees the session closed.
bool Client::Unmap(Session& session) {
  const std::uint64_t released = session.frozen_released.load(std::memory_order_acquire);
  const std::uint64_t held = session.inherited ? session.leases_at_fork : CountLeases(session);
  if (held != released) return false;
  if (!session.inherited) {
    Fold(past_, session.page->counters, false);
    session.page->left.store(1, std::memory_order_release);  // what is still leased there is frozen: the children's socket speaks for it
    OverlayWithZeros(session.page, sizeof(abi::SessionPage), true);
  }
  for (IndexView* view = session.index_views; view != nullptr; view = view->next) RetireIndex(*view);
  Arena& arena = *session.arena;
  if (--arena.sessions == 0) arena.Retire();
  return true;
}

// Nobody calls the client any more, so that no reader is on its way in what its sessions had: addresses and objects go, too. A program may connect as often as it likes.
void Client::FreeAll() {
  for (const Session* session = sessions_.load(std::memory_order_acquire); session != nullptr; session = session->next) {
    if (!session->unmapped.load(std::memory_order_acquire) || !session->channel_closed) return;  // a view that was not released: all stays, until the next time
  }
  // The fork handlers look at them without the lock: those of a fork that begins from here on find none.
  Session* session = sessions_.exchange(nullptr, std::memory_order_seq_cst);
  if (ForkUnderWay()) return sessions_.store(session, std::memory_order_release);
  while (session != nullptr) {
    Session* const next = session->next;
    FreeSession(session);
    session = next;
  }
  while (arenas_ != nullptr) {
    Arena* const arena = arenas_;
    arenas_ = arena->next;
    Arena::Destroy(arena);
  }
}

// What the parent had mapped is overlaid with zeros here and still takes its share of a limited address space, in which this process's own session has to find room.
// No reader is on its way there: of the parent's threads one is left, and the session was closed before this process had others. That one thread may come back
// to a lookup only where a signal handler forked in the middle of it and reads in the child; hence not without need.
void Client::MakeRoomInChild() {
  if (!SpaceIsLimited()) return;
  for (Session* session = sessions_.load(std::memory_order_acquire); session != nullptr; session = session->next) {
    if (!session->inherited || !session->unmapped.load(std::memory_order_relaxed)) continue;
    for (const IndexView* view = session->index_views; view != nullptr; view = view->next) UnmapShared(view->header, view->bytes);
    session->index_views = nullptr;
    session->arena->Unmap();
  }
}

void AloneReads::MoveTo(abi::SessionCounters& counters) {
  constexpr auto kTier = static_cast<std::size_t>(abi::Tier::kBypass);
  const std::uint64_t reads = reads_.exchange(0, std::memory_order_relaxed);
  counters.reads[kTier].fetch_add(reads, std::memory_order_relaxed);
  counters.fallback[static_cast<std::size_t>(abi::Fallback::kNoDaemon)].fetch_add(reads, std::memory_order_relaxed);
  counters.bytes[kTier].fetch_add(bytes_.exchange(0, std::memory_order_relaxed), std::memory_order_relaxed);
}

void AloneReads::Forget() {
  reads_.store(0, std::memory_order_relaxed);
  bytes_.store(0, std::memory_order_relaxed);
}

void Client::Fold(abi::SessionCounters& into, abi::SessionCounters& from, bool take) const {
  auto* const to = reinterpret_cast<std::atomic<std::uint64_t>*>(&into);
  auto* const source = reinterpret_cast<std::atomic<std::uint64_t>*>(&from);
  for (std::size_t i = 0; i < sizeof(abi::SessionCounters) / sizeof(std::uint64_t); ++i) {
    const std::uint64_t n = take ? source[i].exchange(0, std::memory_order_relaxed) : source[i].load(std::memory_order_relaxed);
    if (n != 0) to[i].fetch_add(n, std::memory_order_relaxed);
  }
}

void Client::AddUp(abi::SessionCounters& sum) {
  mutex_.Lock();
  alone_reads_.MoveTo(own_);
  Fold(sum, own_, false);
  Fold(sum, past_, false);
  for (Session* session = sessions_.load(std::memory_order_acquire); session != nullptr; session = session->next) {
    if (!session->unmapped.load(std::memory_order_relaxed) && !session->inherited) Fold(sum, session->page->counters, false);
  }
  mutex_.Unlock();
}

// ---- fork ------------------------------------------------------------------------------------------------------------------

// In the parent, just before, after ForkBegins: every lease held now, or taken until the fork is over, may have a view in the child that nobody else
// vouches for. Takes no lock, since the thread that forks may hold it (a signal handler may fork); sessions are only ever added at the head of the chain, or all
// taken away (FreeAll).
void Client::CountFrozenLeases() {
  for (Session* session = sessions_.load(std::memory_order_seq_cst); session != nullptr; session = session->next) {
    if (session->unmapped.load(std::memory_order_acquire) || session->inherited) continue;
    session->page->frozen_leases.store(static_cast<std::uint32_t>(CountLeases(*session)), std::memory_order_relaxed);
  }
}

void Client::TakeOverInChild(bool counted) {
  mutex_.Reset();
  session_.store(nullptr, std::memory_order_relaxed);
  next_probe_.SetTo(0);
  closed_until_ns_.store(0, std::memory_order_relaxed);
  timeouts_.store(0, std::memory_order_relaxed);
  sessions_opened_.store(0, std::memory_order_relaxed);
  alone_reads_.Forget();
  std::memset(static_cast<void*>(&own_), 0, sizeof own_);
  std::memset(static_cast<void*>(&past_), 0, sizeof past_);
  for (Session* session = sessions_.load(std::memory_order_acquire); session != nullptr; session = session->next) {
    if (session->inherited) continue;
    // The conversation is the parent's. Its socket stays open here as long as this process lives if there are views: it tells the daemon that the leases
    // behind them still count (HAZARDS 2.6). What the parent's other threads have leased since counts along: that only keeps more.
    const bool unmapped = session->unmapped.load(std::memory_order_acquire);
    session->leases_at_fork = unmapped ? 0 : counted ? CountLeases(*session) : ~std::uint64_t{0};
    if (!session->channel_closed) session->channel.Abandon(session->leases_at_fork == 0);
    session->channel_closed = true;
    session->inherited = true;
    if (unmapped) continue;
    session->closed.store(1, std::memory_order_seq_cst);
    session->frozen_released.store(0, std::memory_order_relaxed);
    OverlayWithZeros(session->page, sizeof(abi::SessionPage), true);  // never write the parent's page
    if (Unmap(*session)) session->unmapped.store(true, std::memory_order_release);
  }
}

}  // namespace tierd::client
