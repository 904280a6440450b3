// The body of a request to the control plane, as its end points take it. Read by a worker where it is long.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "tierd/server/control_api.h"

namespace tierd::server {

struct ControlApi::Body {
  Json members = Json::object();           // but for "paths"
  bool has_paths = false;
  std::vector<engine::Jobs::Item> places;  // of "paths"
  std::optional<Response> refused;         // it is none
};

}  // namespace tierd::server
