// MT19937, the generator behind PyTorch's CPU, NumPy's legacy and Python's random orders. Source of the recurrence and of both ways of
// seeding: M. Matsumoto, T. Nishimura, "Mersenne Twister", ACM TOMACS 8(1), 1998, and mt19937ar.c (init_genrand, init_by_array).
//
// std::mt19937 is the same generator; this one can also be set to a state that a program hands out, which the standard one cannot.
// Value type of 2.5 KB, no thread rule.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tierd::orders {

class Mt19937 {
 public:
  static constexpr std::size_t kWords = 624;
  static constexpr std::size_t kShift = 397;  // output i needs seed words i, i + 1 and i + kShift

  // init_genrand: torch.manual_seed (of the low 32 bits), numpy.random.RandomState(int), std::mt19937.
  static Mt19937 FromSeed(std::uint32_t seed);
  // init_by_array: Python's random.seed(int) (32-bit digits, least significant first). An empty key is taken as {0}.
  static Mt19937 FromKey(std::span<const std::uint32_t> key);
  // As a program holds it: `index` (1 to 624) is the word drawn next, 624 when a new set has to be made first.
  static Mt19937 FromState(std::span<const std::uint32_t, kWords> words, std::size_t index);

  // What FromState goes on from.
  const std::array<std::uint32_t, kWords>& words() const { return words_; }
  std::size_t index() const { return index_; }

  std::uint32_t operator()() {
    if (index_ == kWords) Refill();
    return Temper(words_[index_++]);
  }
  // Two draws, the first one the high word: PyTorch's random64().
  std::uint64_t Next64() {
    const std::uint64_t high = (*this)();
    return high << 32 | (*this)();
  }

  static std::uint32_t Temper(std::uint32_t word) {
    word ^= word >> 11;
    word ^= word << 7 & 0x9d2c5680u;
    word ^= word << 15 & 0xefc60000u;
    return word ^ word >> 18;
  }
  static std::uint32_t NextSeedWord(std::uint32_t word, std::uint32_t number) { return 1812433253u * (word ^ word >> 30) + number; }
  static std::uint32_t Twist(std::uint32_t word, std::uint32_t next, std::uint32_t shifted) {
    const std::uint32_t mixed = (word & 0x80000000u) | (next & 0x7fffffffu);
    return shifted ^ mixed >> 1 ^ ((next & 1) != 0 ? 0x9908b0dfu : 0u);
  }

 private:
  Mt19937() = default;
  void Refill();

  std::array<std::uint32_t, kWords> words_;
  std::size_t index_ = kWords;
};

}  // namespace tierd::orders
