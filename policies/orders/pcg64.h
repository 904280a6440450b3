// PCG64 (XSL-RR 128/64) seeded through a SeedSequence, as numpy.random.default_rng(seed) draws. Sources: M. O'Neill, "PCG: A Family of
// Simple Fast Space-Efficient Statistically Good Algorithms for Random Number Generation", 2014; NumPy's SeedSequence is a variant of
// her seed_seq_fe with a pool of four words (https://www.pcg-random.org/posts/developing-a-seed_seq-alternative.html).
//
// Value type, no thread rule. Needs a compiler with a 128-bit integer.
#pragma once

#include <cstdint>

namespace tierd::orders {

class Pcg64 {
 public:
  // default_rng(seed) for 0 <= seed < 2^64.
  static Pcg64 FromSeed(std::uint64_t seed);

  // 32 bits: the low half of a fresh output first, its high half next.
  std::uint32_t operator()() {
    if (has_half_) {
      has_half_ = false;
      return half_;
    }
    const std::uint64_t word = Next64();
    has_half_ = true;
    half_ = static_cast<std::uint32_t>(word >> 32);
    return static_cast<std::uint32_t>(word);
  }

 private:
  __extension__ using Wide = unsigned __int128;
  std::uint64_t Next64();

  Wide state_ = 0;
  Wide increment_ = 0;
  std::uint32_t half_ = 0;
  bool has_half_ = false;
};

}  // namespace tierd::orders
