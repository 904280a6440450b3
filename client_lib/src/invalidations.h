// Invalidations that no daemon has confirmed: what this process has changed and could tell nobody. Whichever client finds a daemon at that socket next tells it all of
// them before anything is served from it, also when the client that was told has been disconnected meanwhile.
//
// Process-wide; any thread, slow path. One lock, which is held while a daemon is told; taken under the lock of a client, never the other way round.
#pragma once

#include <cstdint>

#include "client_lib/src/session.h"

namespace tierd::client {

struct Invalidation {
  const char* path;  // absolute; null: everything
  bool recursive;
  std::int64_t said_ns;  // PreciseNs, of the last one if it stands for several
};

void RememberInvalidation(const char* socket, const Invalidation& said);
// True when the daemon at that socket has confirmed all that is remembered, which then is no more; each may take `timeout_ms`.
bool TellInvalidations(const char* socket, Session& session, std::uint32_t timeout_ms);
// After a fork, in the child: another thread may have held the lock. What is remembered is the child's, too.
void TakeOverInvalidations();

}  // namespace tierd::client
