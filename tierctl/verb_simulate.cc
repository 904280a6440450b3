// simulate: policies over capacities, for a job that does not exist or a trace that was noted. Needs no daemon.
#include <chrono>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tierctl/client/paths.h"
#include "tierctl/terminal/progress.h"
#include "tierctl/simulate/chart.h"
#include "tierctl/simulate/study.h"
#include "tierctl/terminal/time_to_go.h"
#include "tierctl/verbs.h"

namespace tierctl {
namespace {

using nlohmann::json;
using simulate::Amount;
using simulate::Outcome;
using simulate::Study;

// Texts that the command line was checked for (cli_checks.h).
Amount AmountOf(const std::string& text) { return simulate::ParseAmount(text).value_or(Amount{}); }

// "95%" or "95": a share of 1; "": 0.
double GoalOf(const std::string& text) { return text.empty() ? 0 : AmountOf(text.ends_with('%') ? text : text + '%').bytes; }

Study StudyOf(const SimulateOptions& options) {
  Study study;
  study.trace = options.trace;
  study.job.samples = options.samples;
  study.job.bytes_mean = AmountOf(options.size).bytes;
  study.job.bytes_sigma = options.sigma;
  study.job.seed = options.seed;
  study.job.nodes = options.nodes;
  study.job.node = options.node;
  study.job.epochs = options.epochs;
  study.job.order = options.order;
  study.policies = options.policies;
  for (const std::string& text : options.ram) study.capacities.push_back(AmountOf(text));
  study.ssd = AmountOf(options.ssd);
  study.skip = options.skip;
  study.lookahead = options.lookahead;
  study.seeded = options.mode == "seeded";
  study.goal = GoalOf(options.goal);
  study.speeds.step_seconds = options.step_us * 1e-6;
  study.speeds.readers = options.readers;
  tierd::sim::Device& ssd = study.speeds.devices[1];
  tierd::sim::Device& source = study.speeds.devices[2];
  ssd.bandwidth = AmountOf(options.ssd_bandwidth).bytes;
  ssd.stream_bandwidth = std::min(ssd.stream_bandwidth, ssd.bandwidth);
  source.bandwidth = AmountOf(options.source_bandwidth).bytes;
  source.stream_bandwidth = source.bandwidth;
  source.latency_seconds = options.source_latency_ms * 1e-3;
  source.concurrency = options.source_concurrency;
  return study;
}

__attribute__((format(printf, 1, 2))) std::string Number(const char* format, ...) {
  char text[64];
  va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  return text;
}

void PrintTable(Context& context, const Outcome& outcome) {
  Table table(0);
  table.Row({"POLICY", "KNOWS", "RAM", "SHARE", "HITS", "IN RAM", "SOURCE/EPOCH", "EPOCH"});
  for (const simulate::Curve& curve : outcome.curves) {
    for (const simulate::Point& point : curve.points) {
      table.Row({curve.policy, curve.mode, Number("%.3f GB", point.ram_bytes * 1e-9), Number("%.1f%%", 100 * point.ram_bytes / outcome.dataset_bytes), point.is_void() ? "void" : Number("%.4f", point.hit_rate),
                 Number("%.4f", point.ram_rate), Number("%.3f GB", point.source_bytes * 1e-9), Number("%.3f s", point.epoch_seconds)});
    }
  }
  for (const simulate::Point& point : outcome.bound.points) {
    table.Row({"bound", "-", Number("%.3f GB", point.ram_bytes * 1e-9), Number("%.1f%%", 100 * point.ram_bytes / outcome.dataset_bytes), Number("%.4f", point.hit_rate), "-",
               Number("%.3f GB", point.source_bytes * 1e-9), Number("%.3f s", point.epoch_seconds)});
  }
  context.output.Print(table.Text());
}

json ToJson(const Outcome& outcome, const SimulateOptions& options) {
  const auto bytes = [](double number) { return std::llround(number); };
  json curves = json::array();
  for (const simulate::Curve& curve : outcome.curves) {
    json points = json::array();
    for (const simulate::Point& point : curve.points) {
      points.push_back({{"ram_bytes", bytes(point.ram_bytes)}, {"hit_rate", point.hit_rate}, {"ram_rate", point.ram_rate}, {"source_bytes_per_epoch", bytes(point.source_bytes)},
                        {"epoch_seconds", point.epoch_seconds}, {"dropped_answers", point.dropped_answers}, {"void", point.is_void()}});
    }
    curves.push_back({{"policy", curve.policy}, {"mode", curve.mode}, {"points", points}});
  }
  json bound = json::array();
  for (const simulate::Point& point : outcome.bound.points) {
    bound.push_back({{"ram_bytes", bytes(point.ram_bytes)}, {"hit_rate", point.hit_rate}, {"source_bytes_per_epoch", bytes(point.source_bytes)}, {"epoch_seconds", point.epoch_seconds}});
  }
  json needs = json::array();
  for (const simulate::Need& need : outcome.needs) {
    needs.push_back({{"policy", need.policy}, {"mode", need.mode}, {"least_of", need.of_ram ? "ram" : "ssd"}, {"enough", need.enough}, {"ram_bytes", bytes(need.ram_bytes)},
                     {"ssd_bytes", bytes(need.ssd_bytes)}});
  }
  return {{"seed", options.seed},         {"objects", outcome.objects}, {"dataset_bytes", bytes(outcome.dataset_bytes)}, {"best_epoch_seconds", outcome.best_epoch_seconds},
          {"accesses", outcome.accesses}, {"cut", outcome.cut},         {"lost", outcome.lost},                          {"seen_ratio", outcome.seen}, {"curves", curves},
          {"bound", bound},               {"goal_seconds", outcome.goal_seconds}, {"needs", needs}};
}

// "How much RAM, how much SSD for x % of the best epoch time?"
void PrintNeeds(Context& context, const Study& study, const Outcome& outcome) {
  context.output.Print(Number("\nFor an epoch of %.3f s, ", outcome.goal_seconds) + Number("%.3g%% of the best speed:\n", 100 * study.goal));
  Table table(0);
  table.Row({"POLICY", "KNOWS", "LEAST OF", "RAM", "SHARE", "SSD", "SHARE"});
  for (const simulate::Need& need : outcome.needs) {
    const auto size = [&](double bytes, bool wanted) { return need.enough || !wanted ? Number("%.3f GB", bytes * 1e-9) : std::string("not all"); };
    const auto share = [&](double bytes, bool wanted) { return need.enough || !wanted ? Number("%.2f%%", 100 * bytes / outcome.dataset_bytes) : std::string("-"); };
    table.Row({need.policy, need.mode, need.of_ram ? "RAM" : "SSD", size(need.ram_bytes, need.of_ram), share(need.ram_bytes, need.of_ram), size(need.ssd_bytes, !need.of_ram),
               share(need.ssd_bytes, !need.of_ram)});
  }
  context.output.Print(table.Text());
}

// What makes the figures worth less than they look. True: less than a result.
bool Warn(Context& context, const Outcome& outcome) {
  constexpr double kEnoughSeen = .95;
  bool warned = false;
  for (const simulate::Curve& curve : outcome.curves) {
    std::uint64_t dropped = 0;
    for (const simulate::Point& point : curve.points) dropped += point.dropped_answers;
    if (dropped == 0) continue;
    context.output.Message("the figures of " + curve.policy + " are void: " + Plural(dropped, "answer") + " of it named objects that are unknown, elsewhere or named twice, and the simulator went on without");
    warned = true;
  }
  if (outcome.seen >= kEnoughSeen) return warned;
  context.output.Message("the trace has " + Percent(static_cast<std::uint64_t>(std::llround(1e6 * outcome.seen)), 1'000'000) + " of what was read: the figures may be those of another dataset");
  return true;
}

// "-": stdout.
bool Write(Context& context, const std::string& file, const std::string& text) {
  if (file == "-") {
    context.output.Print(text);
    return true;
  }
  std::ofstream out(file, std::ios::binary);
  out << text;
  out.close();
  return !out.fail();
}

// "belady, RAM 12.8 GiB: 41% of 277M reads, 33.0 s to go".
std::string ProgressLine(const simulate::Advance& advance, double seconds, TimeToGo& pace) {
  std::string line = "simulating " + advance.what;
  if (advance.all_reads <= 0) return line + (advance.reads > 0 ? ": " + Number("%.1f", advance.reads * 1e-6) + "M reads so far" : "");
  pace.Note(seconds, {advance.reads, 0});
  line += ": " + Number("%.0f%%", 100 * advance.reads / advance.all_reads) + " of " + Number("%.1f", advance.all_reads * 1e-6) + "M reads";
  const auto left = pace.For({advance.all_reads - advance.reads, 0}, false);
  return left ? line + ", " + Span(left->seconds) + " to go" : line;
}

// Computes, and says on a terminal how it gets on.
tierd::Result<Outcome> ComputeInSight(Context& context, Study& study) {
  Progress progress(context.output);
  TimeToGo pace;
  const auto began = std::chrono::steady_clock::now();
  constexpr std::uintmax_t kLongToRead = 32 << 20;
  std::error_code none;
  if (const std::uintmax_t bytes = std::filesystem::file_size(study.trace, none); !none && bytes > kLongToRead) progress.ShowNow("reading " + Escaped(study.trace));
  study.on_advance = [&](const simulate::Advance& advance) {
    progress.Show([&] { return ProgressLine(advance, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(), pace); });
  };
  tierd::Result<Outcome> outcome = simulate::Compute(study);
  study.on_advance = nullptr;
  return outcome;
}

int FailUsage(Context& context, const std::string& why) { return context.output.Fail(kExitUsage, "simulate: " + why + " (tierctl simulate --help)"); }

}  // namespace

int Simulate(Context& context) {
  const SimulateOptions& options = context.command.simulate;
  Study study = StudyOf(options);
  const int pictures = (options.svg == "-") + (options.html == "-");
  if (pictures + context.output.json() > 1) return FailUsage(context, "one thing goes to stdout: --json, --svg - or --html -");
  const tierd::Result<Outcome> outcome = ComputeInSight(context, study);
  if (!outcome.ok() && outcome.status().code() == tierd::Code::kInvalid) return FailUsage(context, outcome.status().message());
  if (!outcome.ok()) return context.output.Fail(kExitError, outcome.status().message());
  const std::string title = options.trace.empty()
                                ? std::to_string(options.samples) + " samples, " + std::to_string(options.epochs) + " epochs, node " + std::to_string(options.node) + " of " +
                                      std::to_string(options.nodes) + ", " + options.order + ", seed " + std::to_string(options.seed)
                                : options.trace;
  if (!options.svg.empty() && !Write(context, options.svg, simulate::Svg(*outcome, title))) return context.output.Fail(kExitError, options.svg + ": cannot be written");
  if (!options.html.empty() && !Write(context, options.html, simulate::Html(*outcome, title))) return context.output.Fail(kExitError, options.html + ": cannot be written");
  if (context.output.json()) {
    context.output.PrintJson(ToJson(*outcome, options));
    return Warn(context, *outcome) ? kExitPartial : kExitOk;
  }
  context.output.Message(title + ": " + Number("%.3f GB", outcome->dataset_bytes * 1e-9) + ", an epoch all in RAM takes " + Number("%.3f s", outcome->best_epoch_seconds) + "; simulated at " +
                         Number("%.1f", static_cast<double>(outcome->accesses) / std::max(outcome->seconds, 1e-9) * 1e-6) + " M accesses/s");
  if (outcome->cut || outcome->lost > 0) context.output.Message("the trace " + std::string(outcome->cut ? "is cut short" : "is whole") + " and lacks " + std::to_string(outcome->lost) + " accesses");
  if (study.skip >= outcome->epochs) context.output.Message("--skip " + std::to_string(study.skip) + " would leave none of " + Plural(outcome->epochs, "epoch") + ": all count");
  const int code = Warn(context, *outcome) ? kExitPartial : kExitOk;
  if (pictures > 0) return code;
  PrintTable(context, *outcome);
  if (study.goal > 0) PrintNeeds(context, study, *outcome);
  return code;
}

}  // namespace tierctl
