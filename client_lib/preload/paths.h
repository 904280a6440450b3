// Is a path below a source, and which file does it name? Outside is decided in a few nanoseconds and, where it is a guess (working directory, directory descriptors:
// remembered since they were last looked at), a wrong guess only costs the cache: the file itself is opened. Inside is always the kernel's word (HAZARDS 2.14).
// Any thread; errno is left alone.
#pragma once

#include <fcntl.h>

#include "client_lib/preload/process.h"
#include "client_lib/preload/room.h"
#include "client_lib/src/target.h"

namespace tierd::preload {

// Absolute `path`, by its text alone.
bool BelowPrefixes(const char* path);
bool BelowKnownSources(const char* path);
inline bool BelowRoots(const char* path) { return process.roots.count != 0 ? BelowPrefixes(path) : BelowKnownSources(path); }

// A hint that never says "outside" for a call that must be right about it: callers that write ask Locate with `sure`.
bool WorkingDirectoryMayBeInside();
bool DirectoryMayBeInside(int fd);
void ForgetWorkingDirectory();
void ForgetDirectory(int fd);  // its number names something else from now on

inline bool MayBeInside(int directory, const char* path) {
  if (path[0] == '/') return BelowRoots(path);
  if (directory == AT_FDCWD) return WorkingDirectoryMayBeInside();
  return DirectoryMayBeInside(directory);
}

// Of a path for which MayBeInside holds: the canonical absolute one, in `room` or `path` itself; null when it is below no source, or only who follows links can tell ("..").
const char* Locate(int directory, const char* path, Room& room);

// What the kernel calls a descriptor: absolute, without links; false for what has no path (any more).
bool NameOfDescriptor(int fd, client::PathText& room);

}  // namespace tierd::preload
