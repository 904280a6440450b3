#include "policies/sim/epoch_time.h"

#include <algorithm>

namespace tierd::sim {

double EpochSeconds(const CacheCounts& epoch, const Speeds& speeds) {
  double longest = static_cast<double>(epoch.all_reads()) * speeds.step_seconds;
  double readers = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const Device& device = speeds.devices[i];
    const auto reads = static_cast<double>(epoch.reads[i]);
    const auto bytes = static_cast<double>(epoch.bytes[i]);
    longest = std::max({longest, bytes / device.bandwidth, reads * device.latency_seconds / device.concurrency});
    readers += reads * device.latency_seconds + bytes / device.stream_bandwidth;
  }
  return std::max(longest, readers / speeds.readers);
}

}  // namespace tierd::sim
