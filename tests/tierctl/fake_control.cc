#include "fake_control.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tierd/base/check.h"

namespace tierctl {
namespace {

using nlohmann::json;

std::string Http(unsigned status, const std::string& body) {
  return "HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + body;
}

// Reads one request; "" when the peer gave up.
std::string ReadRequest(int fd, std::size_t* header_bytes) {
  std::string text;
  std::size_t wanted = std::string::npos;
  char buffer[65536];
  while (wanted == std::string::npos || text.size() < wanted) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n <= 0) return "";
    text.append(buffer, static_cast<std::size_t>(n));
    const std::size_t end = text.find("\r\n\r\n");
    if (wanted != std::string::npos || end == std::string::npos) continue;
    *header_bytes = end + 4;
    const std::size_t length = text.find("Content-Length: ");
    wanted = *header_bytes + (length < end ? std::strtoul(text.c_str() + length + 16, nullptr, 10) : 0);
  }
  return text;
}

}  // namespace

FakeControl::FakeControl() {
  std::string name = std::filesystem::temp_directory_path() / "tierctl-test-XXXXXX";
  directory_ = ::mkdtemp(name.data());
  listener_.Reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  TIERD_CHECK(socket().size() < sizeof address.sun_path);
  std::strcpy(address.sun_path, socket().c_str());
  TIERD_CHECK(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 && ::listen(listener_.get(), 16) == 0);
  stop_.Reset(::eventfd(0, EFD_CLOEXEC));
  thread_ = std::thread([this] { Serve(); });
}

FakeControl::~FakeControl() {
  const std::uint64_t one = 1;
  TIERD_CHECK(::write(stop_.get(), &one, sizeof one) == sizeof one);
  thread_.join();
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void FakeControl::ReplyText(const std::string& end_point, const std::string& body, unsigned status) { ReplyRaw(end_point, Http(status, body)); }

void FakeControl::ReplyRaw(const std::string& end_point, const std::string& bytes) {
  const std::lock_guard lock(mutex_);
  replies_[end_point].push_back(bytes);
}

void FakeControl::ReplyError(const std::string& end_point, unsigned status, const std::string& code, const std::string& message, const std::vector<std::string>& details) {
  json error = {{"code", code}, {"message", message}};
  if (!details.empty()) error["details"] = details;
  Reply(end_point, {{"error", error}}, status);
}

std::vector<FakeControl::Request> FakeControl::Requests() {
  const std::lock_guard lock(mutex_);
  return requests_;
}

std::vector<std::string> FakeControl::Asked() {
  std::vector<std::string> asked;
  for (const Request& request : Requests()) asked.push_back(request.method + " " + request.target);
  return asked;
}

void FakeControl::Serve() {
  for (;;) {
    pollfd waits[2] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (::poll(waits, 2, -1) < 0) continue;
    if (waits[1].revents != 0) return;
    const tierd::UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.valid()) Answer(connection.get());
  }
}

void FakeControl::Answer(int connection) {
  std::size_t header_bytes = 0;
  const std::string text = ReadRequest(connection, &header_bytes);
  if (text.empty()) return;
  Request request;
  const std::size_t first = text.find(' ');
  request.method = text.substr(0, first);
  request.target = text.substr(first + 1, text.find(' ', first + 1) - first - 1);
  if (text.size() > header_bytes) request.body = json::parse(text.substr(header_bytes), nullptr, false);
  const std::string reply = ReplyFor(request);
  for (std::size_t at = 0; at < reply.size();) {
    const ssize_t n = ::send(connection, reply.data() + at, reply.size() - at, MSG_NOSIGNAL);
    if (n <= 0) return;
    at += static_cast<std::size_t>(n);
  }
}

std::string FakeControl::ReplyFor(const Request& request) {
  const std::lock_guard lock(mutex_);
  requests_.push_back(request);
  const auto found = replies_.find(request.method + " " + request.target.substr(0, request.target.find('?')));
  if (found == replies_.end()) return Http(404, R"({"error": {"code": "not_found", "message": "no such end point"}})");
  const std::string reply = found->second.front();
  if (found->second.size() > 1) found->second.pop_front();
  return reply;
}

json JobJson(std::uint64_t id, const std::string& kind, const std::string& state, const json& more) {
  json job = {{"id", id}, {"kind", kind}, {"state", state}, {"walking", false}, {"elapsed_s", 2.0}, {"files_total", 10}, {"files_done", 10},
              {"files_failed", 0}, {"files_no_room", 0}, {"bytes_total", 1000}, {"bytes_done", 1000}, {"bytes_known", 1000}, {"files_sized", 10}, {"files_expected", 10}, {"files_verified", 10},
              {"bytes_verified", 1000}, {"error", ""}};
  job.update(more);
  return job;
}

}  // namespace tierctl
