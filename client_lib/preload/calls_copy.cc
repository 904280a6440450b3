// sendfile, copy_file_range, splice, and advice. Frames are never given to the kernel to keep (HAZARDS 2.9): bytes are written, which copies, or the source's own
// descriptor does it.
#include <fcntl.h>
#include <limits.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "client_lib/preload/cached_open.h"
#include "client_lib/preload/calls.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/memory_copies.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/real_reads.h"
#include "client_lib/src/accounting.h"
#include "tier/tier.h"

using namespace tierd::preload;

TIERD_NEXT_CALL(ssize_t, sendfile, SYS_sendfile, int, int, off64_t*, size_t)
TIERD_NEXT_CALL(ssize_t, copy_file_range, SYS_copy_file_range, int, off64_t*, int, off64_t*, size_t, unsigned)
TIERD_NEXT_CALL(ssize_t, splice, SYS_splice, int, off64_t*, int, off64_t*, size_t, unsigned)
TIERD_NEXT(int, posix_fadvise, int, off64_t, off64_t, int)
TIERD_NEXT(ssize_t, readahead, int, off64_t, size_t)

namespace {

constexpr std::size_t kPiece = 128 << 10;  // of a file that is not one leased piece

// No cancellation point: a thread that ended here would keep the description, and its leases, for ever.
ssize_t WriteTo(int fd, const void* data, std::size_t bytes) { return raw::Call(SYS_write, fd, raw::Address(data), static_cast<long>(bytes)); }

// `count` bytes of the file from `offset` on to `write`: how many, which are fewer at the file's end and where `write` takes no more; what it or ReadCached says when
// they fail before the first.
template <typename Write>
ssize_t WriteOut(Description& d, std::uint64_t offset, std::size_t count, Write write) {
  if (offset >= d.size() || count == 0) return 0;  // a write of nothing would be a message
  if (count > d.size() - offset) count = static_cast<std::size_t>(d.size() - offset);
  if (count > kMostBytes) count = kMostBytes;
  if (d.whole) {
    // write(2) copies; what it returns while the lease holds has left the frame.
    const ssize_t sent = write(d.piece.data + offset, count);
    if (sent > 0) CountPieceRead(d, static_cast<std::uint64_t>(sent));
    return sent;
  }
  auto* const buffer = static_cast<char*>(std::malloc(kPiece));  // of the core's heap: as good in a handler
  if (buffer == nullptr) return -ESTALE;
  ssize_t sum = 0;
  for (std::size_t left = count; left > 0;) {
    const ssize_t got = ReadCached(d, buffer, left < kPiece ? left : kPiece, offset + (count - left));
    const ssize_t sent = got > 0 ? write(buffer, static_cast<std::size_t>(got)) : got;
    if (sent < 0 && sum == 0) sum = sent;
    if (sent <= 0) break;
    sum += sent;
    left -= static_cast<std::size_t>(sent);
    if (sent < got) break;
  }
  std::free(buffer);
  return sum;
}

// `bytes` have left from where the description was: its offset moves by them, wherever and whatever it is by now.
void Advance(int fd, Description& d, std::uint64_t bytes) {
  for (;;) {
    std::uint64_t word = d.word.load(std::memory_order_acquire);
    switch (StateOf(word)) {
      case State::kCached:
        if (d.word.compare_exchange_weak(word, word + bytes, std::memory_order_acq_rel)) return;
        break;
      case State::kReal: raw::Call(SYS_lseek, fd, static_cast<long>(bytes), SEEK_CUR); return;
      case State::kClosed: return;
      default: AwaitUsable(d, word);
    }
  }
}

// The same from the descriptor's own offset, or from *offset. kGone: it is not ours any more.
enum class Moved { kDone, kGone };
template <typename Write>
Moved WriteFrom(int fd, off64_t* offset, std::size_t count, ssize_t* result, Write write) {
  for (;;) {
    const Using use(fd);
    if (!use) return Moved::kGone;
    const std::uint64_t word = use->word.load(std::memory_order_acquire);
    if (StateOf(word) != State::kCached) {
      if (AwaitUsable(*use, word)) continue;
      *result = Result(ssize_t{-EBADF});
      return Moved::kDone;
    }
    if (offset != nullptr && *offset < 0) {
      *result = Result(ssize_t{-EINVAL});
      return Moved::kDone;
    }
    if (MayHaveChanged(*use) && HasChanged(*use) && MaterialiseAsIs(fd, Conversion::kChanged)) continue;
    *result = WriteOut(*use, offset != nullptr ? static_cast<std::uint64_t>(*offset) : OffsetOf(word), count, write);
    if (*result == -ESTALE && Materialise(fd, Conversion::kChanged)) continue;
    if (*result == 0 && HasGrown(*use) && MaterialiseAsIs(fd, Conversion::kChanged)) continue;
    if (*result < 0) *result = Result(*result);
    if (*result > 0 && offset != nullptr) *offset += *result;
    if (*result > 0 && offset == nullptr) Advance(fd, *use, static_cast<std::uint64_t>(*result));
    return Moved::kDone;
  }
}

// Leaves a size or a place that the file system may refuse to the kernel, which then has the file.
// True: it is real now. The size alone is only refused when it is negative: `cp` asks for all there is.
bool IsKernels(int fd, const off64_t* offset, std::size_t count) {
  const bool far = offset != nullptr && *offset >= 0 && IsForKernel(static_cast<std::uint64_t>(*offset));
  if (static_cast<ssize_t>(count) >= 0 && !far) return false;
  return Materialise(fd, Conversion::kReadFlags);
}

// What sendfile asks of the descriptor that it writes to, though there be nothing to write.
int CheckReceiver(int fd) {
  const long flags = raw::Call(SYS_fcntl, fd, F_GETFL);
  if (flags < 0 || (flags & O_PATH) != 0 || (flags & O_ACCMODE) == O_RDONLY) return -EBADF;
  struct stat st;
  return (flags & O_APPEND) != 0 && (raw::Stat(fd, st) != 0 || !S_ISFIFO(st.st_mode)) ? -EINVAL : 0;
}

// Into a pipe go as many bytes as there is room for: it may be the caller who reads it. Room is a page at least, waited for; how the rest of it is cut the kernel does
// not say, but of an empty one.
std::size_t TakenAtOnce(int fd, std::size_t count) {
  if (count <= PIPE_BUF) return count;
  const long room = raw::Call(SYS_fcntl, fd, F_GETPIPE_SZ);
  if (room < 0) return count;
  int unread = 0;
  const bool empty = raw::Call(SYS_ioctl, fd, FIONREAD, raw::Address(&unread)) == 0 && unread == 0;
  const std::size_t most = empty ? static_cast<std::size_t>(room) : PIPE_BUF;
  return count < most ? count : most;
}

}  // namespace

