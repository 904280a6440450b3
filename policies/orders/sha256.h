// SHA-256 (FIPS 180-4), for the digest of a list of files in a plan. 200 MB/s: for workers.
//
// A value; one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tierd::orders {

class Sha256 {
 public:
  void Add(std::string_view bytes);
  // Of everything that was added: 64 lower-case hexadecimal digits. Nothing may be added after it.
  std::string Hex();

 private:
  void Digest(const unsigned char* block);

  std::array<std::uint32_t, 8> state_ = {0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au, 0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u};
  std::array<unsigned char, 64> block_{};
  std::size_t filled_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace tierd::orders
