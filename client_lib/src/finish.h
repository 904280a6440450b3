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

// A hit of the fast path, under its lease, and before its bytes are copied: the less there is to do between two copies, the more of the next look-up a processor does during
// the first one.
[[gnu::always_inline]] inline void CountHit(Session& session, const Piece& piece, std::uint64_t bytes, std::int64_t now_ns) {
  AppendToRing(*session.page, piece.ordinal, piece.generation, now_ns, abi::Tier::kRam);
  CountRead(session.page->counters, abi::Tier::kRam, bytes);
}
// It was none after all, and is counted where it comes from. (What the ring says stays: an access it was.)
inline void UncountHit(Session& session, std::uint64_t bytes) {
  constexpr auto kRam = static_cast<std::size_t>(abi::Tier::kRam);
  AddOwn(session.page->counters.reads[kRam], -std::uint64_t{1}, session.page->counters.bytes[kRam], -bytes);
}
// `start_ns` != 0: it is timed.
[[gnu::always_inline]] inline void TimeHit(Session& session, std::int64_t start_ns) {
  if (start_ns != 0) [[unlikely]] CountLatency(session.page->counters, abi::Tier::kRam, PreciseNs() - start_ns);
}

}  // namespace tierd::client
