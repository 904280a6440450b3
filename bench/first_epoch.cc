// A6: the first epoch. Two readers, each with a random order of its own, one blocking file at a time, no hints, against the best of three ways
// to copy everything: find | xargs cp, tar | tar (into tmpfs both), and 64 threads that read and drop. The source is the rig: 1 ms per operation,
// 200 MB/s. Every file must have been opened once and every byte read once, counted there.
#include <sys/stat.h>
#include <tier/tier.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "bench/harness.h"
#include "bench/sides.h"
#include "tests/pfs_sim/rig.h"

namespace {

using namespace bench;  // NOLINT: a program of one file

constexpr int kCopierThreads = 64;

struct Setting {
  std::string id;
  std::string what;
  pfs_sim::TreeOptions tree;
  double bar;
};

// The rig's kernel keeps names for a second: each turn pays for its own lookups.
void ForgetNames() { ::usleep(1'200'000); }

double CopyWithThreads(const std::vector<std::string>& paths) {
  std::atomic<std::size_t> next = 0;
  const double from = Now();
  std::vector<std::thread> threads;
  for (int i = 0; i < kCopierThreads; ++i) {
    threads.emplace_back([&] {
      std::vector<char> buffer(1 << 20);
      for (std::size_t at = next++; at < paths.size(); at = next++) PosixReadFile(paths[at].c_str(), buffer.data(), buffer.size());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return Now() - from;
}

double CopyWithShell(const std::string& command) {
  char target[] = "/dev/shm/tierd-bench.XXXXXX";
  if (::mkdtemp(target) == nullptr) return -1;
  const double from = Now();
  const int status = Shell("D=" + std::string(target) + "; " + command);
  const double seconds = Now() - from;
  RemoveTree(target);
  return status == 0 ? seconds : -1;
}

class FirstEpoch {
 public:
  FirstEpoch(Bench& bench, const Setting& setting, const pfs_sim::Rig& rig)
      : bench_(bench), setting_(setting), rig_(rig), paths_(TreePaths(rig.mount(), setting.tree)) {}

  // Seconds until both readers are through; nothing when something failed.
  std::optional<double> Ours() {
    ForgetNames();
    const std::string cache = bench_.directory() + "/cache-" + setting_.id + "-" + std::to_string(++round_);
    ::mkdir(cache.c_str(), 0700);
    const auto daemon = Daemon::Start(bench_, {.source = rig_.mount(), .ram = "1 GiB", .ssd = cache, .ssd_capacity = "2 GiB"});
    if (daemon == nullptr) return std::nullopt;
    ::setenv("TIERD_SOCKET", daemon->socket().c_str(), 1);
    bench_.SetPages(daemon->pages());
    rig_.Control("counters reset");
    TierSide side({.paths = &paths_, .epochs = 1, .warm = false}, false);
    const RunResult result = RunReaders(2, side);
    const pfs_sim::RigCounters counters = rig_.Counters();
    extra_opens.values.push_back(static_cast<double>(counters.opens) - static_cast<double>(paths_.size()));
    extra_bytes.values.push_back(static_cast<double>(counters.bytes_read) - static_cast<double>(pfs_sim::TreeBytes(setting_.tree)));
    bool right = result.good && result.files == 2 * paths_.size();
    if (right && round_ == 1) right = WarmAndVerify(paths_, rig_.mount(), setting_.tree);
    RemoveTree(cache);
    return right ? std::optional(result.seconds) : std::nullopt;
  }

  std::optional<double> BestCopy() {
    const std::string from = "cd '" + rig_.mount() + "' && ";
    ForgetNames();
    const double xargs = CopyWithShell(from + "find . -type f -print0 | xargs -0 -P64 -n50 cp -t $D");
    ForgetNames();
    const double threads = CopyWithThreads(paths_);
    if (xargs <= 0 || threads <= 0) return std::nullopt;
    const double best = std::min(xargs, threads);
    if (!tar_tried_) {
      // It reads one file at a time: stopped as soon as it has lost.
      tar_tried_ = true;
      ForgetNames();
      tar_ = CopyWithShell(from + "tar cf - . | timeout " + std::to_string(2 * best) + " tar xf - -C $D");
      Note(tar_ > 0 ? "tar (once) " + std::to_string(tar_) + " s" : "tar (once): stopped after twice the best of the others");
    }
    Note("xargs cp " + std::to_string(xargs) + " s, 64 threads " + std::to_string(threads) + " s");
    return tar_ > 0 ? std::min(best, tar_) : best;
  }

  Samples extra_opens;
  Samples extra_bytes;

 private:
  Bench& bench_;
  const Setting& setting_;
  const pfs_sim::Rig& rig_;
  const std::vector<std::string> paths_;
  int round_ = 0;
  bool tar_tried_ = false;
  double tar_ = -1;  // -1: not through in time
};

void MeasureSetting(Bench& bench, const Setting& setting) {
  if (!bench.rig_usable()) return bench.Emit(SkippedRow({setting.id, setting.what, "s"}, "the rig's self-test failed: machine too busy"));
  const std::string backing = MakeTreeIn(bench, "source-" + setting.id, setting.tree);
  std::string why = "no tree";
  const auto rig = backing.empty() ? nullptr : pfs_sim::Rig::Start({.backing = backing, .latency_us = 1000, .bandwidth = 200'000'000}, &why);
  if (rig == nullptr) return bench.Emit(SkippedRow({setting.id, setting.what, "s"}, why));
  FirstEpoch epoch(bench, setting, *rig);
  const Comparison measured = Interleave(bench.rounds(5), [&] { return epoch.Ours(); }, [&] { return epoch.BestCopy(); });
  bench.Emit(RatioRow({setting.id, setting.what, "s"}, measured, Bar::kAtMost, setting.bar));
  char note[96];
  std::snprintf(note, sizeof note, "worst round: %+.0f opens, %+.0f bytes", epoch.extra_opens.max(), epoch.extra_bytes.max());
  Samples worst;
  for (std::size_t i = 0; i < epoch.extra_opens.values.size(); ++i) {
    worst.values.push_back(std::abs(epoch.extra_opens.values[i]) + std::abs(epoch.extra_bytes.values[i]));
  }
  nlohmann::json once = ValueRow({setting.id + ".once", "source opens and bytes beyond one read of everything", "opens+bytes", note}, {{worst.max()}}, Bar::kAtMost, 0);
  if (!worst.values.empty()) once["runs"] = worst.values.size();
  bench.Emit(once);
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench(argc, argv);
  const Setting settings[] = {
      {"A6.large", "first epoch, 4,000 x 108 KB, two readers, 1 ms / 200 MB/s, against the best copy",
       {.files = 4000, .dirs = 10, .size = {.mean = 108e3, .sigma = 0.4}, .seed = 7}, 1.15},
      {"A6.small", "first epoch, 20,000 x 800 B in 10 directories, two readers, 1 ms / 200 MB/s, against the best copy",
       {.files = 20'000, .dirs = 10, .size = {.mean = 800}, .seed = 8}, 1.5},
  };
  for (const Setting& setting : settings) {
    if (bench.Wants(setting.id)) InChild(bench, [&] { MeasureSetting(bench, setting); });
  }
  return bench.Finish();
}
