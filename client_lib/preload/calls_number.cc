// What is done to a descriptor number: close, dup, fcntl; and lseek.
#include <fcntl.h>
#include <linux/close_range.h>
#include <stdarg.h>
#include <unistd.h>

#include "client_lib/preload/cached_open.h"
#include "client_lib/preload/calls.h"
#include "client_lib/preload/calls_lock.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/memory_copies.h"
#include "client_lib/preload/own_numbers.h"
#include "client_lib/preload/own_words.h"
#include "client_lib/preload/paths.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/real_reads.h"
#include "client_lib/preload/writers.h"

using namespace tierd::preload;

TIERD_NEXT_CALL(int, close, SYS_close, int)
TIERD_NEXT_CALL(int, dup, SYS_dup, int)
TIERD_NEXT_CALL(int, dup2, TIERD_OLD_CALL(dup2), int, int)
TIERD_NEXT_CALL(int, dup3, SYS_dup3, int, int, int)
TIERD_NEXT_CALL(int, fcntl, SYS_fcntl, int, int, ...)
TIERD_NEXT_CALL(off64_t, lseek, SYS_lseek, int, off64_t, int)

// ---- close -----------------------------------------------------------------------------------------------------------------

namespace {

__attribute__((noinline)) int CloseWatched(int fd) {
  ClosingWriter closing(fd);
  const int result = Next_close()(fd);
  closing.Tell();
  if (fd < 3) process.standard_free.store(true, std::memory_order_relaxed);
  return result;
}

inline int CloseHere(int fd) {
  if (Emulate(fd)) return Result(CloseNumber(fd));
  if (raw::IsPlain(fd) || !Active()) return Next_close()(fd);
  if (raw::IsOwn(fd)) [[unlikely]] return Result(-EBADF);  // the core's: to the application it is not open
  EndLocks(fd);
  ForgetDirectory(fd);
  ForgetCopy(fd);
  if (fd < 3 || MayBeWriter(fd)) return CloseWatched(fd);
  if (static_cast<unsigned>(fd) < raw::kWatched) raw::noted[fd].store(0, std::memory_order_relaxed);
  return Next_close()(fd);
}

}  // namespace

int tierd::preload::CloseAny(int fd) { return CloseHere(fd); }

void tierd::preload::ForgetAll(int fd) {
  // Another library's open may come back to us: then the number is what the inner call has made it.
  if (IsOurs(fd) && ShowsPlaceholder(fd)) return;
  if (fd >= OwnBase() && fd < kTable) (void)StopKeepingIdle();  // there are few, and most of them are taken
  if (raw::IsOwn(fd)) ForgetOwn(fd);
  if (IsOurs(fd)) ForgetNumber(fd);
  ForgetDirectory(fd);
  ForgetCopy(fd);
  ForgetWriter(fd);
  ForgetSourceFile(fd);
}

TIERD_EXPORT(int, close, int fd) {
  if (Emulate(fd)) CancellationPoint();
  return CloseHere(fd);
}

