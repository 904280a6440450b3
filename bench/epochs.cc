// C9: how long epochs take in the daemon against what the simulator says (policies/sim/epoch_time.h), where readers mostly wait for the source or the SSD.
//
// The source is the rig with another latency, bandwidth, file size, number of readers and share of the data that fits into RAM each time; in some settings an
// SSD at a limited rate (ext4 on a loop device) has the rest. Four of the settings tell what the model does not know: what a read costs beside the rig's own
// latency, how often a read pays that latency, how much of the rig's bandwidth arrives, and at what rate one reader takes bytes. Of the SSD nothing is fitted:
// its bandwidth is the limit, its latency the model's. The time of the twelve others is foretold by these and by the simulator's counts. Epochs 2 and 3, no
// warm-up. A setting whose readers wait for less than four fifths of their time says nothing of devices: the row fails.
#include <sys/stat.h>
#include <tier/tier.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "bench/harness.h"
#include "bench/limited_loop.h"
#include "policies/registry.h"
#include "policies/sim/epoch_time.h"
#include "policies/sim/job.h"
#include "policies/sim/simulate.h"
#include "tests/pfs_sim/rig.h"

namespace {

using namespace bench;  // NOLINT: a program of one file

constexpr std::uint64_t kRam = 64 << 20;
constexpr std::uint64_t kSsd = 1 << 30;
constexpr std::uint64_t kFillerBytes = 64 << 10;
constexpr std::uint32_t kEpochs = 3;
constexpr double kLeastWaiting = 0.8;
constexpr const char* kWhat = "epoch times of the daemon against the simulator, 12 settings that wait for source or SSD, fitted on 4 others: median error";

struct Setting {
  std::uint64_t latency_us = 1000;
  double bandwidth = 0;  // bytes per second; 0: unlimited
  std::uint64_t files = 1000;
  std::uint64_t bytes = 4096;
  int readers = 1;
  double room = 0;       // share of the data that fits into RAM
  const char* policy = "freeze";
  double ssd_bandwidth = 0;  // bytes per second of an SSD tier that has room for all; 0: there is none
};

constexpr Setting kFit[] = {
    {.latency_us = 1000, .files = 700},
    {.latency_us = 4000, .files = 250},
    {.latency_us = 1000, .bandwidth = 100e6, .files = 150, .bytes = 1 << 20, .readers = 4},
    {.latency_us = 1000, .files = 200, .bytes = 1 << 20},
};
constexpr Setting kForetold[] = {
    {.latency_us = 2000, .files = 450},
    {.latency_us = 4000, .files = 900, .readers = 4},
    {.latency_us = 4000, .files = 400, .room = 0.5},
    {.latency_us = 4000, .files = 400, .room = 0.5, .policy = "lru"},
    {.latency_us = 2000, .files = 300, .bytes = 256 << 10},
    {.latency_us = 2000, .files = 800, .bytes = 110'592, .readers = 2, .room = 0.25},
    {.latency_us = 1000, .bandwidth = 60e6, .files = 900, .bytes = 110'592, .readers = 4},
    {.latency_us = 1000, .bandwidth = 80e6, .files = 120, .bytes = 1 << 20, .readers = 4, .room = 0.25},
    {.latency_us = 8000, .files = 900, .bytes = 110'592, .readers = 2, .ssd_bandwidth = 40e6},
    {.latency_us = 8000, .files = 100, .bytes = 1 << 20, .ssd_bandwidth = 50e6},
    {.latency_us = 8000, .files = 1200, .bytes = 110'592, .readers = 4, .room = 0.25, .ssd_bandwidth = 40e6},
    {.latency_us = 8000, .files = 1000, .bytes = 110'592, .readers = 4, .room = 0.25, .policy = "lru", .ssd_bandwidth = 30e6},
};

// Each reader reads its share of the epoch's order.
class ShareSide final : public Side {
 public:
  ShareSide(const std::vector<std::string>& paths, const std::vector<std::uint32_t>& order, int readers) : paths_(paths), order_(order), readers_(readers) {}
  void Prepare(int /*reader*/) override {
    buffer_.resize(2 << 20);
    tier_view view;  // the session is opened before the time is taken
    if (tier_get(nullptr, paths_.front().c_str(), &view, TIER_NOWAIT) == 0) tier_release(&view);
  }
  ReaderResult Run(int reader) override {
    ReaderResult result;
    for (std::size_t i = static_cast<std::size_t>(reader); i < order_.size(); i += static_cast<std::size_t>(readers_)) {
      const ssize_t got = tier_read_file(nullptr, paths_[order_[i]].c_str(), buffer_.data(), buffer_.size(), nullptr, 0);
      if (got < 0) ++result.errors;
      else result.bytes += static_cast<std::uint64_t>(got);
      ++result.files;
    }
    return result;
  }

 private:
  const std::vector<std::string>& paths_;
  const std::vector<std::uint32_t>& order_;
  const int readers_;
  std::vector<char> buffer_;
};

struct Timed {
  double seconds = 0;  // of one epoch
  double waiting = 0;  // share of the readers' time
  tierd::sim::CacheCounts counts;
};

class Settings {
 public:
  explicit Settings(Bench& bench) : bench_(bench) {}

  std::optional<Timed> Measure(const Setting& setting) {
    const std::string name = "epochs-" + std::to_string(++number_);
    const pfs_sim::TreeOptions tree{.files = setting.files, .dirs = 4, .size = {.mean = static_cast<double>(setting.bytes)}, .seed = number_};
    const auto room = static_cast<std::uint64_t>(setting.room * static_cast<double>(setting.files)) * setting.bytes;
    const pfs_sim::TreeOptions filler{.files = (kRam - room) / kFillerBytes, .dirs = 4, .size = {.mean = static_cast<double>(kFillerBytes)}, .seed = 99};
    const std::string backing = MakeTreeIn(bench_, name, tree), other = MakeTreeIn(bench_, name + "-filler", filler);
    std::string why = "no tree";
    const auto rig = backing.empty() || other.empty() ? nullptr : pfs_sim::Rig::Start({.backing = backing, .latency_us = setting.latency_us, .bandwidth = static_cast<std::uint64_t>(setting.bandwidth), .timeout_ms = 60'000}, &why);
    if (rig == nullptr) Note(why);
    std::optional<Timed> timed;
    if (rig != nullptr && setting.ssd_bandwidth == 0) timed = Read(setting, *rig, other, tree, "off");
    if (rig != nullptr && setting.ssd_bandwidth != 0) {
      timed = FromChild<Timed>(bench_, [&]() -> std::optional<Timed> {
        LimitedLoop loop(bench_, static_cast<std::uint64_t>(setting.ssd_bandwidth));
        if (!loop.ready() || ::mkdir((loop.mount() + "/cache").c_str(), 0700) != 0) return std::nullopt;
        return Read(setting, *rig, other, tree, loop.mount() + "/cache");
      });
    }
    RemoveTree(backing);
    RemoveTree(other);
    return timed;
  }

 private:
  std::optional<Timed> Read(const Setting& setting, const pfs_sim::Rig& rig, const std::string& other, const pfs_sim::TreeOptions& tree, const std::string& ssd) {
    const auto daemon = Daemon::Start(bench_, {.source = rig.mount(), .ram = std::to_string(kRam) + " B", .ssd = ssd, .ssd_capacity = std::to_string(kSsd) + " B", .policy = setting.policy,
                                               .more = {"--source", other, "--set", "source.staleness=immutable", "--set", "source.warm=off", "--set", "source.ahead=off",
                                                        "--set", "source.racy_window=0s", "--set", "source.engine=threads", "--set", "ram.pages=4k", "--set", "ssd.min_free=0"}});
    if (daemon == nullptr) return std::nullopt;
    const auto job = daemon->Post("/v1/prefetch", {{"paths", {other}}});
    if (!job.is_object() || !WaitForJob(*daemon, job.value("job", 0), 60)) return std::nullopt;
    const auto walk = daemon->Post("/v1/walk", {{"paths", {rig.mount()}}});
    if (!walk.is_object() || !WaitForJob(*daemon, walk.value("job", 0), 60)) return std::nullopt;
    ::setenv("TIERD_SOCKET", daemon->socket().c_str(), 1);
    const auto simulated = tierd::sim::Job::Create({.samples = setting.files, .bytes_mean = static_cast<double>(setting.bytes), .seed = number_, .epochs = kEpochs});
    if (!simulated.ok()) return std::nullopt;
    tierd::orders::PlanOrders orders = simulated->Orders();
    const std::vector<std::string> paths = TreePaths(rig.mount(), tree);
    std::vector<std::uint32_t> order;
    Timed timed;
    for (std::uint32_t epoch = 0; orders.Next(&order); ++epoch) {
      ShareSide side(paths, order, setting.readers);
      const RunResult run = RunReaders(setting.readers, side);
      if (!run.good || (ssd != "off" && epoch == 0 && !AllWritten(*daemon, rig.mount()))) return std::nullopt;
      if (epoch == 0) continue;
      timed.seconds += run.seconds / (kEpochs - 1);
      timed.waiting += (1 - run.cpu_seconds / (run.seconds * setting.readers)) / (kEpochs - 1);
    }
    const auto usage = daemon->Get("/v1/du?path=" + rig.mount());
    if (!usage.is_object()) return std::nullopt;
    const tierd::policies::Registry registry;
    tierd::sim::RunOptions options;
    options.cache.capacity_bytes[0] = usage["ram_bytes"].get<std::uint64_t>();
    options.cache.capacity_bytes[1] = ssd == "off" ? 0 : kSsd;
    options.seeded = false;
    const auto run = tierd::sim::RunJob(**registry.Find(setting.policy), *simulated, options);
    if (!run.ok()) return std::nullopt;
    timed.counts = run->epochs.back();
    return timed;
  }

  // What RAM has no room for is on the SSD; false after ten seconds.
  static bool AllWritten(const Daemon& daemon, const std::string& root) {
    for (const double until = Now() + 10; Now() < until; ::usleep(20'000)) {
      const auto usage = daemon.Get("/v1/du?path=" + root);
      if (usage.is_object() && usage["missing_bytes"] == 0) return true;
    }
    Note("the SSD does not have all files");
    return false;
  }

  Bench& bench_;
  std::uint64_t number_ = 0;
};

// What is the same in all settings.
struct Fitted {
  double own_seconds = 0;    // a read beside the rig's latency
  double turns = 0;          // how often a read pays that latency
  double arrives = 1;        // of the rig's bandwidth
  double stream = 1e18;      // bytes per second of one reader
};

double Latency(const Fitted& fitted, const Setting& setting) { return fitted.own_seconds + fitted.turns * static_cast<double>(setting.latency_us) * 1e-6; }

double Foretell(const Fitted& fitted, const Setting& setting, const tierd::sim::CacheCounts& counts) {
  tierd::sim::Speeds speeds;
  tierd::sim::Device& source = speeds.devices[2];
  source.latency_seconds = Latency(fitted, setting);
  source.bandwidth = setting.bandwidth == 0 ? 1e18 : setting.bandwidth * fitted.arrives;
  source.stream_bandwidth = fitted.stream;
  if (setting.ssd_bandwidth != 0) speeds.devices[1].bandwidth = speeds.devices[1].stream_bandwidth = setting.ssd_bandwidth;
  speeds.readers = setting.readers;
  return EpochSeconds(counts, speeds);
}

Fitted Fit(const std::vector<Timed>& timed) {
  const auto each = [&](std::size_t i) { return timed[i].seconds * kFit[i].readers / static_cast<double>(timed[i].counts.reads[2]); };
  Fitted fitted;
  fitted.turns = (each(1) - each(0)) / (static_cast<double>(kFit[1].latency_us - kFit[0].latency_us) * 1e-6);
  fitted.own_seconds = each(0) - fitted.turns * static_cast<double>(kFit[0].latency_us) * 1e-6;
  fitted.arrives = static_cast<double>(timed[2].counts.bytes[2]) / timed[2].seconds / kFit[2].bandwidth;
  fitted.stream = static_cast<double>(kFit[3].bytes) / std::max(1e-6, each(3) - Latency(fitted, kFit[3]));
  return fitted;
}

void MeasureEpochs(Bench& bench) {
  if (!bench.rig_usable()) return bench.Emit(SkippedRow({"C9", kWhat, ""}, "the rig's self-test failed: machine too busy"));
  if (::geteuid() != 0) return bench.Emit(SkippedRow({"C9", kWhat, ""}, LimitedLoop::kNeeds));
  Settings settings(bench);
  std::vector<Timed> known;
  for (const Setting& setting : kFit) {
    const auto timed = settings.Measure(setting);
    if (!timed) return bench.Fail("C9: a run failed");
    known.push_back(*timed);
  }
  const Fitted fitted = Fit(known);
  char note[256];
  std::snprintf(note, sizeof note, "a read costs %.0f us and %.2f latencies, %.2f of the bandwidth arrives, %.0f MB/s a reader; errors", fitted.own_seconds * 1e6, fitted.turns, fitted.arrives, fitted.stream / 1e6);
  std::string text = note;
  Samples errors;
  for (const Setting& setting : kForetold) {
    const auto timed = settings.Measure(setting);
    if (!timed) return bench.Fail("C9: a run failed");
    const double foretold = Foretell(fitted, setting, timed->counts);
    if (timed->waiting < kLeastWaiting) return bench.Fail("C9: readers waited for " + std::to_string(timed->waiting) + " of their time");
    errors.values.push_back(std::abs(foretold / timed->seconds - 1));
    std::snprintf(note, sizeof note, " %+.1f %%", (foretold / timed->seconds - 1) * 100);
    text += note;
    Note("took " + std::to_string(timed->seconds) + " s, waiting for " + std::to_string(timed->waiting) + " of it, foretold " + std::to_string(foretold) + " s");
  }
  bench.Emit(ValueRow({"C9", kWhat, "", text}, {{errors.median()}}, Bar::kAtMost, 0.10));
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench(argc, argv);
  if (bench.Wants("C9")) MeasureEpochs(bench);
  return bench.Finish();
}
