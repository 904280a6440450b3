// A7: `tierctl prefetch --wait` of 60,000 small files in 10 folders behind the rig (1 ms per operation), against cp -r (rate taken on 3,000 files)
// and find | xargs -P64 cp of all. Ours ends with verified coverage; then the daemon is killed with SIGKILL, and after a restart every file must be
// read with the right bytes and without one open of the source.
#include <sys/stat.h>
#include <tier/tier.h>
#include <unistd.h>

#include <cstdlib>

#include "bench/harness.h"
#include "bench/sides.h"
#include "tests/pfs_sim/content.h"
#include "tests/pfs_sim/rig.h"

namespace {

using namespace bench;  // NOLINT: a program of one file

constexpr int kCheckers = 16;

// Each of kCheckers processes reads its share and compares bytes.
class CheckSide final : public Side {
 public:
  CheckSide(const std::vector<std::string>& paths, const std::string& root, const pfs_sim::TreeOptions& tree) : paths_(paths), root_(root), tree_(tree) {}
  ReaderResult Run(int reader) override {
    ReaderResult result;
    for (std::size_t i = static_cast<std::size_t>(reader); i < paths_.size(); i += kCheckers) {
      tier_view view;
      if (tier_get(nullptr, paths_[i].c_str(), &view, 0) != 0) {
        ++result.errors;
        continue;
      }
      const std::string relative = paths_[i].substr(root_.size() + 1);
      if (pfs_sim::CheckContent({.seed = tree_.seed, .path = relative, .version = tree_.version}, 0, view.data, view.size)) ++result.errors;
      ++result.files;
      tier_release(&view);
    }
    return result;
  }

 private:
  const std::vector<std::string>& paths_;
  const std::string& root_;
  const pfs_sim::TreeOptions& tree_;
};

class Prefetch {
 public:
  Prefetch(Bench& bench, const pfs_sim::Rig& rig, const pfs_sim::TreeOptions& tree)
      : bench_(bench), rig_(rig), tree_(tree), root_(rig.mount() + "/all"), paths_(TreePaths(root_, tree)) {}

  // Files per second, verification included.
  std::optional<double> Ours() {
    ::usleep(1'200'000);
    const std::string cache = bench_.directory() + "/cache-" + std::to_string(++round_);
    ::mkdir(cache.c_str(), 0700);
    const auto daemon = Daemon::Start(bench_, {.source = rig_.mount(), .ram = "256 MiB", .ssd = cache, .ssd_capacity = "2 GiB"});
    if (daemon == nullptr) return std::nullopt;
    bench_.SetPages(daemon->pages());
    ::setenv("TIERD_SOCKET", daemon->socket().c_str(), 1);
    const char* tierctl = std::getenv("TIERCTL_BINARY");
    const double from = Now();
    const int status = Shell(std::string("'") + (tierctl != nullptr ? tierctl : TIERD_BENCH_TIERCTL) + "' prefetch --wait '" + root_ + "'");
    const double seconds = Now() - from;
    bool right = status == 0;
    if (!right) Note("tierctl prefetch ended with " + std::to_string(status));
    if (right && round_ == 1) right = SurvivesKill(*daemon);
    RemoveTree(cache);
    return right ? std::optional(static_cast<double>(paths_.size()) / seconds) : std::nullopt;
  }

  std::optional<double> CopyRecursive() { return Copy("cp -r '" + rig_.mount() + "/some/.' $D", 3000); }
  std::optional<double> CopyParallel() {
    return Copy("cd '" + root_ + "' && find . -type f -print0 | xargs -0 -P64 -n50 cp -t $D", static_cast<double>(paths_.size()));
  }
  bool survived() const { return survived_; }

 private:
  bool SurvivesKill(Daemon& daemon) {
    double seconds = 0;
    if (!daemon.Restart(&seconds)) return false;
    rig_.Control("counters reset");
    CheckSide side(paths_, root_, tree_);
    const RunResult result = RunReaders(kCheckers, side);
    const std::uint64_t opens = rig_.Counters().opens;
    Note("after kill -9 and restart: " + std::to_string(result.files) + " files right, " + std::to_string(opens) + " opens of the source");
    survived_ = result.good && result.files == paths_.size() && opens == 0;
    return survived_;
  }

  std::optional<double> Copy(const std::string& command, double files) {
    char target[] = "/dev/shm/tierd-bench.XXXXXX";
    if (::mkdtemp(target) == nullptr) return std::nullopt;
    ::usleep(1'200'000);
    const double from = Now();
    const int status = Shell("D=" + std::string(target) + "; " + command);
    const double seconds = Now() - from;
    RemoveTree(target);
    return status == 0 ? std::optional(files / seconds) : std::nullopt;
  }

  Bench& bench_;
  const pfs_sim::Rig& rig_;
  const pfs_sim::TreeOptions& tree_;
  const std::string root_;
  const std::vector<std::string> paths_;
  int round_ = 0;
  bool survived_ = false;
};

void Measure(Bench& bench) {
  const char* what_cp = "prefetch --wait of 60,000 x 800 B, verified, against cp -r";
  const char* what_xargs = "prefetch --wait of 60,000 x 800 B, verified, against xargs -P64 cp";
  const auto skip = [&](const std::string& why) {
    bench.Emit(SkippedRow({"A7.cp", what_cp, "files/s"}, why));
    bench.Emit(SkippedRow({"A7.xargs", what_xargs, "files/s"}, why));
  };
  if (!bench.rig_usable()) return skip("the rig's self-test failed: machine too busy");
  const pfs_sim::TreeOptions all{.files = 60'000, .dirs = 10, .size = {.mean = 800}, .seed = 9};
  const pfs_sim::TreeOptions some{.files = 3000, .dirs = 10, .size = {.mean = 800}, .seed = 10};
  const std::string backing = bench.directory() + "/source";
  ::mkdir(backing.c_str(), 0755);
  std::string why = "no tree";
  const bool made = !MakeTreeIn(bench, "source/all", all).empty() && !MakeTreeIn(bench, "source/some", some).empty();
  const auto rig = made ? pfs_sim::Rig::Start({.backing = backing, .latency_us = 1000, .bandwidth = 200'000'000}, &why) : nullptr;
  if (rig == nullptr) return skip(why);
  Prefetch prefetch(bench, *rig, all);
  Comparison against_cp;
  Comparison against_xargs;
  for (int round = 0; round < bench.rounds(5); ++round) {
    const auto ours = prefetch.Ours();
    const auto xargs = prefetch.CopyParallel();
    const auto cp = prefetch.CopyRecursive();
    if (!ours || !xargs || !cp) return bench.Fail("A7: a side failed, or files were lost by kill -9");
    for (const auto& [comparison, baseline] : {std::pair(&against_cp, *cp), std::pair(&against_xargs, *xargs)}) {
      comparison->ours.values.push_back(*ours);
      comparison->baseline.values.push_back(baseline);
      comparison->ratio.values.push_back(*ours / baseline);
    }
  }
  const std::string note = prefetch.survived() ? "all readable after kill -9 + restart, source not opened (after the first round)" : "";
  bench.Emit(RatioRow({"A7.cp", what_cp, "files/s", note}, against_cp, Bar::kAtLeast, 25));
  bench.Emit(RatioRow({"A7.xargs", what_xargs, "files/s", note}, against_xargs, Bar::kAtLeast, 1.2));
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench(argc, argv);
  if (bench.Wants("A7")) InChild(bench, [&] { Measure(bench); });
  return bench.Finish();
}
