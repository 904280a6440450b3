// A request to the control plane: "METHOD TARGET\n" and the body, as Beast hands them on. "@" in it stands for the directory of the source.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/fuzz/daemon_fixture.h"
#include "tierd/server/control_json.h"

using namespace tierd;

namespace {

std::string WithPaths(std::string_view text, const std::string& data) {
  std::string out;
  for (const char c : text) {
    if (c == '@') out += data;
    else out += c;
  }
  return out;
}

void Parsers(std::string_view text) {
  if (const auto path = server::NormalPath(text)) FUZZ_CHECK(server::NormalPath(*path) == path);
  (void)server::ParseTarget(text);
  nlohmann::json object;
  server::PutPath(object, text);
  // What was put is taken back exactly, whatever bytes it had.
  const bool exact = object.contains("path_b64");
  const auto taken = exact ? server::TakePath(nlohmann::json{{"b64", object["path_b64"]}}) : server::TakePath(object["path"]);
  FUZZ_CHECK(taken == std::string(text));
}

// A trace goes to a file that the request names: to ours alone.
bool WritesElsewhere(std::string_view target, std::string_view body, const std::string& own) {
  const auto parsed = server::ParseTarget(target);
  if (!parsed || parsed->path != "/v1/trace") return false;
  const auto object = nlohmann::json::parse(body, nullptr, false);
  return object.is_object() && object.contains("path") && object["path"] != own;
}

// What requests count on, however often they come: a list of samples, which a plan takes with it, and no trace.
void Renew(const fuzz::InProcessDaemon& daemon) {
  std::filesystem::remove(daemon.directory() + "/trace");
  if (const std::string list = daemon.directory() + "/told.list"; !std::filesystem::exists(list)) std::ofstream(list) << WithPaths("@/a\n@/b/c\n@/b/d\n", daemon.data());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static fuzz::InProcessDaemon daemon(fuzz::SsdTier::kOn);
  const std::string_view raw(reinterpret_cast<const char*>(data), size);
  Parsers(raw.substr(0, 512));
  const std::string request = WithPaths(raw.substr(0, 8192), daemon.data());
  const std::string_view text = request;
  const std::string_view line = text.substr(0, text.find('\n'));
  const std::string_view body = line.size() < text.size() ? text.substr(line.size() + 1) : std::string_view();
  const std::size_t space = line.find(' ');
  const std::string_view target = space == line.npos ? std::string_view() : line.substr(space + 1);
  if (WritesElsewhere(target, body, daemon.data() + "/../trace")) return 0;
  Renew(daemon);
  server::ControlApi::Response response;
  bool answered = false;
  daemon.api().Handle(line.substr(0, space), target, body, [&](server::ControlApi::Response said) {
    response = std::move(said);
    answered = true;
  });
  FUZZ_CHECK(daemon.Await([&] { return answered; }));
  FUZZ_CHECK(response.status >= 200 && response.status < 600);
  if (response.type != "application/json") return 0;  // the page of metrics
  const auto answer = nlohmann::json::parse(response.body, nullptr, false);
  FUZZ_CHECK(!answer.is_discarded());
  // A job's answer may tell the job's error, a string.
  FUZZ_CHECK((response.status >= 400) == (answer.contains("error") && answer["error"].is_object()));
  daemon.Turn();
  return 0;
}
