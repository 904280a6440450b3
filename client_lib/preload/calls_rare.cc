// Calls on a descriptor that only the source's file can answer and that readers hardly ever make: it becomes real first, then libc goes on. isatty is answered at once:
// a regular file is none.
#include <aio.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>

#include "client_lib/preload/cached_open.h"
#include "client_lib/preload/calls.h"
#include "client_lib/preload/changing.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/memory_copies.h"
#include "client_lib/preload/raw.h"

using namespace tierd::preload;

#define TIERD_REAL_FIRST(why, name, fd, params, arguments)          \
  TIERD_EXPORT params {                                             \
    if (Emulate(fd)) (void)Materialise(fd, Conversion::why);        \
    return Next_##name() arguments;                                 \
  }
// The same, and never done to a copy in memory.
#define TIERD_FILE_FIRST(name, fd, params, arguments)                             \
  TIERD_EXPORT params {                                                           \
    if (Emulate(fd)) (void)Materialise(fd, Conversion::kAttributes);              \
    if (const int error = MakeFile(fd); error != 0) return Result(error);         \
    return Next_##name() arguments;                                               \
  }
// Asked of the source's descriptor; ours stays what it is.
#define TIERD_FROM_SOURCE(name, fd, params, arguments)              \
  TIERD_EXPORT params {                                             \
    return AskSource(fd, [&](int at) { return Next_##name() arguments; }); \
  }
#define TIERD_PACK(...) (__VA_ARGS__)

TIERD_NEXT(int, isatty, int)
TIERD_NEXT_CALL(int, ioctl, SYS_ioctl, int, unsigned long, ...)
TIERD_NEXT_CALL(int, fstatfs, SYS_fstatfs, int, struct statfs*)
TIERD_NEXT(int, fstatvfs, int, struct statvfs*)
TIERD_NEXT(int, fsync, int)
TIERD_NEXT(int, fdatasync, int)
TIERD_NEXT(int, syncfs, int)
TIERD_NEXT(long, fpathconf, int, int)
TIERD_NEXT_CALL(ssize_t, fgetxattr, SYS_fgetxattr, int, const char*, void*, size_t)
TIERD_NEXT_CALL(ssize_t, flistxattr, SYS_flistxattr, int, char*, size_t)
TIERD_NEXT(int, sync_file_range, int, off64_t, off64_t, unsigned)
TIERD_NEXT(ssize_t, getdents64, int, void*, size_t)
TIERD_NEXT(int, ttyname_r, int, char*, size_t)
TIERD_NEXT(char*, ttyname, int)
TIERD_NEXT(pid_t, tcgetpgrp, int)
TIERD_NEXT(int, getsockopt, int, int, int, void*, socklen_t*)
TIERD_NEXT(int, name_to_handle_at, int, const char*, file_handle*, int*, int)
TIERD_NEXT(int, aio_read, aiocb*)
TIERD_NEXT(int, lio_listio, int, aiocb* const*, int, sigevent*)

namespace {

// `ask` of the source's descriptor behind one of ours, else of the number itself, which is then the file's.
template <typename Ask>
auto AskSource(int fd, Ask ask) {
  if (Emulate(fd)) {
    {
      const Using use(fd);
      int source = -1;
      if (use) {
        const tierd::client::KeepErrno keep;
        source = SourceOf(*use, SourceUse::kAttributes);
      }
      if (source >= 0) return ask(source);
    }
    (void)Materialise(fd, Conversion::kAttributes);
  }
  if (const int error = MakeFile(fd); error != 0) return Result(static_cast<decltype(ask(fd))>(error));
  return ask(fd);
}

}  // namespace

TIERD_EXPORT(int, isatty, int fd) {
  if (!Emulate(fd)) return Next_isatty()(fd);
  errno = ENOTTY;
  return 0;
}

// ---- ioctl -----------------------------------------------------------------------------------------------------------------

namespace {

// What is asked of a file, or set, that is not its bytes; or what it has in common with others (FIDEDUPERANGE).
bool IsOfFile(unsigned long request) {
  const unsigned type = _IOC_TYPE(request);
  return type == 'f' || type == 'X' || type == 'v' || type == _IOC_TYPE(FIDEDUPERANGE);
}
// Of these what a change of its attributes is to any other call: its ctime is another then.
bool ChangesFile(unsigned long request) {
  return request == FS_IOC_SETFLAGS || request == FS_IOC32_SETFLAGS || request == FS_IOC_FSSETXATTR || request == FS_IOC_SETVERSION || request == FS_IOC32_SETVERSION;
}

int IoctlOurs(int fd, unsigned long request, void* argument) {
  switch (request) {
    case FIOCLEX: SetCloseOnExec(fd, true); return 0;
    case FIONCLEX: SetCloseOnExec(fd, false); return 0;
    case TCGETS:
    case TIOCGWINSZ:
    case TIOCGPGRP: return Result(-ENOTTY);
    case FIONREAD: {
      const Using use(fd);
      if (!use || (HasGrown(*use) && MaterialiseAsIs(fd, Conversion::kChanged))) break;
      const std::uint64_t at = OffsetOf(use->word.load(std::memory_order_acquire));
      *static_cast<int*>(argument) = static_cast<int>(use->size() - at);  // negative past the end, as the kernel has it
      return 0;
    }
    default: (void)Materialise(fd, Conversion::kIoctl);
  }
  if (IsOfFile(request)) {
    if (const int error = MakeFile(fd); error != 0) return Result(error);
  }
  return Next_ioctl()(fd, request, argument);
}

// FICLONE names its source by number: that; -1: it is another request.
int CloneSource(unsigned long request, void* argument) {
  if (request == FICLONE) return static_cast<int>(reinterpret_cast<long>(argument));
  return request == FICLONERANGE && argument != nullptr ? static_cast<int>(static_cast<file_clone_range*>(argument)->src_fd) : -1;
}

// What is to lie behind a loop device: its descriptor; -1: it is another request.
int LoopFile(unsigned long request, void* argument) {
  switch (request) {
    case LOOP_SET_FD:
    case LOOP_CHANGE_FD: return static_cast<int>(reinterpret_cast<long>(argument));
    case LOOP_CONFIGURE: return argument != nullptr ? static_cast<int>(static_cast<const loop_config*>(argument)->fd) : -1;
    default: return -1;
  }
}

// Cloning across file systems is refused without asking the source.
int CloneFromOurs(int to, int from, unsigned long request, void* argument) {
  int source = -1;
  {
    const Using use(from);
    struct stat st;
    if (use && raw::Stat(to, st) == 0 && st.st_dev != use->dev) return Result(-EXDEV);
    if (use) source = SourceOf(*use, SourceUse::kIoctl);
    if (source >= 0) {
      if (request == FICLONE) return Next_ioctl()(to, request, source);
      file_clone_range range = *static_cast<file_clone_range*>(argument);
      range.src_fd = source;
      return Next_ioctl()(to, request, &range);
    }
  }
  (void)Materialise(from, Conversion::kIoctl);
  (void)MakeFile(from);
  return Next_ioctl()(to, request, argument);
}

}  // namespace

TIERD_EXPORT(int, ioctl, int fd, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  if (Active() && ChangesFile(request)) [[unlikely]] return ChangeNumber(fd, [=] { return Next_ioctl()(fd, request, argument); });
  if (Emulate(fd)) return IoctlOurs(fd, request, argument);
  if (const int from = CloneSource(request, argument); from >= 0) [[unlikely]] {
    if (Emulate(from)) return CloneFromOurs(fd, from, request, argument);
    (void)MakeFile(from);
  }
  if (const int file = LoopFile(request, argument); file >= 0) [[unlikely]] {
    if (Emulate(file)) (void)Materialise(file, Conversion::kIoctl);
    (void)MakeFile(file);
  }
  if (IsOfFile(request)) {
    if (const int error = MakeFile(fd); error != 0) return Result(error);
  }
  return Next_ioctl()(fd, request, argument);
}

// ---- one line each ---------------------------------------------------------------------------------------------------------

TIERD_FROM_SOURCE(fstatfs, fd, TIERD_PACK(int, fstatfs, int fd, struct statfs* st), (at, st))
TIERD_ALIAS(int, fstatfs64, fstatfs, int, struct statfs*)
TIERD_FROM_SOURCE(fstatvfs, fd, TIERD_PACK(int, fstatvfs, int fd, struct statvfs* st), (at, st))
TIERD_ALIAS(int, fstatvfs64, fstatvfs, int, struct statvfs*)
TIERD_FROM_SOURCE(fpathconf, fd, TIERD_PACK(long, fpathconf, int fd, int name), (at, name))
TIERD_FROM_SOURCE(fgetxattr, fd, TIERD_PACK(ssize_t, fgetxattr, int fd, const char* name, void* value, size_t bytes), (at, name, value, bytes))
TIERD_FROM_SOURCE(flistxattr, fd, TIERD_PACK(ssize_t, flistxattr, int fd, char* list, size_t bytes), (at, list, bytes))
TIERD_FILE_FIRST(fsync, fd, TIERD_PACK(int, fsync, int fd), (fd))
TIERD_FILE_FIRST(fdatasync, fd, TIERD_PACK(int, fdatasync, int fd), (fd))
TIERD_FILE_FIRST(syncfs, fd, TIERD_PACK(int, syncfs, int fd), (fd))
TIERD_REAL_FIRST(kAttributes, sync_file_range, fd, TIERD_PACK(int, sync_file_range, int fd, off64_t offset, off64_t bytes, unsigned flags), (fd, offset, bytes, flags))
TIERD_REAL_FIRST(kAttributes, getdents64, fd, TIERD_PACK(ssize_t, getdents64, int fd, void* buffer, size_t bytes), (fd, buffer, bytes))
TIERD_REAL_FIRST(kAttributes, ttyname_r, fd, TIERD_PACK(int, ttyname_r, int fd, char* name, size_t bytes), (fd, name, bytes))
TIERD_REAL_FIRST(kAttributes, ttyname, fd, TIERD_PACK(char*, ttyname, int fd), (fd))
TIERD_REAL_FIRST(kAttributes, tcgetpgrp, fd, TIERD_PACK(pid_t, tcgetpgrp, int fd), (fd))
TIERD_REAL_FIRST(kAttributes, getsockopt, fd, TIERD_PACK(int, getsockopt, int fd, int level, int name, void* value, socklen_t* bytes), (fd, level, name, value, bytes))
TIERD_FILE_FIRST(name_to_handle_at, directory,
                 TIERD_PACK(int, name_to_handle_at, int directory, const char* path, file_handle* handle, int* mount, int flags),
                 (directory, path, handle, mount, flags))
TIERD_REAL_FIRST(kAio, aio_read, request->aio_fildes, TIERD_PACK(int, aio_read, aiocb* request), (request))
TIERD_ALIAS(int, aio_read64, aio_read, aiocb*)

TIERD_EXPORT(int, lio_listio, int mode, aiocb* const* list, int count, sigevent* event) {
  for (int i = 0; i < count; ++i) {
    if (list[i] != nullptr && Emulate(list[i]->aio_fildes)) (void)Materialise(list[i]->aio_fildes, Conversion::kAio);
  }
  return Next_lio_listio()(mode, list, count, event);
}
TIERD_ALIAS(int, lio_listio64, lio_listio, int, aiocb* const*, int, sigevent*)
