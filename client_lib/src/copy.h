// Copying out of the cache. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tierd::client {

// From here on a copy is made by CopyLarge; below, memcpy is as fast (bench/hit_path --copy).
inline constexpr std::size_t kCopyLargeFrom = std::size_t{2} << 10;
// From here on `rep movsb` is used where it is at least as fast as memcpy. It is inlined: the copy itself gains nothing by that, but a call of memcpy is so much to look through that a
// processor does not get from a hit to the text of the next path while the bytes are on their way (A2).
inline constexpr std::size_t kStringFrom = std::size_t{4} << 10;
// A call that wants so much writes beyond the caches, whatever the pieces are that it is copied in.
inline constexpr std::size_t kStreamFrom = std::size_t{32} << 20;

// Of the ways below the one that is fastest on this processor for a piece of a call that wants `call_bytes`. Source and destination do not overlap, here and below.
void CopyLarge(void* to, const void* from, std::size_t bytes, std::size_t call_bytes);

// Several parts of the source at a time, in stores of 32 bytes. On EPYC of the fourth generation 1.0x to 1.3x of memcpy, and up to 512 KiB 1.3x to 2.7x where the
// destination lies as malloc lays a large block, 16 bytes behind the begin of a page: there memcpy's own `rep movsb` is half as fast as elsewhere. Needs AVX2.
void CopySideBySide(void* to, const void* from, std::size_t bytes);
// `rep movsb`: on EPYC of the fifth generation 1.0x to 1.5x of memcpy. It is also how Linux copies out of the page cache on a processor that calls it fast.
inline void CopyByString(void* to, const void* from, std::size_t bytes) {
#if !defined(__x86_64__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  std::memcpy(to, from, bytes);  // seen by the sanitizer
#else
  __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
#endif
}
// Stores around the caches: into 128 MiB 1.2x of the above on the fourth generation, 1.4x on the fifth, unless both lie alike in their cache lines, which malloc
// does not see to. None of the three was measured on Intel: there it is Linux's choice that is followed.
void CopyStreaming(void* to, const void* from, std::size_t bytes);

// What cpuid says. kString: short strings are fast (FSRM), and it is not an AMD older than the fifth generation (family 26), which says so, too. Else kSideBySide
// where there is AVX2, and kMemcpy where nothing is known.
enum class CopyWay : std::uint8_t { kMemcpy = 0, kSideBySide, kString };
CopyWay BestCopyWay();
// The same, found once. Until the library is initialized every copy is memcpy's: slower, and right.
extern const CopyWay copy_way;

inline void CopyOut(void* to, const void* from, std::size_t bytes, std::size_t call_bytes) {
  if (bytes >= kStringFrom && call_bytes < kStreamFrom && copy_way == CopyWay::kString) CopyByString(to, from, bytes);
  else if (bytes >= kCopyLargeFrom) CopyLarge(to, from, bytes, call_bytes);
  else std::memcpy(to, from, bytes);
}

}  // namespace tierd::client
