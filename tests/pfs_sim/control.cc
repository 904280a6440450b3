#include "tests/pfs_sim/control.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>

namespace pfs_sim {
namespace {

constexpr size_t kMaxLine = 64 << 10;

bool FillAddress(const std::string& path, sockaddr_un* address, std::string* why) {
  address->sun_family = AF_UNIX;
  if (path.size() >= sizeof(address->sun_path)) {
    *why = "socket path " + path + " is longer than " +
           std::to_string(sizeof(address->sun_path) - 1) + " bytes";
    return false;
  }
  memcpy(address->sun_path, path.c_str(), path.size() + 1);
  return true;
}

bool SendAll(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t sent = send(fd, text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    done += static_cast<size_t>(sent);
  }
  return true;
}

int Connect(const std::string& path, std::string* why) {
  sockaddr_un address{};
  if (!FillAddress(path, &address, why)) return -1;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return fd;
  *why = "connect to " + path + ": " + strerror(errno);
  if (fd >= 0) close(fd);
  return -1;
}

// Up to the first newline, the end of the stream or kMaxLine; a client that sends nothing for a second
// is given up.
std::string ReceiveLine(int fd) {
  std::string line;
  char part[4096];
  while (line.size() < kMaxLine && line.find('\n') == std::string::npos) {
    pollfd waiting{fd, POLLIN, 0};
    if (poll(&waiting, 1, 1000) <= 0) break;
    const ssize_t got = recv(fd, part, sizeof(part), 0);
    if (got <= 0) break;
    line.append(part, static_cast<size_t>(got));
  }
  return line.substr(0, line.find('\n'));
}

}  // namespace

bool ControlServer::Start(const std::string& path, std::string* why) {
  std::string refused;
  const int other = Connect(path, &refused);
  if (other >= 0) {
    close(other);
    *why = "another server listens on " + path;
    return false;
  }
  struct stat st {};
  if (lstat(path.c_str(), &st) == 0 && S_ISSOCK(st.st_mode)) unlink(path.c_str());
  sockaddr_un address{};
  if (!FillAddress(path, &address, why)) return false;
  listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  stop_event_ = eventfd(0, EFD_CLOEXEC);
  if (listener_ < 0 || stop_event_ < 0 ||
      bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener_, 64) != 0) {
    *why = "listen on " + path + ": " + strerror(errno);
    return false;
  }
  path_ = path;
  thread_ = std::thread([this] { Run(); });
  return true;
}

ControlServer::~ControlServer() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    if (write(stop_event_, &one, sizeof(one)) == sizeof(one)) thread_.join();
  }
  if (listener_ >= 0) close(listener_);
  if (stop_event_ >= 0) close(stop_event_);
  if (!path_.empty()) unlink(path_.c_str());
}

void ControlServer::Run() {
  for (;;) {
    pollfd waiting[2] = {{listener_, POLLIN, 0}, {stop_event_, POLLIN, 0}};
    if (poll(waiting, 2, -1) < 0) continue;
    if (waiting[1].revents != 0) return;
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    Serve(connection);
    close(connection);
  }
}

void ControlServer::Serve(int connection) {
  const std::string line = ReceiveLine(connection);
  if (line == "quit") {
    SendAll(connection, "ok\n");
    on_quit_();
    return;
  }
  const CommandResult result = RunCommand(fs_, line);
  SendAll(connection, result.ok ? "ok\n" + result.text : "error: " + result.text + "\n");
}

CommandResult SendCommand(const std::string& path, const std::string& line) {
  std::string why;
  const int fd = Connect(path, &why);
  if (fd < 0) return {false, why};
  std::string answer;
  if (SendAll(fd, line + "\n")) {
    char part[65536];
    for (;;) {
      const ssize_t got = recv(fd, part, sizeof(part), 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      answer.append(part, static_cast<size_t>(got));
    }
  }
  close(fd);
  if (answer.starts_with("ok\n")) return {true, answer.substr(3)};
  if (!answer.starts_with("error: ")) return {false, "no answer from " + path};
  answer.erase(0, 7);
  while (!answer.empty() && answer.back() == '\n') answer.pop_back();
  return {false, answer};
}

}  // namespace pfs_sim
