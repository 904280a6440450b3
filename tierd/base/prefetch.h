// Cache lines that are about to be needed, asked for ahead. Pure hints: of any address.
#pragma once

#include <cstddef>

namespace tierd {

// A function that does nothing but prefetch passes for one without effect, and GCC drops calls of it: hence a use that it cannot drop.
inline void PrefetchToRead(const void* line) {
  __builtin_prefetch(line);
  asm volatile("" : : "r"(line));
}

// To be written too, if only maybe.
inline void PrefetchLine(const void* line) {
  __builtin_prefetch(line, 1);
  asm volatile("" : : "r"(line));
}

// All of a small object, which may lie across the border of two lines.
template <typename T>
void PrefetchAll(const T& object) {
  static_assert(sizeof(T) <= 64);
  PrefetchLine(&object);
  if constexpr (alignof(T) % sizeof(T) != 0) PrefetchLine(reinterpret_cast<const char*>(&object) + sizeof(T) - 1);
}

}  // namespace tierd
