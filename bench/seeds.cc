// C7: recovering a seed that nobody told. A DataLoader with 2 workers over DistributedSampler (50,000 samples, world 4, rank 1), its
// first 1,000 accesses. Processor time, not wall time: a daemon gives it a share of a core.
//
// The seed to be found is the last of its range, so that all are gone through. The portable code is measured on a slice of the seeds
// and scaled up: they all cost the same.
#include <ctime>
#include <random>

#include "bench/harness.h"
#include "policies/orders/seed_search.h"
#include "tests/policies/orders/loader.h"

namespace {

using namespace bench;  // NOLINT: a program of one file
using namespace tierd::orders;  // NOLINT
namespace loader = tierd::orders::testing;

constexpr std::uint32_t kSamples = 50'000;
constexpr std::uint32_t kWorld = 4;
constexpr std::uint32_t kRank = 1;
constexpr std::uint64_t kSlice = 1ull << 26;

double ProcessorSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

SeedSearch MakeSearch(std::uint32_t seed, const SeedSearch::Options& options) {
  OrderFit rank;
  rank.stride = kWorld;
  rank.offsets = {kRank};
  std::mt19937 random(1);
  std::vector<SampleAccess> seen = loader::Load(EntriesOf(PermutationOf(Recipe::kFresh, seed, kSamples), rank), {.workers = 2, .batch = 64}, random);
  seen.resize(1000);
  return SeedSearch({kSamples, std::move(seen)}, options);
}

bool Found(const SeedSearch& search, std::uint32_t seed) {
  const RecoveredOrder& order = search.result();
  return order.seed == seed && order.fit.stride == kWorld && order.fit.offsets == std::vector<std::uint32_t>{kRank};
}

// Seconds until `seed` is found; nothing if it is not.
std::optional<double> Search(std::uint32_t seed, const SeedSearch::Options& options) {
  const double from = ProcessorSeconds();
  SeedSearch search = MakeSearch(seed, options);
  SeedSearch::State state;
  do state = search.Advance(10'000);
  while (state == SeedSearch::State::kSearching);
  if (state != SeedSearch::State::kFound || !Found(search, seed)) return std::nullopt;
  return ProcessorSeconds() - from;
}

void MeasureAll(Bench& bench) {
  const char* code = BestScanCode() == ScanCode::kAvx2 ? "AVX2, chosen at run time" : "no AVX2 here";
  const std::optional<double> seconds = Search(UINT32_MAX, {});
  if (!seconds) return bench.Fail("C7.all: the seed was not found");
  bench.Emit(ValueRow({"C7.all", "unknown seed, 2 workers, world 4: all 2^32 seeds, processor time", "s", code}, {{*seconds}}, Bar::kAtMost, 300));
}

// The search as it is, over as many seeds as kSlice, times what is missing.
void MeasurePortable(Bench& bench) {
  Samples seconds;
  for (int round = 0; round < bench.rounds(5); ++round) {
    SeedSearch search = MakeSearch(UINT32_MAX, {.code = ScanCode::kPortable});
    while (search.scanned() == 0) search.Advance(10'000);
    const std::uint64_t before = search.scanned();
    const double from = ProcessorSeconds();
    while (search.scanned() - before < kSlice) search.Advance(10'000);
    seconds.values.push_back((ProcessorSeconds() - from) * 0x1p32 / static_cast<double>(search.scanned() - before));
  }
  bench.Emit(ValueRow({"C7.portable", "the same without AVX2", "s", "scaled from 2^26 seeds"}, seconds, Bar::kAtMost, 480));
}

void MeasureSmall(Bench& bench) {
  Samples seconds;
  for (int round = 0; round < bench.rounds(5); ++round) {
    const std::optional<double> one = Search(SeedSearch::kSmallSeeds - 1, {.all_seeds = false});
    if (!one) return bench.Fail("C7.small: the seed was not found");
    seconds.values.push_back(*one);
  }
  bench.Emit(ValueRow({"C7.small", "the same, seeds below 2^16 in three recipes", "s", "processor time"}, seconds, Bar::kAtMost, 1));
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench(argc, argv);
  if (bench.Wants("C7.small")) MeasureSmall(bench);
  if (bench.Wants("C7.portable")) MeasurePortable(bench);
  if (bench.Wants("C7.all")) MeasureAll(bench);
  return bench.Finish();
}
