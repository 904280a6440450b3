#include "tierd/io/file_access.h"

#include <fcntl.h>
#include <linux/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <string_view>

#include "client_lib/abi/time_ns.h"
#include "tierd/base/unique_fd.h"
#include "tierd/io/mount_of.h"

#ifndef RWF_DONTCACHE
#define RWF_DONTCACHE 0x00000080  // Linux 6.14; older headers lack it
#endif

namespace tierd::io {
namespace {

constexpr std::int64_t kNsPerSecond = 1'000'000'000;
constexpr int kOpenFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

// One system call's outcome as -errno or its value, counted and shown to the faults.
long Done(const AccessContext& context, Step step, long value, StepCounts* counts) {
  if (value < 0) value = -errno;
  ++counts->system_calls;
  return context.faults == nullptr ? value : context.faults->Outcome(step, value);
}

// Repeats `call` while its outcome is transient.
template <typename Call>
long Repeat(const AccessContext& context, Step step, StepCounts* counts, Call call) {
  for (unsigned repeats = 0;; ++repeats) {
    const long outcome = Done(context, step, call(), counts);
    if (outcome >= 0 || !IsTransient(static_cast<int>(-outcome)) || repeats == kMaxRepeats) return outcome;
    ++counts->retried;
  }
}

int OpenComponent(int parent, const std::string& name, int flags) {
  const int fd = ::openat(parent, name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC);
  if (fd >= 0 || errno != ENOTDIR) return fd < 0 ? -errno : fd;
  struct stat st {};
  // O_DIRECTORY on a symbolic link says ENOTDIR.
  const bool link = ::fstatat(parent, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
  return link ? -ELOOP : -ENOTDIR;
}

int WalkBeneath(int root_fd, std::string_view path, int flags) {
  UniqueFd parent;
  while (true) {
    const std::size_t slash = path.find('/');
    const std::string name(path.substr(0, slash));
    const bool last = slash == std::string_view::npos;
    if (name == "..") return -EXDEV;
    const int from = parent.valid() ? parent.get() : root_fd;
    const int fd = OpenComponent(from, name.empty() ? "." : name, last ? flags : O_PATH | O_DIRECTORY);
    if (last || fd < 0) return fd;
    parent.Reset(fd);
    path.remove_prefix(slash + 1);
  }
}

std::string NameOfDescriptor(int fd) {
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  std::string name(4096, '\0');
  const ssize_t n = ::readlink(link.c_str(), name.data(), name.size());
  name.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
  return name;
}

// What was opened without openat2: the descriptor, or -EXDEV if it lies on another mount than the root.
int OnMount(std::uint64_t root_mount, int fd) {
  if (fd < 0 || root_mount == 0 || MountOf(fd) == root_mount) return fd;
  ::close(fd);
  return -EXDEV;
}

// 0, or -1 and errno.
int StatBareName(const AccessContext& context, const StatRequest& request, FileStat* out) {
  if (!context.statx_tells_mounts) {  // a filter may refuse statx altogether
    struct stat plain {};
    if (::fstatat(request.root_fd, request.path.c_str(), &plain, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0) return -1;
    *out = ToFileStat(plain);
    return 0;
  }
  struct statx st {};
  if (::statx(request.root_fd, request.path.c_str(), kBareNameFlags, STATX_BASIC_STATS | STATX_MNT_ID, &st) != 0) return -1;
  *out = ToFileStat(st);
  errno = MountError(request, st);
  return errno == 0 ? 0 : -1;
}

// 0, or -1 and errno.
int StatBeneath(const AccessContext& context, const StatRequest& request, FileStat* out) {
  if (!OpensPlaceForStat(request, context.statx_tells_mounts)) return StatBareName(context, request, out);
  open_how how = PlaceHow();
  int fd = 0;
  if (context.has_openat2) {
    fd = static_cast<int>(::syscall(SYS_openat2, request.root_fd, request.path.c_str(), &how, sizeof how));
  } else {
    fd = request.path.front() == '/' ? -EXDEV : OnMount(request.root_mount, WalkBeneath(request.root_fd, request.path, static_cast<int>(how.flags)));
    if (fd < 0) errno = -fd;
  }
  const UniqueFd place(fd);
  struct stat st {};
  if (!place.valid() || ::fstat(place.get(), &st) != 0) return -1;
  *out = ToFileStat(st);
  return 0;
}

// Looks where the path leads before the file itself is opened, so that nothing outside is ever opened.
int OpenFollowing(int root_fd, const std::string& path, int flags) {
  const UniqueFd place(::openat(root_fd, path.c_str(), O_PATH | O_CLOEXEC));
  if (!place.valid()) return -errno;
  std::string root = NameOfDescriptor(root_fd);
  const std::string name = NameOfDescriptor(place.get());
  if (root.empty() || name.empty()) return -EXDEV;
  if (root.back() != '/') root += '/';
  if (name.compare(0, root.size(), root) != 0) return -EXDEV;
  const int fd = ::open(("/proc/self/fd/" + std::to_string(place.get())).c_str(), flags);
  return fd < 0 ? -errno : fd;
}

// A file that is being read, blocking.
class OpenFile {
 public:
  OpenFile(AccessContext& context, const FileReadRequest& request, StepCounts* counts)
      : context_(context), request_(request), counts_(counts), direct_(request.direct) {}

  FileReadResult Read() {
    FileReadResult result;
    result.error = Open();
    result.direct_refused = refused_;
    if (result.error != 0) return result;
    result.opened = true;
    result.error = Stat(Step::kStatBefore, &result.before);
    if (result.error == 0 && !S_ISREG(result.before.mode)) result.error = EINVAL;
    if (result.error == 0 && request_.capacity > 0) result.error = Copy(result.before.size, &result.bytes);
    result.direct_refused = refused_;
    if (result.error == 0 && request_.capacity == 0) {
      result.after = result.before;
    } else if (result.error == 0) {
      result.stat_sent_ns = PreciseNs();
      result.error = Stat(Step::kStatAfter, &result.after);
    }
    if (request_.drop_cache && !direct_ && !dropped_ && result.bytes > 0) {
      // Only what was read: other pieces of the file may be on their way to other readers.
      const auto length = static_cast<off_t>(std::max(request_.capacity, result.bytes));
      Done(context_, Step::kAdvise, ::posix_fadvise(fd_.get(), static_cast<off_t>(request_.offset), length, POSIX_FADV_DONTNEED), counts_);
    }
    ++counts_->system_calls;
    fd_.Reset();
    return result;
  }

 private:
  int Open() {
    for (;;) {
      const long fd = Repeat(context_, Step::kOpen, counts_, [this] {
        fd_.Reset(OpenBeneath(context_, request_, direct_));
        errno = fd_.valid() ? 0 : -fd_.get();
        return static_cast<long>(fd_.get());
      });
      if (fd >= 0) break;
      if (fd != -EINVAL || !direct_) return static_cast<int>(-fd);
      direct_ = false;
      refused_ = true;
    }
    if (IsStream(fd_.get())) return EINVAL;
    SetReadFlags(fd_.get(), direct_);
    counts_->system_calls += 2;
    return 0;
  }

  int Stat(Step step, FileStat* out) {
    struct stat st {};
    const long outcome = Repeat(context_, step, counts_, [this, &st] { return ::fstat(fd_.get(), &st); });
    if (outcome < 0) return static_cast<int>(-outcome);
    *out = ToFileStat(st);
    return 0;
  }

  int Copy(std::uint64_t size, std::size_t* bytes) {
    const std::size_t wanted = BytesToRead(request_, size, direct_);
    piece_ = request_.offset + wanted < size;
    while (*bytes < wanted) {
      const long n = Repeat(context_, Step::kRead, counts_, [&] { return ReadSome(*bytes, wanted); });
      if (n == -EINVAL && direct_) {
        refused_ = *bytes == 0;
        Buffered();
        continue;
      }
      if (n < 0) return static_cast<int>(-n);
      if (n == 0) break;
      *bytes += static_cast<std::size_t>(n);
      // The end as stat knows it: the usual way out, without another call.
      if (request_.offset + *bytes >= size || *bytes == wanted) break;
      ++counts_->short_continued;
      if (direct_ && n % 4096 != 0) Buffered();
    }
    return 0;
  }

  long ReadSome(std::size_t done, std::size_t wanted) {
    std::array<iovec, kMaxPieces> pieces;
    const std::span<iovec> iov = SkipBytes(PiecesOf(request_, wanted, pieces.data()), done);
    const auto count = static_cast<int>(iov.size());
    const auto offset = static_cast<off_t>(request_.offset + done);
    if (request_.drop_cache && !direct_ && context_.dontcache.load(std::memory_order_relaxed)) {
      const ssize_t n = ::preadv2(fd_.get(), iov.data(), count, offset, RWF_DONTCACHE);
      dropped_ = n >= 0;
      // Unknown to the file system, to the kernel, refused by a filter: plain reads and advice instead.
      if (n >= 0 || (errno != EOPNOTSUPP && errno != EINVAL && errno != ENOSYS && errno != EPERM)) return n;
      context_.dontcache.store(false, std::memory_order_relaxed);
    }
    dropped_ = false;
    if (piece_ && request_.drop_cache && !direct_) {
      Advise(fd_.get(), ReadAheadAdvice::kNone);
      ++counts_->system_calls;
      piece_ = false;
    }
    return ::preadv(fd_.get(), iov.data(), count, offset);
  }

  void Buffered() {
    direct_ = false;
    SetReadFlags(fd_.get(), false);
    ++counts_->system_calls;
  }

  AccessContext& context_;
  const FileReadRequest& request_;
  StepCounts* counts_;
  bool direct_;
  bool refused_ = false;  // O_DIRECT
  bool dropped_ = false;  // the last read left nothing in the page cache
  bool piece_ = false;    // the file goes on behind what is wanted; the kernel was not told yet
  UniqueFd fd_;
};

std::int64_t ClockNs(clockid_t clock) {
  timespec ts{};
  ::clock_gettime(clock, &ts);
  return std::int64_t{ts.tv_sec} * kNsPerSecond + ts.tv_nsec;
}

}  // namespace

std::int64_t CoarseNs() { return ClockNs(CLOCK_MONOTONIC_COARSE); }

std::int64_t PreciseNs() { return ClockNs(CLOCK_MONOTONIC); }

FileStat ToFileStat(const struct stat& st) {
  FileStat out;
  out.dev = st.st_dev;
  out.ino = st.st_ino;
  out.size = static_cast<std::uint64_t>(st.st_size);
  out.mtime_ns = abi::TimeNs(st.st_mtim);
  out.ctime_ns = abi::TimeNs(st.st_ctim);
  out.atime_ns = abi::TimeNs(st.st_atim);
  out.mode = st.st_mode;
  out.uid = st.st_uid;
  out.gid = st.st_gid;
  out.nlink = static_cast<std::uint32_t>(st.st_nlink);
  return out;
}

FileStat ToFileStat(const struct statx& st) {
  FileStat out;
  out.dev = ::makedev(st.stx_dev_major, st.stx_dev_minor);
  out.ino = st.stx_ino;
  out.size = st.stx_size;
  out.mtime_ns = abi::TimeNs(st.stx_mtime);
  out.ctime_ns = abi::TimeNs(st.stx_ctime);
  out.atime_ns = abi::TimeNs(st.stx_atime);
  out.mode = st.stx_mode;
  out.uid = st.stx_uid;
  out.gid = st.stx_gid;
  out.nlink = st.stx_nlink;
  return out;
}

open_how OpenHow(bool direct, bool follow_symlinks) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(kOpenFlags | (direct ? O_DIRECT : 0));
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV | (follow_symlinks ? 0 : RESOLVE_NO_SYMLINKS);
  return how;
}

open_how PlaceHow() {
  open_how how = OpenHow(false, false);
  how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
  return how;
}

bool IsBareName(std::string_view path) { return path.find('/') == std::string_view::npos && path != ".."; }

bool OpensPlaceForStat(const StatRequest& request, bool statx_tells_mounts) {
  if (request.path.empty()) return false;  // the root itself
  return !IsBareName(request.path) || (request.root_mount != 0 && !statx_tells_mounts);
}

int MountError(const StatRequest& request, const struct statx& st) {
  const bool compared = request.root_mount != 0 && (st.stx_mask & STATX_MNT_ID) != 0;
  return compared && st.stx_mnt_id != request.root_mount ? EXDEV : 0;
}

void SetReadFlags(int fd, bool direct) { ::fcntl(fd, F_SETFL, direct ? O_DIRECT : 0); }

bool IsStream(int fd) { return ::lseek(fd, 0, SEEK_CUR) < 0 && errno == ESPIPE; }

bool ProbeOpenat2() {
  open_how how{};
  how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  const UniqueFd fd(static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof how)));
  return fd.valid();
}

