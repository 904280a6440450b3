#include "tierd/base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace tierd {

std::uint32_t Crc32c(const void* data, std::size_t size, std::uint32_t seed) {
  // crc32_iscsi takes an int length and neither inverts its input nor its output.
  constexpr std::size_t kStep = std::size_t{1} << 30;
  auto* bytes = static_cast<unsigned char*>(const_cast<void*>(data));
  std::uint32_t crc = ~seed;
  while (size > 0) {
    const std::size_t n = std::min(size, kStep);
    crc = crc32_iscsi(bytes, static_cast<int>(n), crc);
    bytes += n;
    size -= n;
  }
  return ~crc;
}

std::uint32_t Crc32cCold(const void* data, std::size_t size, std::uint32_t seed) {
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kBlock = 1024;   // long enough for the sum's own pipeline, short enough for the line fill buffers
  constexpr std::size_t kAhead = 2048;
  const auto* bytes = static_cast<const char*>(data);
  std::uint32_t crc = seed;
  for (std::size_t at = 0; at < size; at += kBlock) {
    const std::size_t ahead_end = std::min(size, at + kAhead + kBlock);
    for (std::size_t next = at == 0 ? 0 : at + kAhead; next < ahead_end; next += kLine) __builtin_prefetch(bytes + next);
    crc = Crc32c(bytes + at, std::min(kBlock, size - at), crc);
  }
  return crc;
}

}  // namespace tierd
