#include "client_lib/preload/raw.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>

#include "client_lib/preload/own_words.h"

namespace tierd::preload::raw {
namespace {

constinit std::atomic<std::uint64_t> own[kWatched / 64] = {};

template <typename Do>
inline long Retry(Do call) {
  for (;;) {
    const long result = call();
    if (result != -EINTR) return result;
  }
}

}  // namespace

constinit std::atomic<std::uint8_t> noted[kWatched] = {};

int Open(int directory, const char* path, int flags, unsigned mode) {
  return static_cast<int>(Retry([&] { return Call(SYS_openat, directory, Address(path), flags | O_LARGEFILE, mode); }));
}

int Close(int fd) { return static_cast<int>(Call(SYS_close, fd)); }

int Stat(int fd, struct stat& st) { return static_cast<int>(Call(SYS_fstat, fd, Address(&st))); }

ssize_t Pread(int fd, void* buffer, std::size_t count, std::int64_t offset) {
  return Retry([&] { return Call(SYS_pread64, fd, Address(buffer), static_cast<long>(count), offset); });
}

int DupFrom(int fd, int lowest) { return static_cast<int>(Call(SYS_fcntl, fd, F_DUPFD_CLOEXEC, lowest)); }

int Dup3(int from, int to, int flags) {
  for (;;) {
    const long result = Call(SYS_dup3, from, to, flags);
    if (result != -EINTR && result != -EBUSY) return static_cast<int>(result);
  }
}

ssize_t ReadLink(const char* path, char* text, std::size_t room) {
  return Call(SYS_readlinkat, AT_FDCWD, Address(path), Address(text), static_cast<long>(room));
}

void Yield() { Call(SYS_sched_yield); }

NoSignals::NoSignals() {
  // Not those that say that this very thread has gone wrong: a program may have its ways with them (write barriers).
  constexpr auto bit = [](int number) { return std::uint64_t{1} << (number - 1); };
  const std::uint64_t most = ~(bit(SIGSEGV) | bit(SIGBUS) | bit(SIGFPE) | bit(SIGILL) | bit(SIGTRAP) | bit(SIGSYS));
  Call(SYS_rt_sigprocmask, SIG_SETMASK, Address(&most), Address(&before_), sizeof most);
}

NoSignals::~NoSignals() { Call(SYS_rt_sigprocmask, SIG_SETMASK, Address(&before_), 0, sizeof before_); }

void MarkOwn(int fd, bool is_own) {
  if (static_cast<unsigned>(fd) >= kWatched) return;
  if (is_own) Note(fd);
  const std::uint64_t bit = std::uint64_t{1} << (fd % 64);
  if (is_own) SetOwnBits(own[fd / 64], bit);
  else ClearOwnBits(own[fd / 64], bit);
}

bool IsOwn(int fd) { return static_cast<unsigned>(fd) < kWatched && (own[fd / 64].load(std::memory_order_relaxed) >> (fd % 64) & 1) != 0; }

}  // namespace tierd::preload::raw
