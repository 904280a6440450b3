#include "bench/asking.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/harness.h"

namespace bench {
namespace {

constexpr int kTurns = 40;
constexpr int kWaitsPerTurn = 50;

void Wait(std::int64_t ns) {
  const timespec wait{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  ::nanosleep(&wait, nullptr);
}

double CpuNs(clockid_t clock) {
  timespec ts{};
  ::clock_gettime(clock, &ts);
  return static_cast<double>(ts.tv_sec) * 1e9 + static_cast<double>(ts.tv_nsec);
}

[[noreturn]] void Answer(int socket) {
  std::int64_t wait_ns = 0;
  while (::recv(socket, &wait_ns, sizeof wait_ns, 0) == sizeof wait_ns) {
    Wait(wait_ns);
    if (::send(socket, &wait_ns, sizeof wait_ns, 0) != sizeof wait_ns) break;
  }
  ::_exit(0);
}

}  // namespace

Asking MeasureAsking(std::int64_t wait_ns) {
  int sockets[2];
  clockid_t other;
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) return {};
  const int slack = ::prctl(PR_GET_TIMERSLACK);
  ::prctl(PR_SET_TIMERSLACK, 1ul);  // inherited
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(sockets[0]);
    Answer(sockets[1]);
  }
  ::close(sockets[1]);
  Samples ns, cpu_ns;
  if (pid > 0 && ::clock_getcpuclockid(pid, &other) == 0) {
    const auto alone = [&] { Wait(wait_ns); };
    const auto asked = [&] { (void)(::send(sockets[0], &wait_ns, sizeof wait_ns, 0) >= 0 && ::recv(sockets[0], &wait_ns, sizeof wait_ns, 0) >= 0); };
    const auto turn = [&](const auto& wait, double* took, double* cpu) {
      const double from = Now(), cpu_from = CpuNs(CLOCK_PROCESS_CPUTIME_ID) + CpuNs(other);
      for (int i = 0; i < kWaitsPerTurn; ++i) wait();
      *took = (Now() - from) * 1e9 / kWaitsPerTurn;
      *cpu = (CpuNs(CLOCK_PROCESS_CPUTIME_ID) + CpuNs(other) - cpu_from) / kWaitsPerTurn;
    };
    for (int i = 0; i < kTurns; ++i) {
      double took[2], cpu[2];
      turn(alone, &took[0], &cpu[0]);
      turn(asked, &took[1], &cpu[1]);
      ns.values.push_back(took[1] - took[0]);
      cpu_ns.values.push_back(cpu[1] - cpu[0]);
    }
  }
  ::close(sockets[0]);
  if (pid > 0) ::waitpid(pid, nullptr, 0);
  ::prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(slack));
  return ns.values.empty() ? Asking{} : Asking{ns.median(), cpu_ns.median()};
}

}  // namespace bench
