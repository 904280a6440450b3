#include "policies/orders/order_screen.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace tierd::orders {

OrderScreen::OrderScreen(const Observation& observation) : samples_(observation.samples), order_(samples_), places_(samples_) {
  std::vector<bool> seen(samples_);
  std::map<std::uint32_t, std::uint32_t> last;
  for (const SampleAccess& access : observation.accesses) {
    if (access.index >= samples_ || seen[access.index] || pairs_.size() == kMostPairs) continue;
    seen[access.index] = true;
    const auto [before, first] = last.try_emplace(access.stream, access.index);
    if (!first) pairs_.emplace_back(static_cast<std::uint16_t>(before->second), static_cast<std::uint16_t>(access.index));
    before->second = access.index;
  }
}

bool OrderScreen::Passes(std::span<const std::uint32_t> outputs) {
  if (pairs_.size() < kLeastPairs) return false;
  std::iota(order_.begin(), order_.end(), std::uint16_t{0});
  std::fill(places_.begin(), places_.end(), UINT16_MAX);
  const auto drawn = static_cast<std::uint32_t>(std::min<std::size_t>(outputs.size(), samples_));
  for (std::uint32_t i = 0; i < drawn; ++i) {
    if (i + 1 < samples_) std::swap(order_[i], order_[i + outputs[i] % (samples_ - i)]);
    places_[order_[i]] = static_cast<std::uint16_t>(i);
  }
  std::size_t known = 0, rising = 0;
  for (const auto& [before, after] : pairs_) {
    known += places_[before] != places_[after] ? 1 : 0;
    rising += places_[before] < places_[after] ? 1 : 0;
  }
  return known >= kLeastPairs && 10 * rising >= 7 * known;
}

}  // namespace tierd::orders
