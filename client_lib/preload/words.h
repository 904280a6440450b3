// Text, eight bytes at a time: a branch for each letter of a path is what costs in calls that a processor meets with nothing remembered of branches.
// Little-endian. Any thread.
#pragma once

#include <cstdint>

namespace tierd::preload {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

constexpr std::uint64_t Each(char letter) { return std::uint64_t{0x0101010101010101} * static_cast<unsigned char>(letter); }

// The top bit of each byte that is 0; of those behind the first such also where there is a 1.
constexpr std::uint64_t ZeroBytes(std::uint64_t word) { return (word - Each(1)) & ~word & Each('\x80'); }

// The text from `at` on. What is behind its end is anything; another page is not touched for it.
inline std::uint64_t WordAt(const char* at) {
  std::uint64_t word = 0;
  if (reinterpret_cast<std::uintptr_t>(at) % 4096 <= 4096 - sizeof word) [[likely]] {
    __builtin_memcpy(&word, at, sizeof word);
    return word;
  }
  for (int i = 0; i < 8 && at[i] != '\0'; ++i) word |= std::uint64_t{static_cast<unsigned char>(at[i])} << 8 * i;
  return word;
}

}  // namespace tierd::preload
