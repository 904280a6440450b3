// Calls that change contents and attributes of files by name or by number (changing.h).
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#include <utime.h>

#include "client_lib/preload/changing.h"

using namespace tierd::preload;

TIERD_NEXT_CALL(int, truncate, SYS_truncate, const char*, off64_t)
TIERD_NEXT_CALL(int, ftruncate, SYS_ftruncate, int, off64_t)
TIERD_NEXT(int, chmod, const char*, mode_t)
TIERD_NEXT(int, lchmod, const char*, mode_t)
TIERD_NEXT(int, fchmod, int, mode_t)
TIERD_NEXT(int, fchmodat, int, const char*, mode_t, int)
TIERD_NEXT(int, chown, const char*, uid_t, gid_t)
TIERD_NEXT(int, lchown, const char*, uid_t, gid_t)
TIERD_NEXT(int, fchown, int, uid_t, gid_t)
TIERD_NEXT(int, fchownat, int, const char*, uid_t, gid_t, int)
TIERD_NEXT(int, utime, const char*, const utimbuf*)
TIERD_NEXT(int, utimes, const char*, const timeval*)
TIERD_NEXT(int, lutimes, const char*, const timeval*)
TIERD_NEXT(int, futimes, int, const timeval*)
TIERD_NEXT(int, futimens, int, const timespec*)
TIERD_NEXT(int, futimesat, int, const char*, const timeval*)
TIERD_NEXT(int, setxattr, const char*, const char*, const void*, size_t, int)
TIERD_NEXT(int, lsetxattr, const char*, const char*, const void*, size_t, int)
TIERD_NEXT(int, fsetxattr, int, const char*, const void*, size_t, int)
TIERD_NEXT(int, removexattr, const char*, const char*)
TIERD_NEXT(int, lremovexattr, const char*, const char*)
TIERD_NEXT(int, fremovexattr, int, const char*)
TIERD_NEXT(int, utimensat, int, const char*, const timespec*, int)

TIERD_EXPORT(int, truncate, const char* path, off64_t length) {
  return ChangeName(AT_FDCWD, path, Changes::kTarget, [&] { return Next_truncate()(path, length); });
}
TIERD_ALIAS(int, truncate64, truncate, const char*, off64_t)
TIERD_EXPORT(int, ftruncate, int fd, off64_t length) {
  return ChangeNumber(fd, [&] { return Next_ftruncate()(fd, length); });
}
TIERD_ALIAS(int, ftruncate64, ftruncate, int, off64_t)
TIERD_EXPORT(int, chmod, const char* path, mode_t mode) {
  return ChangeName(AT_FDCWD, path, Changes::kTarget, [&] { return Next_chmod()(path, mode); });
}
TIERD_EXPORT(int, lchmod, const char* path, mode_t mode) {
  return ChangeName(AT_FDCWD, path, Changes::kEntry, [&] { return Next_lchmod()(path, mode); });
}
TIERD_EXPORT(int, fchmod, int fd, mode_t mode) {
  return ChangeNumber(fd, [&] { return Next_fchmod()(fd, mode); });
}
TIERD_EXPORT(int, fchmodat, int directory, const char* path, mode_t mode, int flags) {
  return ChangeAt(directory, path, flags, [&] { return Next_fchmodat()(directory, path, mode, flags); });
}
TIERD_EXPORT(int, chown, const char* path, uid_t uid, gid_t gid) {
  return ChangeName(AT_FDCWD, path, Changes::kTarget, [&] { return Next_chown()(path, uid, gid); });
}
TIERD_EXPORT(int, lchown, const char* path, uid_t uid, gid_t gid) {
  return ChangeName(AT_FDCWD, path, Changes::kEntry, [&] { return Next_lchown()(path, uid, gid); });
}
TIERD_EXPORT(int, fchown, int fd, uid_t uid, gid_t gid) {
  return ChangeNumber(fd, [&] { return Next_fchown()(fd, uid, gid); });
}
TIERD_EXPORT(int, fchownat, int directory, const char* path, uid_t uid, gid_t gid, int flags) {
  return ChangeAt(directory, path, flags, [&] { return Next_fchownat()(directory, path, uid, gid, flags); });
}
TIERD_EXPORT(int, utime, const char* path, const utimbuf* times) {
  return ChangeName(AT_FDCWD, path, Changes::kTarget, [&] { return Next_utime()(path, times); });
}
TIERD_EXPORT(int, utimes, const char* path, const timeval* times) {
  return ChangeName(AT_FDCWD, path, Changes::kTarget, [&] { return Next_utimes()(path, times); });
}
TIERD_EXPORT(int, lutimes, const char* path, const timeval* times) {
  return ChangeName(AT_FDCWD, path, Changes::kEntry, [&] { return Next_lutimes()(path, times); });
}
TIERD_EXPORT(int, futimes, int fd, const timeval* times) {
  return ChangeNumber(fd, [&] { return Next_futimes()(fd, times); });
}
TIERD_EXPORT(int, futimens, int fd, const timespec* times) {
  return ChangeNumber(fd, [&] { return Next_futimens()(fd, times); });
}
TIERD_EXPORT(int, utimensat, int directory, const char* path, const timespec* times, int flags) {
  if (path == nullptr) return ChangeNumber(directory, [&] { return Next_utimensat()(directory, path, times, flags); });
  return ChangeAt(directory, path, flags, [&] { return Next_utimensat()(directory, path, times, flags); });
}

TIERD_EXPORT(int, futimesat, int directory, const char* path, const timeval* times) {
  if (path == nullptr) return ChangeNumber(directory, [&] { return Next_futimesat()(directory, path, times); });
  return ChangeName(directory, path, Changes::kTarget, [&] { return Next_futimesat()(directory, path, times); });
}
// An attribute moves the ctime.
TIERD_EXPORT(int, setxattr, const char* path, const char* name, const void* value, size_t bytes, int flags) {
  return ChangeName(AT_FDCWD, path, Changes::kTarget, [&] { return Next_setxattr()(path, name, value, bytes, flags); });
}
TIERD_EXPORT(int, lsetxattr, const char* path, const char* name, const void* value, size_t bytes, int flags) {
  return ChangeName(AT_FDCWD, path, Changes::kEntry, [&] { return Next_lsetxattr()(path, name, value, bytes, flags); });
}
TIERD_EXPORT(int, fsetxattr, int fd, const char* name, const void* value, size_t bytes, int flags) {
  return ChangeNumber(fd, [&] { return Next_fsetxattr()(fd, name, value, bytes, flags); });
}
TIERD_EXPORT(int, removexattr, const char* path, const char* name) {
  return ChangeName(AT_FDCWD, path, Changes::kTarget, [&] { return Next_removexattr()(path, name); });
}
TIERD_EXPORT(int, lremovexattr, const char* path, const char* name) {
  return ChangeName(AT_FDCWD, path, Changes::kEntry, [&] { return Next_lremovexattr()(path, name); });
}
TIERD_EXPORT(int, fremovexattr, int fd, const char* name) {
  return ChangeNumber(fd, [&] { return Next_fremovexattr()(fd, name); });
}
