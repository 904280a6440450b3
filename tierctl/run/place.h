// Where the parts of an installation lie, seen from tierctl's own place: the prefix may have been moved, and a build tree works too.
#pragma once

#include <string>

#include "tierd/config/config.h"

namespace tierctl::run {

// "" if there is none. TIERD_BINARY and TIERD_PRELOAD name others.
std::string FindDaemon(const tierd::config::GetEnvironment& environment);
std::string FindPreload(const tierd::config::GetEnvironment& environment);

}  // namespace tierctl::run
