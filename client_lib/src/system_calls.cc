// What libtier.so calls instead of libc's functions whose names are younger than glibc 2.17 (the
// linker sends the references here, CMakeLists.txt). The preload library has its own:
// client_lib/preload/core_calls.cc.
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" {

int __wrap_fstat64(int fd, struct stat* st) { return static_cast<int>(::syscall(SYS_fstat, fd, st)); }

int __wrap_fstatat64(int directory, const char* path, struct stat* st, int flags) {
  return static_cast<int>(::syscall(SYS_newfstatat, directory, path, st, flags));
}

int __wrap_statx(int directory, const char* path, int flags, unsigned mask, struct statx* st) {
  return static_cast<int>(::syscall(SYS_statx, directory, path, flags, mask, st));
}

int __wrap_fcntl64(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long argument = va_arg(arguments, long);
  va_end(arguments);
  return static_cast<int>(::syscall(SYS_fcntl, fd, command, argument));
}

}  // extern "C"
