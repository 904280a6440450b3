// Is a path below a source, and which file does it name? Outside is decided in a few nanoseconds and, where it is a guess (working directory, directory descriptors:
// remembered since they were last looked at), a wrong guess only costs the cache: the file itself is opened. Inside is always the kernel's word (HAZARDS 2.14).
// Any thread; errno is left alone.
#pragma once

#include <fcntl.h>

#include "client_lib/preload/links.h"
#include "client_lib/preload/process.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/room.h"
#include "client_lib/src/target.h"

namespace tierd::preload {

// Absolute `path`, by its text alone.
bool BelowPrefixes(const char* path);
bool BelowKnownSources(const char* path);
inline bool BelowRoots(const char* path) { return process.roots.count != 0 ? BelowPrefixes(path) : BelowKnownSources(path); }

// What programs look at before they look at data: the system's own directories.
bool IsSystem(const char* path);

// Hints, for calls that read: they say "outside" of what is remembered to be. Whether a name that begins there may lead below a source; whether the directory itself may be.
bool MayLeadInside(const char* relative);
bool MayLeadInside(int directory, const char* relative);
bool DirectoryMayBeInside(int fd);
void ForgetWorkingDirectory();
void ForgetRemembered(int fd);
// Its number names something else from now on.
inline void ForgetDirectory(int fd) {
  if (!raw::IsPlain(fd)) ForgetRemembered(fd);
}
void ForgetDirectories();

inline bool MayBeInside(int directory, const char* path) {
  if (path[0] == '/') return BelowRoots(path) || MayGoThroughLink(path);
  return directory == AT_FDCWD ? MayLeadInside(path) : MayLeadInside(directory, path);
}

// Of a path for which MayBeInside holds: the canonical absolute one, in `room` or `path` itself; null when it is below no source, or only who follows links can tell ("..").
// A link from outside (links.h) is followed, but not as the last component by a call that means the link itself. `outside`: below no source, for all that is known.
const char* Locate(int directory, const char* path, bool follow, Room& room, bool* outside = nullptr);

// The canonical absolute name; false: only who follows links can tell.
bool AbsoluteName(int directory, const char* path, client::PathText& name);

// What the kernel calls a descriptor, the working directory: absolute, without links; false for what has no path (any more).
bool NameOfDescriptor(int fd, client::PathText& room);
bool NameOfWorkingDirectory(client::PathText& room);

}  // namespace tierd::preload
