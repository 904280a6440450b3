// open, openat, openat2, creat and the names that fortified and 64-bit programs use for them.
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>

#include <cstring>

#include "client_lib/preload/cached_open.h"
#include "client_lib/preload/calls.h"
#include "client_lib/preload/changes.h"
#include "client_lib/preload/links.h"
#include "client_lib/preload/lock_files.h"
#include "client_lib/preload/mappings.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/own_numbers.h"
#include "client_lib/preload/paths.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/real_reads.h"
#include "client_lib/preload/reopened.h"
#include "client_lib/preload/writers.h"

using namespace tierd::preload;

TIERD_NEXT_CALL(int, open, TIERD_OLD_CALL(open), const char*, int, ...)
TIERD_NEXT_CALL(int, openat, SYS_openat, int, const char*, int, ...)
TIERD_NEXT_CALL(int, creat, TIERD_OLD_CALL(creat), const char*, unsigned)
TIERD_NEXT_CALL(int, open_by_handle_at, SYS_open_by_handle_at, int, file_handle*, int)
TIERD_NEXT(int, __open_2, const char*, int)
TIERD_NEXT(int, __openat_2, int, const char*, int)

namespace {

// Other flags are the kernel's business: they get real descriptors from the start (HAZARDS 3).
constexpr int kServed = O_RDONLY | O_CLOEXEC | O_NOATIME | O_LARGEFILE | 0100000 | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW;

constexpr bool Writes(int flags) { return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0; }
constexpr bool TakesMode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

// What depends on whose file it is, and on whether the name is a link: the kernel's business unless the index knows that it does not matter.
bool AllowsFlags(const char* path, int flags) {
  if ((flags & (O_NOFOLLOW | O_NOATIME)) == 0) return true;
  struct stat st;
  if (!StatPath(path, (flags & O_NOFOLLOW) == 0, st) || !S_ISREG(st.st_mode)) return false;
  return (flags & O_NOATIME) == 0 || st.st_uid == static_cast<uid_t>(raw::Call(SYS_geteuid));
}

// A descriptor of ours for a path that may be below a source, or -1. errno stays as it was.
__attribute__((noinline)) int TryCached(int directory, const char* path, int flags, NotServed& not_served) {
  Room room;
  bool outside = false;
  const char* const located = Locate(directory, path, (flags & O_NOFOLLOW) == 0, room, &outside);
  if (located == nullptr) {
    if (!outside) not_served.why = RealOpen::kPath;
    return -1;
  }
  if (process.standard_free.load(std::memory_order_relaxed)) {
    LookAtStandardDescriptors();
    not_served.why = RealOpen::kLowDescriptor;
    if (process.standard_free.load(std::memory_order_relaxed)) return -1;
    not_served = {};
  }
  if (!AllowsFlags(located, flags)) {
    not_served.why = RealOpen::kFlags;
    return -1;
  }
  KeepReserve();
  if (AnyUntold() && !TellUntold()) {
    not_served.why = RealOpen::kWriter;
    return -1;
  }
  const int fd = OpenCached(located, flags, not_served);
  if (fd < 0) return fd;
  std::atomic_thread_fence(std::memory_order_seq_cst);  // between the entry in the table and the look: whoever makes all real does it the other way round
  if (AllIsReal()) [[unlikely]] {  // since we last looked
    CloseNumber(fd);
    not_served.why = RealOpen::kMode;
    return -1;
  }
  if (!AnyWriters()) return fd;
  const Using use(fd);
  if (!use || (!BeingWritten(use->facts.ino) && !IsInWatchedDirectory(use->path))) return fd;
  CloseNumber(fd);
  not_served.why = RealOpen::kWriter;
  return -1;
}

__attribute__((noinline)) int CachedIfServed(int directory, const char* path, int flags, NotServed& not_served) {
  CancellationPoint();
  if ((flags & ~kServed) != 0 || !MayMakeDescriptors()) {
    // Through what O_PATH and O_DIRECTORY open no byte of a file is read.
    if ((flags & (O_PATH | O_DIRECTORY)) == 0) not_served.why = (flags & ~kServed) != 0 ? RealOpen::kFlags : RealOpen::kMode;
    return -1;
  }
  const tierd::client::KeepErrno keep;
  return TryCached(directory, path, flags, not_served);
}

inline void BeforeOpening(int directory, const char* path, int flags) {
  if (MayReopen(path)) RealIfReopened(path);
  if ((flags & O_TRUNC) != 0) BeforeTruncating(directory, path);
}

// RealIfReopened first, which may come to the same file.
__attribute__((noinline)) int CachedOrNothing(int directory, const char* path, int flags, NotServed& not_served) {
  if (path == nullptr) return -1;
  BeforeOpening(directory, path, flags);
  return Writes(flags) || !MayBeInside(directory, path) ? -1 : CachedIfServed(directory, path, flags, not_served);
}

}  // namespace

