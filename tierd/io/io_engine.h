// Asynchronous file I/O behind one interface with two implementations: io_uring and a thread pool. Which one
// serves a device or a source is decided by its user at run time (by measurement); both pass the same tests.
//
// Owner: the object that does the I/O (SsdTier, SourceReader); the SSD and each source have engines of their own, so that
// a hung source drains nobody else's slots. Thread rule: everything here is called on the loop thread only; completions run
// on the loop thread, inside Poll(), never inside Submit*().
// It does not: retry policies, deadlines, budgets, queueing by priority (its users do).
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tierd/base/status.h"
#include "tierd/io/buffer_pool.h"

namespace tierd::io {

// What identifies the bytes of a file at one moment, plus what stat(2) must show. Times in ns since the epoch.
struct FileStat {
  std::uint64_t dev = 0;
  std::uint64_t ino = 0;
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;
  std::int64_t atime_ns = 0;  // no part of a version
  std::uint32_t mode = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t nlink = 0;
  bool SameVersion(const FileStat& o) const {
    return dev == o.dev && ino == o.ino && size == o.size && mtime_ns == o.mtime_ns && ctime_ns == o.ctime_ns;
  }
};

// Outcome of a byte transfer. `error` is 0 or a positive errno; `bytes` counts what was moved before it. Short transfers are
// continued inside the engine; bytes < wanted with error 0 means end of file.
struct IoResult {
  int error = 0;
  std::size_t bytes = 0;
};

// Of all `pieces` together.
std::size_t TotalBytes(std::span<const iovec> pieces);

// Open + fstat + read + fstat + close of one regular file, as one request.
struct FileReadRequest {
  int root_fd = -1;           // directory below which the path must stay
  std::string path;           // relative to root_fd, no leading '/'; a mount on the way is EXDEV
  std::uint64_t offset = 0;   // first byte
  std::byte* buffer = nullptr;  // lives until the completion ran, whatever the caller gave up in between
  // Bytes to read at most, without what follows. 0: the file is opened and closed, to see that it may be: `after` is then
  // `before`, and stat_sent_ns is not set.
  std::size_t capacity = 0;
  // Where the bytes behind `capacity` go, one piece after the other: neighbouring pieces of a file are one request. Not with `rest`; live as long as `buffer`.
  std::vector<iovec> further;
  static constexpr std::size_t kMaxFurther = 63;
  // What the file turns out to have beyond `capacity`, at most rest->most(), is read through the same descriptor into memory that
  // the engine takes from it; the count of bytes then includes them. No room: the read ends at the capacity. Owners: the request
  // and who made it, who leaves it alone until the completion ran. May be null.
  std::shared_ptr<RestBuffer> rest;
  bool direct = false;        // O_DIRECT: buffer, offset and capacity are aligned by the caller; EINVAL falls back to buffered
  bool drop_cache = true;     // POSIX_FADV_DONTNEED after a buffered read: never hold the data twice
  std::uint64_t root_mount = 0;  // MountOf(root_fd): what lies on another mount is EXDEV; 0: openat2 alone sees to that
  bool follow_symlinks = false;  // false: RESOLVE_NO_SYMLINKS; true: symlinks that stay beneath the root (RESOLVE_BENEATH)
};
struct FileReadResult {
  int error = 0;              // 0 or errno of the step that failed; EINVAL for a non-regular file
  std::size_t bytes = 0;
  FileStat before;            // fstat before the first byte; valid when opened
  FileStat after;             // fstat after the last byte, same descriptor; valid when error == 0
  std::int64_t stat_sent_ns = 0;  // CLOCK_MONOTONIC when `after` was asked for (HAZARDS 2.11)
  bool opened = false;
  bool direct_refused = false;  // O_DIRECT was asked for, and the file system said EINVAL
};

struct StatRequest {
  int root_fd = -1;
  std::string path;           // "" stats root_fd itself; a symbolic link on the way is refused (ELOOP), one at the end stats itself
  std::uint64_t root_mount = 0;  // as in FileReadRequest
};
struct StatResult {
  int error = 0;
  FileStat stat;
  std::int64_t stat_sent_ns = 0;
};

using IoCallback = std::function<void(IoResult)>;
using FileReadCallback = std::function<void(const FileReadResult&)>;
using StatCallback = std::function<void(const StatResult&)>;

struct EngineCounters {
  std::uint64_t submitted = 0;     // requests accepted
  std::uint64_t completed = 0;     // completions delivered
  std::uint64_t system_calls = 0;  // io_uring_enter or, in the pool, file system calls
  std::uint64_t short_continued = 0;  // transfers resumed after a short count
  std::uint64_t retried = 0;       // EINTR / EAGAIN repeated
};

class IoEngine {
 public:
  virtual ~IoEngine() = default;

