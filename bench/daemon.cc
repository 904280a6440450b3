#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "bench/harness.h"

namespace bench {
namespace {

constexpr int kReadyTimeoutMs = 60'000;

std::uint64_t StatusKib(pid_t pid, const std::string& key) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key + ":", 0) == 0) return std::strtoull(line.c_str() + key.size() + 1, nullptr, 10);
  }
  return 0;
}

// Bytes that the shared memory files of a process hold, of those whose name `wanted` takes.
template <typename Wanted>
std::uint64_t MemfdBytes(pid_t pid, Wanted wanted) {
  std::uint64_t bytes = 0;
  std::vector<ino_t> seen;  // one file may be open twice
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    struct stat st {};
    // Files of 2 MiB pages may lie in a tmpfs that only tierd has mounted.
    const bool memory = target.rfind("/memfd:", 0) == 0 || target.find("/tierd-index") != std::string::npos;
    if (!memory || !wanted(target) || ::stat(entry.path().c_str(), &st) != 0) continue;
    if (std::find(seen.begin(), seen.end(), st.st_ino) != seen.end()) continue;
    seen.push_back(st.st_ino);
    bytes += static_cast<std::uint64_t>(st.st_blocks) * 512;
  }
  return bytes;
}

// Waits for a line that begins with "tierd ready".
bool WaitReady(int fd) {
  std::string text;
  const double until = Now() + kReadyTimeoutMs / 1000.0;
  while (Now() < until) {
    pollfd poll_fd{.fd = fd, .events = POLLIN, .revents = 0};
    if (::poll(&poll_fd, 1, 1000) <= 0) continue;
    char part[512];
    const ssize_t got = ::read(fd, part, sizeof part);
    if (got <= 0) return false;
    text.append(part, static_cast<std::size_t>(got));
    if (text.find("tierd ready") != std::string::npos) return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<Daemon> Daemon::Start(const Bench& bench, const DaemonOptions& options) {
  std::unique_ptr<Daemon> daemon(new Daemon);
  daemon->options_ = options;
  // Parts run in processes of their own, each with daemons of its own: no counter in memory tells their directories apart.
  daemon->run_ = bench.directory() + "/run-XXXXXX";
  if (::mkdtemp(daemon->run_.data()) == nullptr) return Note(daemon->run_ + ": " + std::strerror(errno)), nullptr;
  daemon->socket_ = daemon->run_ + "/tierd.sock";
  return daemon->Launch() ? std::move(daemon) : nullptr;
}

bool Daemon::Launch() {
  const char* binary = std::getenv("TIERD_BINARY");
  std::vector<std::string> arguments = {binary != nullptr ? binary : TIERD_BENCH_DAEMON, "--source", options_.source, "--ram", options_.ram,
                                        "--ssd", options_.ssd, "--socket", socket_, "--metrics", "off"};
  if (options_.ssd != "off") arguments.insert(arguments.end(), {"--ssd-capacity", options_.ssd_capacity});
  if (!options_.policy.empty()) arguments.insert(arguments.end(), {"--policy", options_.policy});
  arguments.insert(arguments.end(), options_.more.begin(), options_.more.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int out[2];
  if (::pipe2(out, O_CLOEXEC) != 0) return false;
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(out[1], STDOUT_FILENO);
    const int log = ::open((run_ + "/tierd.log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(log, STDERR_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(out[1]);
  const bool ready = pid_ > 0 && WaitReady(out[0]);
  if (out_ >= 0) ::close(out_);
  out_ = out[0];  // kept open: what it prints later must not end it by SIGPIPE
  if (!ready) {
    Note("tierd did not become ready:");
    Shell("tail -n 20 '" + run_ + "/tierd.log'");
    Kill();
  }
  return ready;
}

Daemon::~Daemon() {
  if (pid_ > 0) Stop();
  if (out_ >= 0) ::close(out_);
}

void Daemon::Kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

bool Daemon::Stop() {
  if (pid_ <= 0) return false;
  ::kill(pid_, SIGTERM);
  const double until = Now() + 30;
  int status = 0;
  while (Now() < until) {
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) Note("tierd ended with status " + std::to_string(status));
      return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    ::usleep(10'000);
  }
  Note("tierd did not end within 30 s of SIGTERM");
  Kill();
  return false;
}

bool Daemon::Restart(double* seconds) {
  Kill();
  const double started = Now();
  const bool good = Launch();
  *seconds = Now() - started;
  return good;
}

double Daemon::cpu_seconds() const {
  clockid_t clock{};
  timespec used{};
  if (::clock_getcpuclockid(pid_, &clock) != 0 || ::clock_gettime(clock, &used) != 0) return 0;
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

std::uint64_t Daemon::rss_bytes() const { return StatusKib(pid_, "VmRSS") * 1024; }

std::uint64_t Daemon::overhead_bytes() const {
  const std::uint64_t process = (StatusKib(pid_, "RssAnon") + StatusKib(pid_, "RssFile")) * 1024;
  return process + MemfdBytes(pid_, [](const std::string& name) { return name.find("segment") == std::string::npos; });
}

std::uint64_t Daemon::index_bytes() const {
  return MemfdBytes(pid_, [](const std::string& name) { return name.find("index") != std::string::npos; });
}

nlohmann::json Daemon::Get(const std::string& target) const { return nlohmann::json::parse(GetText(target), nullptr, false); }
nlohmann::json Daemon::Post(const std::string& target, const nlohmann::json& body) const {
  return nlohmann::json::parse(Request("POST", target, body.dump()), nullptr, false);
}
std::string Daemon::GetText(const std::string& target) const { return Request("GET", target, ""); }

std::string Daemon::Request(const std::string& method, const std::string& target, const std::string& body) const {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s/control.sock", run_.c_str());
  std::string answer;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    std::string request = method + " " + target + " HTTP/1.1\r\nHost: tierd\r\nConnection: close\r\n";
    if (!body.empty()) request += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
    request += "\r\n" + body;
    if (::write(fd, request.data(), request.size()) == static_cast<ssize_t>(request.size())) {
      char part[4096];
      for (ssize_t got = 0; (got = ::read(fd, part, sizeof part)) > 0;) answer.append(part, static_cast<std::size_t>(got));
    }
  }
  ::close(fd);
  const std::size_t at = answer.find("\r\n\r\n");
  return at == std::string::npos ? "null" : answer.substr(at + 4);
}

std::string Daemon::pages() const {
  const nlohmann::json status = Get("/v1/status");
  if (!status.is_object() || !status.contains("tiers")) return "?";
  return status["tiers"]["ram"].value("pages", "?");
}

bool WaitForJob(const Daemon& daemon, int job, double seconds) {
  nlohmann::json state;
  for (const double until = Now() + seconds; Now() < until; ::usleep(20'000)) {
    state = daemon.Get("/v1/jobs/" + std::to_string(job));
    if (!state.is_object()) break;
    const std::string is = state.value("state", "");
    if (is == "done") return true;
    if (is != "running" && is != "verifying") break;
  }
  Note("job: " + state.dump());
  return false;
}

}  // namespace bench
