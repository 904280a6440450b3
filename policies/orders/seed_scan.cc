#include "policies/orders/seed_scan.h"

#include <algorithm>

#include "policies/orders/seed_scan_code.h"

namespace tierd::orders {
namespace {
constexpr std::size_t kFew = 8;
}

SeedFilter::SeedFilter(const Options& options, std::span<const std::uint32_t> accepted) : options_(options), bits_(65536 / 64) {
  options_.samples = std::clamp<std::uint32_t>(options_.samples, 2, 1u << 30);
  options_.first = std::min(options_.first, options_.samples - 2);
  options_.positions = std::clamp<std::uint32_t>(options_.positions, 1, std::min(kMaxPositions, options_.samples - 1 - options_.first));
  options_.skip = std::min<std::uint32_t>(options_.skip, 64);
  if (accepted.size() <= kFew) few_.assign(accepted.begin(), accepted.end());
  for (const std::uint32_t sample : accepted) bits_[(sample & 0xffff) / 64] |= std::uint64_t{1} << (sample & 63);
}

ScanCode BestScanCode() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return ScanCode::kAvx2;
#endif
  return ScanCode::kPortable;
}

void ScanSeeds(const SeedFilter& filter, std::uint64_t begin, std::uint64_t count, std::vector<std::uint32_t>* passing, ScanCode code) {
#if defined(__x86_64__)
  if (code == ScanCode::kAvx2 || (code == ScanCode::kBest && BestScanCode() == ScanCode::kAvx2)) return ScanSeedsAvx2(filter, begin, count, passing);
#endif
  ScanSeedsPortable(filter, begin, count, passing);
}

}  // namespace tierd::orders
