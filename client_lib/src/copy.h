// Copying out of the cache, chosen by size: a plain memcpy into small or reused destinations; streaming stores, which do not read the
// destination first and do not push everything else out of the cache, where the destination is larger than the caches. Any thread.
#pragma once

#include <cstddef>
#include <cstring>

namespace tierd::client {

// A read into a destination at least that large is streamed (measured: bench/hit_path --copy).
inline constexpr std::size_t kStreamFrom = std::size_t{8} << 20;

// Source and destination do not overlap.
void CopyStreaming(void* to, const void* from, std::size_t bytes);

// `call_bytes`: all that the application's call copies; this is a part of it.
inline void CopyOut(void* to, const void* from, std::size_t bytes, std::size_t call_bytes) {
  if (call_bytes >= kStreamFrom) CopyStreaming(to, from, bytes);
  else std::memcpy(to, from, bytes);
}

}  // namespace tierd::client