int tierd::preload::OpenOurs(const char* path, int flags, bool* of_source) {
  if (!Active()) return -1;
  NotServed not_served;
  const int fd = CachedOrNothing(AT_FDCWD, path, flags, not_served);
  if (fd < 0) CountNotServed(not_served);
  *of_source = fd < 0 && not_served.why != RealOpen::kCount;
  return fd;
}

namespace {

inline int AfterReal(int fd, int flags, const NotServed& not_served) {
  if (fd < 0) return fd;
  NewNumber(fd);
  if (not_served.why != RealOpen::kCount) {
    CountNotServed(not_served);
    MarkSourceFile(fd);
  }
  if (Writes(flags)) [[unlikely]] {
    const tierd::client::KeepErrno keep;
    NoteWriter(fd);
  }
  return fd;
}

// The file just opened by a name outside may be one below a source: then the link that led there is learnt, and this one is served already. -1: it stays as it is.
__attribute__((noinline)) int TryBehindLink(int directory, const char* path, int flags, int fd) {
  const tierd::client::KeepErrno keep;
  Room room;
  tierd::client::PathText* const found = room.Get();
  if (found == nullptr || !LearnLink(directory, path, fd, *found) || (flags & ~kServed) != 0 || !MayMakeDescriptors()) return -1;
  NotServed not_served;
  const int ours = TryCached(AT_FDCWD, found->text, flags, not_served);
  if (ours < 0) {
    CountNotServed(not_served);
    if (not_served.why != RealOpen::kCount) MarkSourceFile(fd);
    return -1;
  }
  bool same = false;
  if (const Using use(ours); use) same = VersionBehind(use->facts, fd) == SourceVersion::kOpened;
  if (!same) {
    CloseNumber(ours);
    return -1;
  }
  Count(counters.links);
  CloseOwnFile(fd);
  return ours;
}

inline int AfterOpen(int fd, int directory, const char* path, int flags, const NotServed& not_served) {
  if (fd >= 0 && not_served.why == RealOpen::kCount && !Writes(flags) && IsWorthALook(path)) [[unlikely]] {
    if (const int ours = TryBehindLink(directory, path, flags, fd); ours >= 0) return ours;
  }
  if (fd >= 0 && Writes(flags)) [[unlikely]] NoteLockFile(directory, path);
  return AfterReal(fd, flags, not_served);
}

}  // namespace

