// How a configuration is shown: as a TOML file with origins (`--print-config`), and as JSON (control protocol). Pure.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tierd/config/config.h"

namespace tierd::config {

// A complete TOML file with the effective values, each followed by its origin: it can be loaded again. `here`: what "auto" and percentages came out as on
// this machine, by key (Resolved::here).
std::string PrintToml(const Config& config, const std::map<std::string, std::string>& here);

// GET /v1/config: {"file", "values": [{"key", "value", "origin", "reloadable"}]}.
nlohmann::json ValuesJson(const Config& config);
// Answer of PATCH /v1/config and of a reload: {"applied": [{"key", "from", "to"}], "restart": [...]}.
nlohmann::json ChangesJson(const std::vector<Change>& changes);
// One problem per element, for "details" of an error.
std::vector<std::string> Lines(const Status& status);

}  // namespace tierd::config
