// stat in all its spellings: of descriptors of ours, and of paths below a source from the index (HAZARDS 2.15: a name that is missing is always asked of the source).
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "client_lib/preload/cached_open.h"
#include "client_lib/preload/calls.h"
#include "client_lib/preload/changes.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/memory_copies.h"
#include "client_lib/preload/paths.h"
#include "client_lib/preload/reopened.h"
#include "client_lib/preload/writers.h"

using namespace tierd::preload;

TIERD_NEXT_CALL(int, fstat, SYS_fstat, int, struct stat*)
TIERD_NEXT(int, stat, const char*, struct stat*)
TIERD_NEXT(int, lstat, const char*, struct stat*)
TIERD_NEXT_CALL(int, fstatat, SYS_newfstatat, int, const char*, struct stat*, int)
TIERD_NEXT_CALL(int, statx, SYS_statx, int, const char*, int, unsigned, struct statx*)
TIERD_NEXT(int, __xstat, int, const char*, struct stat*)
TIERD_NEXT(int, __lxstat, int, const char*, struct stat*)
TIERD_NEXT(int, __fxstat, int, int, struct stat*)
TIERD_NEXT(int, __fxstatat, int, int, const char*, struct stat*, int)
TIERD_NEXT(int, access, const char*, int)
TIERD_NEXT(int, faccessat, int, const char*, int, int)
TIERD_NEXT(int, euidaccess, const char*, int)

namespace {

bool StatOurs(int fd, struct stat* st) {
  const Using use(fd);
  if (!use || (HasGrown(*use) && MaterialiseAsIs(fd, Conversion::kChanged))) return false;
  StatCached(*use, *st);
  return true;
}

__attribute__((noinline)) bool TryStat(int directory, const char* path, bool follow, struct stat* st) {
  const tierd::client::KeepErrno keep;
  Room room;
  const char* const located = Locate(directory, path, follow, room);
  if (located == nullptr || (AnyUntold() && !TellUntold()) || !StatPath(located, follow, *st)) return false;
  return !BeingWritten(st->st_ino) && !IsInWatchedDirectory(located);
}

inline bool StatFromIndex(int directory, const char* path, bool follow, struct stat* st) {
  if (!Active() || path == nullptr || path[0] == '\0') return false;
  if (MayReopen(path)) [[unlikely]] RealIfReopened(path);
  if (!MayBeInside(directory, path)) return false;
  return TryStat(directory, path, follow, st);
}

// fstatat(fd, "", AT_EMPTY_PATH) is fstat; kernels since 6.11 take null as well.
inline bool IsSelf(const char* path, int flags) { return (flags & AT_EMPTY_PATH) != 0 && (path == nullptr || path[0] == '\0'); }

inline bool StatAt(int directory, const char* path, struct stat* st, int flags) {
  if (IsSelf(path, flags)) return Emulate(directory) && StatOurs(directory, st);
  if ((flags & ~(AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT)) != 0) return false;
  return StatFromIndex(directory, path, (flags & AT_SYMLINK_NOFOLLOW) == 0, st);
}

// What the source shows of a file may be news to descriptors of it.
inline int Shown(int directory, const char* path, int result, const struct stat* st) {
  if (result == 0 && path != nullptr && OpenDescriptions() != 0 && Active() &&
      MayBeInside(directory, path)) [[unlikely]]
    NoteShown(*st);
  return result;
}

// The kernel's answer, but for copies in memory; and numbers of our own, which are sockets, or look like one, are not open.
inline int AfterStat(int fd, int result, struct stat* st) {
  if (result != 0) return result;
  if (S_ISSOCK(st->st_mode) && Active() && raw::IsOwn(fd)) [[unlikely]] return Result(-EBADF);
  ShowCopied(*st);
  return 0;
}

void ToStatx(const struct stat& st, struct statx* out) {
  *out = {};
  out->stx_mask = STATX_BASIC_STATS;
  out->stx_blksize = static_cast<std::uint32_t>(st.st_blksize);
  out->stx_nlink = static_cast<std::uint32_t>(st.st_nlink);
  out->stx_uid = st.st_uid;
  out->stx_gid = st.st_gid;
  out->stx_mode = static_cast<std::uint16_t>(st.st_mode);
  out->stx_ino = st.st_ino;
  out->stx_size = static_cast<std::uint64_t>(st.st_size);
  out->stx_blocks = static_cast<std::uint64_t>(st.st_blocks);
  const auto time = [](const timespec& t) {
    statx_timestamp stamp{};
    stamp.tv_sec = t.tv_sec;
    stamp.tv_nsec = static_cast<std::uint32_t>(t.tv_nsec);
    return stamp;
  };
  out->stx_atime = time(st.st_atim);
  out->stx_mtime = time(st.st_mtim);
  out->stx_ctime = time(st.st_ctim);
  out->stx_dev_major = major(st.st_dev);
  out->stx_dev_minor = minor(st.st_dev);
}

// What NoteShown looks at.
void FromStatx(const struct statx& from, struct stat& st) {
  st = {};
  st.st_mode = from.stx_mode;
  st.st_ino = from.stx_ino;
  st.st_size = static_cast<off_t>(from.stx_size);
  st.st_mtim = {static_cast<time_t>(from.stx_mtime.tv_sec),
                static_cast<long>(from.stx_mtime.tv_nsec)};
}

}  // namespace

