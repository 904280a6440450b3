// What `simulate` computes: policies over capacities, for one job or trace. Values and pure functions; no daemon, no output.
#pragma once

#include <cstdint>
#include <functional>
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

// How far a computation is. `reads` are those simulated so far, `all_reads` those of the whole study; 0:
// not known, because least capacities are looked for.
struct Advance {
  std::string what;  // "lru, RAM 25% of the dataset"
  double reads = 0;
  double all_reads = 0;
};

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
  std::function<void(const Advance&)> on_advance = {};  // now and then
  double goal = 0;                      // share of the best speed that the least capacities are looked for of; 0: none are
};

struct Point {
  double ram_bytes = 0;
  double hit_rate = 0;         // reads that needed no source, of the epochs that count
  double ram_rate = 0;         // reads that found their bytes in RAM
  double source_bytes = 0;     // per epoch
  double epoch_seconds = 0;
  std::uint64_t dropped_answers = 0;  // of the policy, which were wrong: with any, the other figures are the simulator's own doing
  bool is_void() const { return dropped_answers != 0; }
};
struct Curve {
  std::string policy;
  std::string mode;            // blind or seeded: what it was told
  std::vector<Point> points;   // by capacity, as asked
};
// The least capacity of one tier, beside so much of the other, with which an epoch of a policy takes no longer than the goal.
struct Need {
  std::string policy;
  std::string mode;
  bool of_ram = true;          // ram_bytes is the least, ssd_bytes was given; else the other way round
  bool enough = true;          // false: not even the whole dataset in that tier will do
  double ram_bytes = 0;
  double ssd_bytes = 0;
};
struct Outcome {
  double dataset_bytes = 0;
  double epoch_bytes = 0;      // that one epoch reads
  std::uint64_t objects = 0;
  std::uint64_t epochs = 0;    // of the job or trace
  std::uint64_t accesses = 0;  // simulated, all together
  double seconds = 0;          // of processor time
  double best_epoch_seconds = 0;  // with everything in RAM
  bool cut = false;            // the trace ended in the middle of a block
  std::uint64_t lost = 0;      // accesses that the trace does not have
  double seen = 1;             // share of the accesses that it has
  std::vector<Curve> curves;
  // What nobody can do better than, with both tiers as one (policies/sim/bound.h): hit_rate, source_bytes and epoch_seconds of its points are bounds. No points:
  // there are too many reads to work it out.
  Curve bound;
  double goal_seconds = 0;        // of an epoch; 0: there is no goal
  std::vector<Need> needs;        // per policy: of RAM with the SSD of the study, then of SSD with each of its sizes of RAM
};

// kInvalid: no such policy, or what the study asks for cannot be; any other: a file, of a policy or the trace. Least capacities are found by
// halving, as if more were never slower, to a single object, or to a part in kGoalSteps of the dataset where there are more.
inline constexpr double kGoalSteps = 4096;
tierd::Result<Outcome> Compute(const Study& study);

}  // namespace tierctl::simulate
