// Does a configuration fit this machine? Looks at the paths that it names, for `--check-config`, the start and a reload.
// Blocks, on a hung directory for minutes: at the start, or on a thread of its own. No state.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "policies/registry.h"
#include "tierd/base/status.h"
#include "tierd/config/config.h"
#include "tierd/config/resolve.h"

namespace tierd::config {

// A daemon that runs, for Check: how the file systems of its sources do now is no mistake of a configuration.
struct Running {
  std::vector<std::string> served;    // paths
  std::chrono::milliseconds patience;  // with the sources, all together; one that hangs keeps a thread
};

// kInvalid with one line per problem, each with its place and a remedy: no source at all; a source that is missing, no directory, not readable or below /proc;
// two names for one directory; the cache or the sockets inside a source, or a source inside the cache; an unknown policy (if `policies` is given).
// With `running` a source that is served already is asked only how it lies to the others, and one that has not answered in time is a problem.
Status Check(const Config& config, const policies::Registry* policies, const Running* running = nullptr);

// What Check cannot know of a runtime directory that nobody named: kInvalid if it lies inside a source, and the sockets in it.
Status CheckRuntimePlace(const Config& config, const Resolved& resolved);

// Mount points that nobody named, for Config::AdoptMounts: none of them is a reason not to start.
struct Mounts {
  std::vector<std::string> usable;
  std::vector<std::string> notes;  // one line for each that is left out
};
// Leaves out what would be a problem beside the sources of `config` and those before it: what cannot be read, is the same directory, lies inside one another, or has
// not answered in time. Waits for all of them together; one that hangs keeps a thread.
Mounts ChooseMounts(const std::vector<std::string>& mount_points, const Config& config, std::chrono::milliseconds patience = std::chrono::seconds(2));

}  // namespace tierd::config
