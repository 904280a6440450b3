#include "client_lib/src/copy.h"

#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tierd::client {

#if defined(__SSE2__)

void CopyStreaming(void* to, const void* from, std::size_t bytes) {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  const std::size_t lead = (64 - reinterpret_cast<std::uintptr_t>(out) % 64) % 64;
  if (bytes < 4096) {
    std::memcpy(out, in, bytes);
    return;
  }
  std::memcpy(out, in, lead);
  out += lead, in += lead, bytes -= lead;
  for (; bytes >= 64; out += 64, in += 64, bytes -= 64) {
    _mm_prefetch(in + 1024, _MM_HINT_NTA);
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 16));
    const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 32));
    const __m128i d = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 48));
    _mm_stream_si128(reinterpret_cast<__m128i*>(out), a);
    _mm_stream_si128(reinterpret_cast<__m128i*>(out + 16), b);
    _mm_stream_si128(reinterpret_cast<__m128i*>(out + 32), c);
    _mm_stream_si128(reinterpret_cast<__m128i*>(out + 48), d);
  }
  _mm_sfence();
  std::memcpy(out, in, bytes);
}

#else

void CopyStreaming(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

#endif

}  // namespace tierd::client