TIERD_EXPORT(ssize_t, sendfile, int to, int from, off64_t* offset, size_t count) {
  if (!Emulate(from) || IsKernels(from, offset, count)) return ReadReal(from, [=] { return Next_sendfile()(to, from, offset, count); });
  if (const int error = CheckReceiver(to); error != 0) return Result(static_cast<ssize_t>(error));
  ssize_t result;
  const auto write = [&](const void* data, std::size_t bytes) { return WriteTo(to, data, bytes); };
  if (WriteFrom(from, offset, TakenAtOnce(to, count), &result, write) == Moved::kDone) return result;
  return ReadReal(from, [=] { return Next_sendfile()(to, from, offset, count); });
}
TIERD_ALIAS(ssize_t, sendfile64, sendfile, int, int, off64_t*, size_t)

namespace {

// What copy_file_range asks of the file it writes to.
int CheckTarget(int fd) {
  struct stat st;
  if (const int error = raw::Stat(fd, st); error != 0) return error;
  if (S_ISDIR(st.st_mode)) return -EISDIR;
  if (!S_ISREG(st.st_mode)) return -EINVAL;
  const long flags = raw::Call(SYS_fcntl, fd, F_GETFL);
  return (flags & O_ACCMODE) == O_RDONLY || (flags & O_APPEND) != 0 ? -EBADF : 0;
}

bool EndsBeforeItBegins(const off64_t* offset, std::size_t count) {
  return offset != nullptr && static_cast<std::uint64_t>(*offset) + count < static_cast<std::uint64_t>(*offset);
}

}  // namespace

