// Asks the daemon (CONTROL.md) and turns what can go wrong into one sentence and an exit code.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tierd/base/status.h"

namespace tierctl {

enum ExitCode : int { kExitOk = 0, kExitError = 1, kExitPartial = 2, kExitUnreachable = 3, kExitUsage = 64 };

// What came back: a body, or a failure.
struct Answer {
  ExitCode exit = kExitOk;
  nlohmann::json body;                // the object; of a refusal, its "error"
  std::string text;                   // of GetText, when ok()
  unsigned http_status = 0;           // 0: nothing came back
  bool silent = false;                // with kExitUnreachable: somebody listens, and says nothing
  std::string code;                   // of an error: "not_found", "invalid_config", ...
  std::string message;                // one sentence
  std::vector<std::string> details;   // lines, of some errors
  bool ok() const { return exit == kExitOk; }
};

class ControlClient {
 public:
  // `socket` from FindControlSocket; a failure to find it is said at the first use.
  explicit ControlClient(tierd::Result<std::string> socket) : socket_(std::move(socket)) {}

  Answer Get(const std::string& target) { return Ask("GET", target, nullptr); }
  // An answer that is no JSON: /v1/metrics.
  Answer GetText(const std::string& target);
  Answer Post(const std::string& target, const nlohmann::json& body) { return Ask("POST", target, body); }
  Answer Patch(const std::string& target, const nlohmann::json& body) { return Ask("PATCH", target, body); }
  Answer Delete(const std::string& target) { return Ask("DELETE", target, nullptr); }
  // For GET.../v1/file?path=P and the like.
  Answer GetPath(const std::string& end_point, const std::string& path, const std::string& more = "");

  // How long an answer may take; 30 s unless said here. What only looks is answered in milliseconds: beyond kLookMs the daemon is stopped or hung.
  static constexpr int kLookMs = 5'000;
  void WaitAtMost(int timeout_ms) { timeout_ms_ = timeout_ms; }

  std::string socket() const { return socket_.ok() ? *socket_ : ""; }

 private:
  Answer Ask(const std::string& method, const std::string& target, const nlohmann::json& body);
  // The answer with its bytes in `text`, or why there is none.
  Answer AskText(const std::string& method, const std::string& target, const nlohmann::json& body);

  const tierd::Result<std::string> socket_;
  int timeout_ms_ = 30'000;
};

// Members of an answer, tolerant of what an older or newer daemon leaves out.
std::uint64_t NumberOf(const nlohmann::json& object, const char* name);
double RealOf(const nlohmann::json& object, const char* name);
std::string TextOf(const nlohmann::json& object, const char* name);
bool FlagOf(const nlohmann::json& object, const char* name);
// The member, or an empty object.
const nlohmann::json& PartOf(const nlohmann::json& object, const char* name);
// The member, or an empty array.
const nlohmann::json& ListOf(const nlohmann::json& object, const char* name);
// The texts of such an array.
std::vector<std::string> TextsOf(const nlohmann::json& object, const char* name);

}  // namespace tierctl
