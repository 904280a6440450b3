// simulate: policies over capacities, for a job that does not exist or a trace that was noted. Needs no daemon.
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <fstream>

#include "tierctl/simulate/chart.h"
#include "tierctl/simulate/study.h"
#include "tierctl/verbs.h"

namespace tierctl {
namespace {

using nlohmann::json;
using simulate::Amount;
using simulate::Outcome;
using simulate::Study;

// A word that is no amount goes to *wrong.
Amount AmountOf(const std::string& text, std::string* wrong) {
  const std::optional<Amount> amount = simulate::ParseAmount(text);
  if (!amount && wrong->empty()) *wrong = text;
  return amount.value_or(Amount{});
}

Study StudyOf(const SimulateOptions& options, std::string* wrong) {
  Study study;
  study.trace = options.trace;
  study.job.samples = options.samples;
  study.job.bytes_mean = AmountOf(options.size, wrong).bytes;
  study.job.bytes_sigma = options.sigma;
  study.job.seed = options.seed;
  study.job.nodes = options.nodes;
  study.job.node = options.node;
  study.job.epochs = options.epochs;
  study.job.order = options.order;
  study.policies = options.policies;
  for (const std::string& text : options.ram) study.capacities.push_back(AmountOf(text, wrong));
  study.ssd = AmountOf(options.ssd, wrong);
  study.skip = options.skip;
  study.lookahead = options.lookahead;
  study.seeded = options.mode == "seeded";
  study.speeds.step_seconds = options.step_us * 1e-6;
  study.speeds.readers = options.readers;
  tierd::sim::Device& ssd = study.speeds.devices[1];
  tierd::sim::Device& source = study.speeds.devices[2];
  ssd.bandwidth = AmountOf(options.ssd_bandwidth, wrong).bytes;
  ssd.stream_bandwidth = std::min(ssd.stream_bandwidth, ssd.bandwidth);
  source.bandwidth = AmountOf(options.source_bandwidth, wrong).bytes;
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
      table.Row({curve.policy, curve.mode, Number("%.3f GB", point.ram_bytes * 1e-9), Number("%.1f%%", 100 * point.ram_bytes / outcome.dataset_bytes), Number("%.4f", point.hit_rate),
                 Number("%.4f", point.ram_rate), Number("%.3f GB", point.source_bytes * 1e-9), Number("%.3f s", point.epoch_seconds)});
    }
  }
  context.output.Print(table.Text());
}

json ToJson(const Outcome& outcome, const SimulateOptions& options) {
  json curves = json::array();
  for (const simulate::Curve& curve : outcome.curves) {
    json points = json::array();
    for (const simulate::Point& point : curve.points) {
      points.push_back({{"ram_bytes", std::llround(point.ram_bytes)}, {"hit_rate", point.hit_rate}, {"ram_rate", point.ram_rate},
                        {"source_bytes_per_epoch", std::llround(point.source_bytes)}, {"epoch_seconds", point.epoch_seconds}});
    }
    curves.push_back({{"policy", curve.policy}, {"mode", curve.mode}, {"points", points}});
  }
  return {{"seed", options.seed},          {"objects", outcome.objects},   {"dataset_bytes", std::llround(outcome.dataset_bytes)}, {"best_epoch_seconds", outcome.best_epoch_seconds},
          {"accesses", outcome.accesses}, {"cut", outcome.cut}, {"lost", outcome.lost}, {"curves", curves}};
}

// "How much RAM for x % of the best epoch time?"
void PrintTarget(Context& context, const Outcome& outcome, double percent) {
  const double seconds = outcome.best_epoch_seconds * 100 / percent;
  for (const simulate::Curve& curve : outcome.curves) {
    const std::optional<double> ram = simulate::LeastRam(curve, seconds);
    const std::string need = ram ? "needs " + Number("%.3f GB", *ram * 1e-9) + " (" + Number("%.1f%%", 100 * *ram / outcome.dataset_bytes) + ")" : "needs more than was asked about";
    context.output.Print(curve.policy + ": " + need + " for an epoch of " + Number("%.3f s", seconds) + ", " + Number("%.0f%%", percent) + " of the best speed\n");
  }
}

bool Write(const std::string& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary);
  out << text;
  out.close();
  return !out.fail();
}

}  // namespace

int Simulate(Context& context) {
  const SimulateOptions& options = context.command.simulate;
  std::string wrong;
  const Study study = StudyOf(options, &wrong);
  if (!wrong.empty()) return context.output.Fail(kExitUsage, "simulate: \"" + wrong + "\" is neither a size nor a share (tierctl simulate --help)");
  const tierd::Result<Outcome> outcome = simulate::Compute(study);
  if (!outcome.ok()) return context.output.Fail(kExitError, outcome.status().message());
  const std::string title = options.trace.empty()
                                ? std::to_string(options.samples) + " samples, " + std::to_string(options.epochs) + " epochs, node " + std::to_string(options.node) + " of " +
                                      std::to_string(options.nodes) + ", " + options.order + ", seed " + std::to_string(options.seed)
                                : options.trace;
  if (!options.svg.empty() && !Write(options.svg, simulate::Svg(*outcome, title))) return context.output.Fail(kExitError, options.svg + ": cannot be written");
  if (!options.html.empty() && !Write(options.html, simulate::Html(*outcome, title))) return context.output.Fail(kExitError, options.html + ": cannot be written");
  if (context.output.json()) {
    context.output.PrintJson(ToJson(*outcome, options));
    return kExitOk;
  }
  context.output.Message(title + ": " + Number("%.3f GB", outcome->dataset_bytes * 1e-9) + ", an epoch all in RAM takes " + Number("%.3f s", outcome->best_epoch_seconds) + "; simulated at " +
                         Number("%.1f", static_cast<double>(outcome->accesses) / std::max(outcome->seconds, 1e-9) * 1e-6) + " M accesses/s");
  if (outcome->cut || outcome->lost > 0) context.output.Message("the trace " + std::string(outcome->cut ? "is cut short" : "is whole") + " and lacks " + std::to_string(outcome->lost) + " accesses");
  PrintTable(context, *outcome);
  if (options.target > 0) PrintTarget(context, *outcome, options.target);
  return kExitOk;
}

}  // namespace tierctl
