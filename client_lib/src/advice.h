// What a client tells or asks the daemon about files: prefetch, evict, pin, unpin, invalidate. Slow path; any thread.
#pragma once

#include <cstdint>

#include "client_lib/src/invalidations.h"
#include "client_lib/src/session.h"

namespace tierd::client {

// Tells this very daemon what has changed; true when it has confirmed or has no such source.
// Called before the session is used by anybody.
bool ConfirmInvalidation(Session& session, const Invalidation& said, std::int64_t deadline_ns);

}  // namespace tierd::client
