#include "tierctl/run/command.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tierctl::run {
namespace {

constexpr int kPassedOn[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU, SIGWINCH};

// From somebody's kill; what the terminal sends, the command has got by itself.
bool IsForUs(const siginfo_t& info) { return info.si_code <= 0; }

Ended EndOf(int status) {
  if (WIFSIGNALED(status)) return {128 + WTERMSIG(status), WTERMSIG(status)};
  return {WEXITSTATUS(status), 0};
}

// As the command does, so that a shell sees the whole job stopped.
void Stop() {
  ::kill(::getpid(), SIGSTOP);
}

}  // namespace

int BecomeCommand(const CommandLine& line) {
  for (const auto& [name, value] : line.environment) ::setenv(name.c_str(), value.c_str(), 1);
  if (line.inherited_fd >= 0) ::fcntl(line.inherited_fd, F_SETFD, 0);
  std::vector<char*> argv;
  for (const std::string& argument : line.arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  const int error = errno;
  ::dprintf(2, "tierctl: run: %s: %s\n", argv[0], std::strerror(error));
  return error == ENOENT || error == ENOTDIR ? 127 : 126;
}

Ended RunCommand(const CommandLine& line) {
  sigset_t watched;
  sigset_t before;
  sigemptyset(&watched);
  sigaddset(&watched, SIGCHLD);
  for (const int number : kPassedOn) sigaddset(&watched, number);
  ::sigprocmask(SIG_BLOCK, &watched, &before);
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    ::_exit(BecomeCommand(line));
  }
  if (pid < 0) {
    std::fprintf(stderr, "tierctl: run: no process: %s\n", std::strerror(errno));
    return {126, 0};
  }
  for (;;) {
    siginfo_t info{};
    if (::sigwaitinfo(&watched, &info) < 0) continue;
    if (info.si_signo != SIGCHLD) {
      if (IsForUs(info)) ::kill(pid, info.si_signo);
      continue;
    }
    int status = 0;
    while (const pid_t ended = ::waitpid(pid, &status, WNOHANG | WUNTRACED)) {
      if (ended < 0) return {126, 0};
      if (!WIFSTOPPED(status)) {
        ::sigprocmask(SIG_SETMASK, &before, nullptr);
        return EndOf(status);
      }
      Stop();
      ::kill(pid, SIGCONT);
    }
  }
}

void EndBySignal(int signal_number) {
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::signal(signal_number, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal_number);
  ::sigprocmask(SIG_UNBLOCK, &one, nullptr);
  ::raise(signal_number);
  ::_exit(128 + signal_number);
}

}  // namespace tierctl::run
