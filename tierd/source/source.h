// One source: a directory tree on the parallel file system, opened once and held by a descriptor so that everything else
// (reader, walker, resolver) works beneath the same directory whatever its name means later.
//
// Shared (owners: the engine and every worker thread that may hang inside it). Immutable after Open, hence
// safe on any thread. It does not read files and writes nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tierd/base/status.h"
#include "tierd/base/unique_fd.h"
#include "tierd/io/io_engine.h"
#include "tierd/source/fs_type.h"

namespace tierd::source {

class Source {
 public:
  // Opens `root` (absolute). Blocking and possibly for minutes on a hung file system: called on a worker thread.
  // Errors, each one sentence that names the root: kInvalid (not absolute, not a directory, below /proc or /sys),
  // kNotFound, kPermission, kIo.
  static Result<std::shared_ptr<const Source>> Open(const std::string& root);

  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  // As configured, without trailing slashes ("/" stays).
  const std::string& root() const { return root_; }
  // Where the kernel says the root is (symlinks resolved) at the time of Open; differs from root() behind a symlink.
  const std::string& canonical_root() const { return canonical_root_; }
  // O_PATH | O_DIRECTORY descriptor: base of openat2 and statx.
  int root_fd() const { return fd_.get(); }

  // Stat of the root when opened. dev and ino are what clients compare with their own view (HAZARDS 2.14); files with
  // another dev lie on a mount below the root and are outside the source.
  const io::FileStat& root_stat() const { return stat_; }
  // The mount that root_fd() is on: files on another one are outside the source, whatever their dev. 0: this kernel does not tell mounts apart, and the source
  // is only for clients in the daemon's own mount namespace.
  std::uint64_t root_mount() const { return mount_; }
  const FsKind& fs() const { return fs_; }

  // Stands for st_dev in stored versions (HAZARDS 2.13): survives a remount and a reboot, and differs for another root,
  // file system type or file system id: "/mnt/data|nfs4|1f3a9c0000000001" (the last part empty when f_fsid is 0). This is
  // text for a digest; never parsed.
  const std::string& identity() const { return identity_; }

  // Alignment in bytes that O_DIRECT reads of offset, length and memory need; 0: do not use O_DIRECT (not offered by the
  // file system, or unknown). From STATX_DIOALIGN of some file below the root. On network file systems, whose kernels do not tell, it is
  // a page, and the first read finds out whether they take it.
  std::uint32_t direct_alignment() const { return direct_alignment_; }

 private:
  Source() = default;

  // Constant after construction.
  std::string root_;
  std::string canonical_root_;
  UniqueFd fd_;
  io::FileStat stat_;
  std::uint64_t mount_ = 0;
  FsKind fs_;
  std::string identity_;
  std::uint32_t direct_alignment_ = 0;
};

// The part of `path` below `root`, without leading slashes: "" for the root itself. Lexical: "/a/bc" is not below "/a/b".
// Returns false if it is not below.
bool RelativeTo(std::string_view root, std::string_view path, std::string_view* relative);

// statx of `fd` or, with a non-empty path, of `path` relative to it. Blocking; mounts nothing. Returns 0 or errno.
int StatAt(int fd, const char* path, bool follow_symlinks, io::FileStat* out);
// The same of `name` in the directory `fd`, links not followed, with the mount that it lies on; 0: not told.
int StatEntry(int fd, const char* name, io::FileStat* out, std::uint64_t* mount);

}  // namespace tierd::source
