// What a client tells or asks the daemon about files: prefetch, evict, pin, unpin, invalidate. Slow path; any thread.
#pragma once

#include <cstdint>

#include "client_lib/src/session.h"

namespace tierd::client {

// An invalidation that no daemon has confirmed yet: told to the next one before anything is served from it.
struct PendingInvalidation {
  const char* path;  // absolute; null: everything
  bool recursive;
  std::int64_t said_ns;  // PreciseNs, of the last one if it stands for several
  PendingInvalidation* next;
};

// Tells this very daemon what has changed; true when it has confirmed or has no such source.
// Called before the session is used by anybody.
bool ConfirmInvalidation(Session& session, const PendingInvalidation& said, std::int64_t deadline_ns);

}  // namespace tierd::client
