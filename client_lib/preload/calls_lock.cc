// flock, lockf, and what fcntl asks about locks. They are taken on a descriptor of the source that lives as long as ours: it is the file itself that is locked, for every
// process and node, and what a conversion goes on with.
#include "client_lib/preload/calls_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "client_lib/preload/cached_open.h"
#include "client_lib/preload/calls.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/memory_copies.h"
#include "client_lib/preload/own_numbers.h"
#include "client_lib/preload/raw.h"

using namespace tierd::preload;

TIERD_NEXT_CALL(int, flock, SYS_flock, int, int)
TIERD_NEXT(int, lockf, int, int, off64_t)

namespace {

// What a call is about: somebody else's lock, the caller's as soon as it can be had or at once, or its end.
enum class Wish { kLook, kWait, kTry, kGiveUp };

struct Question {
  Wish wish;
  bool of_process;  // POSIX: closing a descriptor does not end just what was taken through it
};

struct Answer {
  bool here = false;  // false: the number is the kernel's by now, which answers
  int result = 0;     // or -errno
};

bool IsTaken(long result) { return result == -EAGAIN || result == -EACCES; }

// `lock(description, source)` asks the kernel, without waiting. Who takes a lock wants to read what others wrote before they gave theirs up: the file is looked at behind
// it, and is read itself from then on if it has been written to. So is it by whoever has to wait for the lock.
template <typename Lock>
Answer OnSource(int fd, Question question, Lock lock) {
  Count(SourceUse::kLock);
  for (;;) {
    const Using use(fd);
    if (!use) return {};
    const int known = use->source.load(std::memory_order_acquire);
    const int source = known >= 0 ? known : OpenSourceFile(use->path);
    if (source < 0) break;
    const bool another = known < 0 && question.of_process && VersionBehind(use->facts, source) == SourceVersion::kOtherFile;
    const long result = another ? -ESTALE : lock(*use, source);
    const bool looks = known < 0 || (question.wish != Wish::kGiveUp && result >= 0);
    const SourceVersion version = looks ? VersionBehind(use->facts, source) : SourceVersion::kOpened;
    const bool held = known >= 0 || (version != SourceVersion::kOtherFile && HoldOwn(source, use->source));
    if (!held) CloseOwnFile(source);
    if (version == SourceVersion::kOtherFile) break;
    if (!held) continue;  // another thread had one before
    const bool waits = question.wish == Wish::kWait && IsTaken(result);
    if (waits || (result >= 0 && version == SourceVersion::kLater)) (void)MaterialiseAsIs(fd, Conversion::kFcntl);
    return {.here = !waits, .result = static_cast<int>(result)};
  }
  (void)Materialise(fd, Conversion::kFcntl);
  return {};
}

// On a number that is the kernel's: never on a copy in memory of the file.
template <typename Lock>
int LockReal(int fd, bool ends, Lock lock) {
  const int error = MakeLockable(fd);
  return error != 0 && !ends ? Result(error) : lock();
}

Wish WishOf(int command, const struct flock& lock) {
  if (command == F_GETLK || command == F_OFD_GETLK) return Wish::kLook;
  if (lock.l_type == F_UNLCK) return Wish::kGiveUp;
  return command == F_SETLKW || command == F_OFD_SETLKW ? Wish::kWait : Wish::kTry;
}

}  // namespace

bool tierd::preload::LockOurs(int fd, int command, struct flock* lock, int* result) {
  const int at_once = command == F_SETLKW ? F_SETLK : command == F_OFD_SETLKW ? F_OFD_SETLK : command;
  const Wish wish = WishOf(command, *lock);
  const Answer answer = OnSource(fd, {wish, IsPosixLock(command)}, [&](Description& d, int source) {
    struct flock wanted = *lock;
    if (wanted.l_whence == SEEK_CUR) {
      wanted.l_whence = SEEK_SET;
      wanted.l_start += static_cast<off_t>(OffsetOf(d.word.load(std::memory_order_acquire)));
    }
    if (IsPosixLock(command) && wish != Wish::kGiveUp) NoteLock(source);
    const long done = raw::Call(SYS_fcntl, source, at_once, raw::Address(&wanted));
    if (wish == Wish::kLook) *lock = wanted;
    return done;
  });
  *result = answer.result;
  return answer.here;
}

TIERD_EXPORT(int, flock, int fd, int operation) {
  const bool ends = (operation & ~LOCK_NB) == LOCK_UN;
  if (!Emulate(fd)) return LockReal(fd, ends, [&] { return Next_flock()(fd, operation); });
  {
    const Using use(fd);
    if (use && ends && use->source.load(std::memory_order_acquire) < 0) return 0;  // nothing was ever locked through this one
  }
  const Wish wish = ends ? Wish::kGiveUp : (operation & LOCK_NB) != 0 ? Wish::kTry : Wish::kWait;
  const Answer answer = OnSource(fd, {wish, false}, [&](Description&, int source) { return raw::Call(SYS_flock, source, operation | LOCK_NB); });
  return answer.here ? Result(answer.result) : LockReal(fd, ends, [&] { return Next_flock()(fd, operation); });
}

TIERD_EXPORT(int, lockf, int fd, int command, off64_t length) {
  if (Emulate(fd)) (void)Materialise(fd, Conversion::kFcntl);  // libc's lockf calls its own fcntl
  if (Active() && command != F_ULOCK && command != F_TEST) NoteLock(fd);
  return LockReal(fd, command == F_ULOCK, [&] { return Next_lockf()(fd, command, length); });
}
TIERD_ALIAS(int, lockf64, lockf, int, int, off64_t)
