// What is done to a descriptor number: close, dup, fcntl; and lseek.
#include <fcntl.h>
#include <stdarg.h>
#include <sys/file.h>
#include <unistd.h>

#include "client_lib/preload/cached_open.h"
#include "client_lib/preload/calls.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/paths.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/writers.h"

using namespace tierd::preload;

TIERD_NEXT(int, close, int)
TIERD_NEXT(int, dup, int)
TIERD_NEXT(int, dup2, int, int)
TIERD_NEXT(int, dup3, int, int, int)
TIERD_NEXT(int, fcntl, int, int, ...)
TIERD_NEXT(off64_t, lseek, int, off64_t, int)
TIERD_NEXT(int, flock, int, int)
TIERD_NEXT(int, lockf, int, int, off64_t)

// ---- close -----------------------------------------------------------------------------------------------------------------

namespace {

__attribute__((noinline)) int CloseWatched(int fd) {
  ClosingWriter closing(fd);
  const int result = Next_close()(fd);
  closing.Tell();
  if (fd < 3) process.standard_free.store(true, std::memory_order_relaxed);
  return result;
}

// POSIX: closing any descriptor of a file gives up the process's locks on it.
void GiveUpLocks(Description& d) {
  const int source = d.source.load(std::memory_order_acquire);
  if (source < 0 || !d.posix_locks.load(std::memory_order_relaxed)) return;
  struct flock all {};
  all.l_type = F_UNLCK;
  raw::Call(SYS_fcntl, source, F_SETLK, raw::Address(&all));
}

int CloseOurs(int fd) {
  {
    const Using use(fd);
    if (use) GiveUpLocks(*use);
  }
  return static_cast<int>(Result(CloseNumber(fd)));
}

inline int CloseHere(int fd) {
  if (Emulate(fd)) return CloseOurs(fd);
  if (raw::IsPlain(fd) || !Active()) return Next_close()(fd);
  if (raw::IsOwn(fd)) [[unlikely]] return Result(-EBADF);  // the core's: to the application it is not open
  ForgetDirectory(fd);
  if (fd < 3 || IsWriter(fd)) return CloseWatched(fd);
  if (static_cast<unsigned>(fd) < raw::kWatched) raw::noted[fd].store(0, std::memory_order_relaxed);
  return Next_close()(fd);
}

}  // namespace

int tierd::preload::CloseAny(int fd) { return CloseHere(fd); }

TIERD_EXPORT(int, close, int fd) { return CloseHere(fd); }

namespace {

// Everything from `first` to `last` but what the core has open.
int CloseRange(unsigned first, unsigned last, unsigned flags) {
  if (first > last) return -EINVAL;
  for (unsigned fd = first; fd <= last && fd < raw::kWatched; ++fd) {
    const auto number = static_cast<int>(fd);
    if ((flags & 4) != 0) {  // CLOSE_RANGE_CLOEXEC
      if (IsOurs(number)) SetCloseOnExec(number, true);
      continue;
    }
    if (IsOurs(number)) CloseNumber(number);
    else if (IsWriter(number)) CloseWatched(number);
    ForgetDirectory(number);
  }
  if (first < 3) process.standard_free.store(true, std::memory_order_relaxed);
  unsigned begin = first;
  for (unsigned fd = first; fd <= last && fd < raw::kWatched; ++fd) {
    if (!raw::IsOwn(static_cast<int>(fd)) && !IsOurs(static_cast<int>(fd))) continue;
    if (begin < fd) {
      const long result = raw::Call(SYS_close_range, begin, fd - 1, flags);
      if (result < 0) return static_cast<int>(result);
    }
    begin = fd + 1;
  }
  if (begin > last) return 0;
  return static_cast<int>(raw::Call(SYS_close_range, begin, last, flags));
}

}  // namespace

TIERD_EXPORT(int, close_range, unsigned first, unsigned last, int flags) {
  if (!Active()) return static_cast<int>(Result(raw::Call(SYS_close_range, first, last, flags)));
  return Result(CloseRange(first, last, static_cast<unsigned>(flags)));
}

