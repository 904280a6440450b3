// C3: hit rates of the running daemon against the simulator with the same policies: 16,000 files of 4 KB, one reader, and one node of 4 and of 16 ranks.
// C4: what `belady` hits on one node that has room for one epoch of its own, all 90 epochs from cold, beside `lru` and `freeze`.
// C6: how long readers wait in the first epoch of a told order, on a source of 1 ms and 200 MB/s, against no bringing ahead and against `warm = auto`.
//
// Rates of C3 and C4 are the kernel's: bytes that the daemon and the reader have read by system calls (/proc/PID/io). RAM is filled up with files of another
// source, so that just so many of the dataset fit; how many did is what the simulator is told.
#include <tier/tier.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "bench/harness.h"
#include "bench/told.h"
#include "policies/registry.h"
#include "policies/sim/job.h"
#include "policies/sim/simulate.h"
#include "tests/pfs_sim/rig.h"

namespace {

using namespace bench;  // NOLINT: a program of one file

constexpr std::uint64_t kFiles = 16'000;
constexpr std::uint64_t kBytes = 4096;
constexpr std::uint64_t kRam = 64 << 20;
constexpr std::uint64_t kReadsAtOnce = 1024;  // then a pause in which also a busy daemon hears of them: no ring may run over

// Bytes that a process has read by system calls.
std::uint64_t ReadBytesOf(pid_t pid) {
  std::ifstream io("/proc/" + std::to_string(pid) + "/io");
  std::string name;
  std::uint64_t value = 0;
  io >> name >> value;
  return name == "rchar:" ? value : 0;
}

struct Setting {
  std::string policy;
  std::uint32_t ranks = 1;
  double room = 0.5;  // share of the dataset that fits
  std::uint32_t epochs = 20;
  std::uint32_t skip = 0;
};

struct Measured {
  double rate = 0;
  double simulated = 0;
  std::uint64_t resident = 0;
  std::uint64_t ring_lost = 0;
  bool followed = true;
};

class Runs {
 public:
  explicit Runs(Bench& bench) : bench_(bench), tree_{.files = kFiles, .dirs = 16, .size = {.mean = kBytes, .sigma = 0}, .seed = 21} {
    root_ = MakeTreeIn(bench, "dataset", tree_);
    paths_ = TreePaths(root_, tree_);
  }

  std::optional<Measured> Run(const Setting& setting) {
    const auto room = static_cast<std::uint64_t>(setting.room * kFiles);
    const pfs_sim::TreeOptions filler{.files = kRam / kBytes - room, .dirs = 8, .size = {.mean = kBytes, .sigma = 0}, .seed = 22};
    const std::string other = MakeTreeIn(bench_, "filler", filler);
    const auto measured = other.empty() ? std::nullopt : FromChild<Measured>(bench_, [&] { return RunBeside(setting, other, filler.files); });
    RemoveTree(other);
    return measured;
  }

