// What both engines share: how a file is opened beneath its root, what a stat becomes, when an outcome is repeated. And the
// blocking form of a whole request, which the thread pool runs.
//
// Functions without state of their own; any thread. They do not queue and do not complete anything.
#pragma once

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "tierd/io/engine_faults.h"
#include "tierd/io/io_engine.h"

struct statx;

namespace tierd::io {

// Of a stat by name that opens nothing: as stat(2) it mounts nothing that is mounted at first use.
inline constexpr int kBareNameFlags = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;

// EINTR, EAGAIN and their like are repeated this often within one request; then they are its error.
inline constexpr unsigned kMaxRepeats = 64;
inline constexpr bool IsTransient(int error) { return error == EINTR || error == EAGAIN; }

// CLOCK_MONOTONIC_COARSE in ns.
std::int64_t CoarseNs();
// CLOCK_MONOTONIC in ns. When something was asked of the source: an answer that was asked for after something was said to have changed is told from one of before, also
// within a tick of the coarse clock.
std::int64_t PreciseNs();

FileStat ToFileStat(const struct stat& st);
FileStat ToFileStat(const struct statx& st);

// Read-only, beneath the root and on its mount, without waiting for the writer of a FIFO.
open_how OpenHow(bool direct, bool follow_symlinks);
// The place itself, which is neither opened nor followed if it is a link.
open_how PlaceHow();
// There is no way to it on which a link could stand: it is asked for without opening its place first, where statx tells the mount.
bool IsBareName(std::string_view path);
bool OpensPlaceForStat(const StatRequest& request, bool statx_tells_mounts);
// EXDEV if the answer is of another mount than the request's root, else 0.
int MountError(const StatRequest& request, const struct statx& st);
// Clears O_NONBLOCK (which some file systems apply to regular files whose data is on tape) and, unless `direct`, O_DIRECT.
void SetReadFlags(int fd, bool direct);
// A pipe, FIFO or socket: reading it would take bytes away from its owner. Never blocks, unlike fstat on a network
// file system. Devices and directories are told by the stat that follows.
bool IsStream(int fd);

// Steps done and repeated by one request, added to EngineCounters when it completes.
struct StepCounts {
  std::uint32_t system_calls = 0;
  std::uint32_t short_continued = 0;
  std::uint32_t retried = 0;
};

// What a worker needs besides the request; shared by all workers of an engine.
struct AccessContext {
  // Constant after construction.
  EngineFaults* faults = nullptr;
  bool has_openat2 = true;
  bool statx_tells_mounts = true;
  // Learned: RWF_DONTCACHE is taken by this kernel and file system.
  std::atomic<bool> dontcache{true};
};

// Whether openat2(2) exists and is allowed here; where not, paths are walked component by component.
bool ProbeOpenat2();

// Descriptor or -errno. Follows OpenHow; without openat2 the same answers are found by walking (".." is refused with EXDEV there).
int OpenBeneath(const AccessContext& context, const FileReadRequest& request, bool direct);

// The whole request, blocking. All steps of a stat are one kStat for the faults.
FileReadResult ReadFile(AccessContext& context, const FileReadRequest& request, StepCounts* counts);
StatResult StatPath(AccessContext& context, const StatRequest& request, StepCounts* counts);
// All of `iov`, resuming after short counts; changes `iov`.
IoResult Transfer(AccessContext& context, Step step, int fd, std::span<iovec> iov, std::uint64_t offset, StepCounts* counts);

// Bytes to read of a file that has `size`: up to the capacity and the further pieces, or beyond the capacity what the request's rest has taken room for now.
std::size_t BytesToRead(const FileReadRequest& request, std::uint64_t size, bool direct);
// Where they go: the buffer, the further pieces, the rest (if bytes go there). `into` has kMaxPieces entries; the first are filled and returned.
inline constexpr std::size_t kMaxPieces = FileReadRequest::kMaxFurther + 2;
std::span<iovec> PiecesOf(const FileReadRequest& request, std::size_t wanted, iovec* into);
// Whether the kernel reads beyond what is asked for. Not for a piece of a file: whoever wants the next piece would read it again.
enum class ReadAheadAdvice : std::uint8_t { kNormal, kNone };
void Advise(int fd, ReadAheadAdvice advice);
// Drops the first `bytes` of `iov` and returns what is left.
std::span<iovec> SkipBytes(std::span<iovec> iov, std::size_t bytes);
// A transfer with O_DIRECT that was resumed at a place that is no multiple of the sector had reached the end of the file.
inline constexpr bool IsDirectEnd(int error, std::size_t bytes_before) { return error == EINVAL && bytes_before % 512 != 0; }

}  // namespace tierd::io