  // "io_uring" or "threads", whoever does the work now: a metric label. io_uring becomes threads for good where the kernel has no workers for it (kNoWorkers).
  virtual const char* name() const = 0;
  // Readable (eventfd) when completions wait for Poll(). Constant for the engine's life.
  virtual int event_fd() const = 0;

  // Whole-request file access; used for sources.
  virtual void SubmitFileRead(FileReadRequest request, FileReadCallback done) = 0;
  virtual void SubmitStat(StatRequest request, StatCallback done) = 0;

  // Transfers on an open descriptor; used for the SSD and for large files. iovecs are copied; their memory lives until the completion.
  // At most kMaxIov vectors. Offsets and lengths of O_DIRECT descriptors are aligned by the caller.
  virtual void SubmitReadv(int fd, std::span<const iovec> iov, std::uint64_t offset, IoCallback done) = 0;
  virtual void SubmitWritev(int fd, std::span<const iovec> iov, std::uint64_t offset, IoCallback done) = 0;

  // Makes everything submitted so far known to the kernel or the workers. Called once per loop turn.
  virtual void Flush() = 0;
  // Runs the completions that are there, at most `budget` of them; returns how many ran. Clears event_fd when none is left.
  virtual std::size_t Poll(std::size_t budget) = 0;
  // Blocks up to timeout_ms for a completion, then polls; for tests, start-up scans and stopping.
  virtual std::size_t Wait(int timeout_ms, std::size_t budget) = 0;

  // Requests accepted and not yet completed.
  virtual std::size_t in_flight() const = 0;
  // Requests that have been with the kernel or a worker for longer than `age_ns` (candidates for "hung"); those that still wait
  // in the engine are not counted.
  virtual std::size_t OlderThan(std::int64_t age_ns) const = 0;
  // Tells the engine that `count` more of its requests hang (the oldest that were not reported yet), so that it adds that many
  // replacements of its workers, together at most max_replacements: a stuck request must not take a slot that others need.
  // A replacement leaves when the request it stands for completes after all.
  virtual void CompensateHung(std::size_t count) = 0;
  virtual EngineCounters counters() const = 0;

  static constexpr std::size_t kMaxIov = 8;
};

class EngineFaults;

struct EngineOptions {
  // Requests in the kernel or with a worker at a time; more wait inside the engine in FIFO order. Range 1..4096.
  unsigned depth = 256;
  // Requests that may each occupy a thread. Thread pool: workers, started when needed. io_uring: file reads and stats in the
  // kernel at a time, and what this engine adds to the io-wq workers of its thread (IORING_REGISTER_IOWQ_MAX_WORKERS; the kernel
  // shares them among the rings of a thread). Raising it costs a kernel thread each. Range 1..512.
  unsigned workers = 64;
  // Extra workers that may replace hung ones. Range 0..512.
  unsigned max_replacements = 64;
  // Tests only; outlives every request, abandoned ones included.
  EngineFaults* faults = nullptr;
};

enum class EngineKind : std::uint8_t { kUring, kThreads };

// Why an io_uring engine has become one of threads. Requests end with EAGAIN, at once, while there are no threads either.
inline constexpr const char* kNoWorkers = "the kernel starts no workers for io_uring: ulimit -u, or the pids limit of a cgroup";

// Builds an engine for the calling thread (a ring belongs to the thread that made it). kUring fails with kUnsupported (naming the reason: ENOSYS, EPERM by seccomp, missing operation) where io_uring cannot be
// used; the caller then takes kThreads, which works everywhere.
// Destruction waits for nothing that hangs: requests still in flight are abandoned, their workers detached (or the ring closed) together with
// the memory the engine itself owns; callers' buffers must outlive the *process* in that case, so callers stop cleanly first where they can.
Result<std::unique_ptr<IoEngine>> MakeEngine(EngineKind kind, const EngineOptions& options);

}  // namespace tierd::io