TIERD_EXPORT(void, closefrom, int lowest) {
  const unsigned first = lowest < 0 ? 0 : static_cast<unsigned>(lowest);
  if (Active()) CloseRange(first, ~0u, 0);
  else raw::Call(SYS_close_range, first, ~0u, 0);
}

// ---- dup -------------------------------------------------------------------------------------------------------------------

namespace {

// A real file is put where a number of ours, or a writer, may be.
template <typename Dup>
int DupOnto(int from, int to, Dup dup) {
  if (!Active()) return dup();
  // Numbers of ours lie in the high range only: a file that is put at a chosen number is a real one.
  if (IsOurs(from)) (void)Materialise(from, Conversion::kDup);
  if (raw::Call(SYS_fcntl, from, F_GETFD) < 0) return dup();  // fails, and `to` stays what it is
  ClosingWriter closing(to);
  if (IsOurs(to)) ForgetNumber(to);
  const int result = dup();
  closing.Tell();
  if (result >= 0) {
    if (raw::IsOwn(to)) raw::MarkOwn(to, false);  // the core notices that its descriptor is gone
    ForgetDirectory(to);
    NoteCopy(from, to);
  }
  return result;
}

}  // namespace

TIERD_EXPORT(int, dup, int fd) {
  if (Emulate(fd)) {
    const int copy = DuplicateNumber(fd, 0, false);
    if (copy >= 0) return copy;
    (void)Materialise(fd, Conversion::kDup);
  }
  const int copy = Next_dup()(fd);
  if (copy < 0 || !Active()) return copy;
  ForgetDirectory(copy);
  NoteCopy(fd, copy);
  return copy;
}

TIERD_EXPORT(int, dup2, int from, int to) {
  if (from == to && Emulate(from)) return to;
  if (from == to) return Next_dup2()(from, to);
  return DupOnto(from, to, [&] { return Next_dup2()(from, to); });
}

TIERD_EXPORT(int, dup3, int from, int to, int flags) {
  if (from == to) return Next_dup3()(from, to, flags);  // EINVAL
  return DupOnto(from, to, [&] { return Next_dup3()(from, to, flags); });
}

// ---- fcntl -----------------------------------------------------------------------------------------------------------------

namespace {

int DupOurs(int fd, int lowest, bool close_on_exec) {
  if (lowest < 0) return Result(-EINVAL);
  const int copy = DuplicateNumber(fd, lowest, close_on_exec);
  if (copy >= 0) return copy;
  (void)Materialise(fd, Conversion::kDup);
  return Next_fcntl()(fd, close_on_exec ? F_DUPFD_CLOEXEC : F_DUPFD, lowest);
}

bool IsLock(int command) {
  return command == F_GETLK || command == F_SETLK || command == F_SETLKW || command == F_OFD_GETLK || command == F_OFD_SETLK || command == F_OFD_SETLKW;
}

// A lock is the source's affair: taken there, on a descriptor that lives as long as ours. An offset that counts from "here" is made absolute.
int LockOurs(int fd, int command, struct flock* lock) {
  int source = -1;
  {
    const Using use(fd);
    if (use && lock != nullptr) source = SourceOf(*use, SourceUse::kLock);
    if (source >= 0) {
      if (lock->l_whence == SEEK_CUR) {
        lock->l_whence = SEEK_SET;
        lock->l_start += static_cast<off_t>(OffsetOf(use->word.load(std::memory_order_acquire)));
      }
      if (command == F_SETLK || command == F_SETLKW) use->posix_locks.store(true, std::memory_order_relaxed);
      return Next_fcntl()(source, command, lock);
    }
  }
  (void)Materialise(fd, Conversion::kFcntl);
  return Next_fcntl()(fd, command, lock);
}

int FcntlOurs(int fd, int command, long argument) {
  switch (command) {
    case F_DUPFD: return DupOurs(fd, static_cast<int>(argument), false);
    case F_DUPFD_CLOEXEC: return DupOurs(fd, static_cast<int>(argument), true);
    case F_GETFD: return CloseOnExec(fd) ? FD_CLOEXEC : 0;
    case F_SETFD: SetCloseOnExec(fd, (argument & FD_CLOEXEC) != 0); return 0;
    case F_GETFL: {
      const Using use(fd);
      if (use) return use->flags;
      break;
    }
    default:
      if (IsLock(command)) return LockOurs(fd, command, reinterpret_cast<struct flock*>(argument));
      (void)Materialise(fd, Conversion::kFcntl);
  }
  return Next_fcntl()(fd, command, argument);
}

}  // namespace

