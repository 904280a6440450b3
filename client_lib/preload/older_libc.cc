// Calls that a libc older than the one that this library was built with does not have: the kernel's
// own calls stand in for them. A program that looks such a function up finds ours, and must be able
// to call it.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <wchar.h>

#include <cstring>

#include "client_lib/preload/calls.h"
#include "client_lib/preload/raw.h"

namespace tierd::preload {
namespace {

using raw::Address;

template <typename... Arguments>
int Kernel(long number, Arguments... arguments) {
  return static_cast<int>(Result(raw::Call(number, arguments...)));
}

int FstatAt(int directory, const char* path, struct stat* st, int flags) {
  return Kernel(SYS_newfstatat, directory, Address(path), Address(st), flags);
}
int Stat(const char* path, struct stat* st) { return FstatAt(AT_FDCWD, path, st, 0); }
int Lstat(const char* path, struct stat* st) { return FstatAt(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW); }
int Fstat(int fd, struct stat* st) { return Kernel(SYS_fstat, fd, Address(st)); }
int Statx(int directory, const char* path, int flags, unsigned mask, struct statx* st) {
  return Kernel(SYS_statx, directory, Address(path), flags, mask, Address(st));
}
int Mknodat(int directory, const char* path, mode_t mode, dev_t device) {
  return Kernel(SYS_mknodat, directory, Address(path), mode, static_cast<long>(device));
}
int Mknod(const char* path, mode_t mode, dev_t device) { return Mknodat(AT_FDCWD, path, mode, device); }
int Renameat2(int from_directory, const char* from, int to_directory, const char* to, unsigned flags) {
  return Kernel(SYS_renameat2, from_directory, Address(from), to_directory, Address(to), flags);
}
int Execveat(int directory, const char* path, char* const* argv, char* const* environment, int flags) {
  return Kernel(SYS_execveat, directory, Address(path), Address(argv), Address(environment), flags);
}
int PkeyMprotect(void* address, size_t length, int protection, int key) {
  return Kernel(SYS_pkey_mprotect, Address(address), static_cast<long>(length), protection, key);
}
int MemfdCreate(const char* name, unsigned flags) { return Kernel(SYS_memfd_create, Address(name), flags); }
// In librt before glibc 2.34.
int ShmOpen(const char* name, int flags, mode_t mode) {
  char path[sizeof "/dev/shm/" + NAME_MAX] = "/dev/shm/";
  while (*name == '/') ++name;
  if (*name == '\0' || std::strlen(name) > NAME_MAX || std::strchr(name, '/') != nullptr) return Result(-EINVAL);
  std::strcpy(path + std::strlen(path), name);
  return Kernel(SYS_openat, AT_FDCWD, Address(path), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, mode);
}
pid_t Fork() { return Kernel(SYS_clone, SIGCHLD); }

ssize_t Preadv2(int fd, const iovec* parts, int count, off64_t offset, int flags) {
  return Result(raw::Call(SYS_preadv2, fd, Address(parts), count, offset, 0, flags));
}
ssize_t CopyFileRange(int from, off64_t* from_offset, int to, off64_t* to_offset, size_t count, unsigned flags) {
  return Result(raw::Call(SYS_copy_file_range, from, Address(from_offset), to, Address(to_offset),
                          static_cast<long>(count), flags));
}
ssize_t Getdents64(int fd, void* buffer, size_t bytes) {
  return Result(raw::Call(SYS_getdents64, fd, Address(buffer), static_cast<long>(bytes)));
}

// musl has neither the first nor a second set of libraries.
char* CanonicalizeFileName(const char* path) { return ::realpath(path, nullptr); }
void* Dlmopen(long, const char*, int) { return nullptr; }
int Isfdtype(int fd, int type) {
  struct stat st;
  return Fstat(fd, &st) != 0 ? -1 : (st.st_mode & S_IFMT) == static_cast<mode_t>(type);
}

const struct {
  const char* name;
  void* address;
} kInstead[] = {
#define TIERD_INSTEAD(name, function) {#name, reinterpret_cast<void*>(&(function))}
    TIERD_INSTEAD(stat, Stat),
    TIERD_INSTEAD(lstat, Lstat),
    TIERD_INSTEAD(fstat, Fstat),
    TIERD_INSTEAD(fstatat, FstatAt),
    TIERD_INSTEAD(statx, Statx),
    TIERD_INSTEAD(mknod, Mknod),
    TIERD_INSTEAD(mknodat, Mknodat),
    TIERD_INSTEAD(renameat2, Renameat2),
    TIERD_INSTEAD(execveat, Execveat),
    TIERD_INSTEAD(pkey_mprotect, PkeyMprotect),
    TIERD_INSTEAD(memfd_create, MemfdCreate),
    TIERD_INSTEAD(shm_open, ShmOpen),
    TIERD_INSTEAD(_Fork, Fork),
    TIERD_INSTEAD(preadv2, Preadv2),
    TIERD_INSTEAD(copy_file_range, CopyFileRange),
    TIERD_INSTEAD(getdents64, Getdents64),
    TIERD_INSTEAD(__isoc23_vfwscanf, ::vfwscanf),
    TIERD_INSTEAD(canonicalize_file_name, CanonicalizeFileName),
    TIERD_INSTEAD(dlmopen, Dlmopen),
    TIERD_INSTEAD(isfdtype, Isfdtype),
#undef TIERD_INSTEAD
};

}  // namespace

void* InsteadOfNext(const char* name) {
  for (const auto& row : kInstead) {
    if (std::strcmp(row.name, name) == 0) return row.address;
  }
  return nullptr;
}

}  // namespace tierd::preload
