// Opens a path beneath a directory so that it cannot lead elsewhere: no symbolic links, no "..", no other mount. The
// walker's and the resolver's only way to a file. Blocking functions without state; worker threads only.
#pragma once

#include <string>

#include "tierd/base/unique_fd.h"

namespace tierd::source {

struct OpenedFile {
  UniqueFd fd;
  int error = 0;  // errno; EXDEV: the path leaves the root or its mount; ELOOP: a symbolic link on the way
};

// `path` is relative to root_fd; "" is the root. `flags` as for open(2); O_CLOEXEC is added. Uses openat2(2), or walks component by
// component where the kernel or a seccomp filter refuses that call.
OpenedFile OpenBeneath(int root_fd, const std::string& path, int flags);

// As OpenBeneath, but symbolic links are followed as long as they stay beneath the root (EXDEV otherwise, also for every
// absolute link); ENOSYS without openat2.
OpenedFile OpenBeneathFollowing(int root_fd, const std::string& path, int flags);

}  // namespace tierd::source
