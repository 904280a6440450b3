// Examines what may hang for ever, in a process of its own.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>

#include "tierctl/doctor/check.h"
#include "tierd/base/unique_fd.h"

namespace tierctl::doctor {
namespace {

using nlohmann::json;
using Time = std::chrono::steady_clock;

std::string Encoded(const std::vector<Check>& checks) {
  json list = json::array();
  for (const Check& check : checks) list.push_back({check.name, static_cast<int>(check.verdict), check.detail, check.remedy});
  return list.dump(-1, ' ', true, json::error_handler_t::replace);
}

bool Decoded(const std::string& text, std::vector<Check>* checks) {
  const json list = json::parse(text, nullptr, false);
  if (!list.is_array()) return false;
  for (const json& row : list) {
    checks->push_back({row[0].get<std::string>(), static_cast<Verdict>(row[1].get<int>()), row[2].get<std::string>(), row[3].get<std::string>()});
  }
  return true;
}

void WriteAll(int fd, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(fd, text.data() + at, text.size() - at);
    if (n < 0 && errno != EINTR) return;
    if (n > 0) at += static_cast<std::size_t>(n);
  }
}

// What the child wrote until it closed the pipe; false if the time was up first.
bool ReadUntil(int fd, Time::time_point end, std::string* text) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Time::now()).count();
    pollfd wait{fd, POLLIN, 0};
    if (left <= 0 || ::poll(&wait, 1, static_cast<int>(left)) == 0) return false;
    char buffer[4096];
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n == 0) return true;
    if (n > 0) text->append(buffer, static_cast<std::size_t>(n));
    if (n < 0 && errno != EINTR) return true;
  }
}

// In the child: it may stay, beyond the reach of signals, for as long as the file system hangs, and whoever reads our output (a pipe) or waits for a lock of ours waits for the
// last that holds the descriptor. So it keeps none but that of its answer, which is returned; < 0: it could not.
int KeepOnly(int answer) {
  const tierd::UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const int kept = ::fcntl(answer, F_DUPFD_CLOEXEC, 3);
  if (!null.valid() || kept < 0) return -1;
  for (int fd = 0; fd < 3; ++fd) {
    if (null.get() != fd) ::dup2(null.get(), fd);
  }
  if (kept > 3) ::close_range(3, static_cast<unsigned>(kept) - 1, 0);
  ::close_range(static_cast<unsigned>(kept) + 1, ~0u, 0);
  return kept;
}

}  // namespace

const char* VerdictName(Verdict verdict) { return verdict == Verdict::kOk ? "ok" : verdict == Verdict::kWarn ? "warn" : "fail"; }

std::vector<Check> Isolated(const std::function<std::vector<Check>()>& examine, int timeout_ms, Check hung) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return examine();
  tierd::UniqueFd from(ends[0]);
  tierd::UniqueFd to(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return examine();
  if (child == 0) {
    const int answer = KeepOnly(to.Release());
    if (answer >= 0) WriteAll(answer, Encoded(examine()));
    ::_exit(0);
  }
  to.Reset();
  std::string text;
  std::vector<Check> checks;
  if (!ReadUntil(from.get(), Time::now() + std::chrono::milliseconds(timeout_ms), &text)) {
    // It may be beyond the reach of signals; init inherits it.
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, WNOHANG);
    return {std::move(hung)};
  }
  ::waitpid(child, nullptr, 0);
  if (!Decoded(text, &checks)) return {std::move(hung)};
  return checks;
}

}  // namespace tierctl::doctor
