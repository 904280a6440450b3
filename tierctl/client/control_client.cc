#include "tierctl/client/control_client.h"

#include "tierctl/client/http_client.h"
#include "tierctl/client/paths.h"

namespace tierctl {
namespace {

Answer Failed(ExitCode exit, std::string message) {
  Answer answer;
  answer.exit = exit;
  answer.message = std::move(message);
  return answer;
}

Answer Unreachable(const tierd::Status& status) {
  switch (status.code()) {
    case tierd::Code::kNotFound:
      return Failed(kExitUnreachable, "no tierd is running here (" + status.message() + "); start one: tierd --source DIR");
    case tierd::Code::kTimeout: {
      Answer answer = Failed(kExitUnreachable, status.message());
      answer.silent = true;
      return answer;
    }
    default:
      return Failed(kExitUnreachable, "tierd cannot be asked: " + status.message());
  }
}

Answer Refused(const HttpReply& reply, const nlohmann::json& body) {
  Answer answer = Failed(kExitError, "");
  answer.http_status = reply.status;
  const auto error = body.is_object() ? body.find("error") : body.end();
  if (error == body.end() || !error->is_object()) {
    answer.message = "tierd answered " + std::to_string(reply.status) + " and no reason";
    return answer;
  }
  answer.code = TextOf(*error, "code");
  answer.message = TextOf(*error, "message");
  for (const auto& line : ListOf(*error, "details")) {
    if (line.is_string()) answer.details.push_back(line.get<std::string>());
  }
  answer.body = *error;
  return answer;
}

}  // namespace

Answer ControlClient::GetPath(const std::string& end_point, const std::string& path, const std::string& more) {
  return Get(end_point + "?path=" + PercentEncoded(path) + more);
}

Answer ControlClient::GetText(const std::string& target) { return AskText("GET", target, nullptr); }

Answer ControlClient::AskText(const std::string& method, const std::string& target, const nlohmann::json& body) {
  if (!socket_.ok()) return Failed(kExitUnreachable, socket_.status().message());
  HttpRequest request;
  request.method = method;
  request.target = target;
  request.timeout_ms = timeout_ms_;
  if (!body.is_null()) request.body = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  tierd::Result<HttpReply> reply = Exchange(*socket_, request);
  if (!reply.ok()) return Unreachable(reply.status());
  if (reply->status >= 400) return Refused(*reply, nlohmann::json::parse(reply->body, nullptr, /*allow_exceptions=*/false));
  Answer answer;
  answer.http_status = reply->status;
  answer.text = std::move(reply->body);
  return answer;
}

Answer ControlClient::Ask(const std::string& method, const std::string& target, const nlohmann::json& body) {
  Answer answer = AskText(method, target, body);
  if (!answer.ok()) return answer;
  answer.body = nlohmann::json::parse(answer.text, nullptr, /*allow_exceptions=*/false);
  if (!answer.body.is_object()) return Failed(kExitError, "tierd answered " + target + " with something that is no JSON object; do versions match? (tierctl version)");
  answer.text.clear();
  return answer;
}

std::uint64_t NumberOf(const nlohmann::json& object, const char* name) {
  const auto member = object.is_object() ? object.find(name) : object.end();
  if (member == object.end()) return 0;
  if (member->is_number_unsigned()) return member->get<std::uint64_t>();
  return member->is_number() && member->get<double>() > 0 ? static_cast<std::uint64_t>(member->get<double>()) : 0;
}

double RealOf(const nlohmann::json& object, const char* name) {
  const auto member = object.is_object() ? object.find(name) : object.end();
  return member != object.end() && member->is_number() ? member->get<double>() : 0;
}

std::string TextOf(const nlohmann::json& object, const char* name) {
  const auto member = object.is_object() ? object.find(name) : object.end();
  return member != object.end() && member->is_string() ? member->get<std::string>() : "";
}

bool FlagOf(const nlohmann::json& object, const char* name) {
  const auto member = object.is_object() ? object.find(name) : object.end();
  return member != object.end() && member->is_boolean() && member->get<bool>();
}

const nlohmann::json& PartOf(const nlohmann::json& object, const char* name) {
  static const nlohmann::json nothing = nlohmann::json::object();
  const auto member = object.is_object() ? object.find(name) : object.end();
  return member != object.end() && member->is_object() ? *member : nothing;
}

const nlohmann::json& ListOf(const nlohmann::json& object, const char* name) {
  static const nlohmann::json empty = nlohmann::json::array();
  const auto member = object.is_object() ? object.find(name) : object.end();
  return member != object.end() && member->is_array() ? *member : empty;
}

std::vector<std::string> TextsOf(const nlohmann::json& object, const char* name) {
  std::vector<std::string> texts;
  for (const nlohmann::json& one : ListOf(object, name))
    if (one.is_string()) texts.push_back(one.get<std::string>());
  return texts;
}

}  // namespace tierctl
