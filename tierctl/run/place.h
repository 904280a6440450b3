// Where the parts of an installation lie, seen from tierctl's own place: the prefix may have been moved, and a build tree works too.
#pragma once

#include <string>

#include "tierd/config/config.h"

namespace tierctl::run {

struct Place {
  std::string path;  // "": none
  std::string why;   // then: where it was looked for, and what could not be looked at
};

// TIERD_BINARY and TIERD_PRELOAD name others.
Place FindDaemon(const tierd::config::GetEnvironment& environment);
Place FindPreload(const tierd::config::GetEnvironment& environment);

}  // namespace tierctl::run
