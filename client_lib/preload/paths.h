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

namespace paths_detail {

inline constexpr int kDirectories = 1024;
inline constexpr std::uint64_t kOutside = std::uint64_t{1} << 62;
extern std::atomic<std::uint64_t> working_directory, directories[kDirectories];  // what is remembered of them (paths.cc)
bool MayLeadFromHere(const char* relative);
bool MayLeadFrom(int directory, const char* relative);

// strncmp without the call, which is an indirect one: to guess where these lead is what a processor forgets at system calls. Eight bytes at a time, and up to seven behind the path's end, but
// never into another page; the root is longer.
__attribute__((always_inline)) inline bool BeginsWith(const char* path, const char* root, std::uint32_t bytes) {
  std::uint32_t at = 0;
  for (; at + 8 <= bytes && reinterpret_cast<std::uintptr_t>(path + at) % 4096 <= 4096 - 8; at += 8) {
    std::uint64_t ours, theirs;
    __builtin_memcpy(&ours, root + at, 8);
    __builtin_memcpy(&theirs, path + at, 8);
    if (ours != theirs) return false;
  }
  while (at < bytes && path[at] == root[at]) ++at;
  return at == bytes;
}

__attribute__((always_inline)) inline bool BelowPrefixesHere(const char* path) {
  for (std::size_t i = 0; i < process.roots.count; ++i) {
    const std::uint32_t bytes = process.roots.bytes[i];
    if (BeginsWith(path, process.roots.text[i], bytes) && (path[bytes] == '/' || path[bytes] == '\0')) return true;
  }
  return false;
}

}  // namespace paths_detail

// Absolute `path`, by its text alone.
bool BelowPrefixes(const char* path);
bool BelowKnownSources(const char* path);
inline bool BelowRoots(const char* path) { return process.roots.count != 0 ? BelowPrefixes(path) : BelowKnownSources(path); }

// What programs look at before they look at data: the system's own directories.
bool IsSystem(const char* path);

// Hints, for calls that read: they say "outside" of what is remembered to be. Whether a name that begins there may lead below a source; whether the directory itself may be.
inline bool MayLeadInside(const char* relative) {
  using namespace paths_detail;
  return working_directory.load(std::memory_order_relaxed) != kOutside && MayLeadFromHere(relative);
}
inline bool MayLeadInside(int directory, const char* relative) {
  using namespace paths_detail;
  return (static_cast<unsigned>(directory) >= kDirectories || directories[directory].load(std::memory_order_relaxed) != kOutside) && MayLeadFrom(directory, relative);
}
bool DirectoryMayBeInside(int fd);
void ForgetWorkingDirectory();
void ForgetRemembered(int fd);
// Its number names something else from now on.
inline void ForgetDirectory(int fd) {
  if (!raw::IsPlain(fd)) ForgetRemembered(fd);
}
void ForgetDirectories();

// Of most names it takes no call to say that they lead outside.
__attribute__((always_inline)) inline bool MayBeInside(int directory, const char* path) {
  if (path[0] != '/') return directory == AT_FDCWD ? MayLeadInside(path) : MayLeadInside(directory, path);
  return (process.roots.count != 0 ? paths_detail::BelowPrefixesHere(path) : BelowKnownSources(path)) || MayGoThroughLink(path);
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
