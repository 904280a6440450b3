#include "client_lib/src/file_limit.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client_lib/src/process.h"

namespace tierd::client {
namespace {

// A set of signals as the kernel has them.
constexpr std::uint64_t kExceeded = std::uint64_t{1} << (SIGXFSZ - 1);

ssize_t Write(int fd, const void* data, std::size_t bytes) {
  for (;;) {
    const long put = ::syscall(SYS_write, fd, data, bytes);
    if (put >= 0) return put;
    if (Errno() != EINTR) return -Errno();
  }
}

// The kernel sends the signal to this very thread: it is held off, and taken back. One that the program itself has held off and not taken yet stays its own, so nothing is
// written beside it.
ssize_t WriteQuietly(int fd, const void* data, std::size_t bytes) {
  std::uint64_t before = 0, pending = 0;
  if (::syscall(SYS_rt_sigprocmask, SIG_BLOCK, &kExceeded, &before, sizeof before) != 0) return -Errno();
  ssize_t put = -EFBIG;
  if (::syscall(SYS_rt_sigpending, &pending, sizeof pending) == 0 && (pending & kExceeded) == 0) {
    put = Write(fd, data, bytes);
    const timespec now{};
    if (put == -EFBIG) (void)::syscall(SYS_rt_sigtimedwait, &kExceeded, nullptr, &now, sizeof kExceeded);
  }
  (void)::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, nullptr, sizeof before);
  return put;
}

}  // namespace

std::uint64_t FileSizeLimit() {
  const KeepErrno keep;
  rlimit limit{};
  if (::syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, nullptr, &limit) != 0) return 0;
  return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}

ssize_t WriteWithinLimit(int fd, const void* data, std::size_t bytes) {
  const KeepErrno keep;
  return FileSizeLimit() == UINT64_MAX ? Write(fd, data, bytes) : WriteQuietly(fd, data, bytes);
}

}  // namespace tierd::client