int OpenBeneath(const AccessContext& context, const FileReadRequest& request, bool direct) {
  open_how how = OpenHow(direct, request.follow_symlinks);
  if (context.has_openat2) {
    const long fd = ::syscall(SYS_openat2, request.root_fd, request.path.c_str(), &how, sizeof how);
    return static_cast<int>(fd < 0 ? -errno : fd);
  }
  if (request.path.empty()) return -ENOENT;
  if (request.path.front() == '/') return -EXDEV;
  const int flags = static_cast<int>(how.flags);
  return OnMount(request.root_mount, request.follow_symlinks ? OpenFollowing(request.root_fd, request.path, flags)
                                                             : WalkBeneath(request.root_fd, request.path, flags));
}

FileReadResult ReadFile(AccessContext& context, const FileReadRequest& request, StepCounts* counts) {
  return OpenFile(context, request, counts).Read();
}

StatResult StatPath(AccessContext& context, const StatRequest& request, StepCounts* counts) {
  StatResult result;
  result.stat_sent_ns = PreciseNs();
  const long outcome = Repeat(context, Step::kStat, counts, [&] {
    if (OpensPlaceForStat(request, context.statx_tells_mounts)) counts->system_calls += 2;
    return StatBeneath(context, request, &result.stat);
  });
  if (outcome < 0) result.error = static_cast<int>(-outcome);
  return result;
}

