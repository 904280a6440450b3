// A12: how long a turn of the daemon's loop keeps everybody else waiting (HAZARDS 5), from tierd_loop_lag_seconds: while a data set of so many files is brought
// up, and while 1,000 sessions read it at random out of a RAM tier too small for it, beside a source that hangs; and while the control plane is sent lists of
// 10,000 paths.
#include <fcntl.h>
#include <sys/resource.h>
#include <tier/tier.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "bench/harness.h"
#include "tests/pfs_sim/rig.h"

namespace {

using namespace bench;  // NOLINT: a program of one file

constexpr int kSessions = 1000;
constexpr double kReadSeconds = 20;

// Turns by the upper end of their bucket in seconds, not cumulated.
using Turns = std::vector<std::pair<double, double>>;

Turns TurnsSoFar(const Daemon& daemon) {
  Turns turns;
  std::istringstream text(daemon.GetText("/v1/metrics"));
  double before = 0;
  for (std::string line; std::getline(text, line);) {
    constexpr std::string_view kBucket = "tierd_loop_lag_seconds_bucket{le=\"";
    if (line.rfind(kBucket, 0) != 0) continue;
    const char* const end = line.c_str() + kBucket.size();
    const double until = std::strncmp(end, "+Inf", 4) == 0 ? HUGE_VAL : std::strtod(end, nullptr);
    const double count = std::strtod(line.c_str() + line.rfind(' '), nullptr);
    turns.emplace_back(until, count - before);
    before = count;
  }
  return turns;
}

// Milliseconds: 99.9 % of the turns between the two looks were shorter; and how many there were.
std::pair<double, double> SlowTurn(const Turns& before, const Turns& after) {
  double all = 0;
  for (std::size_t i = 0; i < after.size(); ++i) all += after[i].second - before[i].second;
  double so_far = 0;
  for (std::size_t i = 0; i < after.size(); ++i) {
    so_far += after[i].second - before[i].second;
    if (so_far >= all * 0.999) return {after[i].first * 1e3, all};
  }
  return {HUGE_VAL, all};
}

// Reads whole files at random, each with the next session.
class ManySessions final : public Side {
 public:
  ManySessions(const std::string& socket, const std::string& root, const pfs_sim::TreeOptions& tree) : socket_(socket), root_(root), tree_(tree) {}
  void Prepare(int /*reader*/) override {
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
    ::setenv("TIERD_SOCKET", socket_.c_str(), 1);
    tier_options options{};
    options.size = sizeof options;
    options.flags = TIER_REQUIRE_DAEMON;
    for (tier_client*& client : clients_) {
      if (const int error = tier_connect(&options, &client); error != 0) Note(std::string("a session was refused: ") + std::strerror(-error));
    }
  }
  ReaderResult Run(int reader) override {
    ReaderResult result;
    std::uint64_t random = static_cast<std::uint64_t>(reader) + 1;
    char buffer[4096];
    for (const double until = Now() + kReadSeconds; Now() < until; ++result.files) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      tier_client* const client = clients_[result.files % clients_.size()];
      const std::string path = root_ + "/" + pfs_sim::TreePath(tree_, (random >> 20) % tree_.files);
      if (client == nullptr || tier_read_file(client, path.c_str(), buffer, sizeof buffer, nullptr, 0) < 0) ++result.errors;
    }
    return result;
  }

 private:
  const std::string socket_;
  const std::string root_;
  const pfs_sim::TreeOptions tree_;
  std::array<tier_client*, kSessions / 2> clients_{};  // of one of two readers
};

