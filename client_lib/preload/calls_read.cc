// read, pread, readv, preadv and their kin: from leased memory, to the caller's buffer.
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "client_lib/preload/cached_open.h"
#include "client_lib/preload/calls.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/own_words.h"
#include "client_lib/preload/real_reads.h"

using namespace tierd::preload;

TIERD_NEXT_CALL(ssize_t, read, SYS_read, int, void*, size_t)
TIERD_NEXT_CALL(ssize_t, pread, SYS_pread64, int, void*, size_t, off64_t)
TIERD_NEXT_CALL(ssize_t, readv, SYS_readv, int, const iovec*, int)
TIERD_NEXT_CALL(ssize_t, preadv, SYS_preadv, int, const iovec*, int, off64_t)
TIERD_NEXT_CALL(ssize_t, preadv2, SYS_preadv2, int, const iovec*, int, off64_t, int)
TIERD_NEXT(ssize_t, __read_chk, int, void*, size_t, size_t)
TIERD_NEXT(ssize_t, __pread_chk, int, void*, size_t, off64_t, size_t)

namespace {

enum class Again { kNo, kYes };

// The file as it is by now, in place of the one that was opened.
bool Grow(int fd) { return MaterialiseAsIs(fd, Conversion::kChanged); }

// A read that moves the offset: the copy first, then the word; whoever moved it meanwhile wins, and this copy is made anew (HAZARDS 3).
// kNo with *result: done. kYes: the number is not ours any more.
template <typename Copy>
Again ReadMoving(int fd, ssize_t* result, Copy copy) {
  for (;;) {
    const Using use(fd);
    if (!use) return Again::kYes;
    std::uint64_t word = use->word.load(std::memory_order_acquire);
    if (StateOf(word) != State::kCached) {
      if (AwaitUsable(*use, word)) continue;
      *result = -EBADF;
      return Again::kNo;
    }
    if (MayHaveChanged(*use)) [[unlikely]] {
      if (HasChanged(*use) && Grow(fd)) continue;
    }
    *result = copy(*use, OffsetOf(word));
    if (*result == -ESTALE && Materialise(fd, Conversion::kChanged)) continue;
    if (*result == 0 && HasGrown(*use) && Grow(fd)) continue;
    if (*result <= 0) return Again::kNo;
    const std::uint64_t moved = word + static_cast<std::uint64_t>(*result);
    if (ExchangeOwn(use->word, word, moved)) return Again::kNo;
  }
}

template <typename Copy>
Again ReadAt(int fd, ssize_t* result, std::int64_t offset, Copy copy) {
  const Using use(fd);
  if (!use) return Again::kYes;
  if (MayHaveChanged(*use)) [[unlikely]] {
    if (HasChanged(*use) && Grow(fd)) return Again::kYes;
  }
  *result = offset < 0 ? -EINVAL : copy(*use, static_cast<std::uint64_t>(offset));
  if (*result == -ESTALE && Materialise(fd, Conversion::kChanged)) return Again::kYes;
  return *result == 0 && HasGrown(*use) && Grow(fd) ? Again::kYes : Again::kNo;
}

// All that the parts have room for and one call may move; or -errno, -ESTALE where the kernel is to
// answer.
ssize_t RoomIn(const iovec* parts, int count) {
  if (count < 0 || count > IOV_MAX) return -EINVAL;
  bool for_kernel = false;
  std::size_t room = 0;
  for (int i = 0; i < count; ++i) {
    const std::size_t bytes = parts[i].iov_len;
    if (static_cast<ssize_t>(bytes) < 0) return -EINVAL;
    for_kernel = for_kernel || IsForKernel(bytes);
    room = bytes < kMostBytes - room ? room + bytes : kMostBytes;
  }
  return for_kernel ? -ESTALE : static_cast<ssize_t>(room);
}

// Whether the end lies beyond all offsets: the kernel's EINVAL.
bool EndsNowhere(off64_t offset, size_t count) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(offset) + count) < 0;
}

// The parts one after the other; a short one ends it.
ssize_t CopyParts(Description& d, const iovec* parts, int count, std::uint64_t offset) {
  const ssize_t room = RoomIn(parts, count);
  if (room <= 0) return room;
  if (EndsNowhere(static_cast<off64_t>(offset), static_cast<std::size_t>(room))) return -EINVAL;
  ssize_t done = 0;
  for (int i = 0; i < count && done < room; ++i) {
    const auto left = static_cast<std::size_t>(room - done);
    const std::size_t wanted = parts[i].iov_len < left ? parts[i].iov_len : left;
    if (wanted == 0) continue;
    const ssize_t got = ReadCached(d, parts[i].iov_base, wanted, offset + static_cast<std::uint64_t>(done));
    if (got < 0) return done > 0 && got != -ESTALE ? done : got;
    done += got;
    if (static_cast<std::size_t>(got) < wanted) break;
  }
  return done;
}

