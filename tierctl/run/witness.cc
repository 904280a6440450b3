#include "tierctl/run/witness.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace tierctl::run {
namespace {

constexpr int kStepUs = 1000;
constexpr int kSteps = 20;  // to a whole group the kernel sends one after the other, timeout(1) first to us and then to the group

std::uint64_t Pending(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("ShdPnd:")) return std::strtoull(line.c_str() + 7, nullptr, 16);
  }
  return 0;
}

}  // namespace

bool Witness::Saw(int signal_number) {
  if (pid_ < 0) return false;
  const std::uint64_t bit = std::uint64_t{1} << (signal_number - 1);
  for (int i = 0; i < kSteps; ++i) {
    if ((Pending(pid_) & bit) != 0) {
      End();
      Begin();
      return true;
    }
    ::usleep(kStepUs);
  }
  return false;
}

void Witness::Begin() {
  sigset_t all, before;
  sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, &before);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::prctl(PR_SET_NAME, "tierctl-signals");
    // It holds nothing open that somebody waits for the end of.
    const long last = ::sysconf(_SC_OPEN_MAX);
    if (::close_range(0, ~0u, 0) != 0) {
      for (int fd = 0; fd < last; ++fd) ::close(fd);
    }
    while (::getppid() == parent) ::pause();
    ::_exit(0);
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

void Witness::End() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace tierctl::run
