// Text, eight bytes at a time: a branch for each letter of a path is what costs in calls that a processor meets with nothing remembered of branches.
// Little-endian. Any thread.
#pragma once

#include <bit>
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

// Of the component that `name` begins with, its top bits for use; 0 if there is none, or it is "." or "..".
inline std::uint64_t HashOfFirstComponent(const char* name) {
  std::uint64_t letters = 0;
  for (const char* at = name;; at += 8) {
    const std::uint64_t word = WordAt(at);
    const std::uint64_t stop = ZeroBytes(word) | ZeroBytes(word ^ Each('/'));
    const int bits = stop != 0 ? std::countr_zero(stop) & ~7 : 64;
    const std::uint64_t part = bits != 0 ? word & (~std::uint64_t{0} >> (64 - bits)) : 0;
    if (at == name && (part == 0 || part == '.' || part == ('.' << 8 | '.'))) return 0;
    letters = (letters ^ part) * 0x9e3779b97f4a7c15u;
    letters ^= letters >> 32;  // the last letters of a word are in few of its bits
    if (stop != 0) return letters | 1;
  }
}

// Whether `name` has "/..". Most have no dot but before the last few letters: the rest of it is passed over eight bytes at a time.
inline bool GoesUp(const char* name) {
  const char* at = name;
  while (ZeroBytes(WordAt(at) & ~Each('.')) == 0) at += 8;  // nothing in it has only bits of a dot: no dot and no end
  if (at != name) --at;
  for (; *at != '\0'; ++at) {
    if (at[0] == '/' && at[1] == '.' && at[2] == '.') return true;
  }
  return false;
}

}  // namespace tierd::preload
