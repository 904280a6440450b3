// A tmpfs that no other process can reach. tierd keeps two directories of it open: one on a
// writable mount, one on a read-only mount. Neither mount is in a mount namespace, so the
// descriptors are the only way in.
//
// A client gets files that were opened through the read-only mount. The kernel refuses to reopen
// them for writing, to truncate them and to change their mode (EROFS), even for the owner of the
// file. A memfd has no such mount: its owner can change its mode and open it for writing
// (docs/hazards.md, 2.8).
//
// A process without privilege may mount only in a user namespace, and only a process that can be
// dumped may write the maps of its user namespace. A process that can be dumped is in the hands of
// every process of its user: what was injected then stays. So two processes share the work. The
// first makes the user namespace while nothing is worth stealing (MakeUserNamespace). The second
// joins that namespace to mount the tmpfs, and was never dumpable (Create).
//
// Owner: main.cc. Thread rule: immutable after construction; MakeFile may be called by any thread.
// It does not: map or seal files.
#pragma once

#include <cstdint>
#include <string>

#include "tierd/base/status.h"
#include "tierd/base/unique_fd.h"

namespace tierd::ram {

// A user namespace that maps our user and group alone, made by a child process. Call it before
// PR_SET_DUMPABLE 0 and before the process has secrets: the child can be dumped. kUnsupported where
// user namespaces are refused. Blocking.
Result<UniqueFd> MakeUserNamespace();

class PrivateTmpfs {
 public:
  struct File {
    UniqueFd writable;   // ours alone
    UniqueFd read_only;  // for clients
  };

  // Mounts one, in the given user namespace, or with our own privileges if there is none (-1).
  // kUnsupported, with the step that failed, where mounts are refused, and where the kernel would
  // show the mount to other processes. Blocking; forks.
  static Result<PrivateTmpfs> Create(int user_namespace);

  // Takes two mounts of one tmpfs that a service manager made for us: "WRITABLE:READ_ONLY", two
  // absolute paths. kInvalid when they are not that.
  static Result<PrivateTmpfs> Adopt(const std::string& directories);

  // An empty file of `bytes`, mode 0400, without a name. It has 2 MiB pages where its mapping asks
  // for them (MADV_HUGEPAGE). `name` is shown in /proc/PID/maps.
  Result<File> MakeFile(const char* name, std::uint64_t bytes) const;

 private:
  PrivateTmpfs(UniqueFd writable, UniqueFd read_only)
      : writable_(std::move(writable)), read_only_(std::move(read_only)) {}

  // Constant after construction.
  UniqueFd writable_;
  UniqueFd read_only_;
};

}  // namespace tierd::ram
