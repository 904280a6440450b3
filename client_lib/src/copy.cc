#include "client_lib/src/copy.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <emmintrin.h>
#endif

namespace tierd::client {
namespace {

// Until the library is initialized no copy is by string: slower, and right.
const bool strings_are_fast = StringsAreFast();

}  // namespace

void CopyLarge(void* to, const void* from, std::size_t bytes, std::size_t call_bytes) {
  if (!strings_are_fast) CopyAhead(to, from, bytes);
  else if (call_bytes >= kStreamFrom) CopyStreaming(to, from, bytes);
  else CopyByString(to, from, bytes);
}

#if defined(__x86_64__)

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

void CopyByString(void* to, const void* from, std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  std::memcpy(to, from, bytes);  // seen by the sanitizer
#else
  __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
#endif
}

void CopyStreaming(void* to, const void* from, std::size_t bytes) {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  std::size_t head = -reinterpret_cast<std::uintptr_t>(out) & 63;
  if (head > bytes) head = bytes;
  std::memcpy(out, in, head);
  out += head, in += head, bytes -= head;
  for (; bytes >= 64; out += 64, in += 64, bytes -= 64) {
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 16));
    const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 32));
    const __m128i d = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 48));
    _mm_stream_si128(reinterpret_cast<__m128i*>(out), a);
    _mm_stream_si128(reinterpret_cast<__m128i*>(out + 16), b);
    _mm_stream_si128(reinterpret_cast<__m128i*>(out + 32), c);
    _mm_stream_si128(reinterpret_cast<__m128i*>(out + 48), d);
  }
  std::memcpy(out, in, bytes);
  _mm_sfence();  // before anything that says that the bytes are there, or that the frame may be reused
}

bool StringsAreFast() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0 || a < 7) return false;
  const bool amd = b == signature_AMD_ebx && c == signature_AMD_ecx && d == signature_AMD_edx;
  __get_cpuid_count(7, 0, &a, &b, &c, &d);
  if ((d & 1u << 4) == 0) return false;
  __get_cpuid(1, &a, &b, &c, &d);
  const unsigned family = (a >> 8 & 0xf) + (a >> 20 & 0xff);
  return !amd || family >= 26;
}

#else

void CopyAhead(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void CopyByString(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void CopyStreaming(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
bool StringsAreFast() { return false; }

#endif

}  // namespace tierd::client