IoResult Transfer(AccessContext& context, Step step, int fd, std::span<iovec> iov, std::uint64_t offset, StepCounts* counts) {
  IoResult result;
  iov = SkipBytes(iov, 0);
  while (!iov.empty()) {
    const long n = Repeat(context, step, counts, [&] {
      const auto at = static_cast<off_t>(offset + result.bytes);
      const auto vectors = static_cast<int>(iov.size());
      return step == Step::kReadv ? ::preadv(fd, iov.data(), vectors, at) : ::pwritev(fd, iov.data(), vectors, at);
    });
    if (n < 0) {
      const int error = static_cast<int>(-n);
      if (step != Step::kReadv || !IsDirectEnd(error, result.bytes)) result.error = error;
      break;
    }
    if (n == 0) {
      // A device that takes nothing and gives no reason would be asked for ever.
      if (step == Step::kWritev) result.error = EIO;
      break;
    }
    result.bytes += static_cast<std::size_t>(n);
    iov = SkipBytes(iov, static_cast<std::size_t>(n));
    if (!iov.empty()) ++counts->short_continued;
  }
  return result;
}

void Advise(int fd, ReadAheadAdvice advice) {
  ::posix_fadvise(fd, 0, 0, advice == ReadAheadAdvice::kNone ? POSIX_FADV_RANDOM : POSIX_FADV_NORMAL);
}

