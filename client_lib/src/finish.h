// The end of a read: what the daemon and tier_stats hear of it. One call of the application is one read.
#pragma once

#include "client_lib/src/accounting.h"
#include "client_lib/src/clock.h"
#include "client_lib/src/lookup.h"
#include "client_lib/src/target.h"

namespace tierd::client {

// A read of the slow path. `reason` counts when the source was read.
void CountSlowRead(const Call& call, abi::Tier tier, std::uint64_t bytes, abi::Fallback reason);
// The same with its place in the access ring.
void CountSlowPiece(const Call& call, const Piece& piece, std::uint64_t bytes);

// Whether a read of a file that was opened at the source is one for want of a daemon; those are counted apart (AloneReads).
inline bool IsAloneRead(const Client& client, abi::Fallback reason) { return client.alone() && reason == abi::Fallback::kNoDaemon; }

// A read of a file that was opened at the source: no session is needed for it. `start_ns` != 0 if it is timed.
inline void CountSourceRead(Client& client, std::uint64_t bytes, abi::Fallback reason, std::int64_t start_ns) {
  abi::SessionCounters& counters = client.Counters(client.session());
  if (IsAloneRead(client, reason)) {
    client.alone_reads().Count(bytes);
  } else {
    CountRead(counters, abi::Tier::kBypass, bytes);
    if (reason != abi::Fallback::kNone) CountFallback(counters, reason);
  }
  if (start_ns != 0) CountLatency(counters, abi::Tier::kBypass, PreciseNs() - start_ns);
}

// A hit of the fast path; `start_ns` != 0 if it is timed.
[[gnu::always_inline]] inline void CountHit(Session& session, const Piece& piece, std::uint64_t bytes, std::int64_t now_ns, std::int64_t start_ns) {
  AppendToRing(*session.page, piece.ordinal, piece.generation, now_ns, abi::Tier::kRam);
  CountRead(session.page->counters, abi::Tier::kRam, bytes);
  if (start_ns != 0) [[unlikely]] CountLatency(session.page->counters, abi::Tier::kRam, PreciseNs() - start_ns);
}

}  // namespace tierd::client