TIERD_EXPORT(ssize_t, copy_file_range, int from, off64_t* from_offset, int to, off64_t* to_offset, size_t count, unsigned flags) {
  if (!Emulate(from) || IsKernels(from, from_offset, count) || IsKernels(from, to_offset, 0)) {
    (void)MakeFile(from);  // memory is another file system
    return ReadReal(from, [=] { return Next_copy_file_range()(from, from_offset, to, to_offset, count, flags); });
  }
  CancellationPoint();
  if (flags != 0) return Result(ssize_t{-EINVAL});
  if (Emulate(to)) return Result(ssize_t{-EBADF});
  if (const int error = CheckTarget(to); error != 0) return Result(static_cast<ssize_t>(error));
  if (EndsBeforeItBegins(from_offset, count) || EndsBeforeItBegins(to_offset, count)) return Result(ssize_t{-EOVERFLOW});
  ssize_t result;
  const auto write = [&](const void* data, std::size_t bytes) -> ssize_t {
    if (to_offset == nullptr) return WriteTo(to, data, bytes);
    const ssize_t sent = raw::Call(SYS_pwrite64, to, raw::Address(data), static_cast<long>(bytes), *to_offset);
    if (sent > 0) *to_offset += sent;
    return sent;
  };
  if (WriteFrom(from, from_offset, count, &result, write) == Moved::kDone) return result;
  return ReadReal(from, [=] { return Next_copy_file_range()(from, from_offset, to, to_offset, count, flags); });
}

// Into a pipe: the kernel may keep pages, so they are the source's own.
TIERD_EXPORT(ssize_t, splice, int from, off64_t* from_offset, int to, off64_t* to_offset, size_t count, unsigned flags) {
  if (Emulate(from)) CancellationPoint();
  while (Emulate(from)) {
    const Using use(from);
    if (!use) break;
    const std::uint64_t word = use->word.load(std::memory_order_acquire);
    if (StateOf(word) != State::kCached) {
      if (AwaitUsable(*use, word)) continue;
      return Result(ssize_t{-EBADF});
    }
    const int source = SourceOf(*use, SourceUse::kSplice);
    if (source < 0) break;
    auto here = static_cast<off64_t>(OffsetOf(word));
    const long sent = raw::Call(SYS_splice, source, raw::Address(from_offset != nullptr ? from_offset : &here), to, raw::Address(to_offset), static_cast<long>(count),
                                static_cast<long>(flags));
    if (sent > 0) CountRealRead(static_cast<std::uint64_t>(sent), -1);
    if (sent > 0 && from_offset == nullptr) Advance(from, *use, static_cast<std::uint64_t>(sent));
    return Result(sent);
  }
  if (Emulate(from)) (void)Materialise(from, Conversion::kAttributes);
  return ReadReal(from, [=] { return Next_splice()(from, from_offset, to, to_offset, count, flags); });
}

// ---- advice ----------------------------------------------------------------------------------------------------------------

namespace {

// The cache decides what stays; a wish to have more of a file soon is passed on, once: it is for all of it.
int AdviseOurs(int fd, bool soon) {
  const Using use(fd);
  if (!use || !soon || use->whole || use->advised.exchange(true, std::memory_order_relaxed)) return 0;
  const char* const path = use->path;
  (void)tier_prefetch(nullptr, &path, 1, 0);
  return 0;
}

}  // namespace

TIERD_EXPORT(int, posix_fadvise, int fd, off64_t offset, off64_t length, int advice) {
  if (!Emulate(fd)) return Next_posix_fadvise()(fd, offset, length, advice);
  if (length < 0 || advice < POSIX_FADV_NORMAL || advice > POSIX_FADV_NOREUSE) return EINVAL;
  const tierd::client::KeepErrno keep;
  return AdviseOurs(fd, advice == POSIX_FADV_WILLNEED);
}
TIERD_ALIAS(int, posix_fadvise64, posix_fadvise, int, off64_t, off64_t, int)

TIERD_EXPORT(ssize_t, readahead, int fd, off64_t offset, size_t count) {
  if (!Emulate(fd)) return Next_readahead()(fd, offset, count);
  return AdviseOurs(fd, true);
}
