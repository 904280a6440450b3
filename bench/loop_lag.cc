// A12: how long a turn of the daemon's loop keeps everybody else waiting (HAZARDS 5), from tierd_loop_lag_seconds: while a data set of so many files is brought
// up, and while 1,000 sessions read it at random out of a RAM tier too small for it, beside a source that hangs; and while the control plane is sent lists of
// 10,000 paths. A12.10m, ten million files and the memory that they cost the daemon, takes some minutes: it runs only when it is asked for by its own name.
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
#include "bench/inline_image.h"
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

// What the daemon's log says of handlers that took long, to stderr.
void ShowLateTurns(const Daemon& daemon) { Shell("grep 'loop late' '" + daemon.socket().substr(0, daemon.socket().rfind('/')) + "/tierd.log'"); }

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

struct Scene {
  std::string id;
  pfs_sim::TreeOptions tree;
  std::string root;            // where its files are
  double fill_seconds = 900;   // it is brought up within these, or not measured
  bool tells_memory = false;   // rows of it, too
};

// Beside the bytes that are cached.
struct Memory {
  std::uint64_t all = 0;
  std::uint64_t index = 0;
};

Memory MemoryOf(const Daemon& daemon) { return {daemon.overhead_bytes(), daemon.index_bytes()}; }

void TellMemory(Bench& bench, const Scene& scene, const Daemon& daemon, const Memory& empty, const Memory& full) {
  const auto files = static_cast<double>(scene.tree.files);
  char note[160];
  std::snprintf(note, sizeof note, "empty %.1f MB, then %.1f MB; resident %.1f MB, what is cached included", static_cast<double>(empty.all) / 1e6, static_cast<double>(full.all) / 1e6,
                static_cast<double>(daemon.rss_bytes()) / 1e6);
  const std::string at = std::to_string(scene.tree.files) + " files";
  bench.Emit(ValueRow({scene.id + ".memory", "memory per million files at " + at + ", beside the segments, less empty", "MB", note},
                      {{static_cast<double>(full.all - std::min(full.all, empty.all)) / files}}, Bar::kAtMost, 300));
  bench.Emit(ValueRow({scene.id + ".index", "shared index at " + at, "B/file"}, {{static_cast<double>(full.index) / files}}, Bar::kAtMost, 170));
}

// True when every file has been brought once, whether it found room or not: all are known then. The verification may be under way.
bool BringUp(const Daemon& daemon, const Scene& scene) {
  const double begin = Now();
  const nlohmann::json answer = daemon.Post("/v1/prefetch", {{"paths", {scene.root}}});
  if (!answer.is_object() || !answer.contains("job")) return false;
  WaitForJob(daemon, answer["job"].get<int>(), scene.fill_seconds);  // ends short: the tier is smaller than the data set
  const nlohmann::json job = daemon.Get("/v1/jobs/" + answer["job"].dump());
  if (!job.is_object()) return false;
  const std::uint64_t files = job.value("files_done", std::uint64_t{0}) + job.value("files_no_room", std::uint64_t{0});
  Note(scene.id + ": " + std::to_string(files) + " files in " + std::to_string(static_cast<int>(Now() - begin)) + " s");
  return files == scene.tree.files;
}

