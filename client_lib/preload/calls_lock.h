// Locks of fcntl on cached descriptors. Any thread.
#pragma once

#include <fcntl.h>

namespace tierd::preload {

inline bool IsLock(int command) {
  return command == F_SETLK || command == F_SETLKW || command == F_GETLK || command == F_OFD_SETLK || command == F_OFD_SETLKW || command == F_OFD_GETLK;
}
inline bool IsPosixLock(int command) { return command == F_SETLK || command == F_SETLKW; }

// False: the kernel's call on the number itself decides. Else 0 or -errno in *result.
bool LockOurs(int fd, int command, struct flock* lock, int* result);

}  // namespace tierd::preload
