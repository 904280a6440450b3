// Copying out of the cache. Any thread.
#pragma once

#include <cstddef>
#include <cstring>

namespace tierd::client {

// From here on the source is asked for ahead of the copy: 1.06x (110 KB) to 1.2x (128 MiB) of memcpy, which waits for memory at each page;
// below, memcpy is faster (bench/hit_path --copy).
inline constexpr std::size_t kCopyAheadFrom = std::size_t{32} << 10;

// Source and destination do not overlap.
void CopyAhead(void* to, const void* from, std::size_t bytes);

inline void CopyOut(void* to, const void* from, std::size_t bytes) {
  if (bytes >= kCopyAheadFrom) CopyAhead(to, from, bytes);
  else std::memcpy(to, from, bytes);
}

}  // namespace tierd::client
