// A control server for tests: answers as it was told, remembers what it was asked. One thread; plain sockets.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tierd/base/unique_fd.h"

namespace tierctl {

class FakeControl {
 public:
  struct Request {
    std::string method;
    std::string target;
    nlohmann::json body;  // null without one
  };

  // Listens at DIRECTORY/control.sock in a new temporary directory.
  FakeControl();
  ~FakeControl();
  FakeControl(const FakeControl&) = delete;
  FakeControl& operator=(const FakeControl&) = delete;

  const std::string& directory() const { return directory_; }
  std::string socket() const { return directory_ + "/control.sock"; }

  // Answers of "METHOD /path" (without query), in this order; the last one stays.
  void Reply(const std::string& end_point, const nlohmann::json& body, unsigned status = 200) { ReplyText(end_point, body.dump(), status); }
  void ReplyText(const std::string& end_point, const std::string& body, unsigned status = 200);
  // Sends these bytes in place of any HTTP.
  void ReplyRaw(const std::string& end_point, const std::string& bytes);
  void ReplyError(const std::string& end_point, unsigned status, const std::string& code, const std::string& message, const std::vector<std::string>& details = {});

  std::vector<Request> Requests();
  // Targets of all requests, "METHOD TARGET".
  std::vector<std::string> Asked();

 private:
  void Serve();
  void Answer(int connection);
  std::string ReplyFor(const Request& request);

  std::string directory_;
  tierd::UniqueFd listener_;
  tierd::UniqueFd stop_;  // eventfd
  std::mutex mutex_;
  std::map<std::string, std::deque<std::string>> replies_;  // guarded by mutex_
  std::vector<Request> requests_;                           // guarded by mutex_
  std::thread thread_;
};

// A job as the daemon would describe it; `more` overrides members.
nlohmann::json JobJson(std::uint64_t id, const std::string& kind, const std::string& state, const nlohmann::json& more = nlohmann::json::object());

}  // namespace tierctl
