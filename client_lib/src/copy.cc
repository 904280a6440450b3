#include "client_lib/src/copy.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace tierd::client {

const CopyWay copy_way = BestCopyWay();

void CopyLarge(void* to, const void* from, std::size_t bytes, std::size_t call_bytes) {
  if (copy_way == CopyWay::kMemcpy) std::memcpy(to, from, bytes);
  else if (call_bytes >= kStreamFrom) CopyStreaming(to, from, bytes);
  else if (copy_way == CopyWay::kSideBySide) CopySideBySide(to, from, bytes);
  else if (bytes >= kStringFrom) CopyByString(to, from, bytes);
  else std::memcpy(to, from, bytes);
}

#if defined(__x86_64__)

namespace {

// 64 bytes of each of kStreams parts that follow one another, until the parts of `part` bytes, a multiple of 64, are through.
template <std::size_t kStreams>
[[gnu::target("avx2"), gnu::always_inline]] inline void CopyParts(char*& to, const char*& from, std::size_t& bytes, std::size_t part) {
  for (std::size_t at = 0; at < part; at += 64) {
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      const char* const in = from + stream * part + at;
      char* const out = to + stream * part + at;
      const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in));
      const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + 32));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), a);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 32), b);
    }
  }
  to += kStreams * part, from += kStreams * part, bytes -= kStreams * part;
}

}  // namespace

// The processor fetches ahead within a page, and within a few streams: more streams are more lines under way. Eight of them read and write sixteen lines at a time, of
// which a set of the first-level cache holds eight: they begin at odd multiples of 512 bytes from one another, or all would lie in one set where the parts are of whole pages.
[[gnu::target("avx2")]] void CopySideBySide(void* to_begin, const void* from_begin, std::size_t bytes) {
  constexpr std::size_t kMostPart = (std::size_t{64} << 10) + 512;
  auto* to = static_cast<char*>(to_begin);
  const auto* from = static_cast<const char*>(from_begin);
  while (bytes >= 8 * kMostPart) CopyParts<8>(to, from, bytes, kMostPart);
  if (bytes >= std::size_t{24} << 10) CopyParts<8>(to, from, bytes, (((bytes / 8) - 512) & ~std::size_t{1023}) + 512);
  if (bytes >= std::size_t{12} << 10) CopyParts<4>(to, from, bytes, (bytes / 4) & ~std::size_t{63});
  if (bytes >= std::size_t{6} << 10) CopyParts<2>(to, from, bytes, (bytes / 2) & ~std::size_t{63});
  CopyParts<1>(to, from, bytes, bytes & ~std::size_t{63});
  std::memcpy(to, from, bytes);
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

CopyWay BestCopyWay() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0 || a < 7) return CopyWay::kMemcpy;
  const bool amd = b == signature_AMD_ebx && c == signature_AMD_ecx && d == signature_AMD_edx;
  __get_cpuid_count(7, 0, &a, &b, &c, &d);
  const bool short_strings = (d & 1u << 4) != 0;
  __get_cpuid(1, &a, &b, &c, &d);
  const unsigned family = (a >> 8 & 0xf) + (a >> 20 & 0xff);
  if (short_strings && (!amd || family >= 26)) return CopyWay::kString;
  __builtin_cpu_init();  // this may run before the compiler's own
  return __builtin_cpu_supports("avx2") ? CopyWay::kSideBySide : CopyWay::kMemcpy;
}

#else

void CopySideBySide(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void CopyStreaming(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
CopyWay BestCopyWay() { return CopyWay::kMemcpy; }

#endif

}  // namespace tierd::client
