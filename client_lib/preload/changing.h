// How a call that changes something is wrapped: libc makes the change, then the daemon is told before the caller goes on (read-your-writes).
#pragma once

#include <fcntl.h>

#include "client_lib/preload/calls.h"
#include "client_lib/preload/changes.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/memory_copies.h"
#include "client_lib/preload/reopened.h"

namespace tierd::preload {

// After success, and after errors that leave it open whether the change was made.
inline bool Changed(int result) { return result == 0 || errno == EIO || errno == EINTR || errno == ESTALE || errno == ETIMEDOUT; }

template <typename Change>
int ChangeName(int directory, const char* path, Changes what, Change change, bool recursive = false) {
  RealIfNamed(path);
  const ChangedName name(directory, path, what);
  const ChangedFile file(name, directory, path, what);
  const int result = change();
  if (!Changed(result)) return result;
  file.Tell();
  name.Tell(recursive);
  return result;
}

template <typename Change>
int ChangeNumber(int fd, Change change) {
  if (Emulate(fd)) (void)Materialise(fd, Conversion::kAttributes);
  if (const int error = MakeFile(fd); error != 0) return Result(error);
  const ChangedName name(fd);
  const ChangedFile file(name, fd);
  const int result = change();
  if (!Changed(result)) return result;
  file.Tell();
  name.Tell(false);
  return result;
}

// A change of what is at `path`, or of the descriptor itself.
template <typename Change>
int ChangeAt(int directory, const char* path, int flags, Change change) {
  if ((flags & AT_EMPTY_PATH) != 0 && (path == nullptr || path[0] == '\0')) return ChangeNumber(directory, change);
  return ChangeName(directory, path, (flags & AT_SYMLINK_NOFOLLOW) != 0 ? Changes::kEntry : Changes::kTarget, change);
}

}  // namespace tierd::preload