TIERD_EXPORT(int, fcntl, int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long argument = va_arg(arguments, long);
  va_end(arguments);
  if (Emulate(fd)) return FcntlOurs(fd, command, argument);
  const int result = Next_fcntl()(fd, command, argument);
  if ((command == F_DUPFD || command == F_DUPFD_CLOEXEC) && result >= 0 && Active()) {
    ForgetDirectory(result);
    NoteCopy(fd, result);
  }
  return result;
}
TIERD_ALIAS(int, fcntl64, fcntl, int, int, ...)

TIERD_EXPORT(int, flock, int fd, int operation) {
  if (Emulate(fd)) {
    int source = -1;
    {
      const Using use(fd);
      if (use) source = SourceOf(*use, SourceUse::kLock);
      if (source >= 0) return Next_flock()(source, operation);
    }
    (void)Materialise(fd, Conversion::kFcntl);
  }
  return Next_flock()(fd, operation);
}

TIERD_EXPORT(int, lockf, int fd, int command, off64_t length) {
  if (Emulate(fd)) (void)Materialise(fd, Conversion::kFcntl);  // libc's lockf calls its own fcntl
  return Next_lockf()(fd, command, length);
}
TIERD_ALIAS(int, lockf64, lockf, int, int, off64_t)

// ---- lseek -----------------------------------------------------------------------------------------------------------------

namespace {

// Where a seek leads, or -errno. A cached file has no holes that anybody could see.
std::int64_t SeekTarget(const Description& d, std::uint64_t here, std::int64_t offset, int whence) {
  const auto size = static_cast<std::int64_t>(d.size());
  std::int64_t from = 0;
  switch (whence) {
    case SEEK_SET: break;
    case SEEK_CUR: from = static_cast<std::int64_t>(here); break;
    case SEEK_END: from = size; break;
    case SEEK_DATA: return offset < 0 || offset >= size ? -ENXIO : offset;
    case SEEK_HOLE: return offset < 0 || offset >= size ? -ENXIO : size;
    default: return -EINVAL;
  }
  std::int64_t target;
  if (__builtin_add_overflow(from, offset, &target)) return -EOVERFLOW;
  return target < 0 || target > static_cast<std::int64_t>(kMaxOffset) ? -EINVAL : target;
}

off64_t SeekOurs(int fd, off64_t offset, int whence) {
  for (;;) {
    const Using use(fd);
    if (!use) return Next_lseek()(fd, offset, whence);
    std::uint64_t word = use->word.load(std::memory_order_acquire);
    if (StateOf(word) != State::kCached) {
      if (AwaitUsable(*use, word)) continue;
      return Result(off64_t{-EBADF});
    }
    const std::int64_t target = SeekTarget(*use, OffsetOf(word), offset, whence);
    if (target < 0) return Result(target);
    const std::uint64_t moved = MakeWord(State::kCached, NumbersOf(word), static_cast<std::uint64_t>(target));
    if (use->word.compare_exchange_strong(word, moved, std::memory_order_acq_rel)) return target;
  }
}

}  // namespace

TIERD_EXPORT(off64_t, lseek, int fd, off64_t offset, int whence) {
  return Emulate(fd) ? SeekOurs(fd, offset, whence) : Next_lseek()(fd, offset, whence);
}
TIERD_ALIAS(off64_t, lseek64, lseek, int, off64_t, int)
TIERD_ALIAS(off64_t, llseek, lseek, int, off64_t, int)
