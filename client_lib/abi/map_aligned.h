// Mapping a shared file on a 2 MiB boundary, as both the daemon and its clients must where huge pages are to be used: address and offset have to agree modulo 2 MiB.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace tierd::abi {

inline constexpr std::uintptr_t kHugePageBytes = std::uintptr_t{2} << 20;

// As mmap of the file's first `bytes`; MAP_FAILED and errno as there. Any thread. Where other threads map things just then, the boundary may be missed: pages are small then.
//
// The room is given back before it is used, and taken only while it is free. To map over a room of our own (MAP_FIXED) is no alternative in a process with threads: Linux may have removed the room
// when it refuses the mapping (measured on 6.18: ENOMEM of a hugetlb file), another thread's stack lands in the hole, and no later munmap can tell it from the room.
inline void* MapAligned(int fd, std::size_t bytes, int protection) {
  constexpr int kTries = 8;
  for (int i = 0; i < kTries; ++i) {
    void* const room = ::mmap(nullptr, bytes + kHugePageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) break;
    ::munmap(room, bytes + kHugePageBytes);
    const std::uintptr_t place = (reinterpret_cast<std::uintptr_t>(room) + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
    // Before 4.17 the place is a hint.
    void* const data = ::mmap(reinterpret_cast<void*>(place), bytes, protection, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);  // NOLINT(performance-no-int-to-ptr)
    if (data != MAP_FAILED || errno != EEXIST) return data;
  }
  return ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
}

}  // namespace tierd::abi
