#include "policies/orders/permutations.h"

#include <bit>
#include <numeric>
#include <utility>

namespace tierd::orders {
namespace {

// NumPy's random_interval: draws of just enough bits until one is not above `largest`. (32 bits a draw: largest < 2^32.)
template <typename Engine>
std::uint32_t MaskedInterval(Engine& engine, std::uint32_t largest) {
  const std::uint32_t mask = UINT32_MAX >> std::countl_zero(largest | 1);
  for (;;) {
    const std::uint32_t value = engine() & mask;
    if (value <= largest) return value;
  }
}

template <typename Engine>
void ShuffleDownward(Engine& engine, std::span<std::uint32_t> order) {
  for (std::size_t i = order.size(); i-- > 1;) std::swap(order[i], order[MaskedInterval(engine, static_cast<std::uint32_t>(i))]);
}

// D. Lemire, "Fast Random Integer Generation in an Interval", 2019, as libstdc++ has it for a 32-bit engine.
std::uint32_t UniformByMultiplication(Mt19937& engine, std::uint32_t range) {
  const std::uint32_t count = range + 1;
  if (count == 0) return engine();
  std::uint64_t product = std::uint64_t{engine()} * count;
  if (static_cast<std::uint32_t>(product) < count) {
    const std::uint32_t threshold = (0u - count) % count;
    while (static_cast<std::uint32_t>(product) < threshold) product = std::uint64_t{engine()} * count;
  }
  return static_cast<std::uint32_t>(product >> 32);
}

}  // namespace

void Identity(std::span<std::uint32_t> order) { std::iota(order.begin(), order.end(), 0u); }

void TorchRandperm(Mt19937& engine, std::span<std::uint32_t> order, TorchDraws draws) {
  Identity(order);
  const auto n = static_cast<std::uint32_t>(order.size());
  if (draws == TorchDraws::kWide || (draws == TorchDraws::kByCount && n >= kTorchWideFrom)) {
    for (std::uint32_t i = 0; i + 1 < n; ++i) std::swap(order[i], order[i + engine.Next64() % (n - i)]);
    return;
  }
  for (std::uint32_t i = 0; i + 1 < n; ++i) std::swap(order[i], order[i + engine() % (n - i)]);
}

void NumpyShuffle(Mt19937& engine, std::span<std::uint32_t> order) { ShuffleDownward(engine, order); }
void NumpyShuffle(Pcg64& engine, std::span<std::uint32_t> order) { ShuffleDownward(engine, order); }

Mt19937 PythonRandom(std::int64_t seed) {
  const std::uint64_t size = seed < 0 ? 0 - static_cast<std::uint64_t>(seed) : static_cast<std::uint64_t>(seed);
  const std::uint32_t digits[2] = {static_cast<std::uint32_t>(size), static_cast<std::uint32_t>(size >> 32)};
  return Mt19937::FromKey(std::span(digits, digits[1] == 0 ? 1 : 2));
}

void PythonShuffle(Mt19937& engine, std::span<std::uint32_t> order) {
  // _randbelow(i + 1): getrandbits(k) takes the upper k bits of one output.
  for (std::size_t i = order.size(); i-- > 1;) {
    const auto count = static_cast<std::uint32_t>(i + 1);
    std::uint32_t j = count;
    while (j >= count) j = engine() >> std::countl_zero(count);
    std::swap(order[i], order[j]);
  }
}

std::uint64_t UniformByDivision(const std::function<std::uint64_t()>& draw, std::uint64_t largest, std::uint64_t range) {
  const std::uint64_t scaling = largest / (range + 1);
  const std::uint64_t past = (range + 1) * scaling;
  std::uint64_t value = draw();
  while (value >= past) value = draw();
  return value / scaling;
}

void StdShuffle(Mt19937& engine, std::span<std::uint32_t> order, StdUniform uniform) {
  const std::size_t n = order.size();
  if (n < 2) return;
  const auto upto = [&](std::uint64_t range) -> std::uint64_t {
    if (uniform == StdUniform::kMultiply) return UniformByMultiplication(engine, static_cast<std::uint32_t>(range));
    return UniformByDivision([&engine] { return std::uint64_t{engine()}; }, UINT32_MAX, range);
  };
  if (UINT32_MAX / n < n) {  // one draw a step
    for (std::size_t i = 1; i < n; ++i) std::swap(order[i], order[upto(i)]);
    return;
  }
  // Short sequences get two positions out of each draw.
  std::size_t i = 1;
  if (n % 2 == 0) std::swap(order[i++], order[upto(1)]);
  while (i < n) {
    const std::uint64_t second = i + 2;
    const std::uint64_t both = upto((i + 1) * second - 1);
    std::swap(order[i++], order[both / second]);
    std::swap(order[i++], order[both % second]);
  }
}

}  // namespace tierd::orders
