// Writing in a process that may have a limit of file sizes (ulimit -f), which counts for files in memory, too: whoever writes past it is sent SIGXFSZ, which ends a program
// that does not expect it. What this library writes for itself ends nobody. Any thread, signal handlers too; errno is left alone; no cancellation points.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace tierd::client {

// In bytes; none: UINT64_MAX.
std::uint64_t FileSizeLimit();

// As write(2), EINTR retried: the bytes written, fewer where the limit allows no more, or -errno: -EFBIG where it allows none, and no signal.
ssize_t WriteWithinLimit(int fd, const void* data, std::size_t bytes);

}  // namespace tierd::client
