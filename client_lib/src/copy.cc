#include "client_lib/src/copy.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tierd::client {

#if defined(__SSE2__)

// Plain stores: streaming ones and `rep movsb` were no faster into large destinations, and half as fast into reused ones.
void CopyAhead(void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t kAhead = 2048;  // half a page: the hardware stops at its end, and a hint past the source's end does nothing
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  for (; bytes >= 64; out += 64, in += 64, bytes -= 64) {
    _mm_prefetch(in + kAhead, _MM_HINT_T0);
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 16));
    const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 32));
    const __m128i d = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 48));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), a);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16), b);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 32), c);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 48), d);
  }
  std::memcpy(out, in, bytes);
}

#else

void CopyAhead(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

#endif

}  // namespace tierd::client
