// A8: restart (after kill -9) with 1 M records of 4 KB on the SSD: until the first verified hit, until the whole index is there, and the same with
// LevelDB deleted.
#include <sys/stat.h>
#include <tier/tier.h>
#include <unistd.h>

#include <cstdlib>

#include "bench/harness.h"
#include "tests/pfs_sim/content.h"

namespace {

using namespace bench;  // NOLINT: a program of one file

struct Times {
  double first_hit = 0;
  double whole_index = 0;
};

class Restarts {
 public:
  Restarts(Daemon& daemon, const std::string& root, const pfs_sim::TreeOptions& tree) : daemon_(daemon), root_(root), tree_(tree) {}

  // Times from the daemon's exec on; nothing when a hit was wrong or nothing came within a minute.
  std::optional<Times> Once() {
    Times times;
    double ready = 0;
    if (!daemon_.Restart(&ready)) return std::nullopt;
    const double started = Now() - ready;  // Restart first ends the old one
    if (!FirstHit()) return std::nullopt;
    times.first_hit = Now() - started;
    for (;;) {
      const auto status = daemon_.Get("/v1/status");
      if (!status.is_object() || Now() - started > 120) return std::nullopt;
      const auto& ssd = status["tiers"]["ssd"];
      if (status["state"] != "recovering" && ssd["state"] != "recovering" && ssd["objects"].get<std::uint64_t>() >= tree_.files) break;
      ::usleep(5'000);
    }
    times.whole_index = Now() - started;
    return times;
  }

 private:
  bool FirstHit() {
    tier_options options{};
    options.size = sizeof options;
    options.socket = daemon_.socket().c_str();
    options.flags = TIER_REQUIRE_DAEMON;
    tier_client* client = nullptr;
    if (tier_connect(&options, &client) != 0) return false;
    bool right = false;
    const double until = Now() + 60;
    for (std::uint64_t i = 0; !right && Now() < until; ++i) {
      const std::string relative = pfs_sim::TreePath(tree_, i * 7919 % tree_.files);
      tier_view view;
      if (tier_get(client, (root_ + "/" + relative).c_str(), &view, TIER_CACHED) != 0) continue;
      const bool good = !pfs_sim::CheckContent({.seed = tree_.seed, .path = relative, .version = tree_.version}, 0, view.data, view.size);
      // Read from the source by the daemon, it is no hit.
      right = good && (view.origin == TIER_FROM_SSD || view.origin == TIER_FROM_RAM);
      tier_release(&view);
      if (!good) break;
    }
    tier_disconnect(client);
    return right;
  }

  Daemon& daemon_;
  const std::string& root_;
  const pfs_sim::TreeOptions& tree_;
};

void Measure(Bench& bench) {
  const pfs_sim::TreeOptions tree{.files = 1'000'000, .dirs = 1000, .size = {.mean = 4096}, .seed = 11};
  const std::string root = MakeTreeIn(bench, "records", tree);
  const std::string cache = bench.directory() + "/cache";
  ::mkdir(cache.c_str(), 0700);
  const auto daemon = root.empty() ? nullptr : Daemon::Start(bench, {.source = root, .ram = "256 MiB", .ssd = cache, .ssd_capacity = "10 GiB",
                                                                    .more = {"--set", "source.staleness=immutable", "--set", "source.offline_ok=true"}});
  if (daemon == nullptr) return bench.Fail("A8: no daemon");
  const double from = Now();
  const auto answer = daemon->Post("/v1/prefetch", {{"paths", {root}}, {"tier", "ssd"}});
  if (!answer.is_object() || !answer.contains("job") || !WaitForJob(*daemon, answer["job"].get<int>(), 900)) return bench.Fail("A8: the SSD was not filled");
  Note("filled in " + std::to_string(Now() - from) + " s");
  bench.SetPages(daemon->pages());
  ::usleep(3'000'000);  // the index is written behind the data
  Restarts restarts(*daemon, root, tree);
  Samples first;
  Samples whole;
  for (int round = 0; round < bench.rounds(5); ++round) {
    const auto times = restarts.Once();
    if (!times) return bench.Fail("A8: a restart failed");
    first.values.push_back(times->first_hit);
    whole.values.push_back(times->whole_index);
  }
  bench.Emit(ValueRow({"A8.first", "restart after kill -9, 1M records of 4 KB on SSD: first verified hit", "s"}, first, Bar::kAtMost, 1));
  bench.Emit(ValueRow({"A8.index", "the same: whole index", "s"}, whole, Bar::kAtMost, 2));
  if (!bench.Wants("A8.rebuild")) return;
  Samples rebuilt;
  for (int round = 0; round < bench.rounds(5); ++round) {
    daemon->Kill();
    RemoveTree(cache + "/index");
    const auto times = restarts.Once();
    if (!times) return bench.Fail("A8: a restart without LevelDB failed");
    rebuilt.values.push_back(times->whole_index);
  }
  bench.Emit(ValueRow({"A8.rebuild", "the same with LevelDB deleted: whole index", "s"}, rebuilt, Bar::kAtMost, 10));
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench(argc, argv);
  if (bench.Wants("A8")) InChild(bench, [&] { Measure(bench); });
  return bench.Finish();
}
