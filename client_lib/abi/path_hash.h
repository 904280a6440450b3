// The keyed path hash, in one place for both sides: XXH3 128 bits with the secret that the index header carries
// (derived from the key in the SSD superblock, so that records found at a restart hash alike). Header-only.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdint>
#include <cstring>

#include "client_lib/abi/layout.h"

namespace tierd::abi {

// Paths of sources are at most PATH_MAX bytes.
inline constexpr std::size_t kMaxPathBytes = 4096;

// 192-byte secret from the 32-byte key of a superblock. Deterministic.
inline void DeriveHashSecret(const std::uint8_t key[32], std::uint8_t secret[kHashSecretBytes]) {
  XXH3_generateSecret(secret, kHashSecretBytes, key, 32);
}

// Key of `relative` (canonical, below the root of source `source_id`, no leading '/'; "" is the root itself).
inline FileKey HashPath(const std::uint8_t secret[kHashSecretBytes], std::uint32_t source_id, const char* relative, std::size_t bytes) {
  // The source enters through the secret-keyed digest of the path by one more mixing step: no copy of the path is made.
  const XXH128_hash_t h = XXH3_128bits_withSecret(relative, bytes, secret, kHashSecretBytes);
  const std::uint64_t s = (std::uint64_t{source_id} + 1) * 0x9e3779b97f4a7c15ull;
  FileKey key{Mix64(h.low64 ^ s), Mix64(h.high64 + s)};
  if (key.lo == 0 && key.hi == 0) key.lo = 1;  // 0,0 marks an empty slot in tools that print tables
  return key;
}

}  // namespace tierd::abi
