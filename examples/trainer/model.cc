#include "examples/trainer/model.h"

#include <algorithm>
#include <cmath>

namespace trainer {
namespace {

constexpr std::size_t kBias = kImagePixels;

float Brightness(std::uint8_t pixel) { return static_cast<float>(pixel) * (1.0F / 255.0F); }

}  // namespace

Model::Model() : weights_(kImagePixels + 1, Lanes{}), gradient_(kImagePixels + 1, Lanes{}) {}

Model::Lanes Model::Probabilities(const std::uint8_t* pixels) const {
  Lanes sum = weights_[kBias];
  for (std::size_t pixel = 0; pixel < kImagePixels; ++pixel) {
    if (pixels[pixel] == 0) continue;  // half of all pixels
    const float x = Brightness(pixels[pixel]);
    const Lanes& weight = weights_[pixel];
    for (std::size_t lane = 0; lane < kLanes; ++lane) sum[lane] += x * weight[lane];
  }
  const float largest = *std::max_element(sum.begin(), sum.begin() + kClasses);
  float total = 0;
  for (std::size_t c = 0; c < kClasses; ++c) total += sum[c] = std::exp(sum[c] - largest);
  for (std::size_t c = 0; c < kClasses; ++c) sum[c] /= total;
  std::fill(sum.begin() + kClasses, sum.end(), 0.0F);
  return sum;
}

void Model::Train(const Batch& batch, float rate) {
  std::fill(gradient_.begin(), gradient_.end(), Lanes{});
  for (std::size_t i = 0; i < batch.count; ++i) {
    const std::uint8_t* pixels = batch.pixels + i * kImagePixels;
    Lanes error = Probabilities(pixels);
    error[batch.labels[i]] -= 1.0F;
    for (std::size_t pixel = 0; pixel < kImagePixels; ++pixel) {
      if (pixels[pixel] == 0) continue;
      const float x = Brightness(pixels[pixel]);
      Lanes& gradient = gradient_[pixel];
      for (std::size_t lane = 0; lane < kLanes; ++lane) gradient[lane] += x * error[lane];
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) gradient_[kBias][lane] += error[lane];
  }
  const float step = rate / static_cast<float>(batch.count);
  for (std::size_t row = 0; row < weights_.size(); ++row) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) weights_[row][lane] -= step * gradient_[row][lane];
  }
}

Score Model::Evaluate(const Batch& batch) const {
  Score score{.samples = batch.count};
  for (std::size_t i = 0; i < batch.count; ++i) {
    const Lanes probability = Probabilities(batch.pixels + i * kImagePixels);
    const auto best = std::max_element(probability.begin(), probability.begin() + kClasses) - probability.begin();
    if (best == batch.labels[i]) ++score.right;
    score.loss -= std::log(std::max(static_cast<double>(probability[batch.labels[i]]), 1e-30));
  }
  return score;
}

}  // namespace trainer
