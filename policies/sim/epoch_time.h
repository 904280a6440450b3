// How long an epoch takes, from what it read where: the largest of what the devices, the readers and the accelerator need. Assumes that
// they overlap, as a loader with workers makes them do, and that reads are spread evenly over the epoch.
//
//   computing    samples · step
//   device d     max(bytes_d / bandwidth_d, reads_d · latency_d / concurrency_d)
//   readers      Σ_d (reads_d · latency_d + bytes_d / stream_bandwidth_d) / readers
//
// Pure function, no thread rule.
#pragma once

#include <cstdint>

#include "policies/sim/cache.h"

namespace tierd::sim {

struct Device {
  double latency_seconds = 0;
  double bandwidth = 1e18;         // bytes per second, all readers together
  double stream_bandwidth = 1e18;  // of one reader
  double concurrency = 1e9;        // operations at a time
};

struct Speeds {
  Device devices[3] = {                                                     // RAM, SSD, source
      {.latency_seconds = 1e-6, .bandwidth = 20e9, .stream_bandwidth = 8e9},
      {.latency_seconds = 100e-6, .bandwidth = 2e9, .stream_bandwidth = 1e9},
      {.latency_seconds = 1e-3, .bandwidth = 500e6, .stream_bandwidth = 200e6}};
  double step_seconds = 0;  // the accelerator's, per sample
  double readers = 8;       // workers
};

double EpochSeconds(const CacheCounts& epoch, const Speeds& speeds);

}  // namespace tierd::sim