 private:
  std::optional<Measured> RunBeside(const Setting& setting, const std::string& other, std::uint64_t filler) {
    const bool seeded = setting.policy == "belady";
    const auto daemon = Daemon::Start(bench_, {.source = root_, .ram = std::to_string(kRam) + " B", .policy = setting.policy,
                                               .more = {"--source", other, "--set", "source.staleness=immutable", "--set", "source.warm=off", "--set", "source.ahead=off",
                                                        "--set", "source.engine=threads", "--set", "ram.pages=4k"}});
    if (daemon == nullptr) return std::nullopt;
    const auto job_of_filler = daemon->Post("/v1/prefetch", {{"paths", {other}}});
    if (!job_of_filler.is_object() || !WaitForJob(*daemon, job_of_filler.value("job", 0), 60)) return std::nullopt;
    ::setenv("TIERD_SOCKET", daemon->socket().c_str(), 1);
    // What is not known is read by the daemon first, and by the reader again where it may not stay.
    const auto walk = daemon->Post("/v1/walk", {{"paths", {root_}}});
    if (!walk.is_object() || !WaitForJob(*daemon, walk.value("job", 0), 60)) return std::nullopt;
    const auto job = tierd::sim::Job::Create({.samples = kFiles, .bytes_mean = kBytes, .seed = 5, .nodes = setting.ranks, .epochs = setting.epochs});
    if (!job.ok()) return std::nullopt;
    tierd::orders::PlanOrders orders = job->Orders();
    if (seeded && (TellPlan(*daemon, paths_, orders.plan()) == 0 || !AwaitMapped(*daemon))) return std::nullopt;
    Measured measured;
    std::uint64_t reads = 0, before = 0;
    std::vector<char> buffer(1 << 16);
    std::vector<std::uint32_t> order;
    for (std::uint32_t epoch = 0; orders.Next(&order); ++epoch) {
      if (epoch == setting.skip) before = ReadBytesOf(daemon->pid()) + ReadBytesOf(::getpid());
      for (const std::uint32_t sample : order) {
        if (tier_read_file(nullptr, paths_[sample].c_str(), buffer.data(), buffer.size(), nullptr, 0) != static_cast<ssize_t>(kBytes)) return std::nullopt;
        if (++read_ % kReadsAtOnce == 0) ::usleep(10'000);
      }
      reads += epoch >= setting.skip ? order.size() : 0;
    }
    const std::uint64_t read = ReadBytesOf(daemon->pid()) + ReadBytesOf(::getpid()) - before;
    measured.rate = 1 - static_cast<double>(read) / static_cast<double>(reads * kBytes);
    const auto status = daemon->Get("/v1/status");
    if (!status.is_object()) return std::nullopt;
    measured.resident = status["tiers"]["ram"]["objects"].get<std::uint64_t>() - filler;
    measured.ring_lost = status.value("ring_lost", std::uint64_t{0});
    if (seeded) {
      const auto plans = daemon->Get("/v1/plans");
      measured.followed = plans["plans"].empty() || (plans["plans"][0]["state"] == "followed" && plans["plans"][0]["recall_ratio"] == 1.0);
      if (!measured.followed) Note("plan: " + plans.dump() + ", accesses that rings dropped: " + std::to_string(measured.ring_lost));
    }
    measured.simulated = Simulated(setting, *job, measured.resident);
    return measured;
  }

  static double Simulated(const Setting& setting, const tierd::sim::Job& job, std::uint64_t resident) {
    const tierd::policies::Registry registry;
    tierd::sim::RunOptions options;
    options.cache.capacity_bytes[0] = resident * kBytes;
    options.seeded = setting.policy == "belady";
    options.lookahead = 32;
    const auto run = tierd::sim::RunJob(**registry.Find(setting.policy), job, options);
    return run.ok() ? run->hit_rate(setting.skip) : -1;
  }

  Bench& bench_;
  const pfs_sim::TreeOptions tree_;
  std::uint64_t read_ = 0;
  std::string root_;
  std::vector<std::string> paths_;
};

void MeasureAgainstSimulator(Bench& bench, Runs& runs, const std::string& id, std::uint32_t ranks, const std::vector<double>& rooms) {
  for (const char* policy : {"lru", "freeze", "belady"}) {
    const std::string row = id + "." + policy;
    if (!bench.Wants(row)) continue;
    double worst = 0;
    std::uint64_t lost = 0;
    std::string note;
    for (const double room : rooms) {
      const auto measured = runs.Run({policy, ranks, room, 20, ranks == 1 ? 4u : 0u});
      if (!measured || !measured->followed) return bench.Fail(row + ": a run failed");
      worst = std::max(worst, std::abs(measured->rate - measured->simulated));
      lost += measured->ring_lost;
      char part[96];
      std::snprintf(part, sizeof part, "%s%.3f: %.4f/%.4f", note.empty() ? "" : ", ", static_cast<double>(measured->resident) / kFiles * ranks, measured->rate, measured->simulated);
      note += part;
    }
    if (lost != 0) return bench.Fail(row + ": rings dropped " + std::to_string(lost) + " accesses");
    const std::string who = ranks == 1 ? "one reader" : "one node of " + std::to_string(ranks);
    bench.Emit(ValueRow({row, std::string("daemon against simulator, ") + policy + (std::string(policy) == "belady" ? " (seeded), " : " (blind), ") + who + ": largest distance of hit rates", "",
                         "at share of an epoch that fits: daemon/simulator " + note},
                        {{worst}}, Bar::kAtMost, 0.01));
  }
}

void MeasureBelady(Bench& bench, Runs& runs, const std::string& id, std::uint32_t ranks, double bar) {
  if (!bench.Wants(id)) return;
  std::string note;
  double belady = 0;
  for (const char* policy : {"lru", "freeze", "belady"}) {
    const auto measured = runs.Run({policy, ranks, 1.0 / ranks, 90, 0});
    if (!measured || !measured->followed || measured->ring_lost != 0) return bench.Fail(id + ": a run failed");
    belady = measured->rate;
    char part[64];
    std::snprintf(part, sizeof part, "%s%s %.4f (simulator %.4f)", note.empty() ? "" : ", ", policy, measured->rate, measured->simulated);
    note += part;
  }
  bench.Emit(ValueRow({id, "hit rate of belady (seeded), one node of " + std::to_string(ranks) + ", room for one epoch of it, 90 epochs from cold", "", note}, {{belady}}, Bar::kAtLeast, bar));
}

// ---- C6 --------------------------------------------------------------------------------------------------------------------

constexpr unsigned kYoungSeconds = 11;  // files that may still be in the making are looked at once more before they are used: datasets are older

enum class How { kNothing, kWarm, kPlan };

struct Stalled {
  double share = 0;  // of the first epoch that one reader waited: it takes 150 MB/s at most
  char pages[24] = "";
};

std::optional<Stalled> Stall(Bench& bench, const pfs_sim::Rig& rig, const std::vector<std::string>& paths, How how) {
  ::usleep(1'200'000);  // the rig's kernel keeps names for a second
  const auto daemon = Daemon::Start(bench, {.source = rig.mount(), .ram = "1 GiB", .policy = "belady",
                                            .more = {"--set", std::string("source.warm=") + (how == How::kWarm ? "auto" : "off"), "--set", "source.staleness=immutable"}});
  if (daemon == nullptr) return std::nullopt;
  ::setenv("TIERD_SOCKET", daemon->socket().c_str(), 1);
  tierd::orders::Plan plan;
  plan.kind = tierd::orders::Kind::kTorchDistributed;
  plan.samples = paths.size();
  plan.epochs = 2;
  plan.seed = 11;
  if (how == How::kPlan && TellPlan(*daemon, paths, plan) == 0) return std::nullopt;
  auto orders = tierd::orders::PlanOrders::Create(plan);
  std::vector<std::uint32_t> order;
  orders->Next(&order);
  const auto paced = ReadPaced(paths, order, 150e6);
  if (!paced) return std::nullopt;
  Stalled stalled{.share = paced->waited / paced->seconds};
  daemon->pages().copy(stalled.pages, sizeof stalled.pages - 1);
  return stalled;
}

void MeasureStall(Bench& bench) {
  const std::vector<std::string> what = {"C6", "first-epoch stall of one reader at 150 MB/s, 4,000 x 108 KB, 1 ms / 200 MB/s, order told: share of the epoch", ""};
  if (!bench.rig_usable()) return bench.Emit(SkippedRow({"C6", what[1], ""}, "the rig's self-test failed: machine too busy"));
  const pfs_sim::TreeOptions tree{.files = 4000, .dirs = 10, .size = {.mean = 108e3, .sigma = 0.4}, .seed = 7};
  const std::string backing = MakeTreeIn(bench, "source-C6", tree);
  std::string why = "no tree";
  const auto rig = backing.empty() ? nullptr : pfs_sim::Rig::Start({.backing = backing, .latency_us = 1000, .bandwidth = 200'000'000}, &why);
  if (rig == nullptr) return bench.Emit(SkippedRow({"C6", what[1], ""}, why));
  const std::vector<std::string> paths = TreePaths(rig->mount(), tree);
  ::sleep(kYoungSeconds);
  Samples plan, warm, nothing;
  for (int round = 0; round < bench.rounds(5); ++round) {
    for (const How how : {How::kPlan, How::kWarm, How::kNothing}) {
      const auto stalled = FromChild<Stalled>(bench, [&] { return Stall(bench, *rig, paths, how); });
      if (!stalled) return bench.Fail("C6: a run failed");
      (how == How::kPlan ? plan : how == How::kWarm ? warm : nothing).values.push_back(stalled->share);
      bench.SetPages(stalled->pages);
    }
  }
  char note[128];
  std::snprintf(note, sizeof note, "seeded %.4f, warm = auto %.4f, neither %.4f of the epoch", plan.median(), warm.median(), nothing.median());
  bench.Emit(ValueRow({"C6.share", what[1], "", note}, plan, Bar::kAtMost, 0.05));
  bench.Emit(ValueRow({"C6.none", "the same, none over seeded", "x", note}, {{nothing.median() / plan.median()}}, Bar::kAtLeast, 5));
  bench.Emit(ValueRow({"C6.warm", "the same, seeded over warm = auto", "x", note}, {{plan.median() / warm.median()}}, Bar::kAtMost, 1));
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench(argc, argv);
  if (bench.WantsAny({"C3.one", "C3.k4", "C3.k16", "C4.k4", "C4.k16"})) {
    Runs runs(bench);
    MeasureAgainstSimulator(bench, runs, "C3.one", 1, {.10, .25, .50, .75});
    MeasureAgainstSimulator(bench, runs, "C3.k4", 4, {.125, .25, .5});
    MeasureAgainstSimulator(bench, runs, "C3.k16", 16, {.03125, .0625, .125});
    MeasureBelady(bench, runs, "C4.k4", 4, .54);
    MeasureBelady(bench, runs, "C4.k16", 16, .29);
  }
  if (bench.Wants("C6")) MeasureStall(bench);
  return bench.Finish();
}
