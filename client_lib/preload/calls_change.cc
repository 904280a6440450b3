// Calls that change names and attributes: libc makes the change, then the daemon is told before the caller goes on (read-your-writes).
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#include <utime.h>

#include "client_lib/preload/calls.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/paths.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/writers.h"

using namespace tierd::preload;

TIERD_NEXT(int, rename, const char*, const char*)
TIERD_NEXT(int, renameat, int, const char*, int, const char*)
TIERD_NEXT(int, renameat2, int, const char*, int, const char*, unsigned)
TIERD_NEXT(int, link, const char*, const char*)
TIERD_NEXT(int, linkat, int, const char*, int, const char*, int)
TIERD_NEXT(int, symlink, const char*, const char*)
TIERD_NEXT(int, symlinkat, const char*, int, const char*)
TIERD_NEXT(int, unlink, const char*)
TIERD_NEXT(int, unlinkat, int, const char*, int)
TIERD_NEXT(int, remove, const char*)
TIERD_NEXT(int, rmdir, const char*)
TIERD_NEXT(int, mkdir, const char*, mode_t)
TIERD_NEXT(int, mkdirat, int, const char*, mode_t)
TIERD_NEXT(int, mknod, const char*, mode_t, dev_t)
TIERD_NEXT(int, mknodat, int, const char*, mode_t, dev_t)
TIERD_NEXT(int, truncate, const char*, off64_t)
TIERD_NEXT(int, ftruncate, int, off64_t)
TIERD_NEXT(int, chmod, const char*, mode_t)
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
TIERD_NEXT(int, utimensat, int, const char*, const timespec*, int)
TIERD_NEXT(int, chdir, const char*)
TIERD_NEXT(int, fchdir, int)