ssize_t ReadOurs(int fd, void* buffer, size_t count) {
  CancellationPoint();
  if (IsForKernel(count) && Materialise(fd, Conversion::kReadFlags)) [[unlikely]] return Next_read()(fd, buffer, count);
  ssize_t result;
  const auto copy = [&](Description& d, std::uint64_t offset) { return ReadCached(d, buffer, count, offset); };
  if (ReadMoving(fd, &result, copy) == Again::kYes) return ReadReal(fd, [=] { return Next_read()(fd, buffer, count); });
  return Result(result);
}

ssize_t PreadOurs(int fd, void* buffer, size_t count, off64_t offset) {
  CancellationPoint();
  if (IsForKernel(count) && Materialise(fd, Conversion::kReadFlags)) [[unlikely]] return Next_pread()(fd, buffer, count, offset);
  if (EndsNowhere(offset, count)) [[unlikely]] return Result(ssize_t{-EINVAL});
  ssize_t result;
  const auto copy = [&](Description& d, std::uint64_t at) { return ReadCached(d, buffer, count, at); };
  if (ReadAt(fd, &result, offset, copy) == Again::kYes) return ReadReal(fd, [=] { return Next_pread()(fd, buffer, count, offset); });
  return Result(result);
}

ssize_t ReadvOurs(int fd, const iovec* parts, int count) {
  CancellationPoint();
  ssize_t result;
  const auto copy = [&](Description& d, std::uint64_t offset) { return CopyParts(d, parts, count, offset); };
  if (ReadMoving(fd, &result, copy) == Again::kYes) return ReadReal(fd, [=] { return Next_readv()(fd, parts, count); });
  return Result(result);
}

ssize_t PreadvOurs(int fd, const iovec* parts, int count, off64_t offset) {
  CancellationPoint();
  ssize_t result;
  const auto copy = [&](Description& d, std::uint64_t at) { return CopyParts(d, parts, count, at); };
  if (ReadAt(fd, &result, offset, copy) == Again::kYes) return ReadReal(fd, [=] { return Next_preadv()(fd, parts, count, offset); });
  return Result(result);
}

}  // namespace

TIERD_EXPORT(ssize_t, read, int fd, void* buffer, size_t count) {
  return Emulate(fd) ? ReadOurs(fd, buffer, count) : ReadReal(fd, [=] { return Next_read()(fd, buffer, count); });
}

TIERD_EXPORT(ssize_t, pread, int fd, void* buffer, size_t count, off64_t offset) {
  return Emulate(fd) ? PreadOurs(fd, buffer, count, offset) : ReadReal(fd, [=] { return Next_pread()(fd, buffer, count, offset); });
}
TIERD_ALIAS(ssize_t, pread64, pread, int, void*, size_t, off64_t)

TIERD_EXPORT(ssize_t, readv, int fd, const iovec* parts, int count) {
  return Emulate(fd) ? ReadvOurs(fd, parts, count) : ReadReal(fd, [=] { return Next_readv()(fd, parts, count); });
}

TIERD_EXPORT(ssize_t, preadv, int fd, const iovec* parts, int count, off64_t offset) {
  return Emulate(fd) ? PreadvOurs(fd, parts, count, offset) : ReadReal(fd, [=] { return Next_preadv()(fd, parts, count, offset); });
}
TIERD_ALIAS(ssize_t, preadv64, preadv, int, const iovec*, int, off64_t)

TIERD_EXPORT(ssize_t, preadv2, int fd, const iovec* parts, int count, off64_t offset, int flags) {
  if (!Emulate(fd)) return ReadReal(fd, [=] { return Next_preadv2()(fd, parts, count, offset, flags); });
  // Memory neither waits nor polls: these two change nothing. Others are the kernel's.
  if ((flags & ~(RWF_NOWAIT | RWF_HIPRI)) != 0 && Materialise(fd, Conversion::kReadFlags)) return ReadReal(fd, [=] { return Next_preadv2()(fd, parts, count, offset, flags); });
  return offset == -1 ? ReadvOurs(fd, parts, count) : PreadvOurs(fd, parts, count, offset);
}
TIERD_ALIAS(ssize_t, preadv64v2, preadv2, int, const iovec*, int, off64_t, int)

// What _FORTIFY_SOURCE makes of read and pread; libc's own check ends the process when the buffer is too small.
TIERD_EXPORT(ssize_t, __read_chk, int fd, void* buffer, size_t count, size_t room) {
  return Emulate(fd) && count <= room ? ReadOurs(fd, buffer, count) : ReadReal(fd, [=] { return Next___read_chk()(fd, buffer, count, room); });
}

TIERD_EXPORT(ssize_t, __pread_chk, int fd, void* buffer, size_t count, off64_t offset, size_t room) {
  return Emulate(fd) && count <= room ? PreadOurs(fd, buffer, count, offset) : ReadReal(fd, [=] { return Next___pread_chk()(fd, buffer, count, offset, room); });
}
TIERD_ALIAS(ssize_t, __pread64_chk, __pread_chk, int, void*, size_t, off64_t, size_t)
