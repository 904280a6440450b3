// What `tierctl run` says about options that its daemon does not take as they are written. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tierctl/run/options.h"

namespace tierctl::run {

// `status`: that of the daemon which was started for this run. One sentence each, with what is given
// instead and the remedy.
std::vector<std::string> OptionNotes(const RunOptions& options, const nlohmann::json& status);

}  // namespace tierctl::run
