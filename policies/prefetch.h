// Asks for a cache line that is about to be read and written. Pure hint, no thread rule.
#pragma once

namespace tierd::policies {

inline void PrefetchLine(const void* line) {
  __builtin_prefetch(line, 1);
  // A function that does nothing but prefetch passes for one without effect, and GCC drops calls of it: a use that it cannot drop.
  asm volatile("" : : "r"(line));
}

}  // namespace tierd::policies
