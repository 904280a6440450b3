#include "policies/orders/mt19937.h"

#include <algorithm>

namespace tierd::orders {

Mt19937 Mt19937::FromSeed(std::uint32_t seed) {
  Mt19937 engine;
  engine.words_[0] = seed;
  for (std::uint32_t i = 1; i < kWords; ++i) engine.words_[i] = NextSeedWord(engine.words_[i - 1], i);
  return engine;
}

Mt19937 Mt19937::FromKey(std::span<const std::uint32_t> key) {
  static constexpr std::uint32_t kZero[1] = {0};
  if (key.empty()) key = kZero;
  Mt19937 engine = FromSeed(19650218u);
  auto& w = engine.words_;
  std::size_t i = 1;
  const auto advance = [&] {
    if (++i < kWords) return;
    w[0] = w[kWords - 1];
    i = 1;
  };
  for (std::size_t k = 0; k < std::max(kWords, key.size()); ++k, advance()) {
    const std::size_t j = k % key.size();
    w[i] = (w[i] ^ (w[i - 1] ^ w[i - 1] >> 30) * 1664525u) + key[j] + static_cast<std::uint32_t>(j);
  }
  for (std::size_t k = 0; k < kWords - 1; ++k, advance()) {
    w[i] = (w[i] ^ (w[i - 1] ^ w[i - 1] >> 30) * 1566083941u) - static_cast<std::uint32_t>(i);
  }
  w[0] = 0x80000000u;
  return engine;
}

Mt19937 Mt19937::FromState(std::span<const std::uint32_t, kWords> words, std::size_t index) {
  Mt19937 engine;
  std::copy(words.begin(), words.end(), engine.words_.begin());
  engine.index_ = std::clamp<std::size_t>(index, 1, kWords);
  return engine;
}

void Mt19937::Refill() {
  constexpr std::size_t kRest = kWords - kShift;
  for (std::size_t i = 0; i < kRest; ++i) words_[i] = Twist(words_[i], words_[i + 1], words_[i + kShift]);
  for (std::size_t i = kRest; i < kWords - 1; ++i) words_[i] = Twist(words_[i], words_[i + 1], words_[i - kRest]);
  words_[kWords - 1] = Twist(words_[kWords - 1], words_[0], words_[kShift - 1]);
  index_ = 0;
}

}  // namespace tierd::orders