// Of most numbers nothing is noted, and then nothing is left to look at behind the call.
TIERD_EXPORT(int, fstat, int fd, struct stat* st) {
  if (!IsOurs(fd) && raw::IsPlain(fd) && !AnyCopies()) [[likely]] return Next_fstat()(fd, st);
  return Emulate(fd) && StatOurs(fd, st) ? 0 : AfterStat(fd, Next_fstat()(fd, st), st);
}
TIERD_ALIAS(int, fstat64, fstat, int, struct stat*)

TIERD_EXPORT(int, stat, const char* path, struct stat* st) {
  return StatFromIndex(AT_FDCWD, path, true, st) ? 0
                                                 : Shown(AT_FDCWD, path, Next_stat()(path, st), st);
}
TIERD_ALIAS(int, stat64, stat, const char*, struct stat*)

TIERD_EXPORT(int, lstat, const char* path, struct stat* st) {
  return StatFromIndex(AT_FDCWD, path, false, st)
             ? 0
             : Shown(AT_FDCWD, path, Next_lstat()(path, st), st);
}
TIERD_ALIAS(int, lstat64, lstat, const char*, struct stat*)

TIERD_EXPORT(int, fstatat, int directory, const char* path, struct stat* st, int flags) {
  return StatAt(directory, path, st, flags)
             ? 0
             : AfterStat(IsSelf(path, flags) ? directory : -1,
                         Shown(directory, path, Next_fstatat()(directory, path, st, flags), st),
                         st);
}
TIERD_ALIAS(int, fstatat64, fstatat, int, const char*, struct stat*, int)

