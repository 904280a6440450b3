// JSON details of CONTROL.md that several end points share: answers, errors, paths that are bytes, queries. Pure; any thread.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client_lib/abi/messages.h"
#include "tierd/server/http.h"

namespace tierd::server {

// One line of JSON.
HttpResponse Ok(const nlohmann::json& body, unsigned status = 200);
// {"error": {"code", "message", "details"}}; no details, no such member.
HttpResponse JsonError(unsigned status, const char* code, const std::string& message, const std::vector<std::string>& details = {});

const char* StalenessName(abi::Staleness staleness);  // as in the configuration

// Adds "path" (valid UTF-8, offending bytes replaced) and, when bytes had to be replaced, "path_b64" with the exact ones.
void PutPath(nlohmann::json& object, std::string_view path);
// A path of a request: a string or {"b64": "..."}; none if it is neither.
std::optional<std::string> TakePath(const nlohmann::json& value);
// "/v1/files?path=%2Fa&limit=3" -> path part and decoded members; none on a bad escape or a repeated member.
struct Target {
  std::string path;
  std::map<std::string, std::string> query;
};
std::optional<Target> ParseTarget(std::string_view target);
// Absolute, no "." or ".." component; trailing and doubled slashes are dropped. None otherwise.
std::optional<std::string> NormalPath(std::string_view path);

}  // namespace tierd::server