void MeasureScene(Bench& bench, const Scene& scene) {
  const std::string& id = scene.id;
  std::string why;
  const auto rig = pfs_sim::Rig::Start({.latency_us = 1000}, &why);
  if (rig == nullptr) return bench.Emit(SkippedRow({id, "turns of the loop", "ms"}, why));
  const pfs_sim::TreeOptions hanging{.files = 1000, .dirs = 10, .size = {.mean = 4096}, .seed = 22};
  if (!pfs_sim::MakeTree(rig->backing(), hanging, &why)) return bench.Fail(id + ": " + why);
  // Three quarters of it fit.
  const std::string ram = std::to_string(pfs_sim::TreeBytes(scene.tree) / 4 * 3) + " B";
  const auto daemon = Daemon::Start(bench, {.source = scene.root, .ram = ram, .more = {"--source", rig->mount(), "--set", "source.staleness=immutable"}});
  if (daemon == nullptr) return bench.Fail(id + ": no daemon");
  bench.SetPages(daemon->pages());
  rig->Control("fault add op=read errno=hang");
  if (!daemon->Post("/v1/prefetch", {{"paths", {rig->mount()}}}).is_object()) return bench.Fail(id + ": the hanging source was not asked");

  const Memory bare = MemoryOf(*daemon);
  const Turns empty = TurnsSoFar(*daemon);
  if (!BringUp(*daemon, scene)) return ShowLateTurns(*daemon), bench.Fail(id + ": it was not brought up in time");
  const Turns filled = TurnsSoFar(*daemon);
  const Memory full = MemoryOf(*daemon);  // without the pages of a thousand sessions
  ManySessions side(daemon->socket(), scene.root, scene.tree);
  const RunResult result = RunReaders(2, side);
  const Turns read = TurnsSoFar(*daemon);
  const nlohmann::json status = daemon->Get("/v1/status");
  rig->Control("fault clear");
  ShowLateTurns(*daemon);
  if (empty.empty() || empty.size() != read.size()) return bench.Fail(id + ": no histogram of turns");
  if (!result.good) return bench.Fail(id + ": a read failed");
  const auto [fill_ms, fill_turns] = SlowTurn(empty, filled);
  const auto [read_ms, read_turns] = SlowTurn(filled, read);
  char note[160];
  std::snprintf(note, sizeof note, "%.0f turns, %.0f while it was filled (p99.9 %.2f ms), longest %.1f ms; %.0f reads/s", read_turns, fill_turns, fill_ms,
                status.value("loop_lag_max_us", 0) / 1e3, static_cast<double>(result.files) / result.seconds);
  const std::string what = "turn of the loop, p99.9 (end of its bucket), " + std::to_string(scene.tree.files) + " files, " + std::to_string(kSessions) + " sessions, a hung source";
  bench.Emit(ValueRow({id, what, "ms", note}, {{std::max(fill_ms, read_ms)}}, Bar::kAtMost, 5));
  if (scene.tells_memory) TellMemory(bench, scene, *daemon, bare, full);
}

pfs_sim::TreeOptions Files(std::uint64_t files, std::uint64_t file_bytes) {
  return {.files = files, .dirs = files / 1000, .size = {.mean = static_cast<double>(file_bytes)}, .seed = 21};
}

void Measure(Bench& bench, const std::string& id, std::uint64_t files) {
  // No RAM tier is smaller than 16 MiB.
  const pfs_sim::TreeOptions tree = Files(files, std::max<std::uint64_t>(64, (24 << 20) / files));
  const std::string root = MakeTreeIn(bench, "lag", tree);
  if (root.empty()) return bench.Emit(SkippedRow({id, "turns of the loop", "ms"}, "no tree"));
  MeasureScene(bench, {id, tree, root});
  RemoveTree(root);
}

// In an image of their own, since that many files are slow to make and to remove elsewhere, and take a block of disk each.
void MeasureTenMillion(Bench& bench) {
  const std::string id = "A12.10m";
  const pfs_sim::TreeOptions tree = Files(10'000'000, InlineImage::kFileBytes);
  const InlineImage image(bench, tree.files);
  if (!image.why_not().empty()) return bench.Emit(SkippedRow({id, "turns of the loop", "ms"}, image.why_not()));
  const double begin = Now();
  const std::string root = image.mount() + "/lag";
  if (const int error = InlineImage::MakeFiles(root, tree); error != 0) return bench.Fail(id + ": its files: " + std::strerror(error));
  Note(id + ": its files were written in " + std::to_string(static_cast<int>(Now() - begin)) + " s");
  ::sleep(11);  // older than the racy window, as in MakeTreeIn
  MeasureScene(bench, {id, tree, root, 420, true});
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

// True where a list of --only has the row or one below it: no list, or one with all of A12, is not enough for a row that takes minutes.
bool AskedForByName(int argc, char** argv, const std::string& id) {
  for (int i = 1; i + 1 < argc; ++i)
    if (std::strcmp(argv[i], "--only") == 0) return ("," + std::string(argv[i + 1])).find("," + id) != std::string::npos;
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench(argc, argv);
  if (bench.Wants("A12.100k")) InChild(bench, [&] { Measure(bench, "A12.100k", 100'000); });
  if (bench.Wants("A12.1m")) InChild(bench, [&] { Measure(bench, "A12.1m", 1'000'000); });
  if (AskedForByName(argc, argv, "A12.10m")) InChild(bench, [&] { MeasureTenMillion(bench); });
  if (bench.Wants("A12.lists")) InChild(bench, [&] { MeasureLists(bench); });
  return bench.Finish();
}
