#include "tierd/server/control_body.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "tierd/base/json_depth.h"
#include "tierd/server/control_json.h"

namespace tierd::server {

namespace {
constexpr std::size_t kMaxPaths = 10'000;
constexpr const char* kNoArray = "\"paths\" must be a non-empty array";
constexpr unsigned kOutside = 404;

std::string OutsideText(const std::string& normal) { return normal + " is below no source"; }
}  // namespace

ControlApi::Body ControlApi::ReadBody(std::string_view text, const std::vector<std::string_view>& members) const {
  // Nothing of a refused one goes on to the loop, which would have to free it.
  const auto refused = [](Response response) {
    Body body;
    body.refused = std::move(response);
    return body;
  };
  if (IsNestedDeeper(text)) return refused(JsonError(400, "bad_request", "the body is nested more than " + std::to_string(kDeepestJson) + " deep"));
  Body body;
  body.members = Json::parse(text, nullptr, false);
  if (body.members.is_discarded() || !body.members.is_object()) return refused(JsonError(400, "bad_request", "the body is not a JSON object"));
  for (const auto& [name, value] : body.members.items()) {
    if (std::find(members.begin(), members.end(), name) == members.end()) return refused(JsonError(400, "bad_request", "unknown member \"" + name + "\""));
  }
  const auto paths = body.members.find("paths");
  if (paths == body.members.end()) return body;
  body.has_paths = true;
  Response error;
  if (!ReadPaths(*paths, &body.places, &error)) return refused(std::move(error));
  body.members.erase(paths);
  return body;
}

bool ControlApi::PlaceOf(const std::string& path, Place* place, Response* error) const {
  const auto normal = NormalPath(path);
  if (!normal) {
    *error = JsonError(400, "bad_request", "the path " + path + " is not absolute and free of . and ..");
    return false;
  }
  place->unit = engine_.Locate(*normal, &place->relative);
  if (place->unit == nullptr) {
    *error = JsonError(kOutside, "outside", OutsideText(*normal));
    return false;
  }
  place->absolute = *normal;
  return true;
}

bool ControlApi::ReadPaths(const Json& paths, std::vector<engine::Jobs::Item>* places, Response* error) const {
  const auto refuse = [error](Response response) {
    *error = std::move(response);
    return false;
  };
  if (!paths.is_array()) return refuse(JsonError(400, "bad_request", kNoArray));
  if (paths.size() > kMaxPaths) return refuse(JsonError(413, "too_large", "more than 10,000 paths"));
  places->reserve(paths.size());
  Json outside = Json::array();
  std::string first_outside;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const auto path = TakePath(paths[i]);
    if (!path) return refuse(JsonError(400, "bad_request", "an element of \"paths\" is neither a string nor {\"b64\": ...}"));
    Place place;
    Response wrong;
    if (PlaceOf(*path, &place, &wrong)) {
      places->push_back({place.unit, std::move(place.relative)});
    } else if (wrong.status == kOutside) {
      if (outside.empty()) first_outside = OutsideText(*NormalPath(*path));
      outside.push_back(i);
    } else {
      return refuse(std::move(wrong));
    }
  }
  if (outside.empty()) return true;
  return refuse(Ok({{"error", {{"code", "outside"}, {"message", first_outside}, {"outside", std::move(outside)}}}}, kOutside));
}

std::optional<ControlApi::Response> ControlApi::LackOfPaths(const Body& body) {
  if (!body.has_paths) return JsonError(400, "bad_request", "the body lacks \"paths\"");
  if (body.places.empty()) return JsonError(400, "bad_request", kNoArray);
  return std::nullopt;
}

}  // namespace tierd::server
