#include "tests/pfs_sim/rig.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/pfs_sim/control.h"
#include "tests/pfs_sim/mount.h"

extern char** environ;

namespace pfs_sim {
namespace {

constexpr int kReadyFd = 3;
constexpr auto kStopTimeout = std::chrono::seconds(10);

std::string TemporaryRoot() {
  const char* dir = getenv("TMPDIR");
  return dir != nullptr && *dir != 0 ? dir : "/tmp";
}

// The server's binary: beside the build's tests, or what PFS_SIM names.
std::string ServerPath() {
  const char* path = getenv("PFS_SIM");
  return path != nullptr ? path : PFS_SIM_BINARY;
}

std::string ReadToEnd(int fd) {
  std::string text;
  char part[512];
  for (;;) {
    const ssize_t got = read(fd, part, sizeof(part));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(part, static_cast<size_t>(got));
  }
}

pid_t Spawn(const std::vector<std::string>& arguments, int ready_fd, std::string* why) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ready_fd, kReadyFd);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return pid;
  *why = "start " + arguments[0] + ": " + strerror(error);
  return -1;
}

nlohmann::json Parse(const std::string& text) {
  auto json = nlohmann::json::parse(text, nullptr, false);
  return json.is_object() ? json : nlohmann::json::object();
}

}  // namespace

std::unique_ptr<Rig> Rig::Start(const RigOptions& options, std::string* why) {
  std::unique_ptr<Rig> rig(new Rig);
  std::string base = TemporaryRoot() + "/pfs_rig.XXXXXX";
  if (mkdtemp(base.data()) == nullptr) {
    *why = "mkdtemp " + base + ": " + strerror(errno);
    return nullptr;
  }
  char* real = realpath(base.c_str(), nullptr);
  rig->base_ = real != nullptr ? real : base;
  free(real);
  rig->mount_ = rig->base_ + "/mnt";
  rig->socket_ = rig->base_ + "/control";
  rig->backing_ = options.backing.empty() ? rig->base_ + "/backing" : options.backing;
  std::error_code error;
  std::filesystem::create_directory(rig->mount_, error);
  if (options.backing.empty()) std::filesystem::create_directory(rig->backing_, error);
  if (!rig->Launch(options, why)) return nullptr;
  return rig;
}

std::vector<std::string> Rig::Arguments(const RigOptions& options, int ready_fd) const {
  std::vector<std::string> arguments = {
      ServerPath(),       backing_,  mount_,
      "--control",        socket_,   "--latency-us", std::to_string(options.latency_us),
      "--bandwidth",      std::to_string(options.bandwidth),
      "--concurrency",    std::to_string(options.concurrency),
      "--timeout-ms",     std::to_string(options.timeout_ms),
      "--die-with-parent", std::to_string(getpid()),
      "--ready-fd",       std::to_string(ready_fd)};
  if (options.keep_cache) arguments.emplace_back("--keep-cache");
  if (options.direct_io) arguments.emplace_back("--direct-io");
  return arguments;
}

bool Rig::Launch(const RigOptions& options, std::string* why) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    *why = std::string("pipe: ") + strerror(errno);
    return false;
  }
  pid_ = Spawn(Arguments(options, kReadyFd), ends[1], why);
  close(ends[1]);
  std::string report = pid_ < 0 ? "" : ReadToEnd(ends[0]);
  close(ends[0]);
  if (report.starts_with("ok")) return true;
  while (!report.empty() && report.back() == '\n') report.pop_back();
  if (pid_ < 0) return false;
  *why = report.empty() ? "pfs_sim died while starting" : report;
  // It has closed its end of the pipe: it is ending by itself.
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
  return false;
}

Rig::~Rig() {
  Stop(SIGTERM);
  // Never a recursive remove through a mount that is still there: it would empty the backing directory.
  if (base_.empty() || IsMounted(mount_)) return;
  std::error_code error;
  std::filesystem::remove(mount_, error);
  std::filesystem::remove_all(base_, error);
}

bool Rig::Stop(int signal) {
  int status = 0;
  if (pid_ > 0) {
    kill(pid_, signal);
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
  }
  const bool orderly = signal == SIGKILL || status == 0;
  if (!orderly) fprintf(stderr, "pfs_sim ended with wait status %d\n", status);
  const auto end = std::chrono::steady_clock::now() + kStopTimeout;
  while (IsMounted(mount_)) {
    if (std::chrono::steady_clock::now() > end) {
      UnmountLazily(mount_);
      return orderly && !IsMounted(mount_);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return orderly;
}

std::string Rig::Control(const std::string& command) const {
  const CommandResult result = SendCommand(socket_, command);
  return result.ok ? result.text : "error: " + result.text;
}

RigCounters Rig::Counters() const {
  const nlohmann::json json = Parse(Control("counters"));
  RigCounters out;
  if (json.contains("ops")) {
    for (const auto& [name, op] : json["ops"].items()) {
      out.ops[name] = {op.value("count", uint64_t{0}), op.value("errors", uint64_t{0}), op.value("latency_us", uint64_t{0})};
    }
  }
  out.lookups = out.ops["lookup"].count;
  out.getattrs = out.ops["getattr"].count;
  out.opens = out.ops["open"].count;
  out.reads = out.ops["read"].count;
  out.readdirs = out.ops["readdir"].count;
  const std::pair<const char*, uint64_t*> fields[] = {
      {"bytes_read", &out.bytes_read}, {"bytes_written", &out.bytes_written},
      {"in_flight", &out.in_flight},   {"max_concurrency", &out.max_concurrency},
      {"hung", &out.hung},             {"faults", &out.faults},
      {"interrupts", &out.interrupts}, {"open_handles", &out.open_handles}};
  for (const auto& [name, field] : fields) *field = json.value(name, uint64_t{0});
  return out;
}

std::map<std::string, RigPathCounters> Rig::PathCounters(const std::string& prefix) const {
  std::map<std::string, RigPathCounters> out;
  const nlohmann::json json = Parse(Control(prefix.empty() ? "counters paths" : "counters paths " + prefix));
  for (const auto& [path, counts] : json.items()) {
    out[path] = {counts.value("opens", uint64_t{0}), counts.value("reads", uint64_t{0}),
                 counts.value("bytes", uint64_t{0})};
  }
  return out;
}

}  // namespace pfs_sim