namespace {

// After success, and after errors that leave it open whether the change was made.
bool Changed(int result) { return result == 0 || errno == EIO || errno == EINTR || errno == ESTALE || errno == ETIMEDOUT; }

template <typename Change>
int ChangeName(int directory, const char* path, Changes what, Change change, bool recursive = false) {
  const ChangedName name(directory, path, what);
  const int result = change();
  if (Changed(result)) name.Tell(recursive);
  return result;
}

template <typename Change>
int ChangeNumber(int fd, Change change) {
  if (Emulate(fd)) (void)Materialise(fd, Conversion::kAttributes);
  const ChangedName name(fd);
  const int result = change();
  if (Changed(result)) name.Tell(false);
  return result;
}

template <typename Change>
int Rename(int from_directory, const char* from, int to_directory, const char* to, Change change) {
  const ChangedName old_name(from_directory, from, Changes::kEntry);
  const ChangedName new_name(to_directory, to, Changes::kEntry);
  const int result = change();
  if (!Changed(result)) return result;
  // All below it, if it was a directory.
  struct stat st;
  const bool all = raw::Call(SYS_newfstatat, to_directory, raw::Address(to), raw::Address(&st), AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(st.st_mode);
  old_name.Tell(all);
  new_name.Tell(all);
  return result;
}

constexpr Changes What(int flags) { return (flags & AT_SYMLINK_NOFOLLOW) != 0 ? Changes::kEntry : Changes::kTarget; }

}  // namespace

TIERD_EXPORT(int, rename, const char* from, const char* to) {
  return Rename(AT_FDCWD, from, AT_FDCWD, to, [&] { return Next_rename()(from, to); });
}
TIERD_EXPORT(int, renameat, int from_directory, const char* from, int to_directory, const char* to) {
  return Rename(from_directory, from, to_directory, to, [&] { return Next_renameat()(from_directory, from, to_directory, to); });
}
TIERD_EXPORT(int, renameat2, int from_directory, const char* from, int to_directory, const char* to, unsigned flags) {
  return Rename(from_directory, from, to_directory, to, [&] { return Next_renameat2()(from_directory, from, to_directory, to, flags); });
}

// A link changes the link count and ctime of what it names, and a directory.
TIERD_EXPORT(int, linkat, int from_directory, const char* from, int to_directory, const char* to, int flags) {
  const ChangedName old_name(from_directory, from, (flags & AT_SYMLINK_FOLLOW) != 0 ? Changes::kTarget : Changes::kEntry);
  return ChangeName(to_directory, to, Changes::kEntry, [&] {
    const int result = Next_linkat()(from_directory, from, to_directory, to, flags);
    if (Changed(result)) old_name.Tell(false);
    return result;
  });
}
TIERD_EXPORT(int, link, const char* from, const char* to) {
  const ChangedName old_name(AT_FDCWD, from, Changes::kEntry);
  return ChangeName(AT_FDCWD, to, Changes::kEntry, [&] {
    const int result = Next_link()(from, to);
    if (Changed(result)) old_name.Tell(false);
    return result;
  });
}
TIERD_EXPORT(int, symlink, const char* target, const char* path) {
  return ChangeName(AT_FDCWD, path, Changes::kEntry, [&] { return Next_symlink()(target, path); });
}
TIERD_EXPORT(int, symlinkat, const char* target, int directory, const char* path) {
  return ChangeName(directory, path, Changes::kEntry, [&] { return Next_symlinkat()(target, directory, path); });
}
TIERD_EXPORT(int, unlink, const char* path) {
  return ChangeName(AT_FDCWD, path, Changes::kEntry, [&] { return Next_unlink()(path); });
}
TIERD_EXPORT(int, unlinkat, int directory, const char* path, int flags) {
  return ChangeName(directory, path, Changes::kEntry, [&] { return Next_unlinkat()(directory, path, flags); }, (flags & AT_REMOVEDIR) != 0);
}
TIERD_EXPORT(int, remove, const char* path) {
  return ChangeName(AT_FDCWD, path, Changes::kEntry, [&] { return Next_remove()(path); });
}
TIERD_EXPORT(int, rmdir, const char* path) {
  return ChangeName(AT_FDCWD, path, Changes::kEntry, [&] { return Next_rmdir()(path); }, true);
}
TIERD_EXPORT(int, mkdir, const char* path, mode_t mode) {
  return ChangeName(AT_FDCWD, path, Changes::kEntry, [&] { return Next_mkdir()(path, mode); });
}
TIERD_EXPORT(int, mkdirat, int directory, const char* path, mode_t mode) {
  return ChangeName(directory, path, Changes::kEntry, [&] { return Next_mkdirat()(directory, path, mode); });
}
TIERD_EXPORT(int, mknod, const char* path, mode_t mode, dev_t device) {
  return ChangeName(AT_FDCWD, path, Changes::kEntry, [&] { return Next_mknod()(path, mode, device); });
}
TIERD_EXPORT(int, mknodat, int directory, const char* path, mode_t mode, dev_t device) {
  return ChangeName(directory, path, Changes::kEntry, [&] { return Next_mknodat()(directory, path, mode, device); });
}

// ---- contents and attributes -----------------------------------------------------------------------------------------------

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
TIERD_EXPORT(int, fchmod, int fd, mode_t mode) {
  return ChangeNumber(fd, [&] { return Next_fchmod()(fd, mode); });
}
TIERD_EXPORT(int, fchmodat, int directory, const char* path, mode_t mode, int flags) {
  return ChangeName(directory, path, What(flags), [&] { return Next_fchmodat()(directory, path, mode, flags); });
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
  return ChangeName(directory, path, What(flags), [&] { return Next_fchownat()(directory, path, uid, gid, flags); });
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
  return ChangeName(directory, path, What(flags), [&] { return Next_utimensat()(directory, path, times, flags); });
}

// ---- where relative names begin --------------------------------------------------------------------------------------------

TIERD_EXPORT(int, chdir, const char* path) {
  const int result = Next_chdir()(path);
  ForgetWorkingDirectory();
  return result;
}
TIERD_EXPORT(int, fchdir, int fd) {
  if (Emulate(fd)) return Result(-ENOTDIR);
  const int result = Next_fchdir()(fd);
  ForgetWorkingDirectory();
  return result;
}
