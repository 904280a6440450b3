#include "tierctl/run/job_daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "tierd/source/fs_type.h"

namespace tierctl::run {
namespace {

using tierd::Code;
using tierd::Result;
using tierd::Status;
using tierd::UniqueFd;

constexpr int kReadyMs = 30'000;  // a large SSD tier of an earlier job (--keep) takes its time
constexpr int kNoticeMs = 500;   // for the daemon to see that its lifeline has ended
constexpr int kEndMs = 4'000;
constexpr int kStepMs = 10;
constexpr int kLifelineNumber = 500;

// A number that programs do not use themselves, if it can be had.
UniqueFd AtLifelineNumber(UniqueFd end) {
  UniqueFd high(::fcntl(end.get(), F_DUPFD_CLOEXEC, kLifelineNumber));
  return high.valid() ? std::move(high) : std::move(end);
}

std::vector<std::string> Arguments(const DaemonOptions& options, const Scratch& scratch, int lifeline) {
  // Whatever a configuration file says of sockets: those of a job are its own.
  std::vector<std::string> arguments{"tierd", "--socket", scratch.socket(), "--set", "daemon.control_socket=auto", "--lifeline", std::to_string(lifeline), "--metrics", "127.0.0.1:0"};
  for (const std::string& source : options.sources) arguments.insert(arguments.end(), {"--source", source});
  arguments.insert(arguments.end(), {"--ssd", SsdPlace(options, scratch)});
  if (!options.ssd_capacity.empty()) arguments.insert(arguments.end(), {"--ssd-capacity", options.ssd_capacity});
  if (!options.ram.empty()) arguments.insert(arguments.end(), {"--ram", options.ram});
  if (!options.policy.empty()) arguments.insert(arguments.end(), {"--policy", options.policy});
  return arguments;
}

std::string ReadLog(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// What it said last: the reason why it is not there.
std::string LastLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

// Unless another run has taken it up since.
bool ItsLifelineHasEnded(const std::string& log) {
  const std::size_t ended = log.rfind("tierd lifeline ended"), held = log.rfind("tierd lifeline held");
  return ended != std::string::npos && (held == std::string::npos || held < ended);
}

// A signal (of a filter of system calls, for want of memory) leaves no word in the log, and what is there says something else.
std::string WhyEnded(const std::string& binary, const std::string& said, int status) {
  std::string how;
  if (WIFSIGNALED(status)) how = "was ended by signal " + std::to_string(WTERMSIG(status)) + " (" + ::strsignal(WTERMSIG(status)) + ")";
  else if (said.empty()) how = "ended with " + std::to_string(WEXITSTATUS(status)) + " and said nothing";
  if (how.empty()) return said;
  return binary + " " + how + (said.empty() ? "" : "; the last it said: " + said);
}

// All but the standard ones and `kept` are closed by exec: somebody may wait for the end of what we were given.
void KeepOnly(const std::vector<int>& kept) {
  if (::close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) != 0) {
    for (int fd = 3; fd < ::sysconf(_SC_OPEN_MAX); ++fd) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  for (const int fd : kept) ::fcntl(fd, F_SETFD, 0);
}

[[noreturn]] void Become(const std::string& binary, std::vector<std::string> arguments, const std::string& log, std::vector<int> kept) {
  ::setsid();
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(null, 0);
  ::dup2(out, 1);
  ::dup2(out, 2);
  KeepOnly(kept);
  // Nor does it keep a file system busy. All names it got are absolute.
  if (::chdir("/") != 0) ::_exit(126);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::unsetenv("LD_PRELOAD");
  ::unsetenv("TIERD_SOCKET");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::execv(binary.c_str(), argv.data());
  ::dprintf(2, "tierd: cannot run %s: %s\n", binary.c_str(), std::strerror(errno));
  ::_exit(127);
}

}  // namespace

// A job's local scratch in memory, or on a network, is no place for an SSD tier.
std::string SsdPlace(const DaemonOptions& options, const Scratch& scratch) {
  if (!options.ssd.empty()) return options.ssd;
  return tierd::source::CheckLocalCacheDirectory(scratch.path()).ok() ? scratch.path() + "/ssd" : "off";
}

std::string LifelineIn(const Scratch& scratch) { return scratch.path() + "/lifeline"; }

Result<JobDaemon> JobDaemon::Join(const std::string& lifeline, const std::string& scratch) {
  UniqueFd end(::open(lifeline.c_str(), O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!end.valid() || ::fstat(end.get(), &info) != 0) return Status::FromErrno(errno, lifeline);
  if (!S_ISFIFO(info.st_mode) || info.st_uid != ::geteuid()) return Status(Code::kInvalid, lifeline + ": not the lifeline of a daemon");
  JobDaemon daemon;
  daemon.is_child_ = false;
  daemon.log_ = scratch + "/tierd.log";
  daemon.lifeline_ = AtLifelineNumber(std::move(end));
  return daemon;
}

Result<JobDaemon> JobDaemon::Start(const std::string& binary, const DaemonOptions& options, const Scratch& scratch, int held, const std::function<void()>& waiting) {
  const std::string lifeline = LifelineIn(scratch);
  ::unlink(lifeline.c_str());  // of an earlier --keep, or of a start that failed
  if (::mkfifo(lifeline.c_str(), 0600) != 0) return Status(Code::kIo, std::string("no pipe: ") + std::strerror(errno));
  UniqueFd read_end(::open(lifeline.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  UniqueFd write_end(::open(lifeline.c_str(), O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  if (!read_end.valid() || !write_end.valid()) return Status(Code::kIo, std::string("no pipe: ") + std::strerror(errno));
  const std::string log = scratch.path() + "/tierd.log";
  ::unlink(log.c_str());  // with --keep the one of the last job is there, whose daemon was ready
  JobDaemon daemon;
  daemon.log_ = log;
  daemon.pid_ = ::fork();
  if (daemon.pid_ < 0) return Status(Code::kIo, std::string("no process for tierd: ") + std::strerror(errno));
  if (daemon.pid_ == 0) {
    write_end = UniqueFd();
    std::vector<int> kept = scratch.lock_fds();
    kept.push_back(read_end.get());
    if (held >= 0) kept.push_back(held);
    Become(binary, Arguments(options, scratch, read_end.get()), log, kept);
  }
  daemon.lifeline_ = AtLifelineNumber(std::move(write_end));
  for (int waited = 0; waited < kReadyMs; waited += kStepMs) {
    if (ReadLog(log).find("tierd ready ") != std::string::npos) return daemon;
    int status = 0;
    if (::waitpid(daemon.pid_, &status, WNOHANG) == daemon.pid_) return Status(Code::kIo, WhyEnded(binary, LastLine(ReadLog(log)), status));
    if (waiting) waiting();
    ::usleep(kStepMs * 1000);
  }
  ::kill(daemon.pid_, SIGKILL);
  ::waitpid(daemon.pid_, nullptr, 0);
  return Status(Code::kIo, "tierd was not ready within 30 s; its log: " + log);
}

bool JobDaemon::HasEnded() {
  if (!ended_) ended_ = is_child_ ? ::waitpid(pid_, &wait_status_, WNOHANG) != 0 : ::kill(pid_, 0) != 0 && errno == ESRCH;
  return ended_;
}

int JobDaemon::KilledBy() { return HasEnded() && WIFSIGNALED(wait_status_) ? WTERMSIG(wait_status_) : 0; }

bool JobDaemon::LetGo() {
  lifeline_ = UniqueFd();
  bool noticed = false;
  for (int waited = 0; waited < (noticed ? kEndMs : kNoticeMs); waited += kStepMs) {
    if (HasEnded()) return true;
    // Else processes of the job are still there, and it stays for them.
    noticed = noticed || ItsLifelineHasEnded(ReadLog(log_));
    ::usleep(kStepMs * 1000);
  }
  return false;
}

}  // namespace tierctl::run
