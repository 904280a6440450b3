#include "tierctl/run/command.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "tierctl/run/witness.h"

namespace tierctl::run {
namespace {

// All that can be caught: what would end us, the command may have a handler for. (A fault of our own ends us even so; SIGCHLD is news of the command.)
void AddPassedOn(sigset_t& set) {
  for (int number = 1; number <= SIGRTMAX; ++number) {
    if (number < SIGRTMIN && number >= 32) continue;  // libc's own
    if (number != SIGKILL && number != SIGSTOP && number != SIGCHLD) sigaddset(&set, number);
  }
}

// From somebody's kill; what the terminal sends, the command has got by itself. But for the terminal's end: the kernel tells the leader of the session alone, which the command would be.
bool IsSent(const siginfo_t& info) {
  const bool hang_up = info.si_signo == SIGHUP || info.si_signo == SIGCONT;
  return info.si_code <= 0 || (hang_up && ::getsid(0) == ::getpid());
}

// With what came with it.
void PassOn(pid_t pid, const siginfo_t& info) {
  if (info.si_code == SI_QUEUE) ::sigqueue(pid, info.si_signo, info.si_value);
  else ::kill(pid, info.si_signo);
}

Ended EndOf(int status) {
  if (WIFSIGNALED(status)) return {128 + WTERMSIG(status), WTERMSIG(status)};
  return {WEXITSTATUS(status), 0};
}

// As the command did, so that a shell sees the whole job stopped and continues it. Only for what a terminal's user does: a command that somebody stopped by SIGSTOP, or
// that has a process group of its own, is continued by whoever stopped it, and nobody would continue us.
void StopToo(pid_t pid, int signal_number) {
  if ((signal_number != SIGTSTP && signal_number != SIGTTIN && signal_number != SIGTTOU) || ::getpgid(pid) != ::getpgrp()) return;
  struct sigaction plain {}, before {};
  plain.sa_handler = SIG_DFL;
  ::sigaction(signal_number, &plain, &before);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal_number);
  ::raise(signal_number);
  ::sigprocmask(SIG_UNBLOCK, &one, nullptr);  // stopped here; not where nobody could continue us (an orphaned group)
  ::sigprocmask(SIG_BLOCK, &one, nullptr);
  ::sigaction(signal_number, &before, nullptr);
  ::kill(pid, SIGCONT);
}

// Whether it ends who does nothing about it, and is no fault.
bool Ends(int number) {
  constexpr int kOthers[] = {SIGKILL, SIGSTOP, SIGCHLD, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT, SIGWINCH, SIGURG, SIGPIPE, SIGXFSZ};
  return std::find(std::begin(kOthers), std::end(kOthers), number) == std::end(kOthers);
}

Ended g_ended;  // how the command did

void EndAsItDid(int) {
  if (g_ended.signal_number != 0) EndBySignal(g_ended.signal_number);
  ::_exit(g_ended.exit_code);
}

// The command has ended: what was sent it since is for nobody, and whatever ends us from now on, we end as it did.
void EndLike(const Ended& ended, const sigset_t& passed_on) {
  g_ended = ended;
  const timespec now{};
  while (::sigtimedwait(&passed_on, nullptr, &now) > 0) {
  }
  struct sigaction late {}, before {};
  late.sa_handler = EndAsItDid;
  for (int number = 1; number <= SIGRTMAX; ++number) {
    if (sigismember(&passed_on, number) == 1 && Ends(number) && ::sigaction(number, nullptr, &before) == 0 && before.sa_handler == SIG_DFL) ::sigaction(number, &late, nullptr);
  }
}

// Whether the command has got the same signal by itself.
bool HasIt(pid_t pid, int signal_number, Witness& witness) { return witness.Saw(signal_number) && ::getpgid(pid) == ::getpgrp(); }

}  // namespace

void HoldStandardStreams() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (fd > STDERR_FILENO) ::close(fd);
}

OwnSignals::OwnSignals()
    : child_ignored_(::signal(SIGCHLD, SIG_DFL) == SIG_IGN), limit_ignored_(::signal(SIGXFSZ, SIG_IGN) == SIG_IGN), pipe_ignored_(::signal(SIGPIPE, SIG_IGN) == SIG_IGN) {}

void OwnSignals::Restore() const {
  if (child_ignored_) ::signal(SIGCHLD, SIG_IGN);
  if (!limit_ignored_) ::signal(SIGXFSZ, SIG_DFL);
  if (!pipe_ignored_) ::signal(SIGPIPE, SIG_DFL);
}

int BecomeCommand(const CommandLine& line) {
  for (const char* const name : line.removed) ::unsetenv(name);
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

Ended RunCommand(const CommandLine& line, const OwnSignals& own_signals) {
  sigset_t watched;
  sigset_t before;
  sigemptyset(&watched);
  sigaddset(&watched, SIGCHLD);
  AddPassedOn(watched);
  ::sigprocmask(SIG_BLOCK, &watched, &before);
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    own_signals.Restore();
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    ::_exit(BecomeCommand(line));
  }
  if (pid < 0) {
    // The cache never keeps a job from running: where there may be no second process there is this one.
    std::fprintf(stderr, "tierctl: run: no second process (%s; see ulimit -u): the command takes this one's place, and there is no summary\n", std::strerror(errno));
    own_signals.Restore();
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    return {BecomeCommand(line), 0};
  }
  Witness witness;
  for (;;) {
    siginfo_t info{};
    if (::sigwaitinfo(&watched, &info) < 0) continue;
    if (info.si_signo != SIGCHLD) {
      // What the command sends to its parent is for ours.
      if (IsSent(info) && !HasIt(pid, info.si_signo, witness)) PassOn(info.si_pid == pid ? ::getppid() : pid, info);
      continue;
    }
    int status = 0;
    while (const pid_t ended = ::waitpid(pid, &status, WNOHANG | WUNTRACED)) {
      if (ended < 0) return {126, 0};
      if (!WIFSTOPPED(status)) {
        EndLike(EndOf(status), watched);
        ::sigprocmask(SIG_SETMASK, &before, nullptr);
        return EndOf(status);
      }
      StopToo(pid, WSTOPSIG(status));
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
