#include "tierd/ssd/failed_regions.h"

#include <algorithm>

namespace tierd::ssd {

namespace {
constexpr std::int64_t kRestNs = 3600ll * 1'000'000'000;
}  // namespace

void FailedRegions::OnWritten(std::uint32_t region, std::uint64_t taken) {
  failed_.erase(region);
  last_written_ = std::max(last_written_, taken);
}

bool FailedRegions::OnFailed(std::uint32_t region, std::uint64_t taken) {
  const auto [at, first] = failed_.try_emplace(region, taken);
  return !first && last_written_ > at->second;
}

void FailedRegions::Rest(std::uint32_t region, std::int64_t now_ns) { resting_.emplace_back(now_ns + kRestNs, region); }

std::optional<std::uint32_t> FailedRegions::NextRested(std::int64_t now_ns) {
  if (resting_.empty() || resting_.front().first > now_ns) return std::nullopt;
  const std::uint32_t region = resting_.front().second;
  resting_.pop_front();
  return region;
}

}  // namespace tierd::ssd
