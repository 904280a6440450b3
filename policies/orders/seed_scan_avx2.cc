// Compiled for AVX2; called only where the processor has it. Ten chains of eight seeds hide the ten cycles of a multiplication.
#include <immintrin.h>

#include "policies/orders/seed_scan_code.h"
#include "policies/orders/seed_scan_kernel.h"

namespace tierd::orders {
namespace {

class Avx2Chain {
 public:
  static constexpr std::uint32_t kChains = 10;
  static constexpr std::uint32_t kSeeds = 8 * kChains;

  explicit Avx2Chain(std::uint32_t first) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (std::uint32_t c = 0; c < kChains; ++c) words_[c] = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(first + 8 * c)), lanes);
  }
  void Step(std::uint32_t number) {
    const __m256i multiplier = _mm256_set1_epi32(static_cast<int>(kSeedMultiplier));
    const __m256i added = _mm256_set1_epi32(static_cast<int>(number));
#pragma GCC unroll 16
    for (__m256i& word : words_) {
      word = _mm256_add_epi32(_mm256_mullo_epi32(_mm256_xor_si256(word, _mm256_srli_epi32(word, 30)), multiplier), added);
    }
  }
  void Store(std::uint32_t* out) const {
#pragma GCC unroll 16
    for (std::uint32_t c = 0; c < kChains; ++c) _mm256_store_si256(reinterpret_cast<__m256i*>(out + 8 * c), words_[c]);
  }

 private:
  __m256i words_[kChains];
};

}  // namespace

void ScanSeedsAvx2(const SeedFilter& filter, std::uint64_t begin, std::uint64_t count, std::vector<std::uint32_t>* passing) {
  ScanWith<Avx2Chain>(filter, begin, count, passing);
}

}  // namespace tierd::orders
