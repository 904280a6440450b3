// What the daemon says about options that it does not take as they are written, and about doors that
// they open: one sentence each, with what is given instead and the remedy. Pure.
#pragma once

#include <string>
#include <vector>

#include "tierd/config/config.h"
#include "tierd/config/host.h"
#include "tierd/config/resolve.h"

namespace tierd::config {

// Of options that somebody set, in the order of the sections. `resolved` is complete but for its notes.
std::vector<std::string> OptionNotes(const Config& config, const HostFacts& host, const Resolved& resolved);

// Whether only this machine reaches an address of the form "127.0.0.1:9469" or "[::1]:9469"; "off" too.
bool IsLoopback(const std::string& address);

}  // namespace tierd::config
