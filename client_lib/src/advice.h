// What a client tells or asks the daemon about files: prefetch, evict, pin, unpin, invalidate. Slow path; any thread.
#pragma once

#include <cstdint>

#include "client_lib/src/client.h"
#include "client_lib/src/invalidations.h"
#include "client_lib/src/session.h"

namespace tierd::client {

// Tells this very daemon what has changed; true when it has confirmed or has no such source.
// Called before the session is used by anybody.
bool ConfirmInvalidation(Session& session, const Invalidation& said, std::int64_t deadline_ns);

// tier_invalidate of one name that goes through no link (the kernel's own), and of just that: what a link leads to stays when the link comes or goes.
std::int64_t InvalidateName(Client& client, const char* name, bool recursive);

// What lies below all sources may have changed: nothing of it is used by anybody before the source has
// confirmed it. Cached bytes stay. Of a daemon that cannot be told the process uses nothing until it is.
// 0 or -errno.
std::int64_t DoubtSources(Client& client);

}  // namespace tierd::client
