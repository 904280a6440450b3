// The inner loop of seed recovery: goes through 32-bit seeds of MT19937 and keeps those under which torch.randperm(n) puts one of a few
// given samples at one of a few given positions. One access of an epoch (its first) leaves about 2^32 / n of all seeds; seed_search.h
// decides among those.
//
// Cost: output i needs seed words i, i + 1 and i + 397, and those follow from one another only: 397 dependent steps a seed, of which
// several dozen seeds run side by side. Pure functions, no thread rule; a caller paces them by the count that it asks for.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tierd::orders {

// What a seed has to fulfil: one of `accepted` stands at one of the positions [first, first + positions) of the permutation.
//
// Position r > 0 is taken for r + (output r mod (n - r)), which it is unless an earlier step moved something there: a fitting seed is
// missed with probability below r / n for r > 0, and never for r = 0.
class SeedFilter {
 public:
  struct Options {
    std::uint32_t samples = 0;    // n, at least 2, at most 2^30
    std::uint32_t first = 0;      // first position, below n - 1
    std::uint32_t positions = 1;  // 1 to kMaxPositions; cut so that all are below n - 1
    std::uint32_t skip = 0;       // 32-bit outputs that somebody takes before the permutation, at most 64
  };
  static constexpr std::uint32_t kMaxPositions = 64;

  SeedFilter(const Options& options, std::span<const std::uint32_t> accepted);

  const Options& options() const { return options_; }
  // All that are accepted, or none of them when they are many.
  std::span<const std::uint32_t> few() const { return few_; }
  // False positives only (samples are folded to 16 bits).
  bool Accepts(std::uint32_t sample) const { return (bits_[(sample & 0xffff) / 64] >> (sample & 63) & 1) != 0; }

 private:
  Options options_;
  std::vector<std::uint32_t> few_;
  std::vector<std::uint64_t> bits_;
};

enum class ScanCode : std::uint8_t { kBest, kPortable, kAvx2 };
// Which code kBest means on this machine.
ScanCode BestScanCode();

// Appends the seeds of [begin, begin + count) that pass, ascending. begin + count <= 2^32; kAvx2 only where BestScanCode says so.
void ScanSeeds(const SeedFilter& filter, std::uint64_t begin, std::uint64_t count, std::vector<std::uint32_t>* passing, ScanCode code = ScanCode::kBest);

}  // namespace tierd::orders
