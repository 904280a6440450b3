// What `simulate` computes: policies over capacities, for one job or trace. Values and pure functions; no daemon, no output.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "policies/registry.h"
#include "policies/sim/epoch_time.h"
#include "policies/sim/simulate.h"

namespace tierctl::simulate {

struct Amount {
  double bytes = 0;
  bool share = false;  // of the dataset: `bytes` is 0 to 1 and more
};
// "25%", "800 GB", "4 MiB". Empty: neither.
std::optional<Amount> ParseAmount(const std::string& text);

struct Study {
  tierd::sim::JobOptions job;
  std::string trace;                    // instead of the job; "": none
  std::vector<std::string> policies;    // names, or paths of shared objects
  std::vector<Amount> capacities;       // of RAM
  Amount ssd;
  std::uint32_t skip = 1;               // epochs that do not count: the first fills the cache
  std::uint32_t lookahead = 16;
  bool seeded = true;
  tierd::sim::Speeds speeds;
};

struct Point {
  double ram_bytes = 0;
  double hit_rate = 0;         // reads that needed no source, of the epochs that count
  double ram_rate = 0;         // reads that found their bytes in RAM
  double source_bytes = 0;     // per epoch
  double epoch_seconds = 0;
};
struct Curve {
  std::string policy;
  std::string mode;            // blind or seeded: what it was told
  std::vector<Point> points;   // by capacity, as asked
};
struct Outcome {
  double dataset_bytes = 0;
  double epoch_bytes = 0;      // that one epoch reads
  std::uint64_t objects = 0;
  std::uint64_t accesses = 0;  // simulated, all together
  double seconds = 0;          // of processor time
  double best_epoch_seconds = 0;  // with everything in RAM
  bool cut = false;            // the trace ended in the middle of a block
  std::uint64_t lost = 0;      // accesses that the trace does not have
  std::vector<Curve> curves;
};

// kNotFound: no such policy, no such file; kInvalid: the job or a parameter.
tierd::Result<Outcome> Compute(const Study& study);

// The least RAM of a curve, between its points by a straight line, with which an epoch takes at most `seconds`. Empty: more than asked about.
std::optional<double> LeastRam(const Curve& curve, double seconds);

}  // namespace tierctl::simulate
