// One session with one daemon: the mappings that hits use, and the conversation that misses use.
//
// Life: open -> (the daemon went away: hits go on until their deadlines) -> closed (nothing new is served) -> unmapped (no lease is held any more).
// The object itself stays until its client is disconnected, so that a thread which was looking at it meets valid memory. Only the mappings go, and they are
// overlaid, not unmapped, until then.
//
// Thread rule: fields of the hot part are read by any thread; the cold part is guarded by the lock of the client.
#pragma once

#include <atomic>
#include <cstdint>

#include "client_lib/abi/layout.h"
#include "client_lib/src/arena.h"
#include "client_lib/src/channel.h"
#include "client_lib/src/index_view.h"
#include "client_lib/src/settings.h"
#include "client_lib/src/source_table.h"

namespace tierd::client {

struct Session {
  // Hot: read at every hit.
  std::atomic<const IndexView*> index;
  std::atomic<const SourceTable*> sources;
  abi::SessionPage* page;
  Arena* arena;
  std::uint64_t account_from;               // smaller views are not counted against the pin cap: 2,048 of them stay below half of it
  std::uint64_t pin_cap_bytes;
  std::uint32_t fork_generation;            // of the process that opened it
  std::atomic<std::uint32_t> closed;        // looked at after the lease: 1 = give it back, the mappings may go
  std::atomic<std::int64_t> look_at_ns;     // from then on a hit goes the slow way once: is the daemon still there?
  std::atomic<std::uint32_t> mounts_seen;   // SessionPage::mounts_changed when the sources were last doubted for it
  bool check_all;                           // no use without a look at the source: foreign clock, or TIER_CHECK_OPEN
  bool takes_parts;                         // the daemon answers questions for a part of a chunk
  bool foreign_clock;                       // another time namespace: deadlines mean nothing here, everything is checked at the source
  std::int64_t clock_offset_ns;             // daemon's clock - ours

  // Cold.
  Channel channel;
  const Settings* settings;
  std::uint32_t session_id;
  std::uint32_t page_kind;
  IndexView* index_views;
  SourceTable* source_tables;
  std::atomic<std::uint64_t> frozen_released;  // views given back whose lease stays for somebody else's sake
  std::uint64_t leases_at_fork;                // in a child: what was inherited
  std::int64_t orphan_since_ns;                // the daemon was found gone; 0: it was not
  bool channel_closed;
  std::atomic<bool> unmapped;
  bool inherited;                              // opened by a parent of this process
  Session* next;

  bool serves() const { return closed.load(std::memory_order_acquire) == 0; }
  // The daemon's loop has not turned for a while (HAZARDS 2.11).
  bool Hung(std::int64_t now_ns) const;
};

struct OpenResult {
  Session* session = nullptr;
  int error = 0;               // -errno when there is none: -ENOENT, -ECONNREFUSED, -EPROTO, -EACCES, -ETIMEDOUT ...
};

// Connects and greets within `timeout_ms`. `reuse` finds the arena of an instance that is known already, or null.
OpenResult OpenSession(const Settings& settings, std::uint32_t timeout_ms, Arena* (*reuse)(void* context, const std::uint8_t instance[16]), void* context);
// A daemon that answers nobody is told that files have changed, in its queue: when it goes on it asks about all of them.
// A few system calls, none of which waits.
void SayUntold(const Settings& settings);

// Under the lock of the client. kNone: done; kNoFrame: the daemon says there is none, or it cannot be mapped; kTimeout, kNoDaemon: no answer.
// Asks for the index that replaces the retired one.
abi::Fallback RefreshIndex(Session& session, std::int64_t deadline_ns);
// Maps a segment that the arena does not know.
abi::Fallback MapSegment(Session& session, std::uint32_t serial, std::int64_t deadline_ns);

// Frees an unmapped session that nobody looks at any more, with all that it had but the arena.
void FreeSession(Session* session);

// A view of a closed session has gone: it may have been the last, for which socket and mappings were kept (HAZARDS 2.5, 2.6).
void SweepClosed();

// Lease words that are not 0.
std::uint64_t CountLeases(const Session& session);

}  // namespace tierd::client
