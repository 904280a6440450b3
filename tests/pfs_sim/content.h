// Bytes of a sample as a function of (seed, path, version, offset).
//
// For: every test that must notice a single wrong byte, wherever it comes from: another file, another
// version, another offset, a torn copy. No file has to be kept to check against; any range can be
// filled or checked by itself, in any order, on any thread.
// Thread rule: pure functions. Depends on the standard library only; used by the rig, by tests and by
// benchmarks alike, so the function is fixed: golden values in content_test.cc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace pfs_sim {

// Names one version of one sample. `path` is relative to the tree's root, without a leading slash.
struct ContentId {
  uint64_t seed = 0;
  std::string_view path;
  uint64_t version = 1;
};

// The finaliser of splitmix64: a bijection of 64-bit words in which each input bit moves about half of
// the output bits.
inline uint64_t MixWord(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// The stream key of a sample: FNV-1a over the path, mixed with seed and version.
inline uint64_t ContentKey(const ContentId& id) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : id.path) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return MixWord(hash ^ MixWord(id.seed + 0x9e3779b97f4a7c15ULL * (id.version + 1)));
}

// Eight bytes of the stream (little endian); word i covers the offsets [8 i, 8 i + 8).
inline uint64_t ContentWord(uint64_t key, uint64_t index) {
  return MixWord(key + (index + 1) * 0x9e3779b97f4a7c15ULL);
}

// Writes the bytes [offset, offset + size) of the stream `key` to `out`.
inline void FillContent(uint64_t key, uint64_t offset, void* out, size_t size) {
  auto* to = static_cast<unsigned char*>(out);
  while (size > 0) {
    const uint64_t word = ContentWord(key, offset / 8);
    const size_t skip = offset % 8;
    if (skip == 0 && size >= 8) {
      std::memcpy(to, &word, 8);
      to += 8, offset += 8, size -= 8;
      continue;
    }
    const size_t part = std::min(size, 8 - skip);
    std::memcpy(to, reinterpret_cast<const unsigned char*>(&word) + skip, part);
    to += part, offset += part, size -= part;
  }
}

// The file offset of the first byte of `data` (which claims to be [offset, offset + size) of the
// stream `key`) that is wrong; nothing when all are right.
inline std::optional<uint64_t> CheckContent(uint64_t key, uint64_t offset, const void* data,
                                            size_t size) {
  const auto* from = static_cast<const unsigned char*>(data);
  while (size > 0) {
    const uint64_t word = ContentWord(key, offset / 8);
    const auto* expected = reinterpret_cast<const unsigned char*>(&word) + offset % 8;
    const size_t part = std::min<size_t>(size, 8 - offset % 8);
    if (std::memcmp(from, expected, part) != 0) {
      size_t at = 0;
      while (from[at] == expected[at]) ++at;
      return offset + at;
    }
    from += part, offset += part, size -= part;
  }
  return std::nullopt;
}

inline void FillContent(const ContentId& id, uint64_t offset, void* out, size_t size) {
  FillContent(ContentKey(id), offset, out, size);
}

inline std::optional<uint64_t> CheckContent(const ContentId& id, uint64_t offset, const void* data,
                                            size_t size) {
  return CheckContent(ContentKey(id), offset, data, size);
}

}  // namespace pfs_sim
