// Copying out of the cache. Any thread.
#pragma once

#include <cstddef>
#include <cstring>

namespace tierd::client {

// From here on a copy is made by CopyLarge; below, memcpy is as fast or faster (bench/hit_path --copy).
inline constexpr std::size_t kCopyLargeFrom = std::size_t{32} << 10;
// A call that wants so much writes beyond the caches, whatever the pieces are that it is copied in.
inline constexpr std::size_t kStreamFrom = std::size_t{32} << 20;

// Of the ways below the one that is fastest on this processor for a piece of a call that wants `call_bytes`. Source and destination do not overlap, here and below.
void CopyLarge(void* to, const void* from, std::size_t bytes, std::size_t call_bytes);

// Asks for the source ahead of the copy: 1.06x (110 KB) to 1.2x (128 MiB) of memcpy, which waits for memory at each page, on an older EPYC;
// the others were no faster there into large destinations, and half as fast into reused ones.
void CopyAhead(void* to, const void* from, std::size_t bytes);
// `rep movsb`: on EPYC of the fifth generation 1.3x (110 KB) to 1.6x (1 MiB) of CopyAhead, and 1.0x to 1.5x of memcpy. It is also how Linux copies out of the
// page cache on a processor that calls it fast.
void CopyByString(void* to, const void* from, std::size_t bytes);
// Stores around the caches: on that processor 1.4x of `rep movsb` into 128 MiB, unless both lie alike in their cache lines, which malloc does not see to.
// Neither was measured on Intel: there it is Linux's choice that is followed.
void CopyStreaming(void* to, const void* from, std::size_t bytes);
// What the processor says (cpuid): short strings are fast (FSRM), and it is not an AMD older than the fifth generation (family 26), which says so, too.
bool StringsAreFast();

inline void CopyOut(void* to, const void* from, std::size_t bytes, std::size_t call_bytes) {
  if (bytes >= kCopyLargeFrom) CopyLarge(to, from, bytes, call_bytes);
  else std::memcpy(to, from, bytes);
}

}  // namespace tierd::client
