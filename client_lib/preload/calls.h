// What the files of wrappers share: every result of ours goes through Fail or is plain, so that errno is exact and untouched on success.
#pragma once

#include <errno.h>

#include "client_lib/preload/descriptors.h"
#include "client_lib/preload/next.h"
#include "client_lib/preload/process.h"

namespace tierd::preload {

// -errno to -1 and errno.
template <typename Int>
inline Int Result(Int result) {
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
  return -1;
}

// What the exported close does. (By that name this library's own references end in raw system calls, as the core's do.)
int CloseAny(int fd);

// True for descriptors that the wrappers emulate. In a vfork child none is: all are real by then.
inline bool Emulate(int fd) { return IsOurs(fd) && vfork_depth == 0; }

}  // namespace tierd::preload
