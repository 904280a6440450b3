// Whether this process may use io_uring: a container, a seccomp filter or kernel.io_uring_disabled may refuse it.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace tierd {

// An invalid argument is seen only where the call is allowed.
inline bool IoUringIsAllowed() { return ::syscall(SYS_io_uring_setup, 0, nullptr) < 0 && (errno == EINVAL || errno == EFAULT); }

}  // namespace tierd
