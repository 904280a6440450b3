// The permutations against golden vectors (PyTorch 1.13, NumPy 1.24, Python 3.11) and against the standard library.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "policies/orders/permutations.h"

namespace tierd::orders {
namespace {

using Order = std::vector<std::uint32_t>;

Order Torch(std::uint32_t seed, std::size_t n, TorchDraws draws = TorchDraws::kByCount) {
  Mt19937 engine = Mt19937::FromSeed(seed);
  Order order(n);
  TorchRandperm(engine, order, draws);
  return order;
}

TEST(Mt19937, DrawsWhatTheStandardOneDraws) {
  for (const std::uint32_t seed : {0u, 1u, 5489u, 0xffffffffu}) {
    Mt19937 ours = Mt19937::FromSeed(seed);
    std::mt19937 theirs(seed);
    for (int i = 0; i < 2000; ++i) ASSERT_EQ(ours(), theirs()) << "seed " << seed << " draw " << i;
  }
}

TEST(Mt19937, SeededByAKeyGivesTheVectorsOfItsAuthors) {
  const std::uint32_t key[] = {0x123, 0x234, 0x345, 0x456};  // mt19937ar.out
  Mt19937 engine = Mt19937::FromKey(key);
  for (const std::uint32_t expected : {1067595299u, 955945823u, 477289528u, 4107218783u, 4228976476u}) EXPECT_EQ(engine(), expected);
  Mt19937 none = Mt19937::FromKey({});
  Mt19937 zero = PythonRandom(0);
  EXPECT_EQ(none(), zero());
}

TEST(TorchRandperm, GoldenVectors) {
  EXPECT_EQ(Torch(0, 10), (Order{4, 1, 7, 5, 3, 9, 0, 8, 6, 2}));
  EXPECT_EQ(Torch(1, 10), (Order{5, 6, 1, 2, 0, 8, 9, 3, 7, 4}));
  EXPECT_EQ(Torch(42, 10), (Order{2, 6, 1, 8, 4, 5, 0, 9, 3, 7}));
  const Order imagenet = Torch(0, 1'281'167);
  EXPECT_EQ(Order(imagenet.begin(), imagenet.begin() + 3), (Order{1069931, 571398, 762430}));
  EXPECT_EQ(Torch(3, 1), (Order{0}));
  EXPECT_TRUE(Torch(3, 0).empty());
}

// From (2^32 - 1) / 20 samples on a step takes 64 bits, high word first. The branch itself, on a size that fits a test, against the
// formula said once more with the standard generator.
TEST(TorchRandperm, WideDrawsTakeTwoWordsAStep) {
  EXPECT_EQ(kTorchWideFrom, 214'748'364u);
  std::mt19937 engine(7);
  Order expected(1000);
  Identity(expected);
  for (std::uint64_t i = 0; i < 999; ++i) {
    const std::uint64_t high = engine();
    std::swap(expected[i], expected[i + ((high << 32) + engine()) % (1000 - i)]);
  }
  EXPECT_EQ(Torch(7, 1000, TorchDraws::kWide), expected);
  EXPECT_EQ(Torch(7, 1000, TorchDraws::kNarrow), Torch(7, 1000));
}

TEST(NumpyShuffle, GoldenVectors) {
  Order order(10);
  Identity(order);
  Mt19937 legacy = Mt19937::FromSeed(5);
  NumpyShuffle(legacy, order);
  EXPECT_EQ(order, (Order{9, 5, 2, 4, 7, 1, 0, 8, 6, 3}));
  Identity(order);
  Pcg64 pcg = Pcg64::FromSeed(5);
  NumpyShuffle(pcg, order);
  EXPECT_EQ(order, (Order{7, 6, 1, 3, 2, 4, 0, 9, 5, 8}));
}

TEST(PythonShuffle, GoldenVector) {
  Order order(10);
  Identity(order);
  Mt19937 engine = PythonRandom(5);
  PythonShuffle(engine, order);
  EXPECT_EQ(order, (Order{2, 3, 1, 0, 8, 7, 6, 5, 4, 9}));
  Mt19937 negative = PythonRandom(-5);
  Identity(order);
  PythonShuffle(negative, order);
  EXPECT_EQ(order, (Order{2, 3, 1, 0, 8, 7, 6, 5, 4, 9})) << "Python seeds by the absolute value";
}

// The sizes lie on both sides of 65,536, where libstdc++ stops drawing two positions at once.
TEST(StdShuffle, IsTheStandardLibrarysOfThisCompiler) {
  for (const std::size_t n : {0u, 1u, 2u, 3u, 10u, 11u, 1000u, 65'535u, 65'536u, 65'537u, 200'000u}) {
    Order ours(n);
    Identity(ours);
    Order theirs = ours;
    Mt19937 engine = Mt19937::FromSeed(524'287 + 3);
    StdShuffle(engine, ours);
    std::mt19937 standard(524'287 + 3);
    std::shuffle(theirs.begin(), theirs.end(), standard);
    EXPECT_EQ(ours, theirs) << n;
  }
}

// libstdc++ still divides for generators whose range is not 2^32 values: the same algorithm as before GCC 11.
TEST(StdShuffle, DivisionIsTheStandardLibrarysForOtherRanges) {
  std::minstd_rand ours(9);
  std::minstd_rand theirs(9);
  for (std::uint64_t range = 1; range < 2'000'000'000; range = range * 3 + 1) {
    const auto draw = [&ours] { return std::uint64_t{ours() - std::minstd_rand::min()}; };
    const std::uint64_t value = UniformByDivision(draw, std::minstd_rand::max() - std::minstd_rand::min(), range);
    EXPECT_EQ(value, std::uniform_int_distribution<std::uint64_t>(0, range)(theirs)) << range;
  }
  Order divided(100);
  Order multiplied(100);
  for (auto* order : {&divided, &multiplied}) {
    Identity(*order);
    Mt19937 engine = Mt19937::FromSeed(1);
    StdShuffle(engine, *order, order == &divided ? StdUniform::kDivide : StdUniform::kMultiply);
  }
  EXPECT_NE(divided, multiplied);
  std::sort(divided.begin(), divided.end());
  for (std::uint32_t i = 0; i < 100; ++i) EXPECT_EQ(divided[i], i);
}

}  // namespace
}  // namespace tierd::orders
