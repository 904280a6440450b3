// C5: an SSD tier that is little faster than its reader, RAM for a tenth of the data, the order told: how many reads find their bytes in RAM.
//
// The SSD is a loop device with ext4 at 400 MB/s, the reader takes 320 MB/s, RAM has 400 MB, the data 4 GB on the disk below the work directory. The first
// epoch brings everything to the SSD; of the others the first twentieth is not counted.
#include <sys/stat.h>
#include <tier/tier.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "bench/harness.h"
#include "bench/limited_loop.h"
#include "bench/told.h"

namespace {

using namespace bench;  // NOLINT: a program of one file

constexpr std::uint64_t kSsdBytesPerSecond = 400'000'000;
constexpr double kReaderBytesPerSecond = 320e6;
constexpr std::uint64_t kRamBytes = 400'000'000;
constexpr std::uint64_t kDataBytes = 4'000'000'000;
constexpr std::uint64_t kFileBytes = 110'592;
constexpr std::uint32_t kEpochs = 4;
constexpr const char* kWhat = "reads that found their bytes in RAM, SSD at 400 MB/s, data 4 GB, RAM 400 MB, order told, reader at 320 MB/s, epochs 2 to 4, after the first 5 %";

tier_statistics Statistics() {
  tier_statistics statistics{};
  statistics.size = sizeof statistics;
  tier_stats(nullptr, &statistics);
  return statistics;
}

struct Epoch {
  PacedRead paced;
  double in_ram = 0;                // share of what is counted
  std::uint64_t beyond_the_ssd = 0;  // reads that the source had to serve, all of the epoch
};

std::optional<Epoch> ReadEpoch(const std::vector<std::string>& paths, const std::vector<std::uint32_t>& order) {
  const std::size_t skip = order.size() / 20;
  std::size_t read = 0;
  const tier_statistics begin = Statistics();
  tier_statistics from = begin;
  const auto paced = ReadPaced(paths, order, kReaderBytesPerSecond, [&] {
    if (++read == skip) from = Statistics();
  });
  if (!paced) return std::nullopt;
  const tier_statistics end = Statistics();
  Epoch epoch{.paced = *paced};
  epoch.in_ram = static_cast<double>(end.reads[TIER_FROM_RAM] - from.reads[TIER_FROM_RAM]) / static_cast<double>(order.size() - skip);
  for (const tier_origin origin : {TIER_FROM_SOURCE, TIER_FROM_BYPASS}) epoch.beyond_the_ssd += end.reads[origin] - begin.reads[origin];
  return epoch;
}

void MeasureAhead(Bench& bench, const LimitedLoop& loop, const std::string& root, const pfs_sim::TreeOptions& tree) {
  const std::string cache = loop.mount() + "/cache";
  ::mkdir(cache.c_str(), 0700);
  const auto daemon = Daemon::Start(bench, {.source = root, .ram = std::to_string(kRamBytes) + " B", .ssd = cache, .ssd_capacity = "6 GiB",
                                            .more = {"--set", "source.staleness=immutable", "--set", "ssd.min_free=0"}});
  if (daemon == nullptr) return bench.Fail("C5: no daemon");
  ::setenv("TIERD_SOCKET", daemon->socket().c_str(), 1);
  bench.SetPages(daemon->pages());
  const std::vector<std::string> paths = TreePaths(root, tree);
  tierd::orders::Plan plan;
  plan.kind = tierd::orders::Kind::kTorchDistributed;
  plan.samples = paths.size();
  plan.epochs = kEpochs;
  plan.seed = 17;
  auto orders = tierd::orders::PlanOrders::Create(plan);
  if (!orders.ok() || TellPlan(*daemon, paths, plan) == 0 || !AwaitMapped(*daemon)) return bench.Fail("C5: the plan was not taken");
  Samples in_ram;
  std::string note;
  std::vector<std::uint32_t> order;
  for (std::uint32_t number = 1; orders->Next(&order); ++number) {
    const auto epoch = ReadEpoch(paths, order);
    if (!epoch) return bench.Fail("C5: a file could not be read");
    char part[160];
    std::snprintf(part, sizeof part, "epoch %u: %.4f in RAM, %llu reads of the source, waited %.2f of %.2f s, at most %.0f ms", number, epoch->in_ram,
                  static_cast<unsigned long long>(epoch->beyond_the_ssd), epoch->paced.waited, epoch->paced.seconds, epoch->paced.longest * 1e3);
    Note(part);
    if (number == 1) continue;
    in_ram.values.push_back(epoch->in_ram);
    note += (note.empty() ? "" : "; ") + std::string(part);
  }
  bench.Emit(ValueRow({"C5", kWhat, "", note}, {{in_ram.min()}}, Bar::kAtLeast, 0.99));
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench(argc, argv);
  if (!bench.Wants("C5")) return bench.Finish();
  const pfs_sim::TreeOptions tree{.files = kDataBytes / kFileBytes, .dirs = 16, .size = {.mean = static_cast<double>(kFileBytes)}, .seed = 15};
  const std::string root = MakeTreeIn(bench, "source-C5", tree);
  if (root.empty()) {
    bench.Fail("C5: no room");
    return bench.Finish();
  }
  InChild(bench, [&] {
    LimitedLoop loop(bench, kSsdBytesPerSecond);
    if (!loop.ready()) return bench.Emit(SkippedRow({"C5", kWhat, ""}, LimitedLoop::kNeeds));
    InChild(bench, [&] { MeasureAhead(bench, loop, root, tree); });
  });
  RemoveTree(root);
  return bench.Finish();
}
