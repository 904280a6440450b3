// Needs nothing beyond the architecture's base. SSE2, which every x86-64 has, multiplies 32 bits in every other place only: two
// multiplications, and a shuffle that puts their low halves together again. It exchanges the two seeds in the middle at every step;
// they are put back when words are stored.
#include "policies/orders/seed_scan_code.h"
#include "policies/orders/seed_scan_kernel.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tierd::orders {
namespace {

#if defined(__SSE2__)
class PortableChain {
 public:
  static constexpr std::uint32_t kChains = 8;
  static constexpr std::uint32_t kSeeds = 4 * kChains;

  explicit PortableChain(std::uint32_t first) {
    const __m128i lanes = _mm_setr_epi32(0, 1, 2, 3);
    for (std::uint32_t c = 0; c < kChains; ++c) words_[c] = _mm_add_epi32(_mm_set1_epi32(static_cast<int>(first + 4 * c)), lanes);
  }
  void Step(std::uint32_t number) {
    const __m128i multiplier = _mm_set1_epi32(static_cast<int>(kSeedMultiplier));
    const __m128i added = _mm_set1_epi32(static_cast<int>(number));
#pragma GCC unroll 16
    for (__m128i& word : words_) {
      const __m128i mixed = _mm_xor_si128(word, _mm_srli_epi32(word, 30));
      const __m128 even = _mm_castsi128_ps(_mm_mul_epu32(mixed, multiplier));
      const __m128 odd = _mm_castsi128_ps(_mm_mul_epu32(_mm_srli_epi64(mixed, 32), multiplier));
      word = _mm_add_epi32(_mm_castps_si128(_mm_shuffle_ps(even, odd, _MM_SHUFFLE(2, 0, 2, 0))), added);
    }
    exchanged_ = !exchanged_;
  }
  void Store(std::uint32_t* out) const {
#pragma GCC unroll 16
    for (std::uint32_t c = 0; c < kChains; ++c) {
      const __m128i word = exchanged_ ? _mm_shuffle_epi32(words_[c], _MM_SHUFFLE(3, 1, 2, 0)) : words_[c];
      _mm_store_si128(reinterpret_cast<__m128i*>(out + 4 * c), word);
    }
  }

 private:
  __m128i words_[kChains];
  bool exchanged_ = false;
};
#else
class PortableChain {
 public:
  static constexpr std::uint32_t kSeeds = 32;

  explicit PortableChain(std::uint32_t first) {
    for (std::uint32_t s = 0; s < kSeeds; ++s) words_[s] = first + s;
  }
  void Step(std::uint32_t number) {
    for (std::uint32_t& word : words_) word = kSeedMultiplier * (word ^ word >> 30) + number;
  }
  void Store(std::uint32_t* out) const { std::copy_n(words_, kSeeds, out); }

 private:
  std::uint32_t words_[kSeeds];
};
#endif

}  // namespace

void ScanSeedsPortable(const SeedFilter& filter, std::uint64_t begin, std::uint64_t count, std::vector<std::uint32_t>* passing) {
  ScanWith<PortableChain>(filter, begin, count, passing);
}

}  // namespace tierd::orders
