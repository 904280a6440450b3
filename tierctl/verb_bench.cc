// bench: what a reader on this node gets from the file system and through the daemon, by where the bytes come from. Reads only; what it brings is of the sample.
#include <algorithm>
#include <cstdio>
#include <thread>

#include "tierctl/bench/reading.h"
#include "tierctl/terminal/job_watch.h"
#include "tierctl/client/paths.h"
#include "tierctl/terminal/progress.h"
#include "tierctl/client/socket_path.h"
#include "tierctl/verbs.h"
#include "tierd/config/units.h"

namespace tierctl {
namespace {

using Pass = bench::Reading::Pass;
using bench::Way;
using nlohmann::json;

bool IsBelow(const std::string& path, const std::string& tree) { return path == tree || path.starts_with(tree.ends_with('/') ? tree : tree + "/"); }

// The directory to draw from: the one that was named, if a source has it, or the first source.
Answer TreeOf(Context& context, const json& status, std::string* tree) {
  const json& sources = ListOf(status, "sources");
  *tree = context.command.paths.empty() ? "" : AbsolutePath(context.command.paths[0], context.working_directory);
  if (tree->empty() && !sources.empty()) *tree = PathOf(sources[0]);
  Answer answer;
  for (const json& source : sources)
    if (IsBelow(*tree, PathOf(source))) return answer;
  answer.exit = kExitError;
  answer.message = tree->empty() ? "the daemon has no source" : *tree + " is below no source of the daemon";
  return answer;
}

// Files that are nowhere in the cache come to the SSD tier alone, so that it is what they are read from. What fails shows in the table: no such reads.
void BringToSsd(Context& context, const std::vector<bench::Piece>& pieces, std::size_t begin, std::size_t end) {
  std::vector<std::string> paths;
  for (std::size_t i = begin; i < end; ++i)
    if (pieces[i].whole) paths.push_back(pieces[i].path);
  for (const json& batch : PathBatches(paths, context.working_directory)) {
    const Answer started = context.client.Post("/v1/prefetch", {{"paths", batch}, {"tier", "ssd"}, {"evict", false}});
    std::vector<json> jobs;
    if (started.ok()) (void)WatchJobs(context.client, context.output, {NumberOf(started.body, "job")}, &jobs);
  }
}

std::string Rate(double per_second) {
  char text[32];
  std::snprintf(text, sizeof text, per_second < 100 ? "%.1f" : "%.0f", per_second);
  return text;
}

std::string Duration(double seconds) {
  char text[32];
  if (seconds < 1e-3) std::snprintf(text, sizeof text, "%.1f us", seconds * 1e6);
  else std::snprintf(text, sizeof text, "%.2f ms", seconds * 1e3);
  return text;
}

struct Figures {
  double files_per_s = 0, bytes_per_s = 0;
};

Figures FiguresOf(const bench::Timed& timed, unsigned readers) {
  const double seconds = timed.Elapsed(readers, std::thread::hardware_concurrency());
  if (seconds <= 0) return {};
  return {static_cast<double>(timed.reads) / seconds, static_cast<double>(timed.bytes) / seconds};
}

json ToJson(const bench::Sample& sample, bench::Readings& readings, const std::string& tree, unsigned readers) {
  json rows = json::array();
  for (std::size_t i = 0; i < bench::kWays; ++i) {
    const bench::Timed& timed = readings.of[i];
    const Figures figures = FiguresOf(timed, readers);
    rows.push_back({{"from", bench::NameOf(static_cast<Way>(i))}, {"reads", timed.reads}, {"bytes", timed.bytes}, {"files_per_s", figures.files_per_s}, {"bytes_per_s", figures.bytes_per_s},
                    {"latency_p50_s", timed.Quantile(0.5)}, {"latency_p99_s", timed.Quantile(0.99)}});
  }
  json document{{"readers", readers}, {"files", sample.pieces.size()}, {"files_seen", sample.files_seen}, {"bytes", sample.bytes}, {"failed", readings.failed}, {"differing", readings.differing}, {"rows", rows}};
  document["path"] = IsUtf8(tree) ? tree : Escaped(tree);
  return document;
}

std::string TableOf(const bench::Readings& readings, unsigned readers) {
  Table table(6);
  table.Row({"FILES/S", "BYTES/S", "MEDIAN", "P99", "READS", "TIMES", "FROM"});
  const double base = FiguresOf(readings.of[static_cast<std::size_t>(Way::kFileCold)], readers).files_per_s;
  for (std::size_t i = 0; i < bench::kWays; ++i) {
    const bench::Timed& timed = readings.of[i];
    if (timed.reads == 0 && static_cast<Way>(i) == Way::kBypass) continue;
    const Figures figures = FiguresOf(timed, readers);
    const std::string words = bench::WordsOf(static_cast<Way>(i));
    if (timed.reads == 0) {
      table.Row({"-", "-", "-", "-", "0", "-", words});
    } else {
      table.Row({Rate(figures.files_per_s), tierd::config::HumanSize(static_cast<std::uint64_t>(figures.bytes_per_s)) + "/s", Duration(timed.Quantile(0.5)), Duration(timed.Quantile(0.99)),
                 std::to_string(timed.reads), base > 0 ? Rate(figures.files_per_s / base) : "-", words});
    }
  }
  return table.Text();
}

// Keeps the daemon from warming up while it is measured: reads of a sample look like the beginning of an epoch.
class WarmUpsRest {
 public:
  explicit WarmUpsRest(Context& context) : context_(context) {}
  ~WarmUpsRest() { (void)context_.client.Post("/v1/warmup", {{"rest_s", 0}}); }
  WarmUpsRest(const WarmUpsRest&) = delete;
  WarmUpsRest& operator=(const WarmUpsRest&) = delete;
  // Long enough for a pass. False: the daemon is older than this tierctl.
  bool Renew() { return context_.client.Post("/v1/warmup", {{"rest_s", kPassS}}).ok(); }

