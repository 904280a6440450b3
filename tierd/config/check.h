// Does a configuration fit this machine? Looks at the paths that it names, for `--check-config`, the start and a reload.
// Blocks, on a hung source for minutes: at the start or on a worker. No state.
#pragma once

#include "policies/registry.h"
#include "tierd/base/status.h"
#include "tierd/config/config.h"

namespace tierd::config {

// kInvalid with one line per problem, each with its place and a remedy: no source at all; a source that is missing, no directory, not readable or below /proc;
// two names for one directory; the cache or the sockets inside a source, or a source inside the cache; an unknown policy (if `policies` is given).
Status Check(const Config& config, const policies::Registry* policies);

}  // namespace tierd::config
