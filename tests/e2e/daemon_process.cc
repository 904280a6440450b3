#include "tests/e2e/daemon_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace tierd::e2e {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

pid_t Spawn(const std::string& binary, const std::vector<std::string>& arguments, const std::string& output) {
  std::vector<std::string> all;
  // A program that takes something away from the daemon and becomes it: TIERD_UNDER="PROGRAM ARGUMENT...".
  if (const char* under = std::getenv("TIERD_UNDER"); under != nullptr) {
    std::istringstream words(under);
    for (std::string word; words >> word;) all.push_back(word);
  }
  all.push_back(binary);
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& a : all) argv.push_back(a.data());
  argv.push_back(nullptr);
  const int out = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(out, 1);
    ::dup2(out, 2);
    ::unsetenv("TIERD_SOCKET");
    ::execv(argv[0], argv.data());
    ::dprintf(2, "exec %s: %s\n", argv[0], std::strerror(errno));
    ::_exit(127);
  }
  ::close(out);
  return pid;
}

int ExitCode(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

// One HTTP exchange on a connected socket; the body.
std::string Exchange(int fd, const std::string& request) {
  std::string answer;
  if (::send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size())) {
    char buffer[65536];
    ssize_t n;
    while ((n = ::recv(fd, buffer, sizeof buffer, 0)) > 0) answer.append(buffer, static_cast<std::size_t>(n));
  }
  ::close(fd);
  const std::size_t body = answer.find("\r\n\r\n");
  return body == std::string::npos ? "" : answer.substr(body + 4);
}

}  // namespace

ScratchDir::ScratchDir() {
  const char* base = std::getenv("TMPDIR");
  path_ = std::string(base != nullptr ? base : "/tmp") + "/tierd-e2e-XXXXXX";
  if (::mkdtemp(path_.data()) == nullptr) std::abort();
}
ScratchDir::~ScratchDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void SleepMs(int ms) { ::usleep(static_cast<useconds_t>(ms) * 1000); }

DaemonProcess::~DaemonProcess() {
  if (!running()) return;
  ::kill(pid_, SIGCONT);
  Kill(SIGKILL);
}

bool DaemonProcess::Start(const Options& options) {
  Launch(options);
  return AwaitReady();
}

void DaemonProcess::Launch(const Options& options) {
  std::vector<std::string> arguments{"--config", options.config, "--ram", options.ram, "--socket", socket(), "--metrics", "127.0.0.1:0"};
  if (!options.source.empty()) arguments.insert(arguments.end(), {"--source", options.source});
  if (options.ssd == "off") {
    arguments.insert(arguments.end(), {"--ssd", "off"});
  } else if (!options.ssd.empty()) {
    arguments.insert(arguments.end(), {"--ssd", options.ssd == "on" ? ssd_directory() : options.ssd, "--ssd-capacity", options.ssd_capacity, "--set", "ssd.min_free=1 MiB"});
  }
  arguments.insert(arguments.end(), options.more.begin(), options.more.end());
  ++starts_;
  pid_ = Spawn(options.binary.empty() ? TIERD_BINARY : options.binary, arguments, work_ + "/tierd.out");
}

bool DaemonProcess::AwaitReady() {
  for (int waited = 0; waited < 20'000; waited += 5) {
    if (output().find("tierd ready") != std::string::npos) return true;
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      exit_code_ = ExitCode(status);
      std::fprintf(stderr, "tierd ended before it was ready: %d\n", exit_code_);
      return false;
    }
    SleepMs(5);
  }
  return false;
}

bool DaemonProcess::Ended() const {
  siginfo_t ended{};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == pid_;
}

std::string DaemonProcess::output() const { return ReadFile(work_ + "/tierd.out"); }

int DaemonProcess::Stop() {
  if (!running()) return -1;
  ::kill(pid_, SIGTERM);
  WaitForTheEnd();
  return exit_code_;
}

void DaemonProcess::Kill(int signal_number) {
  if (!running()) return;  // -1 would mean every process there is
  ::kill(pid_, signal_number);
  if (signal_number == SIGKILL) WaitForTheEnd();
}

void DaemonProcess::WaitForTheEnd() {
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  exit_code_ = ExitCode(status);
}

std::string DaemonProcess::AskControl(const std::string& request) const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (work_ + "/run/control.sock").c_str(), sizeof address.sun_path - 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    ::close(fd);
    return "";
  }
  return Exchange(fd, request);
}

nlohmann::json DaemonProcess::Control(const std::string& method, const std::string& target, const std::string& body) const {
  const std::string text = AskControl(method + " " + target + " HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: " +
                                      std::to_string(body.size()) + "\r\n\r\n" + body);
  const auto parsed = nlohmann::json::parse(text, nullptr, false);
  return parsed.is_discarded() ? nlohmann::json(nullptr) : parsed;
}

std::uint64_t DaemonProcess::SlowSsdReads() const {
  const std::string metrics = Metrics();
  const std::string name = "\ntierd_ssd_slow_reads_total ";
  const std::size_t at = metrics.find(name);
  return at == std::string::npos ? 0 : std::strtoull(metrics.c_str() + at + name.size(), nullptr, 10);
}

std::string DaemonProcess::Metrics() const { return AskControl("GET /v1/metrics HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"); }

std::string DaemonProcess::Page() const {
  const auto status = Status();
  if (!status.is_object() || !status["metrics_address"].is_string()) return "";
  const std::string address = status["metrics_address"];
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  ::inet_pton(AF_INET, "127.0.0.1", &in.sin_addr);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&in), sizeof in) != 0) {
    ::close(fd);
    return "";
  }
  return Exchange(fd, "GET /metrics HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
}

nlohmann::json DaemonProcess::WaitJob(std::uint64_t id, int ms) const {
  nlohmann::json job;
  Eventually(ms, [&] {
    job = Control("GET", "/v1/jobs/" + std::to_string(id));
    return !job.is_object() || (job["state"] != "running" && job["state"] != "verifying");
  });
  return job;
}

nlohmann::json DaemonProcess::Prefetch(const std::string& path, const std::string& tier, int ms) const {
  const auto started = Control("POST", "/v1/prefetch", nlohmann::json{{"paths", {path}}, {"tier", tier}}.dump());
  if (!started.is_object() || !started.contains("job")) return started;
  return WaitJob(started["job"], ms);
}

ExitedDaemon DaemonProcess::Run(const std::vector<std::string>& arguments, const std::string& work) {
  const std::string output = work + "/run.out";
  const pid_t pid = Spawn(TIERD_BINARY, arguments, output);
  int status = 0;
  const bool ended = Eventually(10'000, [&] { return ::waitpid(pid, &status, WNOHANG) == pid; });
  if (!ended) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, &status, 0);
  }
  return {ExitCode(status), ReadFile(output)};
}

}  // namespace tierd::e2e
