#include "tierctl/simulate/study.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "tierd/config/units.h"

namespace tierctl::simulate {
namespace {

using tierd::Result;
using tierd::Status;
using tierd::policies::Registry;
using tierd::sim::CacheCounts;

double BytesOf(const Amount& amount, double dataset_bytes) { return amount.share ? amount.bytes * dataset_bytes : amount.bytes; }

// What is replayed: a job, or a trace.
struct Load {
  std::optional<tierd::sim::Job> job;
  tierd::sim::Trace trace;

  Result<tierd::sim::RunResult> Run(const tierd_policy_ops& policy, const tierd::sim::RunOptions& options) const {
    return job ? RunJob(policy, *job, options) : RunTrace(policy, trace, options);
  }
};

Result<Load> MakeLoad(const Study& study, Outcome* outcome) {
  Load load;
  if (study.trace.empty()) {
    Result<tierd::sim::Job> job = tierd::sim::Job::Create(study.job);
    if (!job.ok()) return job.status();
    outcome->dataset_bytes = static_cast<double>(job->bytes());
    outcome->objects = job->sizes().size();
    outcome->epoch_bytes = job->epoch_bytes();
    load.job = std::move(job).value();
    return load;
  }
  Result<tierd::sim::Trace> trace = tierd::sim::ReadTrace(study.trace);
  if (!trace.ok()) return trace.status();
  if (trace->accesses.empty()) return Status(tierd::Code::kInvalid, study.trace + ": no access in it");
  for (const auto& object : trace->objects) outcome->dataset_bytes += static_cast<double>(object.bytes);
  for (const auto& access : trace->accesses) outcome->epoch_bytes += static_cast<double>(trace->objects[access.id].bytes);
  outcome->epoch_bytes /= static_cast<double>(trace->epochs.size() + 1);
  outcome->objects = trace->objects.size();
  outcome->cut = trace->cut;
  outcome->lost = trace->lost;
  load.trace = std::move(trace).value();
  return load;
}

Point Summarize(const tierd::sim::RunResult& run, double ram_bytes, const Study& study) {
  // If there are no more epochs than are to be passed over, all count.
  const std::size_t skip = run.epochs.size() > study.skip ? study.skip : 0;
  Point point;
  point.ram_bytes = ram_bytes;
  point.hit_rate = run.hit_rate(skip);
  double reads = 0, from_ram = 0;
  for (std::size_t i = skip; i < run.epochs.size(); ++i) {
    point.source_bytes += static_cast<double>(run.epochs[i].bytes[2]);
    point.epoch_seconds += EpochSeconds(run.epochs[i], study.speeds);
    from_ram += static_cast<double>(run.epochs[i].reads[0]);
    reads += static_cast<double>(run.epochs[i].all_reads());
  }
  const auto counted = static_cast<double>(run.epochs.size() - skip);
  point.source_bytes /= counted;
  point.epoch_seconds /= counted;
  point.ram_rate = reads > 0 ? from_ram / reads : 0;
  return point;
}

Result<const tierd_policy_ops*> FindPolicy(Registry& registry, const std::string& name) {
  if (name.find('/') == std::string::npos) return registry.Find(name);
  return registry.Load(std::filesystem::absolute(name).string());
}

}  // namespace

std::optional<Amount> ParseAmount(const std::string& text) {
  if (text.ends_with('%')) {
    double percent = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size() - 1, percent);
    if (code != std::errc() || end != text.data() + text.size() - 1 || !(percent >= 0 && percent <= 10'000)) return std::nullopt;
    return Amount{percent / 100, true};
  }
  const std::optional<std::uint64_t> bytes = tierd::config::ParseSize(text);
  if (!bytes) return std::nullopt;
  return Amount{static_cast<double>(*bytes), false};
}

Result<Outcome> Compute(const Study& study) {
  Outcome outcome;
  Registry registry;
  std::vector<const tierd_policy_ops*> policies;
  for (const std::string& name : study.policies) {
    Result<const tierd_policy_ops*> policy = FindPolicy(registry, name);
    if (!policy.ok()) return policy.status();
    policies.push_back(*policy);
  }
  const Result<Load> load = MakeLoad(study, &outcome);
  if (!load.ok()) return load.status();
  for (const tierd_policy_ops* policy : policies) {
    // A policy that takes no plan is blind, whatever it would have been told.
    const bool seeded = study.seeded && policy->plan != nullptr;
    Curve curve{policy->name, seeded ? "seeded" : "blind", {}};
    for (const Amount& capacity : study.capacities) {
      tierd::sim::RunOptions options;
      options.cache.seed = study.job.seed;
      options.cache.capacity_bytes[TIERD_TIER_RAM] = static_cast<std::uint64_t>(BytesOf(capacity, outcome.dataset_bytes));
      options.cache.capacity_bytes[TIERD_TIER_SSD] = static_cast<std::uint64_t>(BytesOf(study.ssd, outcome.dataset_bytes));
      options.seeded = seeded;
      options.lookahead = study.lookahead;
      options.whole_plan_first = curve.policy == "frequency";
      const Result<tierd::sim::RunResult> run = load->Run(*policy, options);
      if (!run.ok()) return run.status();
      curve.points.push_back(Summarize(*run, BytesOf(capacity, outcome.dataset_bytes), study));
      outcome.accesses += run->total.all_reads();
      outcome.seconds += run->seconds;
      if (outcome.best_epoch_seconds > 0) continue;
      CacheCounts all_in_ram;
      const auto epochs = static_cast<std::uint64_t>(run->epochs.size());
      all_in_ram.reads[0] = run->total.all_reads() / epochs;
      all_in_ram.bytes[0] = (run->total.bytes[0] + run->total.bytes[1] + run->total.bytes[2]) / epochs;
      outcome.best_epoch_seconds = EpochSeconds(all_in_ram, study.speeds);
    }
    outcome.curves.push_back(std::move(curve));
  }
  return outcome;
}

std::optional<double> LeastRam(const Curve& curve, double seconds) {
  std::vector<Point> points = curve.points;
  std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.ram_bytes < b.ram_bytes; });
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i].epoch_seconds > seconds) continue;
    if (i == 0) return points[0].ram_bytes;
    const Point& before = points[i - 1];
    const double part = (before.epoch_seconds - seconds) / (before.epoch_seconds - points[i].epoch_seconds);
    return before.ram_bytes + part * (points[i].ram_bytes - before.ram_bytes);
  }
  return std::nullopt;
}

}  // namespace tierctl::simulate
