// Which mount a descriptor was opened on. A bind mount from the same file system has the same st_dev, so the mount alone tells that a path has left the
// source's own (HAZARDS 2.14).
//
// Any thread; no state. Only this kernel is asked, never a file server.
#pragma once

#include <cstdint>

namespace tierd::io {

// The mount's number as in /proc/self/mountinfo; 0: it cannot be told. By statx (Linux 5.8), else by MountByFdinfo. Numbers are used again after an unmount, but
// not while a descriptor is open there.
std::uint64_t MountOf(int fd);
// From /proc/self/fdinfo, for older kernels and for filters that refuse statx.
std::uint64_t MountByFdinfo(int fd);
// Whether statx tells it here.
bool StatxTellsMounts();

}  // namespace tierd::io
