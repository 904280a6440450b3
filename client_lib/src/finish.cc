#include "client_lib/src/finish.h"

namespace tierd::client {

void CountSlowRead(const Call& call, abi::Tier tier, std::uint64_t bytes, abi::Fallback reason) {
  abi::SessionCounters& counters = call.client.Counters(call.client.session());
  CountRead(counters, tier, bytes);
  if (tier == abi::Tier::kBypass && reason != abi::Fallback::kNone) CountFallback(counters, reason);
  if (tier != abi::Tier::kRam || SampleThisHit()) CountLatency(counters, tier, PreciseNs() - call.start_ns);
}

void CountSlowPiece(const Call& call, const Piece& piece, std::uint64_t bytes) {
  if (piece.ordinal != 0xffffffffu && piece.session->serves())
    AppendToRing(*piece.session->page, piece.ordinal, piece.generation, call.now_ns, piece.tier);
  CountSlowRead(call, piece.tier, bytes, abi::Fallback::kNone);
}

}  // namespace tierd::client
