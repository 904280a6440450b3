// Sizes of frames as data sets have them, for the long allocator test: each mix is a distribution over 64 B..4 MiB.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

namespace tierd::ram::test {

inline constexpr std::uint64_t kLargestFrame = 4 << 20;

class SizeMix {
 public:
  static constexpr unsigned kKinds = 10;
  explicit SizeMix(unsigned kind) : kind_(kind % kKinds) {}

  std::uint64_t Draw(std::mt19937_64& random) {
    const auto bounded = [](double v) { return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(v), 64, kLargestFrame); };
    const auto lognormal = [&](double median, double sigma) { return bounded(median * std::exp(sigma * normal_(random))); };
    const double u = std::uniform_real_distribution<double>(0, 1)(random);
    switch (kind_) {
      case 0: return lognormal(108e3, 0.6);                               // photographs
      case 1: return lognormal(784, 0.3);                                 // thumbnails
      case 2: return bounded(64 + u * static_cast<double>(kLargestFrame));  // uniform
      case 3: return u < 0.5 ? 4096 : kLargestFrame;                      // records and whole chunks
      case 4: return 784;                                                 // one size
      case 5: return lognormal(30e3, 1.8);                                // long tail
      case 6: return u < 0.97 ? lognormal(2e3, 0.8) : lognormal(3e6, 0.2);  // bimodal
      case 7: return kLargestFrame;                                       // shards
      case 8: return lognormal(700e3, 0.9);
      default: return std::uint64_t{64} << static_cast<int>(u * 17);      // powers of two
    }
  }

 private:
  unsigned kind_;
  std::normal_distribution<double> normal_;
};

}  // namespace tierd::ram::test
