// C2: the tables of hit rates that policies rest on, from the simulator with the daemon's policies: each cell within .005. And how fast it
// simulates, on one core at 1.28 M samples.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "bench/harness.h"
#include "tests/policies/sim/order_tables.h"

namespace {

using namespace bench;  // NOLINT: a program of one file
using tierd::sim::testing::Cell;

constexpr std::uint64_t kSeed = 1;

void MeasureTable(Bench& bench, const std::string& id, const std::string& what, const std::vector<Cell>& cells, std::uint64_t samples) {
  double worst = 0;
  Cell worst_cell;
  double worst_rate = 0;
  for (const Cell& cell : cells) {
    const tierd::Result<double> rate = tierd::sim::testing::HitRate(cell, samples, kSeed);
    if (!rate.ok()) return bench.Fail(id + ": " + rate.status().ToString());
    char line[128];
    std::snprintf(line, sizeof line, "%-10s nodes %-3u share %.2f  %.4f  (%.3f)", cell.policy.c_str(), cell.nodes, cell.share, *rate, cell.expected);
    Note(line);
    if (std::abs(*rate - cell.expected) < worst) continue;
    worst = std::abs(*rate - cell.expected);
    worst_cell = cell;
    worst_rate = *rate;
  }
  char note[160];
  std::snprintf(note, sizeof note, "%zu cells, seed %llu, N = %llu; worst: %s, %u nodes, share %.2f: %.4f for %.3f", cells.size(), static_cast<unsigned long long>(kSeed),
                static_cast<unsigned long long>(samples), worst_cell.policy.c_str(), worst_cell.nodes, worst_cell.share, worst_rate, worst_cell.expected);
  bench.Emit(ValueRow({id, what, "", note}, {{worst}}, Bar::kAtMost, 0.005));
}

// What memory alone takes: one word of each of as many 16-byte entries, in random order. Nanoseconds per access.
double BareAccessNs(std::size_t entries) {
  struct Entry {
    std::uint32_t words[4];
  };
  std::vector<Entry> table(entries);
  std::vector<std::uint32_t> order(entries);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  const auto from = std::chrono::steady_clock::now();
  for (const std::uint32_t at : order) ++table[at].words[0];
  const std::chrono::duration<double, std::nano> passed = std::chrono::steady_clock::now() - from;
  asm volatile("" : : "r"(table.data()) : "memory");
  return passed.count() / static_cast<double>(entries);
}

void MeasureSpeed(Bench& bench, const std::string& policy, double bar) {
  tierd::sim::JobOptions options;
  options.samples = 1'281'167;
  options.epochs = 4;
  const tierd::Result<tierd::sim::Job> job = tierd::sim::Job::Create(options);
  const tierd::policies::Registry registry;
  const auto ops = registry.Find(policy);
  if (!job.ok() || !ops.ok()) return bench.Fail("SIM." + policy);
  Samples rates, bare;
  for (int round = 0; round < bench.rounds(5); ++round) {
    tierd::sim::RunOptions run;
    run.cache.capacity_bytes[TIERD_TIER_RAM] = job->bytes() / 2;
    run.lookahead = 1;
    bare.values.push_back(BareAccessNs(options.samples));
    const auto result = tierd::sim::RunJob(**ops, *job, run);
    if (!result.ok()) return bench.Fail("SIM." + policy + ": " + result.status().ToString());
    rates.values.push_back(static_cast<double>(result->total.all_reads()) / result->seconds / 1e6);
  }
  char note[128];
  std::snprintf(note, sizeof note, "the policy through its C ABI; without drawing the orders; %.1f bare random memory accesses each (%.1f ns)", 1e3 / rates.median() / bare.median(), bare.median());
  bench.Emit(ValueRow({"C2.speed." + policy, "simulated accesses per second on one core, " + policy + ", N = 1.28 M, half of it fits", "M/s", note},
                      rates, Bar::kAtLeast, bar));
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench(argc, argv);
  if (bench.Wants("C2.one")) MeasureTable(bench, "C2.one", "simulator against the table of one reader: largest distance", tierd::sim::testing::OneReader(), 20'000);
  if (bench.Wants("C2.nodes")) MeasureTable(bench, "C2.nodes", "simulator against the table of one node of several: largest distance", tierd::sim::testing::OneNodeOfSeveral(), 64'000);
  if (bench.Wants("C2.speed.lru")) MeasureSpeed(bench, "lru", 20);
  if (bench.Wants("C2.speed.belady")) MeasureSpeed(bench, "belady", 10);
  return bench.Finish();
}
