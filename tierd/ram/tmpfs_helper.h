// A file with 2 MiB pages without root: a tmpfs mounted huge=always in a user and mount namespace of a forked child, which hands two descriptors back
// and is gone. The mount lives as long as the descriptors.
#pragma once

#include <cstdint>

#include "tierd/base/status.h"
#include "tierd/base/unique_fd.h"

namespace tierd::ram {

struct TmpfsFile {
  UniqueFd writable;
  // Opened through a read-only bind mount: reopening it writable, truncating and chmod fail with EROFS, which a seal would do on a memfd.
  UniqueFd read_only;
};

// An empty file of `bytes` (not yet allocated). kUnsupported with the failed step where namespaces or the mount option are refused. Blocking; any
// thread; forks, so a large private heap costs copy-on-write faults for the few milliseconds that the child lives, and what the kernel writes to by
// itself (O_DIRECT) must not be in the child (io/aligned_buffer.h).
// `name`: shown in /proc/PID/fd and maps; one path component, no '/'.
Result<TmpfsFile> MakeTmpfsFile(const char* name, std::uint64_t bytes);

}  // namespace tierd::ram
