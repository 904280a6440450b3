#include "tierd/io/uring_request.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#ifndef RWF_DONTCACHE
#define RWF_DONTCACHE 0x00000080  // Linux 6.14; older headers lack it
#endif

namespace tierd::io {
namespace {

// What one read or write moves at most on Linux, rounded down to what O_DIRECT likes.
constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;
constexpr unsigned kStatMask = STATX_BASIC_STATS;
constexpr unsigned kNameMask = STATX_BASIC_STATS | STATX_MNT_ID;

}  // namespace

bool StatxSlots::Allocate(std::size_t count) {
  memory_ = AlignedBuffer(count * sizeof(StatxPair));
  if (memory_.empty()) return false;
  auto* pairs = reinterpret_cast<StatxPair*>(memory_.data());
  free_.reserve(count);
  for (std::size_t i = count; i-- > 0;) free_.push_back(&pairs[i]);
  return true;
}

StatxPair* StatxSlots::Take() {
  StatxPair* slot = free_.back();
  free_.pop_back();
  return slot;
}

void UringRequest::Start(Kind new_kind) {
  kind = new_kind;
  fd = -1;
  stage = Stage::kOpen;
  direct = dontcache = careful = advised = compensated = false;
  repeats = unanswered = 0;
  error = 0;
  bytes = wanted = 0;
  started_ns = 0;
  counts = StepCounts();
}

void UringRequest::Prepare(UringRing& ring, UringContext& context) {
  switch (kind) {
    case Kind::kReadv: return PrepareStep(ring, context, Step::kReadv, false);
    case Kind::kWritev: return PrepareStep(ring, context, Step::kWritev, false);
    case Kind::kStat: return PrepareStep(ring, context, OpensPlace(context) ? Step::kOpen : Step::kStat, false);
    case Kind::kFileRead: break;
  }
  switch (stage) {
    case Stage::kOpen: return PrepareStep(ring, context, Step::kOpen, false);
    case Stage::kStatBefore: return PrepareStep(ring, context, Step::kStatBefore, false);
    case Stage::kRead: return PrepareStep(ring, context, Step::kRead, false);
    case Stage::kStatAfter: return PrepareStep(ring, context, Step::kStatAfter, false);
    case Stage::kAdvise:
      PrepareStep(ring, context, Step::kAdvise, true);
      return PrepareStep(ring, context, Step::kClose, false);
    case Stage::kClose: return PrepareStep(ring, context, Step::kClose, false);
    case Stage::kEnded: return;
    case Stage::kChain: break;
  }
  // Hard links: a short read, which is the usual end of a file, must not cancel the rest.
  PrepareStep(ring, context, Step::kStatBefore, true);
  PrepareStep(ring, context, Step::kRead, true);
  if (file.rest != nullptr) return PrepareStep(ring, context, Step::kStatAfter, false);
  PrepareStep(ring, context, Step::kStatAfter, true);
  if (file.drop_cache && !direct && !dontcache) PrepareStep(ring, context, Step::kAdvise, true);
  PrepareStep(ring, context, Step::kClose, false);
}

void UringRequest::PrepareStep(UringRing& ring, UringContext& context, Step step, bool linked) {
  io_uring_sqe* sqe = ring.Next();
  switch (step) {
    case Step::kOpen:
      PrepareOpen(sqe);
      break;
    case Step::kStatBefore:
      io_uring_prep_statx(sqe, fd, "", AT_EMPTY_PATH, kStatMask, &slot->before);
      break;
    case Step::kRead:
      PrepareRead(sqe, context);
      break;
    case Step::kStatAfter:
      // In a chain this is when the read was asked for: earlier than the truth, which only shortens what rests on it.
      file_result.stat_sent_ns = PreciseNs();
      io_uring_prep_statx(sqe, fd, "", AT_EMPTY_PATH, kStatMask, &slot->after);
      break;
    case Step::kAdvise:
      // Only what was read: other pieces of the file may be on their way to other readers.
      io_uring_prep_fadvise(sqe, fd, file.offset, static_cast<off_t>(std::max(file.capacity, bytes)), POSIX_FADV_DONTNEED);
      break;
    case Step::kClose:
      io_uring_prep_close(sqe, fd);
      break;
    case Step::kStat:
      if (fd >= 0) {
        io_uring_prep_statx(sqe, fd, "", AT_EMPTY_PATH, kStatMask, &slot->before);
      } else {
        stat_result.stat_sent_ns = PreciseNs();
        io_uring_prep_statx(sqe, stat.root_fd, stat.path.c_str(), kBareNameFlags, kNameMask, &slot->before);
      }
      break;
    case Step::kReadv:
    case Step::kWritev:
      PrepareTransfer(sqe);
      break;
  }
  if (linked) sqe->flags |= IOSQE_IO_HARDLINK;
  sqe->user_data = reinterpret_cast<std::uint64_t>(this) | static_cast<std::uint64_t>(step) << 1;
  ++unanswered;
}

void UringRequest::PrepareOpen(io_uring_sqe* sqe) {
  if (kind == Kind::kStat) {
    // When the name was asked for: what it leads to later is not what is going to be stat'ed.
    stat_result.stat_sent_ns = PreciseNs();
    how = PlaceHow();
    io_uring_prep_openat2(sqe, stat.root_fd, stat.path.c_str(), &how);
  } else {
    how = OpenHow(direct, file.follow_symlinks);
    io_uring_prep_openat2(sqe, file.root_fd, file.path.c_str(), &how);
  }
}

void UringRequest::PrepareRead(io_uring_sqe* sqe, UringContext& context) {
  if (!pieces.empty()) {
    const std::span<iovec> left = SkipBytes(PiecesOf(file, wanted, pieces.data()), bytes);
    io_uring_prep_readv(sqe, fd, left.data(), static_cast<unsigned>(left.size()), file.offset + bytes);
  } else {
    const bool beyond = bytes >= file.capacity && wanted > bytes;
    std::byte* to = beyond ? file.rest->data() + (bytes - file.capacity) : file.buffer + bytes;
    const auto length = static_cast<unsigned>(std::min((beyond ? wanted : file.capacity) - bytes, kMostAtOnce));
    io_uring_prep_read(sqe, fd, to, length, file.offset + bytes);
  }
  dontcache = file.drop_cache && !direct && context.dontcache;
  if (dontcache) sqe->rw_flags = RWF_DONTCACHE;
  // In a chain the size is not known yet: once begun, read-ahead would go on behind the end of a piece, whatever is said later.
  const bool piece = stage == Stage::kRead ? file.offset + wanted < file_result.before.size : file.rest != nullptr;
  AdviseReadAhead(piece && file.drop_cache && !direct && !dontcache);
}

void UringRequest::AdviseReadAhead(bool none) {
  if (none != std::exchange(advised, none)) Advise(fd, none ? ReadAheadAdvice::kNone : ReadAheadAdvice::kNormal);
}

void UringRequest::PrepareTransfer(io_uring_sqe* sqe) {
  const bool one = rest.size() <= 1;
  const bool writing = kind == Kind::kWritev;
  if (one) {
    // Without a vector to copy in. An empty request reads nothing, and learns whether the descriptor is good.
    void* base = rest.empty() ? nullptr : rest.front().iov_base;
    const auto length = static_cast<unsigned>(rest.empty() ? 0 : std::min(rest.front().iov_len, kMostAtOnce));
    if (writing) {
      io_uring_prep_write(sqe, fd, base, length, offset + bytes);
    } else {
      io_uring_prep_read(sqe, fd, base, length, offset + bytes);
    }
  } else if (writing) {
    io_uring_prep_writev(sqe, fd, rest.data(), static_cast<unsigned>(rest.size()), offset + bytes);
  } else {
    io_uring_prep_readv(sqe, fd, rest.data(), static_cast<unsigned>(rest.size()), offset + bytes);
  }
}

bool UringRequest::TakeResult(Step step, long result, UringContext& context) {
  if (context.faults != nullptr && step != Step::kClose) {
    const long changed = context.faults->Outcome(kind == Kind::kStat ? Step::kStat : step, result);
    if (step == Step::kOpen && result >= 0 && changed < 0) ::close(static_cast<int>(result));
    result = changed;
  }
  results[static_cast<std::size_t>(step)] = result;
  return --unanswered == 0;
}

bool UringRequest::Advance(UringContext& context) {
  if (kind == Kind::kStat) return OpensPlace(context) ? AdvancePlace(context) : AdvanceStat(context);
  if (IsTransfer()) return AdvanceTransfer();
  switch (stage) {
    case Stage::kOpen: return AdvanceOpen(context);
    case Stage::kChain: return AdvanceChain(context);
    case Stage::kStatBefore: return AdvanceStatBefore();
    case Stage::kRead: return AdvanceRead(context);
    case Stage::kStatAfter: return AdvanceStatAfter();
    case Stage::kAdvise:
      if (ResultOf(Step::kClose) == -ECANCELED) return Go(Stage::kClose);
      [[fallthrough]];
    case Stage::kClose:
    case Stage::kEnded:
      // Linux frees the number whatever close says; one that was cancelled has said nothing. Nothing was written, so there is little to wait for.
      if (stage == Stage::kClose && ResultOf(Step::kClose) == -ECANCELED) ::close(fd);
      fd = -1;
      file_result.error = error;
      return Go(Stage::kEnded);
  }
  return true;
}

bool UringRequest::WasCancelled() const {
  switch (kind) {
    case Kind::kFileRead: return file_result.error == ECANCELED;
    case Kind::kStat: return stat_result.error == ECANCELED;
    case Kind::kReadv:
    case Kind::kWritev: return io_result.error == ECANCELED;
  }
  return false;
}

bool UringRequest::Go(Stage to) {
  stage = to;
  return to == Stage::kEnded;
}

// The outcome of the request is known; what remains is the descriptor, if it is open.
bool UringRequest::Close(int why) {
  error = why;
  file_result.error = why;
  return Go(fd >= 0 ? Stage::kClose : Stage::kEnded);
}

// Accounts for a read of `n` bytes; true when there is nothing more to read.
bool UringRequest::TookAll(long n) {
  bytes += static_cast<std::size_t>(n);
  file_result.bytes = bytes;
  if (n == 0 || bytes == wanted || file.offset + bytes >= file_result.before.size) return true;
  if (bytes != file.capacity) ++counts.short_continued;
  if (direct && n % static_cast<long>(AlignedBuffer::kAlignment) != 0) {
    direct = false;
    SetReadFlags(fd, false);
  }
  return false;
}

// All that was wanted is there, and both stats.
bool UringRequest::EndRead() {
  file_result.after = ToFileStat(slot->after);
  return Go(file.drop_cache && !direct && !dontcache && bytes > 0 ? Stage::kAdvise : Stage::kClose);
}

// Begins anew: on the descriptor if it is open, else from the open.
bool UringRequest::Reopen() {
  bytes = 0;
  return Go(fd >= 0 ? Stage::kStatBefore : Stage::kOpen);
}

bool UringRequest::Repeat(long result) {
  if (result >= 0 || !IsTransient(static_cast<int>(-result)) || repeats == kMaxRepeats) return false;
  ++repeats;
  ++counts.retried;
  return true;
}

bool UringRequest::AdvanceTransfer() {
  const bool writing = kind == Kind::kWritev;
  const long n = ResultOf(writing ? Step::kWritev : Step::kReadv);
  if (Repeat(n)) return false;
  io_result = {0, bytes};
  if (n < 0) {
    const int why = static_cast<int>(-n);
    if (writing || !IsDirectEnd(why, bytes)) io_result.error = why;
    return true;
  }
  if (n == 0) {
    // A device that takes nothing and gives no reason would be asked for ever.
    if (writing && !rest.empty()) io_result.error = EIO;
    return true;
  }
  bytes += static_cast<std::size_t>(n);
  io_result.bytes = bytes;
  rest = SkipBytes(rest, static_cast<std::size_t>(n));
  if (rest.empty()) return true;
  ++counts.short_continued;
  return false;
}

bool UringRequest::AdvancePlace(const UringContext& context) {
  const long result = ResultOf(Step::kOpen);
  if (result >= 0) {
    fd = static_cast<int>(result);
    stage = Stage::kStatBefore;
    return context.stopping ? AdvanceStat(context) : false;
  }
  if (!context.stopping && Repeat(result)) return false;
  stat_result.error = static_cast<int>(-result);
  return true;
}

bool UringRequest::AdvanceStat(const UringContext& context) {
  const long result = context.stopping ? -ECANCELED : ResultOf(Step::kStat);
  if (Repeat(result)) return false;
  const bool by_name = fd < 0;
  if (!by_name) {
    // Nothing was opened, so that closing it waits for nobody.
    ::close(std::exchange(fd, -1));
    ++counts.system_calls;
  }
  stat_result.error = result < 0 ? static_cast<int>(-result) : 0;
  if (result < 0) return true;
  stat_result.stat = ToFileStat(slot->before);
  if (by_name) stat_result.error = MountError(stat, slot->before);
  return true;
}

bool UringRequest::AdvanceOpen(UringContext& context) {
  const long result = ResultOf(Step::kOpen);
  if (result >= 0) {
    fd = static_cast<int>(result);
    file_result.opened = true;
    if (context.stopping) return Close(ECANCELED);
    counts.system_calls += 2;
    if (IsStream(fd)) return Close(EINVAL);
    SetReadFlags(fd, direct);
    const bool trying = file.drop_cache && !direct && context.dontcache && !context.dontcache_known;
    const bool step_by_step = careful || trying || file.capacity == 0 || MayBeAPiece(context);
    return Go(step_by_step ? Stage::kStatBefore : Stage::kChain);
  }
  if (context.stopping) return Close(ECANCELED);
  if (Repeat(result)) return false;
  if (result == -EINVAL && direct) {
    direct = false;
    file_result.direct_refused = true;
    return false;
  }
  return Close(static_cast<int>(-result));
}

// Whether the read may end inside the file, so that its size must be known before. The smallest chunk is 64 KiB; what has a rest reads on.
bool UringRequest::MayBeAPiece(const UringContext& context) const {
  constexpr std::size_t kSmallestChunk = 64 * 1024;
  return file.rest == nullptr && file.capacity >= kSmallestChunk && file.drop_cache && !direct && !context.dontcache;
}

bool UringRequest::AdvanceChain(UringContext& context) {
  const long before = ResultOf(Step::kStatBefore);
  const long n = ResultOf(Step::kRead);
  const long after = ResultOf(Step::kStatAfter);
  const bool kept_open = file.rest != nullptr;
  if (!kept_open && ResultOf(Step::kClose) != -ECANCELED) fd = -1;
  if (context.stopping) return Close(ECANCELED);

  if ((fd >= 0 && !kept_open) || before == -ECANCELED || n == -ECANCELED || after == -ECANCELED) {
    careful = true;
    if (repeats++ == kMaxRepeats) return Close(ECANCELED);
    return Reopen();
  }
  for (const long result : {before, n, after}) {
    if (Repeat(result)) {
      careful = true;
      return Reopen();
    }
  }
  if (before < 0) return Close(static_cast<int>(-before));
  file_result.before = ToFileStat(slot->before);
  if (!S_ISREG(file_result.before.mode)) return Close(EINVAL);
  if (n == -EINVAL && direct) {
    direct = false;
    file_result.direct_refused = true;
    if (fd >= 0) SetReadFlags(fd, false);
    return Reopen();
  }
  if ((n == -EOPNOTSUPP || n == -EINVAL) && dontcache) {
    context.dontcache = false;
    return Reopen();
  }
  if (n < 0) return Close(static_cast<int>(-n));
  if (after < 0) return Close(static_cast<int>(-after));
  wanted = BytesToRead(file, file_result.before.size, direct);
  if (kept_open) return TookAll(n) ? EndRead() : Go(Stage::kRead);
  bytes = static_cast<std::size_t>(n);
  if (n > 0 && bytes < file.capacity && file.offset + bytes < file_result.before.size) {
    // Short in the middle. The descriptor is gone, and both stats belong to the one that the bytes come from.
    ++counts.short_continued;
    careful = true;
    return Reopen();
  }
  file_result.bytes = bytes;
  file_result.after = ToFileStat(slot->after);
  return Close(0);
}

bool UringRequest::AdvanceStatBefore() {
  const long result = ResultOf(Step::kStatBefore);
  if (Repeat(result)) return false;
  if (result < 0) return Close(static_cast<int>(-result));
  file_result.before = ToFileStat(slot->before);
  if (!S_ISREG(file_result.before.mode)) return Close(EINVAL);
  wanted = BytesToRead(file, file_result.before.size, direct);
  if (file.capacity > 0) return Go(Stage::kRead);
  file_result.after = file_result.before;
  return Close(0);
}

bool UringRequest::AdvanceRead(UringContext& context) {
  const long n = ResultOf(Step::kRead);
  if (context.stopping) return Close(ECANCELED);
  if (Repeat(n)) return false;
  if (n == -EINVAL && direct) {
    direct = false;
    file_result.direct_refused = bytes == 0;
    SetReadFlags(fd, false);
    return false;
  }
  if ((n == -EOPNOTSUPP || n == -EINVAL) && dontcache) {
    context.dontcache = false;
    return false;
  }
  if (n < 0) return Close(static_cast<int>(-n));
  context.dontcache_known = context.dontcache_known || dontcache;
  return TookAll(n) ? Go(Stage::kStatAfter) : false;
}

bool UringRequest::AdvanceStatAfter() {
  const long result = ResultOf(Step::kStatAfter);
  if (Repeat(result)) return false;
  if (result < 0) return Close(static_cast<int>(-result));
  return EndRead();
}

}  // namespace tierd::io
