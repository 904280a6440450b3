// One policy over one job or trace. What the policy may know is said by name, and stands beside every figure: `blind` is told of
// reads only, `seeded` gets the plan as well.
//
// Pure functions over values, no thread rule; several may run side by side.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "policies/sim/cache.h"
#include "policies/sim/job.h"
#include "policies/sim/trace.h"

namespace tierd::sim {

struct RunOptions {
  CacheOptions cache;
  bool seeded = true;            // false: blind
  std::uint32_t lookahead = 16;  // epochs of plan beyond the present one
  bool whole_plan_first = false; // declares every epoch before the first read, and fills the cache by it: for `frequency`
  bool bring = false;            // what the policy wants next is brought at the beginning of each epoch
  std::function<void(std::uint64_t reads)> on_reads = {};  // now and then, with what was read since the last time
};

struct RunResult {
  std::vector<CacheCounts> epochs;
  CacheCounts total;
  std::uint64_t dropped_answers = 0;  // of the policy: wrong ones
  double seconds = 0;                 // of processor time, for reads alone
  // Hits over all epochs from number `first` on.
  double hit_rate(std::size_t first = 0) const;
};

Result<RunResult> RunJob(const tierd_policy_ops& policy, const Job& job, const RunOptions& options);
// The trace's own accesses are the plan, in one piece.
Result<RunResult> RunTrace(const tierd_policy_ops& policy, const Trace& trace, const RunOptions& options);

// What no policy can go below (ORDER.md 2, Theorem 1), in bytes, for a job of one node: N + (epochs - 1)(N - C).
double LeastSourceBytes(const Job& job, double capacity_bytes);

}  // namespace tierd::sim