namespace {

// Everything from `first` to `last` but what is our own.
int CloseRange(unsigned first, unsigned last, unsigned flags) {
  if (first > last || (flags & ~(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC)) != 0) return -EINVAL;
  if ((flags & CLOSE_RANGE_UNSHARE) != 0) {
    // This thread's descriptors and the others' are two sets from now on: one table does not do for both.
    process.real_from_now.store(true, std::memory_order_seq_cst);
    MaterialiseAll(Conversion::kFork);
    if ((flags & CLOSE_RANGE_CLOEXEC) == 0) TellWriters();  // what this thread has written by them; others, which keep theirs, tell when they close them
    return static_cast<int>(raw::Call(SYS_close_range, first, last, static_cast<long>(flags)));
  }
  for (unsigned fd = first; fd <= last && fd < raw::kWatched; ++fd) {
    const auto number = static_cast<int>(fd);
    if ((flags & CLOSE_RANGE_CLOEXEC) != 0) {
      if (IsOurs(number)) SetCloseOnExec(number, true);
      continue;
    }
    if (!IsOurs(number) && !raw::IsOwn(number) && !raw::IsPlain(number)) EndLocks(number);
    if (IsOurs(number)) CloseNumber(number);
    else if (IsWriter(number)) CloseWatched(number);
    ForgetDirectory(number);
    ForgetCopy(number);
    ForgetSourceFile(number);
  }
  for (int fd = HighestWriterBeyond(); fd >= static_cast<int>(raw::kWatched) && (flags & CLOSE_RANGE_CLOEXEC) == 0; --fd) {
    if (static_cast<unsigned>(fd) >= first && static_cast<unsigned>(fd) <= last && MayBeWriter(fd)) CloseWatched(fd);
  }
  if (first < 3) process.standard_free.store(true, std::memory_order_relaxed);
  unsigned begin = first;
  for (unsigned fd = first; fd <= last && fd < raw::kWatched; ++fd) {
    if (!raw::IsOwn(static_cast<int>(fd)) && !IsOurs(static_cast<int>(fd))) continue;
    if (begin < fd) {
      const long result = raw::Call(SYS_close_range, begin, fd - 1, static_cast<long>(flags));
      if (result < 0) return static_cast<int>(result);
    }
    begin = fd + 1;
  }
  if (begin > last) return 0;
  return static_cast<int>(raw::Call(SYS_close_range, begin, last, static_cast<long>(flags)));
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

// Whether the number can be duplicated as the kernel does it. What cannot become real (the limit was lowered behind our back) is not handed on: nothing could be read there.
bool IsRealNow(int fd) {
  (void)Materialise(fd, Conversion::kDup);
  return !IsOurs(fd);
}

// The number is about to be another file: that is a close of the one that it is.
void EndLocksOf(int fd) {
  if (!IsOurs(fd)) return EndLocks(fd);
  const Using use(fd);
  if (use) GiveUpLocks(*use);
}

// The number that this thread is putting a file onto; -1: none.
__thread int dup_target __attribute__((tls_model("initial-exec"))) = -1;

// A file is put where a number of ours, or a writer, may be.
template <typename Dup>
int DupOnto(int from, int to, Dup dup) {
  if (!Active()) return dup();
  if (raw::IsOwn(from)) return Result(-EBADF);
  // Another library's dup2 has come back to us, and its caller holds the number.
  if (dup_target == to) return dup();
  // Numbers of ours lie in the high range only: a file that is put at a chosen number is a real one.
  if (IsOurs(from) && !IsRealNow(from)) return Result(-EMFILE);
  if (raw::IsOwn(to)) {
    if (raw::Call(SYS_fcntl, from, F_GETFD) < 0) return Result(-EBADF);  // ours stays where it is: nobody is going to replace it
    MoveOwnAway(to);
  }
  ClosingWriter closing(to);
  if (AnyLocks() && raw::Call(SYS_fcntl, from, F_GETFD) >= 0) [[unlikely]] EndLocksOf(to);
  const int outer = dup_target;
  dup_target = to;
  const int result = IsOurs(to) ? ReplaceNumber(to, dup) : dup();
  dup_target = outer;
  if (result < 0) {
    closing.Undo();
    return result;
  }
  if (raw::IsOwn(to)) [[unlikely]] ForgetOwn(to);  // another thread has closed it meanwhile, and we had kept it
  closing.Tell();
  ForgetDirectory(to);
  ForgetCopy(to);
  NoteCopy(from, to);
  CopyToo(from, to);
  CopySourceMark(from, to);
  return result;
}

// POSIX promises the lowest number: one of 0..2 that is free matters, since what is put there is what the next program reads.
bool StandardIsFree() {
  if (process.standard_free.load(std::memory_order_relaxed)) LookAtStandardDescriptors();
  return process.standard_free.load(std::memory_order_relaxed);
}

template <typename Dup>
int AfterDup(int from, Dup dup) {
  if (!Active()) return dup();
  const int copy = WithAllNumbers(dup);
  if (copy < 0) return copy;
  NewNumber(copy);
  NoteCopy(from, copy);
  CopyToo(from, copy);
  CopySourceMark(from, copy);
  return copy;
}

}  // namespace

TIERD_EXPORT(int, dup, int fd) {
  if (Emulate(fd)) {
    const int copy = StandardIsFree() ? -EAGAIN : DuplicateNumber(fd, 0, false);
    if (copy >= 0) return copy;
    if (!IsRealNow(fd)) return Result(-EMFILE);
  }
  if (raw::IsOwn(fd)) [[unlikely]] return Result(-EBADF);
  return AfterDup(fd, [&] { return Next_dup()(fd); });
}

TIERD_EXPORT(int, dup2, int from, int to) {
  if (from == to && Emulate(from)) return to;
  if (from == to) return Next_dup2()(from, to);
  return DupOnto(from, to, [&] { return Next_dup2()(from, to); });
}

TIERD_EXPORT(int, dup3, int from, int to, int flags) {
  if (from == to || (flags & ~O_CLOEXEC) != 0) return Next_dup3()(from, to, flags);  // EINVAL
  return DupOnto(from, to, [&] { return Next_dup3()(from, to, flags); });
}

// ---- fcntl -----------------------------------------------------------------------------------------------------------------

namespace {

int DupOurs(int fd, int lowest, bool close_on_exec) {
  if (lowest < 0) return Result(-EINVAL);
  if (lowest > 2 || !StandardIsFree()) {
    const int copy = DuplicateNumber(fd, lowest, close_on_exec);
    if (copy >= 0) return copy;
  }
  if (!IsRealNow(fd)) return Result(-EMFILE);
  return AfterDup(fd, [&] { return Next_fcntl()(fd, close_on_exec ? F_DUPFD_CLOEXEC : F_DUPFD, lowest); });
}

// Of a number that is the kernel's.
int FcntlReal(int fd, int command, long argument) {
  if (IsLock(command) && argument != 0) {
    const bool ends = reinterpret_cast<const struct flock*>(argument)->l_type == F_UNLCK;
    if (const int error = MakeLockable(fd); error != 0 && !ends) return Result(error);
    if (IsPosixLock(command) && Active() && !ends) NoteLock(fd);
  }
  return Next_fcntl()(fd, command, argument);
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
      if (IsLock(command)) {
        if (command == F_SETLKW || command == F_OFD_SETLKW) CancellationPoint();
        int result;
        if (LockOurs(fd, command, reinterpret_cast<struct flock*>(argument), &result)) return Result(result);
        break;
      }
      (void)Materialise(fd, Conversion::kFcntl);
  }
  return FcntlReal(fd, command, argument);
}

}  // namespace