 private:
  static constexpr unsigned kPassS = 600;
  Context& context_;
};

// One way after the other, the costly ones first: what is read again later is from memory because it was read before. 
// False: warm-ups could not be kept from reading beside it.
bool Measure(Context& context, bench::Reading& reading, const std::vector<bench::Piece>& pieces) {
  WarmUpsRest rest(context);
  bool alone = true;
  Progress progress(context.output);
  int passes = 0;
  const auto run = [&](Pass pass, std::size_t begin, std::size_t end) {
    ++passes;
    progress.Show([&] { return "bench: pass " + std::to_string(passes) + " of 8, " + Span(context.command.bench.seconds) + " each at most"; });
    alone &= rest.Renew();
    reading.Run(pass, pieces, begin, end);
  };
  const std::size_t part = (pieces.size() + 1) / 2, all = pieces.size();
  BringToSsd(context, pieces, 0, part);
  run(Pass::kTierCold, 0, part);
  run(Pass::kTierCold, part, all);
  for (int pass = 0; pass < 2; ++pass) run(Pass::kTier, 0, all);
  run(Pass::kTierInPlace, 0, all);
  run(Pass::kFileCold, 0, all);
  for (int pass = 0; pass < 2; ++pass) run(Pass::kFileHot, 0, all);
  return alone;
}

// Warm-ups that the daemon has begun by itself so far.
std::size_t WarmUps(Context& context) {
  const Answer jobs = context.client.Get("/v1/jobs");
  const json& list = ListOf(jobs.body, "jobs");
  return static_cast<std::size_t>(std::count_if(list.begin(), list.end(), [](const json& job) { return TextOf(job, "kind") == "warmup"; }));
}

bench::Sample DrawInSight(Context& context, const std::string& tree, bench::Limits limits) {
  Progress progress(context.output);
  limits.on_file = [&](std::uint64_t seen) { progress.Show([&] { return "bench: " + std::to_string(seen) + " files seen below " + Escaped(tree); }); };
  return bench::Draw(tree, limits);
}

}  // namespace

int Bench(Context& context) {
  const Answer status = context.client.Get("/v1/status");
  if (!status.ok()) return context.output.Fail(status);
  std::string tree;
  if (const Answer place = TreeOf(context, status.body, &tree); !place.ok()) return context.output.Fail(place);
  if (const std::string absent = WhyAbsent(tree); !absent.empty()) return context.output.Fail(kExitError, absent);
  bench::Limits limits;
  limits.files = context.command.bench.files;
  // What the cache is for is not pushed out by looking at it: at most a quarter of what RAM may hold is read.
  const json& ram = status.body.contains("tiers") && status.body["tiers"].contains("ram") ? status.body["tiers"]["ram"] : status.body;
  if (const std::uint64_t allowed = NumberOf(ram, "allowed_bytes"); allowed != 0) limits.bytes = std::min(limits.bytes, allowed / 4);
  const bench::Sample sample = DrawInSight(context, tree, limits);
  if (sample.pieces.size() < 2) return context.output.Fail(kExitError, Escaped(tree) + ": fewer than two files to read there");
  const unsigned readers = context.command.bench.readers;
  bench::Reading reading(ClientSocketOf(context.client.socket(), context.command.socket, tierd::config::ProcessEnvironment()), readers, context.command.bench.seconds);
  const std::size_t warm_ups = WarmUps(context);
  const bool alone = Measure(context, reading, sample.pieces);
  if (!alone && WarmUps(context) > warm_ups) context.output.Message("this daemon is older than tierctl and brought the rest of the tree up meanwhile: reads from source and SSD were slowed by that");
  bench::Readings& readings = reading.readings();
  for (bench::Timed& timed : readings.of) timed.Sort();
  if (context.output.json()) {
    context.output.PrintJson(ToJson(sample, readings, tree, readers));
  } else {
    context.output.Print("sample: " + std::to_string(sample.pieces.size()) + " of " + std::to_string(sample.files_seen) + (sample.cut ? "+" : "") + " files below " + context.output.Name(tree) + ", " +
                         tierd::config::HumanSize(sample.bytes) + "; " + Plural(readers, "reader") + "\n\n" + TableOf(readings, readers));
  }
  if (readings.failed != 0) context.output.Message(Plural(readings.failed, "read") + " failed");
  if (readings.differing != 0) {
    return context.output.Fail(kExitError, Plural(readings.differing, "read") + " through tierd gave other bytes than the one before: files that change while they are read, or a fault to report (SECURITY.md)");
  }
  return readings.failed == 0 ? kExitOk : kExitPartial;
}

}  // namespace tierctl