TIERD_EXPORT(int, statx, int directory, const char* path, int flags, unsigned mask, struct statx* out) {
  // Birth time, mount and the like: of a path only the source knows them; of a descriptor of ours we say that we do not have them, as many file systems do.
  constexpr unsigned kKnown = STATX_BASIC_STATS;
  struct stat st;
  const bool plain = (flags & AT_STATX_FORCE_SYNC) == 0;
  const int at_flags = flags & ~(AT_STATX_FORCE_SYNC | AT_STATX_DONT_SYNC);
  if (IsSelf(path, flags) ? Emulate(directory) : plain && (mask & ~kKnown) == 0) {
    if (StatAt(directory, path, &st, at_flags)) {
      ToStatx(st, out);
      return 0;
    }
  }
  const int result = Next_statx()(directory, path, flags, mask, out);
  if (result == 0 && !IsSelf(path, flags) &&
      (out->stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS && OpenDescriptions() != 0) {
    FromStatx(*out, st);
    Shown(directory, path, 0, &st);
  }
  if (result != 0 || !IsSelf(path, flags)) return result;
  if (S_ISSOCK(out->stx_mode) && Active() && raw::IsOwn(directory)) return Result(-EBADF);
  st.st_dev = makedev(out->stx_dev_major, out->stx_dev_minor);
  st.st_ino = out->stx_ino;
  if (ShowCopied(st)) ToStatx(st, out);
  return result;
}

// What programs built before glibc 2.33 call. `version` is the layout of the struct: 0 or 1, the same here.
TIERD_EXPORT(int, __xstat, int version, const char* path, struct stat* st) {
  return StatFromIndex(AT_FDCWD, path, true, st)
             ? 0
             : Shown(AT_FDCWD, path, Next___xstat()(version, path, st), st);
}
TIERD_ALIAS(int, __xstat64, __xstat, int, const char*, struct stat*)

TIERD_EXPORT(int, __lxstat, int version, const char* path, struct stat* st) {
  return StatFromIndex(AT_FDCWD, path, false, st)
             ? 0
             : Shown(AT_FDCWD, path, Next___lxstat()(version, path, st), st);
}
TIERD_ALIAS(int, __lxstat64, __lxstat, int, const char*, struct stat*)

TIERD_EXPORT(int, __fxstat, int version, int fd, struct stat* st) { return Emulate(fd) && StatOurs(fd, st) ? 0 : AfterStat(fd, Next___fxstat()(version, fd, st), st); }
TIERD_ALIAS(int, __fxstat64, __fxstat, int, int, struct stat*)

TIERD_EXPORT(int, __fxstatat, int version, int directory, const char* path, struct stat* st, int flags) {
  return StatAt(directory, path, st, flags)
             ? 0
             : AfterStat(IsSelf(path, flags) ? directory : -1,
                         Shown(directory, path,
                               Next___fxstatat()(version, directory, path, st, flags), st),
                         st);
}
TIERD_ALIAS(int, __fxstatat64, __fxstatat, int, int, const char*, struct stat*, int)

// ---- access ----------------------------------------------------------------------------------------------------------------

namespace {

// Whether the index can say that access is granted: a file of the caller's, whose mode bits decide, and nothing is asked that they do not say. What is refused, and what
// other rules may refuse (lists of other users, a read-only mount), is the source's answer.
bool MayAccess(int directory, const char* path, int mode, int flags) {
  struct stat st;
  if (!Active() || path == nullptr || (mode & ~(R_OK | X_OK)) != 0 || (flags & ~(AT_EACCESS | AT_SYMLINK_NOFOLLOW)) != 0) return false;
  if (!StatFromIndex(directory, path, (flags & AT_SYMLINK_NOFOLLOW) == 0, &st)) return false;
  if (mode == F_OK) return true;
  if ((mode & X_OK) != 0 && S_ISREG(st.st_mode)) return false;  // on a file system that is mounted noexec nobody may
  const auto user = static_cast<uid_t>(raw::Call((flags & AT_EACCESS) != 0 ? SYS_geteuid : SYS_getuid));
  const mode_t wanted = ((mode & R_OK) != 0 ? S_IRUSR : 0) | ((mode & X_OK) != 0 ? S_IXUSR : 0);
  return st.st_uid == user && (st.st_mode & wanted) == wanted;
}

}  // namespace

TIERD_EXPORT(int, access, const char* path, int mode) { return MayAccess(AT_FDCWD, path, mode, 0) ? 0 : Next_access()(path, mode); }
TIERD_EXPORT(int, faccessat, int directory, const char* path, int mode, int flags) {
  if (IsSelf(path, flags)) {
    if (Emulate(directory)) (void)Materialise(directory, Conversion::kAttributes);
    if (const int error = MakeFile(directory); error != 0) return Result(error);
  }
  return MayAccess(directory, path, mode, flags) ? 0 : Next_faccessat()(directory, path, mode, flags);
}
TIERD_EXPORT(int, euidaccess, const char* path, int mode) { return MayAccess(AT_FDCWD, path, mode, AT_EACCESS) ? 0 : Next_euidaccess()(path, mode); }
TIERD_ALIAS(int, eaccess, euidaccess, const char*, int)
