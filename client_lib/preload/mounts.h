// Where the sources are mounted. What lies on another file system, by another mount, is no source's, whatever its name is: to know that costs one system call, to know its
// name two or three more.
//
// Neither would do alone. A file on an overlay may show the device of a layer below; and a directory that is bound below a root is another mount of the same device, which a
// daemon without openat2 takes for a part of the source. Without mount numbers (Linux before 5.8, or no statx) only directories are told apart.
//
// The roots are looked at once a second, while something is being changed. Any thread, signal handlers too. errno is left alone.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace tierd::preload {

struct Place {
  std::uint64_t device;
  std::uint64_t mount;  // + 1; 0: not known
  mode_t mode;          // the type alone is sure
};

// What a name leads to, links followed; what a descriptor is. As far as this machine knows: no server is asked for attributes. False: there is nothing.
bool PlaceOfName(int directory, const char* path, Place& place);
bool PlaceOfDescriptor(int fd, Place& place);

bool MayBeOnSource(const Place& place);

}  // namespace tierd::preload
