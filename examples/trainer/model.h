// Multinomial logistic regression, trained by mini-batch SGD.
//
// The arithmetic is in a fixed order on one thread, so equal batches in equal order give equal weights, bit by bit: that is how the
// trainer shows that both readers saw the same bytes. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "examples/trainer/image.h"

namespace trainer {

constexpr std::size_t kClasses = 10;

// `count` images one after the other, and their labels.
struct Batch {
  const std::uint8_t* pixels = nullptr;
  const std::uint8_t* labels = nullptr;
  std::size_t count = 0;
};

// Sums over a test set; add Evaluate's to each other in the order of the set.
struct Score {
  std::uint64_t right = 0;
  std::uint64_t samples = 0;
  double loss = 0;  // sum of -log(probability of the true class)
};

class Model {
 public:
  Model();

  // One step: weights -= rate * mean gradient of the batch.
  void Train(const Batch& batch, float rate);

  Score Evaluate(const Batch& batch) const;

 private:
  // Ten classes in lanes of sixteen, so that each pixel is one vector operation for all classes.
  static constexpr std::size_t kLanes = 16;
  using Lanes = std::array<float, kLanes>;

  Lanes Probabilities(const std::uint8_t* pixels) const;

  std::vector<Lanes> weights_;   // by pixel; the last row is the bias
  std::vector<Lanes> gradient_;  // scratch of Train
};

}  // namespace trainer