TIERD_EXPORT(int, fcntl, int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long argument = va_arg(arguments, long);
  va_end(arguments);
  if (Emulate(fd)) return FcntlOurs(fd, command, argument);
  if (raw::IsOwn(fd)) [[unlikely]] return Result(-EBADF);
  if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) return AfterDup(fd, [&] { return Next_fcntl()(fd, command, argument); });
  return FcntlReal(fd, command, argument);
}
TIERD_ALIAS(int, fcntl64, fcntl, int, int, ...)

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
  if (__builtin_add_overflow(from, offset, &target)) return -EINVAL;
  return target < 0 ? -EINVAL : target;
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
    const bool asks_size = whence != SEEK_SET && whence != SEEK_CUR;
    if (asks_size && HasGrown(*use) && MaterialiseAsIs(fd, Conversion::kChanged)) continue;
    const std::int64_t target = SeekTarget(*use, OffsetOf(word), offset, whence);
    // How far one may seek is the file system's to say.
    if (target > static_cast<std::int64_t>(use->size()) && IsForKernel(static_cast<std::uint64_t>(target))) [[unlikely]] {
      if (Materialise(fd, Conversion::kReadFlags)) continue;
      if (target > static_cast<std::int64_t>(kMaxOffset)) return Result(off64_t{-EINVAL});
    }
    if (target < 0) return Result(target);
    const std::uint64_t moved = MakeWord(State::kCached, NumbersOf(word), static_cast<std::uint64_t>(target));
    if (ExchangeOwn(use->word, word, moved)) return target;
  }
}

}  // namespace

TIERD_EXPORT(off64_t, lseek, int fd, off64_t offset, int whence) {
  return Emulate(fd) ? SeekOurs(fd, offset, whence) : Next_lseek()(fd, offset, whence);
}
TIERD_ALIAS(off64_t, lseek64, lseek, int, off64_t, int)
TIERD_ALIAS(off64_t, llseek, lseek, int, off64_t, int)
