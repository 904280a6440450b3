// A10: hit rates of the running daemon under a fresh permutation per epoch, against theory: `lru` f + (1 - f) ln(1 - f), `freeze` C/N.
// f is the share of files that are resident, as the daemon says; no SSD tier.
#include <tier/tier.h>

#include <cmath>
#include <cstdlib>

#include "bench/harness.h"
#include "bench/sides.h"

namespace {

using namespace bench;  // NOLINT: a program of one file

constexpr std::uint64_t kFiles = 10'000;
constexpr int kSettle = 3;   // epochs before counting
constexpr int kCounted = 5;

struct Setting {
  std::string id;
  std::string policy;
  double share;  // of the data that fits
  bool log_normal;
};

struct Measured {
  double hit_rate = 0;
  double resident_files = 0;  // share, mean over the counted epochs
  double resident_bytes = 0;
};

std::optional<Measured> Run(Bench& bench, const Setting& setting, const std::string& root, const pfs_sim::TreeOptions& tree) {
  const double bytes = static_cast<double>(pfs_sim::TreeBytes(tree));
  const auto ram = static_cast<std::uint64_t>(setting.share * bytes);
  const auto daemon = Daemon::Start(bench, {.source = root, .ram = std::to_string(ram) + " B", .policy = setting.policy,
                                            .more = {"--set", "source.staleness=immutable", "--set", "source.warm=off"}});
  if (daemon == nullptr) return std::nullopt;
  ::setenv("TIERD_SOCKET", daemon->socket().c_str(), 1);
  bench.SetPages(daemon->pages());
  const std::vector<std::string> paths = TreePaths(root, tree);
  std::vector<char> buffer(1 << 20);
  Measured measured;
  for (int epoch = 0; epoch < kSettle + kCounted; ++epoch) {
    tier_statistics before{};
    before.size = sizeof before;
    tier_stats(nullptr, &before);
    for (const std::uint32_t i : Permutation(paths.size(), static_cast<std::uint64_t>(epoch + 1))) {
      if (tier_read_file(nullptr, paths[i].c_str(), buffer.data(), buffer.size(), nullptr, 0) < 0) return std::nullopt;
    }
    if (epoch < kSettle) continue;
    tier_statistics after{};
    after.size = sizeof after;
    tier_stats(nullptr, &after);
    const auto status = daemon->Get("/v1/status");
    if (!status.is_object()) return std::nullopt;
    measured.hit_rate += static_cast<double>(after.reads[TIER_FROM_RAM] - before.reads[TIER_FROM_RAM]) / static_cast<double>(kFiles) / kCounted;
    measured.resident_files += status["tiers"]["ram"]["objects"].get<double>() / static_cast<double>(kFiles) / kCounted;
    measured.resident_bytes += status["tiers"]["ram"]["used_bytes"].get<double>() / bytes / kCounted;
  }
  return measured;
}

void Measure(Bench& bench, const Setting& setting) {
  const pfs_sim::TreeOptions tree{.files = kFiles, .dirs = 10, .size = {.mean = 16'384, .sigma = setting.log_normal ? 0.8 : 0.0}, .seed = 13};
  const std::string root = MakeTreeIn(bench, "tree-" + setting.id, tree);
  const auto measured = root.empty() ? std::nullopt : Run(bench, setting, root, tree);
  RemoveTree(root);
  if (!measured) return bench.Fail(setting.id + ": a run failed");
  const double f = setting.log_normal ? measured->resident_bytes : measured->resident_files;
  const double theory = setting.policy == "lru" ? f + (1 - f) * std::log(1 - f) : f;
  char what[128];
  char note[160];
  std::snprintf(what, sizeof what, "hit rate of %s, %s, room for %.0f %%: distance from theory", setting.policy.c_str(),
                setting.log_normal ? "log-normal sizes" : "equal sizes", setting.share * 100);
  std::snprintf(note, sizeof note, "measured %.4f, theory %.4f at resident %.4f (%s); mean of %d epochs", measured->hit_rate, theory, f,
                setting.log_normal ? "bytes" : "files", kCounted);
  nlohmann::json row = ValueRow({setting.id, what, "", note}, {{std::abs(measured->hit_rate - theory)}}, Bar::kAtMost, setting.log_normal ? 0.02 : 0.01);
  row["runs"] = kCounted;
  bench.Emit(row);
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench(argc, argv);
  const Setting settings[] = {
      {"A10.lru.25", "lru", 0.25, false},       {"A10.lru.50", "lru", 0.50, false},           {"A10.freeze.25", "freeze", 0.25, false},
      {"A10.freeze.50", "freeze", 0.50, false}, {"A10.freeze.lognormal", "freeze", 0.50, true},
  };
  for (const Setting& setting : settings) {
    if (bench.Wants(setting.id)) InChild(bench, [&] { Measure(bench, setting); });
  }
  return bench.Finish();
}