std::size_t TotalBytes(std::span<const iovec> pieces) {
  std::size_t bytes = 0;
  for (const iovec& piece : pieces) bytes += piece.iov_len;
  return bytes;
}

std::span<iovec> PiecesOf(const FileReadRequest& request, std::size_t wanted, iovec* into) {
  std::size_t count = 0;
  into[count++] = {request.buffer, request.capacity};
  for (const iovec& piece : request.further) into[count++] = piece;
  if (request.rest != nullptr && wanted > request.capacity) into[count++] = {request.rest->data(), wanted - request.capacity};
  return {into, count};
}

std::size_t BytesToRead(const FileReadRequest& request, std::uint64_t size, bool direct) {
  if (!request.further.empty()) return request.capacity + TotalBytes(request.further);
  if (request.rest == nullptr || size <= request.offset || size - request.offset <= request.capacity) return request.capacity;
  const auto beyond = static_cast<std::size_t>(std::min<std::uint64_t>(size - request.offset - request.capacity, request.rest->most()));
  const std::size_t whole = (beyond + AlignedBuffer::kAlignment - 1) / AlignedBuffer::kAlignment * AlignedBuffer::kAlignment;
  const std::size_t bytes = direct ? std::min(whole, request.rest->most()) : beyond;
  return request.rest->Hold(bytes) ? request.capacity + bytes : request.capacity;
}

std::span<iovec> SkipBytes(std::span<iovec> iov, std::size_t bytes) {
  while (!iov.empty() && bytes >= iov.front().iov_len) {
    bytes -= iov.front().iov_len;
    iov = iov.subspan(1);
  }
  if (bytes > 0) {
    iov.front().iov_base = static_cast<std::byte*>(iov.front().iov_base) + bytes;
    iov.front().iov_len -= bytes;
  }
  return iov;
}

}  // namespace tierd::io
