// The permutations that training programs draw, bit by bit as their libraries do. Each function states whose algorithm it is; README.md
// has the formulas and the versions they were checked against. All work in place on what `order` holds (`Identity` fills it).
//
// Pure functions, no thread rule. Orders hold fewer than 2^32 - 1 entries.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "policies/orders/mt19937.h"
#include "policies/orders/pcg64.h"

namespace tierd::orders {

void Identity(std::span<std::uint32_t> order);

// torch.randperm(n, generator): order becomes the permutation of 0..n-1, whatever it held. PyTorch 1.13 and older draw 32 bits a step;
// newer ones draw 64 from n = (2^32 - 1) / 20 on, where the remainder of 32 bits would be visibly uneven.
enum class TorchDraws : std::uint8_t { kByCount, kNarrow, kWide };
inline constexpr std::uint32_t kTorchWideFrom = UINT32_MAX / 20;
void TorchRandperm(Mt19937& engine, std::span<std::uint32_t> order, TorchDraws draws = TorchDraws::kByCount);

// numpy.random.RandomState(s).shuffle(order), `permutation` when order is the identity.
void NumpyShuffle(Mt19937& engine, std::span<std::uint32_t> order);
// numpy.random.default_rng(s).shuffle(order), `permutation` when order is the identity.
void NumpyShuffle(Pcg64& engine, std::span<std::uint32_t> order);

// random.Random(seed): abs(seed) decides. Then random.shuffle(order).
Mt19937 PythonRandom(std::int64_t seed);
void PythonShuffle(Mt19937& engine, std::span<std::uint32_t> order);

// std::shuffle(order, std::mt19937) as libstdc++ does it. Its uniform_int_distribution multiplies (Lemire) since GCC 11 and divided
// before: which one a program has is decided where it was built.
enum class StdUniform : std::uint8_t { kMultiply, kDivide };
void StdShuffle(Mt19937& engine, std::span<std::uint32_t> order, StdUniform uniform = StdUniform::kMultiply);

// The division of older libstdc++ by itself: a value of 0..range from draws of 0..largest (range < largest).
std::uint64_t UniformByDivision(const std::function<std::uint64_t()>& draw, std::uint64_t largest, std::uint64_t range);

}  // namespace tierd::orders
