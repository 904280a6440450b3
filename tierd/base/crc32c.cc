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

}  // namespace tierd
