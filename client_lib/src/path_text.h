// Is a path one that may be looked up as it stands? Pure; a few nanoseconds.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tierd::client {

namespace path_text_detail {

// Exact: no empty, "." or ".." component in text[0, bytes), which begins with '/'.
inline bool IsCanonicalExact(const char* text, std::size_t bytes) {
  std::size_t begin = 1;
  for (std::size_t i = 1; i <= bytes; ++i) {
    if (i < bytes && text[i] != '/') continue;
    const std::size_t length = i - begin;
    if (length == 0 || (length == 1 && text[begin] == '.') || (length == 2 && text[begin] == '.' && text[begin + 1] == '.')) return false;
    begin = i + 1;
  }
  return true;
}

}  // namespace path_text_detail

// `text` is an absolute path of `bytes` bytes (NUL not counted). False for "/" itself, a trailing '/', "//", "." and ".." components.
[[gnu::always_inline]] inline bool IsCanonical(const char* text, std::size_t bytes) {
  if (bytes < 2 || text[0] != '/' || text[bytes - 1] == '/') return false;
#if defined(__SSE2__)
  // A suspect is a '/' followed by '/' or '.'; without one the path is fine. A hidden file is a suspect too and is looked at exactly.
  if (bytes >= 17) {
    const __m128i slash = _mm_set1_epi8('/');
    const __m128i dot = _mm_set1_epi8('.');
    int suspects = 0;
    const auto look = [&](std::size_t at) {
      const __m128i here = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text + at));
      const __m128i next = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text + at + 1));
      const __m128i bad = _mm_or_si128(_mm_cmpeq_epi8(next, slash), _mm_cmpeq_epi8(next, dot));
      suspects |= _mm_movemask_epi8(_mm_and_si128(_mm_cmpeq_epi8(here, slash), bad));
    };
    for (std::size_t at = 0; at + 17 < bytes; at += 16) look(at);
    look(bytes - 17);
    if (suspects == 0) return true;
  }
#endif
  return path_text_detail::IsCanonicalExact(text, bytes);
}

}  // namespace tierd::client
