// A1, A2: RAM hits copied into the caller's buffer against open + fstat + read + close of files in the page cache.
//
// Long-lived: the reader process has read every file before. Forked: a new process for each epoch, as a DataLoader without persistent
// workers makes them, out of a parent that is connected; opening its session and every first touch are in the time. Sides take turns; with
// two readers each reads all files in an order of its own. No clock is read between two files of a process, on either side, but where the bar is one of single reads (A1.1r, A1.2r).
#include <tier/tier.h>

#include <cstdlib>

#include "bench/harness.h"
#include "bench/sides.h"

namespace {

using namespace bench;  // NOLINT: a program of one file

struct Setting {
  std::string id;    // A1 or A2
  std::string what;
  pfs_sim::TreeOptions tree;
  int epochs;        // per measurement: makes a measurement long enough
  double bars[2][2];  // [forked][two readers]
  bool p50;           // of single reads, in long-lived processes: wanted
};

struct Sums {
  double seconds = 0;
  double cpu = 0;
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  std::uint32_t p50_ns = 0;
};

enum class Kind { kTier = 0, kPosix = 1, kBare = 2, kBareByPath = 3 };

double FilesPerSecond(const Sums& sums) { return static_cast<double>(sums.files) / sums.seconds; }
double CpuPerGb(double cpu_seconds, const Sums& sums) { return cpu_seconds / (static_cast<double>(sums.bytes) / 1e9); }

// `epochs` passes in one long-lived process per reader, or each in processes of its own.
std::optional<Sums> Measure(const Setting& setting, const std::vector<std::string>& paths, Kind kind, int readers, bool forked) {
  FileSideOptions options{.paths = &paths, .epochs = forked ? 1 : setting.epochs, .warm = !forked, .timed = setting.p50 && !forked};
  Sums sums;
  for (int repeat = 0; repeat < (forked ? setting.epochs : 1); ++repeat) {
    TierSide tier_side(options, true);
    PosixSide posix_side(options);
    BareSide bare_side(options, BareSide::Find::kKnown);
    BareSide by_path_side(options, BareSide::Find::kByPath);
    Side* const sides[] = {&tier_side, &posix_side, &bare_side, &by_path_side};
    const RunResult result = RunReaders(readers, *sides[static_cast<int>(kind)]);
    if (!result.good) return std::nullopt;
    sums.seconds += result.seconds;
    sums.cpu += result.cpu_seconds;
    sums.files += result.files;
    sums.bytes += result.bytes;
    sums.p50_ns = std::max(sums.p50_ns, result.p50_ns);
  }
  return sums;
}

// One row: our side, the page cache, and what the bare mapping allows, in turns.
struct Row {
  std::string id;
  std::string what;
  int readers;
  bool forked;
};

struct Measured {
  Comparison files_per_second;
  Samples bare_ratio;     // bare mapping against the baseline
  Samples by_path_ratio;  // the same, found by its path
  Samples p50_us, bare_p50_us, posix_p50_us;
  Samples cpu, daemon_cpu, bare_cpu, posix_cpu;  // CPU-s/GB; ours with the daemon's
};

Measured MeasureRow(Bench& bench, const Daemon& daemon, const Setting& setting, const std::vector<std::string>& paths, const Row& row) {
  Measured all;
  const auto ours = [&]() -> std::optional<double> {
    const double daemon_before = daemon.cpu_seconds();
    const auto sums = Measure(setting, paths, Kind::kTier, row.readers, row.forked);
    if (!sums) return std::nullopt;
    all.p50_us.values.push_back(sums->p50_ns / 1000.0);
    const double of_daemon = daemon.cpu_seconds() - daemon_before;
    all.cpu.values.push_back(CpuPerGb(sums->cpu + of_daemon, *sums));
    all.daemon_cpu.values.push_back(CpuPerGb(of_daemon, *sums));
    return FilesPerSecond(*sums);
  };
  const auto baseline = [&]() -> std::optional<double> {
    const auto sums = Measure(setting, paths, Kind::kPosix, row.readers, row.forked);
    const auto bare = Measure(setting, paths, Kind::kBare, row.readers, row.forked);
    const auto by_path = Measure(setting, paths, Kind::kBareByPath, row.readers, row.forked);
    if (!sums || !bare || !by_path) return std::nullopt;
    all.posix_p50_us.values.push_back(sums->p50_ns / 1000.0);
    all.posix_cpu.values.push_back(CpuPerGb(sums->cpu, *sums));
    all.bare_p50_us.values.push_back(bare->p50_ns / 1000.0);
    all.bare_cpu.values.push_back(CpuPerGb(bare->cpu, *bare));
    all.bare_ratio.values.push_back(FilesPerSecond(*bare) / FilesPerSecond(*sums));
    all.by_path_ratio.values.push_back(FilesPerSecond(*by_path) / FilesPerSecond(*sums));
    return FilesPerSecond(*sums);
  };
  all.files_per_second = Interleave(bench.rounds(7), ours, baseline);
  return all;
}

void MeasureSetting(Bench& bench, const Setting& setting) {
  const std::string root = MakeTreeIn(bench, "tree-" + setting.id, setting.tree);
  const std::vector<std::string> paths = TreePaths(root, setting.tree);
  const auto daemon = root.empty() ? nullptr : Daemon::Start(bench, {.source = root});
  if (daemon == nullptr) return bench.Fail(setting.id + ": no daemon");
  ::setenv("TIERD_SOCKET", daemon->socket().c_str(), 1);
  if (!WarmAndVerify(paths, root, setting.tree)) return bench.Fail(setting.id + ": not all files are in RAM");
  HeatPageCache(paths);
  bench.SetPages(daemon->pages());
  // The parent of forked readers is connected, as a trainer that has listed its data set is.
  char byte = 0;
  tier_read_file(nullptr, paths[0].c_str(), &byte, 1, nullptr, 0);
  Samples cpu_per_gb;
  Samples bare_cpu;
  std::string cpu_note;
  for (const bool forked : {false, true}) {
    for (const int readers : {1, 2}) {
      const Row row{setting.id + "." + std::to_string(readers) + "r" + (forked ? ".fork" : ""),
                    setting.what + (readers == 1 ? ", one reader" : ", two readers") + (forked ? ", forked per epoch" : ""), readers, forked};
      if (!bench.WantsAny({row.id, setting.id + ".cpu"})) continue;
      const Measured measured = MeasureRow(bench, *daemon, setting, paths, row);
      const bool good = !measured.files_per_second.ratio.values.empty();
      char note[160] = "";
      if (good) {
        std::snprintf(note, sizeof note, "bare mapping %.2fx, found by path %.2fx; CPU-s/GB %.3f with the daemon's %.3f, baseline %.3f, bare %.3f", measured.bare_ratio.median(),
                      measured.by_path_ratio.median(), measured.cpu.median(), measured.daemon_cpu.median(), measured.posix_cpu.median(), measured.bare_cpu.median());
      }
      bench.Emit(RatioRow({row.id, row.what, "files/s", note}, measured.files_per_second, Bar::kAtLeast, setting.bars[forked][readers - 1]));
      if (!good) continue;  // the row says that a side failed
      cpu_per_gb.values.push_back(measured.cpu.median());
      bare_cpu.values.push_back(measured.bare_cpu.median());
      std::snprintf(note, sizeof note, "%s%s %.3f", cpu_note.empty() ? "" : ", ", row.id.c_str(), measured.cpu.median());
      cpu_note += note;
      if (setting.p50 && !forked) {
        std::snprintf(note, sizeof note, "baseline %.2f us, bare mapping %.2f us", measured.posix_p50_us.median(), measured.bare_p50_us.median());
        bench.Emit(ValueRow({row.id + ".p50", row.what + ": p50", "us", note}, measured.p50_us, Bar::kAtMost, readers == 1 ? 4.0 : 5.5));
      }
    }
  }
  if (setting.id != "A1" || cpu_per_gb.values.empty()) return;
  char bare_note[48];
  std::snprintf(bare_note, sizeof bare_note, "; bare mapping %.3f", bare_cpu.max());
  bench.Emit(ValueRow({"A1.cpu", "A1: CPU of readers and daemon, the worst of its rows", "CPU-s/GB", cpu_note + bare_note}, {{cpu_per_gb.max()}}, Bar::kAtMost, 0.05));
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench(argc, argv);
  const Setting settings[] = {
      {"A1", "RAM hits copied, 4,000 files of ~108 KB", {.files = 4000, .dirs = 10, .size = {.mean = 108e3, .sigma = 0.4}, .seed = 1}, 8,
       {{2.0, 1.5}, {1.8, 1.3}}, true},
      {"A2", "RAM hits copied, 100,000 files of 4 KB", {.files = 100'000, .dirs = 10, .size = {.mean = 4096}, .seed = 2}, 2, {{5.0, 5.0}, {4.0, 4.0}}, false},
  };
  // tier_default() of this process stays with the first daemon: each setting runs in a child of its own.
  for (const Setting& setting : settings) {
    if (bench.Wants(setting.id)) InChild(bench, [&] { MeasureSetting(bench, setting); });
  }
  return bench.Finish();
}
