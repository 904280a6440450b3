// What the libtier core inside this library calls instead of libc: the linker sends its references here (--wrap, see CMakeLists.txt). So the core never meets the
// wrappers that applications meet, other preloads do not see its work, and its descriptors are known as ours.
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cstring>

#include "client_lib/preload/descriptors.h"
#include "client_lib/preload/next.h"
#include "client_lib/preload/own_numbers.h"
#include "client_lib/preload/raw.h"

namespace raw = tierd::preload::raw;

namespace {

long Result(long result) {
  if (result >= 0 || result < -4095) return result;
  errno = static_cast<int>(-result);
  return -1;
}

// Sources that the core keeps open lie high: an application that puts a file of its own at a small number must not hit one.
int KeepHigh(int fd) {
  const int high = raw::DupFrom(fd, tierd::preload::OwnBase());
  if (high < 0) return fd;
  tierd::preload::CloseOwnFile(fd);
  return high;
}

}  // namespace

extern "C" {

int __wrap_open64(const char* path, int flags, ...) {
  int fd = raw::Open(AT_FDCWD, path, flags);  // the core creates nothing
  if (fd >= 0 && (flags & (O_PATH | O_DIRECTORY)) == 0) fd = KeepHigh(fd);
  raw::MarkOwn(fd, true);
  return static_cast<int>(Result(fd));
}

int __wrap_close(int fd) {
  // The application may have put a file of its own onto the number.
  if (static_cast<unsigned>(fd) < raw::kWatched && !raw::IsOwn(fd)) return static_cast<int>(Result(-EBADF));
  raw::MarkOwn(fd, false);
  tierd::preload::CloseOwnFile(fd);
  return 0;
}

int __wrap_fstat64(int fd, struct stat* st) { return static_cast<int>(Result(raw::Stat(fd, *st))); }

int __wrap_fstatat64(int directory, const char* path, struct stat* st, int flags) {
  return static_cast<int>(Result(raw::Call(SYS_newfstatat, directory, raw::Address(path), raw::Address(st), flags)));
}

int __wrap_statx(int directory, const char* path, int flags, unsigned mask, struct statx* st) {
  return static_cast<int>(Result(raw::Call(SYS_statx, directory, raw::Address(path), flags, mask, raw::Address(st))));
}

ssize_t __wrap_pread64(int fd, void* buffer, size_t count, off64_t offset) {
  if (static_cast<unsigned>(fd) < raw::kWatched && !raw::IsOwn(fd)) return Result(-EBADF);
  return Result(raw::Call(SYS_pread64, fd, raw::Address(buffer), static_cast<long>(count), offset));
}

int __wrap_fcntl64(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long argument = va_arg(arguments, long);
  va_end(arguments);
  const long result = raw::Call(SYS_fcntl, fd, command, argument);
  if (command == F_DUPFD_CLOEXEC) raw::MarkOwn(static_cast<int>(result), true);
  return static_cast<int>(Result(result));
}

int __wrap_socket(int domain, int type, int protocol) {
  const long fd = raw::Call(SYS_socket, domain, type, protocol);
  raw::MarkOwn(static_cast<int>(fd), true);
  return static_cast<int>(Result(fd));
}

// Memory of the daemon comes as descriptors: the core's, until it has mapped them.
ssize_t __wrap_recvmsg(int fd, struct msghdr* message, int flags) {
  const long got = raw::Call(SYS_recvmsg, fd, raw::Address(message), flags);
  for (cmsghdr* part = got > 0 ? CMSG_FIRSTHDR(message) : nullptr; part != nullptr; part = CMSG_NXTHDR(message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t i = 0; i < (part->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int received;
      std::memcpy(&received, CMSG_DATA(part) + i * sizeof received, sizeof received);
      raw::MarkOwn(received, true);
    }
  }
  return Result(got);
}

int __wrap_poll(struct pollfd* fds, unsigned long count, int timeout_ms) {
  timespec timeout{timeout_ms / 1000, timeout_ms % 1000 * 1'000'000L};
  return static_cast<int>(Result(raw::Call(SYS_ppoll, raw::Address(fds), static_cast<long>(count), timeout_ms < 0 ? 0 : raw::Address(&timeout), 0, 8)));
}

void* __wrap_mmap64(void* address, size_t length, int protection, int flags, int fd, off64_t offset) {
  return reinterpret_cast<void*>(Result(raw::Call(SYS_mmap, raw::Address(address), static_cast<long>(length), protection, flags, fd, offset)));
}

int __wrap_munmap(void* address, size_t length) { return static_cast<int>(Result(raw::Call(SYS_munmap, raw::Address(address), static_cast<long>(length)))); }

void* __wrap_mremap(void* address, size_t old_length, size_t length, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  void* const place = (flags & MREMAP_FIXED) != 0 ? va_arg(arguments, void*) : nullptr;
  va_end(arguments);
  return reinterpret_cast<void*>(Result(
      raw::Call(SYS_mremap, raw::Address(address), static_cast<long>(old_length), static_cast<long>(length), flags, raw::Address(place))));
}

int __wrap_clock_gettime(clockid_t id, timespec* time) { return tierd::preload::libc_clock(id, time); }

long __wrap_syscall(long number, ...) {
  va_list arguments;
  va_start(arguments, number);
  long a[6];
  for (long& argument : a) argument = va_arg(arguments, long);
  va_end(arguments);
  return Result(raw::Call(number, a[0], a[1], a[2], a[3], a[4], a[5]));
}

}  // extern "C"
