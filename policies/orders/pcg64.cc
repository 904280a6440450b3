#include "policies/orders/pcg64.h"

#include <array>
#include <bit>

namespace tierd::orders {
namespace {

// NumPy's SeedSequence for one integer: its 32-bit digits are hashed into a pool of four words, every word is mixed into every other,
// and the pool is hashed out again. Each hash step multiplies by a constant that itself goes on by multiplication.
class SeedSequence {
 public:
  explicit SeedSequence(std::uint64_t seed) {
    const std::uint32_t digits[2] = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
    std::uint32_t constant = 0x43b0d7e5u;
    const auto hash = [&](std::uint32_t value) {
      value ^= constant;
      constant *= 0x931e8875u;
      value *= constant;
      return value ^ value >> 16;
    };
    for (std::size_t i = 0; i < pool_.size(); ++i) pool_[i] = hash(i < 2 ? digits[i] : 0);
    for (std::size_t from = 0; from < pool_.size(); ++from) {
      for (std::size_t to = 0; to < pool_.size(); ++to) {
        if (from == to) continue;
        const std::uint32_t mixed = 0xca01f9ddu * pool_[to] - 0x4973f715u * hash(pool_[from]);
        pool_[to] = mixed ^ mixed >> 16;
      }
    }
  }
  // generate_state(4, uint64).
  std::array<std::uint64_t, 4> Words() const {
    std::array<std::uint64_t, 4> words{};
    std::uint32_t constant = 0x8b51f9ddu;
    for (std::size_t i = 0; i < 8; ++i) {
      std::uint32_t value = pool_[i % pool_.size()] ^ constant;
      constant *= 0x58f38dedu;
      value *= constant;
      value ^= value >> 16;
      words[i / 2] |= std::uint64_t{value} << (i % 2 * 32);
    }
    return words;
  }

 private:
  std::array<std::uint32_t, 4> pool_{};
};

constexpr std::uint64_t kMultiplierHigh = 2549297995355413924ull;
constexpr std::uint64_t kMultiplierLow = 4865540595714422341ull;

}  // namespace

Pcg64 Pcg64::FromSeed(std::uint64_t seed) {
  const std::array<std::uint64_t, 4> words = SeedSequence(seed).Words();
  Pcg64 engine;
  engine.increment_ = (Wide{words[2]} << 64 | words[3]) << 1 | 1;
  engine.Next64();
  engine.state_ += Wide{words[0]} << 64 | words[1];
  engine.Next64();
  return engine;
}

std::uint64_t Pcg64::Next64() {
  state_ = state_ * (Wide{kMultiplierHigh} << 64 | kMultiplierLow) + increment_;
  const auto folded = static_cast<std::uint64_t>(state_ >> 64) ^ static_cast<std::uint64_t>(state_);
  return std::rotr(folded, static_cast<int>(state_ >> 122));
}

}  // namespace tierd::orders
