// How long a place (the SSD tier, a source) takes for one request when it is asked for several at a time: latency over the number under way, so that
// a queue of our own does not make a fast device look slow. By size class, as an average that follows within some ten requests.
// Pure; owner: Fetcher; loop thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tierd::engine {

class ServicePace {
 public:
  // A request begins; the result goes to End.
  std::uint32_t Begin() { return ++under_way_; }
  // What this one took, in ns.
  double End(std::uint32_t depth, std::uint64_t bytes, std::int64_t latency_ns) {
    --under_way_;
    double& mean = mean_ns_[ClassOf(bytes)];
    const double sample = static_cast<double>(latency_ns > 0 ? latency_ns : 1) / depth;
    mean = mean == 0 ? sample : mean + (sample - mean) / 8;
    return sample;
  }
  void Drop() { --under_way_; }  // it ended without telling anything
  // 0: not known.
  double PerRequestNs(std::uint64_t bytes) const { return mean_ns_[ClassOf(bytes)]; }

  static constexpr std::size_t kClasses = 4;
  static constexpr std::size_t ClassOf(std::uint64_t bytes) {
    if (bytes <= 64u << 10) return 0;
    if (bytes <= 512u << 10) return 1;
    return bytes <= 2u << 20 ? 2 : 3;
  }

 private:
  std::array<double, kClasses> mean_ns_{};
  std::uint32_t under_way_ = 0;
};

}  // namespace tierd::engine