namespace {

// All that is not for reading a file outside, and each name outside that is worth a look.
template <typename Real>
__attribute__((noinline)) int OpenOther(Name name, int directory, const char* path, int flags, Real real) {
  NotServed not_served;
  int ours = -1;
  if (name == Name::kInside) ours = CachedIfServed(directory, path, flags, not_served);
  else if (name == Name::kOther) ours = CachedOrNothing(directory, path, flags, not_served);
  return ours >= 0 ? ours : AfterOpen(WithAllNumbers(real), directory, path, flags, not_served);
}

// Most calls are for names outside: a few comparisons, and behind the call, where a processor knows little of what it knew before, one look at the number.
template <typename Real>
__attribute__((always_inline)) inline int Open(int directory, const char* path, int flags, Real real) {
  if (!Active()) return real();
  const Name name = Writes(flags) ? Name::kOther : NameOf(directory, path);
  if (name != Name::kOutside || !MayPass()) [[unlikely]] return OpenOther(name, directory, path, flags, real);
  const int fd = WithAllNumbers(real);
  NewNumber(fd);
  return fd;
}

}  // namespace

TIERD_EXPORT(int, open, const char* path, int flags, ...) {
  unsigned mode = 0;
  if (TakesMode(flags)) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, unsigned);
    va_end(arguments);
  }
  return Open(AT_FDCWD, path, flags, [=] { return Next_open()(path, flags, mode); });
}
TIERD_ALIAS(int, open64, open, const char*, int, ...)

TIERD_EXPORT(int, openat, int directory, const char* path, int flags, ...) {
  unsigned mode = 0;
  if (TakesMode(flags)) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, unsigned);
    va_end(arguments);
  }
  return Open(directory, path, flags, [=] { return Next_openat()(directory, path, flags, mode); });
}
TIERD_ALIAS(int, openat64, openat, int, const char*, int, ...)

TIERD_EXPORT(int, __open_2, const char* path, int flags) {
  return Open(AT_FDCWD, path, flags, [=] { return Next___open_2()(path, flags); });  // it checks that O_CREAT came with a mode
}
TIERD_ALIAS(int, __open64_2, __open_2, const char*, int)

TIERD_EXPORT(int, __openat_2, int directory, const char* path, int flags) {
  return Open(directory, path, flags, [=] { return Next___openat_2()(directory, path, flags); });
}
TIERD_ALIAS(int, __openat64_2, __openat_2, int, const char*, int)

TIERD_EXPORT(int, creat, const char* path, unsigned mode) {
  if (Active()) BeforeTruncating(AT_FDCWD, path);
  if (!Active()) return Next_creat()(path, mode);
  const int fd = WithAllNumbers([=] { return Next_creat()(path, mode); });
  return AfterReal(fd, O_WRONLY | O_CREAT | O_TRUNC, {});
}
TIERD_ALIAS(int, creat64, creat, const char*, unsigned)

// A file without a name: never one of ours, but it may be written to.
TIERD_EXPORT(int, open_by_handle_at, int mount, file_handle* handle, int flags) {
  if (!Active()) return Next_open_by_handle_at()(mount, handle, flags);
  const int fd = WithAllNumbers([=] { return Next_open_by_handle_at()(mount, handle, flags); });
  return AfterReal(fd, flags, {});
}

// No libc wrapper in glibc 2.36: the system call. What `resolve` asks for only the kernel can promise.
TIERD_EXPORT(int, openat2, int directory, const char* path, open_how* how, size_t bytes) {
  NotServed not_served;
  if (Active() && how != nullptr && bytes == sizeof *how && how->resolve == 0 && how->mode == 0 && how->flags <= INT_MAX) {
    const int ours = CachedOrNothing(directory, path, static_cast<int>(how->flags), not_served);
    if (ours >= 0) return ours;
  } else if (Active() && path != nullptr && how != nullptr) {
    BeforeOpening(directory, path, static_cast<int>(how->flags));
  }
  const auto real = [=] { return static_cast<int>(Result(raw::Call(SYS_openat2, directory, raw::Address(path), raw::Address(how), static_cast<long>(bytes)))); };
  if (!Active()) return real();
  const int fd = WithAllNumbers(real);
  if (fd >= 0 && Writes(static_cast<int>(how->flags))) NoteLockFile(directory, path);
  return fd < 0 ? fd : AfterReal(fd, static_cast<int>(how->flags), not_served);
}
