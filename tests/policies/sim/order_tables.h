// The two tables of hit rates that policies rest on, as numbers: hit rate of each policy at each size, found by simulation before there was a
// daemon (N = 20,000, 12 epochs, steady state; N = 64,000, 90 epochs from cold). The simulator has to find them again with the daemon's
// own policies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "policies/registry.h"
#include "policies/sim/simulate.h"

namespace tierd::sim::testing {

struct Cell {
  std::string policy;
  std::uint32_t nodes;
  double share;     // of what one epoch of the node reads, that fits
  double expected;
};

inline std::vector<Cell> OneReader() {
  std::vector<Cell> cells;
  const double shares[] = {.10, .25, .50, .75, .90};
  const std::pair<const char*, std::vector<double>> rows[] = {
      {"lru", {.005, .034, .153, .403, .671}},    {"fifo", {.005, .037, .193, .570, .828}},   {"random", {.011, .070, .283, .603, .832}},
      {"lfu", {.005, .034, .153, .403, .671}},    {"freeze", {.100, .250, .500, .750, .900}}, {"belady", {.100, .250, .500, .750, .900}},
  };
  for (const auto& [policy, rates] : rows) {
    for (std::size_t i = 0; i < rates.size(); ++i) cells.push_back({policy, 1, shares[i], rates[i]});
  }
  return cells;
}

inline std::vector<Cell> OneNodeOfSeveral() {
  struct Row {
    std::uint32_t nodes;
    double share;
    double rates[4];
  };
  const Row rows[] = {
      {4, .5, {.032, .123, .163, .369}},  {4, 1, {.135, .247, .309, .551}},  {4, 2, {.418, .491, .573, .763}},  {16, .5, {.008, .031, .063, .209}},
      {16, 1, {.032, .062, .117, .299}},  {16, 2, {.095, .122, .214, .416}}, {64, 1, {.008, .016, .058, .153}},
  };
  const char* policies[] = {"lru", "freeze", "frequency", "belady"};
  std::vector<Cell> cells;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < 4; ++i) cells.push_back({policies[i], row.nodes, row.share, row.rates[i]});
  }
  return cells;
}

// One reader: the mean of epochs 5 to 12. A node of several: all 90 epochs.
inline Result<double> HitRate(const Cell& cell, std::uint64_t samples, std::uint64_t seed) {
  JobOptions options;
  options.samples = samples;
  options.bytes_mean = 4096;
  options.seed = seed;
  options.nodes = cell.nodes;
  options.epochs = cell.nodes == 1 ? 12 : 90;
  const Result<Job> job = Job::Create(options);
  if (!job.ok()) return job.status();
  const policies::Registry registry;
  const Result<const tierd_policy_ops*> policy = registry.Find(cell.policy);
  if (!policy.ok()) return policy.status();
  RunOptions run;
  run.cache.capacity_bytes[TIERD_TIER_RAM] = static_cast<std::uint64_t>(cell.share * static_cast<double>(samples / cell.nodes)) * 4096;
  run.cache.seed = seed;
  run.lookahead = options.epochs;
  run.whole_plan_first = cell.policy == "frequency";
  const Result<RunResult> result = RunJob(**policy, *job, run);
  if (!result.ok()) return result.status();
  if (result->dropped_answers != 0) return Status(Code::kCorrupt, cell.policy + " gave wrong answers");
  return result->hit_rate(cell.nodes == 1 ? 4 : 0);
}

}  // namespace tierd::sim::testing
