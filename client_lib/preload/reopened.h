// Names by which the kernel opens a descriptor once more: /proc/self/fd/N, /dev/fd/N. Of one of ours it would find the placeholder, so that descriptor becomes real
// before the name is used; of a copy in memory the copy, so that becomes the file, if it can be had.
#pragma once

#include "client_lib/preload/descriptors.h"
#include "client_lib/preload/memory_copies.h"
#include "client_lib/preload/paths.h"

namespace tierd::preload {

// Whether a path may be such a name, in a few nanoseconds.
inline bool MayReopen(const char* path) {
  return path[0] == '/' && (path[1] == 'p' || path[1] == 'd' || path[1] == '/') && (OpenDescriptions() != 0 || AnyCopies());
}
// Which number that is; -1: none.
int NumberNamed(const char* path);
void RealIfReopened(const char* path);
// The same of a path that may be null.
inline void RealIfNamed(const char* path) {
  if (path != nullptr && MayReopen(path)) [[unlikely]] RealIfReopened(path);
}

// What a name that is opened for reading may mean, in a few nanoseconds.
enum class Name : std::uint8_t {
  kOutside,  // of all sources
  kInside,   // maybe a file of one
  kOther,    // one that needs more than that: of a descriptor, none
};
__attribute__((always_inline)) inline Name NameOf(int directory, const char* path) {
  if (path == nullptr || MayReopen(path)) [[unlikely]] return Name::kOther;
  return MayBeInside(directory, path) ? Name::kInside : Name::kOutside;
}

}  // namespace tierd::preload
