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

// The kernel has just given that number out: nothing that was known of it holds.
void ForgetAll(int fd);
inline void NewNumber(int fd) {
  if (fd >= 0 && (!raw::IsPlain(fd) || IsOurs(fd))) [[unlikely]] ForgetAll(fd);
}

// What the exported close does. (By that name this library's own references end in raw system calls, as the core's do.)
int CloseAny(int fd);

// A descriptor of ours for the path, or -1: it is not served.
int OpenOurs(const char* path, int flags);

// True for descriptors that the wrappers emulate. In a vfork child none is: all are real by then.
inline bool Emulate(int fd) { return IsOurs(fd) && vfork_depth == 0; }

}  // namespace tierd::preload