void Measure(Bench& bench, const std::string& id, std::uint64_t files) {
  // Three quarters of it fit, and no RAM tier is smaller than 16 MiB.
  const std::uint64_t file_bytes = std::max<std::uint64_t>(64, (24 << 20) / files);
  const pfs_sim::TreeOptions tree{.files = files, .dirs = files / 1000, .size = {.mean = static_cast<double>(file_bytes)}, .seed = 21};
  const std::string root = MakeTreeIn(bench, "lag", tree);
  std::string why = "no tree";
  const auto rig = root.empty() ? nullptr : pfs_sim::Rig::Start({.latency_us = 1000}, &why);
  if (rig == nullptr) return bench.Emit(SkippedRow({id, "turns of the loop", "ms"}, why));
  const pfs_sim::TreeOptions hanging{.files = 1000, .dirs = 10, .size = {.mean = 4096}, .seed = 22};
  if (!pfs_sim::MakeTree(rig->backing(), hanging, &why)) return bench.Fail(id + ": " + why);
  const auto daemon = Daemon::Start(bench, {.source = root, .ram = std::to_string(files * file_bytes / 4 * 3) + " B", .more = {"--source", rig->mount(), "--set", "source.staleness=immutable"}});
  if (daemon == nullptr) return bench.Fail(id + ": no daemon");
  bench.SetPages(daemon->pages());
  rig->Control("fault add op=read errno=hang");
  if (!daemon->Post("/v1/prefetch", {{"paths", {rig->mount()}}}).is_object()) return bench.Fail(id + ": the hanging source was not asked");

  const Turns empty = TurnsSoFar(*daemon);
  const nlohmann::json answer = daemon->Post("/v1/prefetch", {{"paths", {root}}});
  if (!answer.is_object() || !answer.contains("job")) return bench.Fail(id + ": no warm-up");
  WaitForJob(*daemon, answer["job"].get<int>(), 900);  // ends short: the tier is smaller than the data set
  const Turns filled = TurnsSoFar(*daemon);
  ManySessions side(daemon->socket(), root, tree);
  const RunResult result = RunReaders(2, side);
  const Turns read = TurnsSoFar(*daemon);
  const nlohmann::json status = daemon->Get("/v1/status");
  rig->Control("fault clear");
  if (empty.empty() || empty.size() != read.size()) return bench.Fail(id + ": no histogram of turns");
  if (!result.good) return bench.Fail(id + ": a read failed");
  const auto [fill_ms, fill_turns] = SlowTurn(empty, filled);
  const auto [read_ms, read_turns] = SlowTurn(filled, read);
  char note[160];
  std::snprintf(note, sizeof note, "%.0f turns, %.0f while it was filled (p99.9 %.2f ms), longest %.1f ms; %.0f reads/s", read_turns, fill_turns, fill_ms,
                status.value("loop_lag_max_us", 0) / 1e3, static_cast<double>(result.files) / result.seconds);
  const std::string what = "turn of the loop, p99.9 (end of its bucket), " + std::to_string(files) + " files, " + std::to_string(kSessions) + " sessions, a hung source";
  bench.Emit(ValueRow({id, what, "ms", note}, {{std::max(fill_ms, read_ms)}}, Bar::kAtMost, 5));
  RemoveTree(root);
}

// The longest of all, since there are few of them.
void MeasureLists(Bench& bench) {
  const std::string id = "A12.lists";
  const pfs_sim::TreeOptions tree{.files = 10'000, .dirs = 10, .size = {.mean = 400}, .seed = 23};
  const std::string root = MakeTreeIn(bench, "lists", tree);
  const auto daemon = root.empty() ? nullptr : Daemon::Start(bench, {.source = root});
  if (daemon == nullptr) return bench.Fail(id + ": no daemon");
  bench.SetPages(daemon->pages());
  nlohmann::json body{{"paths", nlohmann::json::array()}};
  for (std::uint64_t i = 0; i < tree.files; ++i) body["paths"].push_back(root + "/" + pfs_sim::TreePath(tree, i));
  const Turns before = TurnsSoFar(*daemon);
  const nlohmann::json answer = daemon->Post("/v1/prefetch", body);
  if (!answer.is_object() || !answer.contains("job")) return bench.Fail(id + ": no prefetch");
  WaitForJob(*daemon, answer["job"].get<int>(), 60);
  for (const char* order : {"/v1/pin", "/v1/unpin", "/v1/evict"}) {
    if (daemon->Post(order, body).value("files", 0u) != tree.files) return bench.Fail(id + ": not each file was known to " + order);
  }
  const Turns after = TurnsSoFar(*daemon);
  if (before.empty() || before.size() != after.size()) return bench.Fail(id + ": no histogram of turns");
  Samples longest{{0}};
  for (std::size_t i = 0; i < after.size(); ++i)
    if (after[i].second > before[i].second) longest.values[0] = after[i].first * 1e3;
  bench.Emit(ValueRow({id, "longest turn of the loop (end of its bucket), lists of 10,000 paths prefetched, pinned, unpinned, evicted", "ms"}, longest, Bar::kAtMost, 5));
  RemoveTree(root);
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench(argc, argv);
  if (bench.Wants("A12.100k")) InChild(bench, [&] { Measure(bench, "A12.100k", 100'000); });
  if (bench.Wants("A12.1m")) InChild(bench, [&] { Measure(bench, "A12.1m", 1'000'000); });
  if (bench.Wants("A12.lists")) InChild(bench, [&] { MeasureLists(bench); });
  return bench.Finish();
}
