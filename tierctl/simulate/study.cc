#include "tierctl/simulate/study.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "policies/sim/bound.h"
#include "tierd/config/units.h"

namespace tierctl::simulate {
namespace {

using tierd::Result;
using tierd::Status;
using tierd::policies::Registry;
using tierd::sim::CacheCounts;

double BytesOf(const Amount& amount, double dataset_bytes) { return amount.share ? amount.bytes * dataset_bytes : amount.bytes; }

// Every read of a job or trace.
struct Reads {
  std::vector<std::uint32_t> ids;
  std::vector<std::uint64_t> sizes;
  std::size_t first = 0;   // those before do not count
  std::size_t epochs = 0;  // that do
};

// Epochs that are passed over. If there are no more than that, all count.
std::size_t Skipped(const Study& study, std::size_t epochs) { return epochs > study.skip ? study.skip : 0; }

// What is replayed: a job, or a trace.
struct Load {
  std::optional<tierd::sim::Job> job;
  tierd::sim::Trace trace;

  Result<tierd::sim::RunResult> Run(const tierd_policy_ops& policy, const tierd::sim::RunOptions& options) const {
    return job ? RunJob(policy, *job, options) : RunTrace(policy, trace, options);
  }
  double reads() const {  // of one run
    if (!job) return static_cast<double>(trace.accesses.size());
    const tierd::sim::JobOptions& o = job->options();
    return static_cast<double>(o.epochs) * static_cast<double>(o.samples) / o.nodes;
  }
  Reads All(const Study& study) const;
};

Reads Load::All(const Study& study) const {
  Reads reads;
  std::vector<std::size_t> begins;  // of epochs
  if (job) {
    reads.sizes = job->sizes();
    if (job->options().epochs * (job->sizes().size() / job->options().nodes) > tierd::sim::kMostBoundReads) return {};
    tierd::orders::PlanOrders orders = job->Orders();
    for (std::vector<std::uint32_t> order; orders.Next(&order);) {
      begins.push_back(reads.ids.size());
      reads.ids.insert(reads.ids.end(), order.begin(), order.end());
    }
  } else {
    if (trace.accesses.size() > tierd::sim::kMostBoundReads) return {};
    for (const auto& object : trace.objects) reads.sizes.push_back(object.bytes);
    for (const auto& access : trace.accesses) reads.ids.push_back(access.id);
    begins.push_back(0);
    begins.insert(begins.end(), trace.epochs.begin(), trace.epochs.end());
  }
  const std::size_t skipped = Skipped(study, begins.size());
  reads.epochs = begins.size() - skipped;
  reads.first = skipped == 0 ? 0 : begins[skipped];
  if (reads.first == reads.ids.size()) reads.ids.clear();
  return reads;
}

// What is wrong with a file is not wrong with the study.
Status OfFile(const Status& status) { return status.code() == tierd::Code::kInvalid ? Status(tierd::Code::kCorrupt, status.message()) : status; }

Result<Load> MakeLoad(const Study& study, Outcome* outcome) {
  Load load;
  if (study.trace.empty()) {
    const std::uint64_t epochs = study.job.epochs;
    if (study.skip >= epochs && epochs > 1) return Status(tierd::Code::kInvalid, "--skip " + std::to_string(study.skip) + " leaves none of " + std::to_string(epochs) + " epochs");
    Result<tierd::sim::Job> job = tierd::sim::Job::Create(study.job);
    if (!job.ok()) return job.status();
    outcome->dataset_bytes = static_cast<double>(job->bytes());
    outcome->objects = job->sizes().size();
    outcome->epochs = epochs;
    outcome->epoch_bytes = job->epoch_bytes();
    load.job = std::move(job).value();
    return load;
  }
  Result<tierd::sim::Trace> trace = tierd::sim::ReadTrace(study.trace);
  if (!trace.ok()) return OfFile(trace.status());
  if (trace->accesses.empty()) return Status(tierd::Code::kCorrupt, study.trace + ": no access in it");
  for (const auto& object : trace->objects) outcome->dataset_bytes += static_cast<double>(object.bytes);
  for (const auto& access : trace->accesses) outcome->epoch_bytes += static_cast<double>(trace->objects[access.id].bytes);
  outcome->epochs = trace->epochs.size() + 1;
  outcome->epoch_bytes /= static_cast<double>(outcome->epochs);
  outcome->objects = trace->objects.size();
  outcome->cut = trace->cut;
  outcome->lost = trace->lost;
  outcome->seen = static_cast<double>(trace->accesses.size()) / static_cast<double>(trace->accesses.size() + trace->lost);
  load.trace = std::move(trace).value();
  return load;
}

Point Summarize(const tierd::sim::RunResult& run, double ram_bytes, const Study& study) {
  const std::size_t skip = Skipped(study, run.epochs.size());
  Point point;
  point.ram_bytes = ram_bytes;
  point.hit_rate = run.hit_rate(skip);
  point.dropped_answers = run.dropped_answers;
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

// One policy of the study, with its tiers of any size.
class Trial {
 public:
  // `reads_before`: simulated by other trials.
  Trial(const Study& study, const Load& load, const tierd_policy_ops& policy, double reads_before, Outcome* outcome)
      // A policy that takes no plan is blind, whatever it would have been told.
      : study_(study), load_(load), policy_(policy), seeded_(study.seeded && policy.plan != nullptr), reads_before_(reads_before), outcome_(*outcome) {}

  std::string mode() const { return seeded_ ? "seeded" : "blind"; }

  Result<Point> Run(double ram_bytes, double ssd_bytes) {
    tierd::sim::RunOptions options;
    options.cache.seed = study_.job.seed;
    options.cache.capacity_bytes[TIERD_TIER_RAM] = static_cast<std::uint64_t>(ram_bytes);
    options.cache.capacity_bytes[TIERD_TIER_SSD] = static_cast<std::uint64_t>(ssd_bytes);
    options.seeded = seeded_;
    options.lookahead = study_.lookahead;
    options.whole_plan_first = std::string_view(policy_.name) == "frequency";
    if (study_.on_advance) {
      const std::string what = std::string(policy_.name) + ", RAM " + tierd::config::HumanSize(options.cache.capacity_bytes[TIERD_TIER_RAM]);
      const double all = study_.goal > 0 ? 0 : load_.reads() * static_cast<double>(study_.policies.size() * study_.capacities.size());
      options.on_reads = [this, what, all](std::uint64_t reads) {
        reads_ += static_cast<double>(reads);
        study_.on_advance({what, reads_before_ + reads_, all});
      };
      study_.on_advance({what, reads_before_ + reads_, all});
    }
    const Result<tierd::sim::RunResult> run = load_.Run(policy_, options);
    if (!run.ok()) return run.status();
    outcome_.accesses += run->total.all_reads();
    outcome_.seconds += run->seconds;
    if (outcome_.best_epoch_seconds == 0) NoteBest(*run);
    return Summarize(*run, ram_bytes, study_);
  }

  // The least of one tier beside so much of the other.
  Result<Need> Least(bool of_ram, double other_bytes) {
    Need need{.policy = policy_.name, .mode = mode(), .of_ram = of_ram, .ram_bytes = other_bytes, .ssd_bytes = other_bytes};
    double& wanted = of_ram ? need.ram_bytes : need.ssd_bytes;
    const double steps = std::min(static_cast<double>(outcome_.objects), kGoalSteps);
    double too_few = -1, enough = steps;
    for (double at = steps; enough - too_few > 1; at = std::floor((too_few + enough) / 2)) {
      wanted = std::floor(outcome_.dataset_bytes / steps * at);
      const Result<Point> point = Run(need.ram_bytes, need.ssd_bytes);
      if (!point.ok()) return point.status();
      need.enough = point->epoch_seconds <= outcome_.goal_seconds;
      if (!need.enough && at == steps) return need;
      (need.enough ? enough : too_few) = at;
    }
    need.enough = true;
    wanted = std::floor(outcome_.dataset_bytes / steps * enough);
    return need;
  }

 private:
  void NoteBest(const tierd::sim::RunResult& run) {
    CacheCounts all_in_ram;
    const auto epochs = static_cast<std::uint64_t>(run.epochs.size());
    all_in_ram.reads[0] = run.total.all_reads() / epochs;
    all_in_ram.bytes[0] = (run.total.bytes[0] + run.total.bytes[1] + run.total.bytes[2]) / epochs;
    outcome_.best_epoch_seconds = EpochSeconds(all_in_ram, study_.speeds);
    if (study_.goal > 0) outcome_.goal_seconds = outcome_.best_epoch_seconds / study_.goal;
  }

  const Study& study_;
  const Load& load_;
  const tierd_policy_ops& policy_;
  const bool seeded_;
  const double reads_before_;
  double reads_ = 0;
  Outcome& outcome_;
};

Curve BoundOf(const Study& study, const Load& load, const Outcome& outcome) {
  Curve bound{"bound", "", {}};
  const Reads reads = load.All(study);
  if (reads.ids.empty()) return bound;
  for (const Amount& capacity : study.capacities) {
    Point point;
    point.ram_bytes = BytesOf(capacity, outcome.dataset_bytes);
    if (study.on_advance) study.on_advance({"bound, RAM " + tierd::config::HumanSize(static_cast<std::uint64_t>(point.ram_bytes)), 0, 0});
    const double bytes = std::floor(point.ram_bytes) + std::floor(BytesOf(study.ssd, outcome.dataset_bytes));
    const tierd::sim::LeastSource least = tierd::sim::LeastFromSource(reads.ids, reads.sizes, static_cast<std::uint64_t>(bytes), reads.first);
    const auto counted = static_cast<double>(reads.ids.size() - reads.first);
    double counted_bytes = 0;
    for (std::size_t i = reads.first; i < reads.ids.size(); ++i) counted_bytes += static_cast<double>(reads.sizes[reads.ids[i]]);
    // The epochs that count, on average: an epoch's time is a convex function of where its reads go, so it is no less for epochs that differ.
    const auto part = [&](double number) { return static_cast<std::uint64_t>(number / static_cast<double>(reads.epochs)); };
    CacheCounts counts;
    counts.reads[2] = part(least.reads);
    counts.bytes[2] = part(least.bytes);
    counts.reads[0] = part(counted - least.reads);
    counts.bytes[0] = part(counted_bytes - least.bytes);
    point.hit_rate = 1 - least.reads / counted;
    point.source_bytes = least.bytes / static_cast<double>(reads.epochs);
    point.epoch_seconds = EpochSeconds(counts, study.speeds);
    bound.points.push_back(point);
  }
  return bound;
}

Result<const tierd_policy_ops*> FindPolicy(Registry& registry, const std::string& name) {
  const bool is_file = name.find('/') != std::string::npos;
  Result<const tierd_policy_ops*> policy = is_file ? registry.Load(std::filesystem::absolute(name).string()) : registry.Find(name);
  if (policy.ok()) return policy;
  return is_file ? OfFile(policy.status()) : Status(tierd::Code::kInvalid, policy.status().message());
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
  const double ssd_bytes = BytesOf(study.ssd, outcome.dataset_bytes);
  for (const tierd_policy_ops* policy : policies) {
    Trial trial(study, *load, *policy, static_cast<double>(outcome.accesses), &outcome);
    Curve curve{policy->name, trial.mode(), {}};
    for (const Amount& capacity : study.capacities) {
      const Result<Point> point = trial.Run(BytesOf(capacity, outcome.dataset_bytes), ssd_bytes);
      if (!point.ok()) return point.status();
      curve.points.push_back(*point);
    }
    outcome.curves.push_back(std::move(curve));
    if (study.goal <= 0) continue;
    Result<Need> need = trial.Least(true, ssd_bytes);
    if (!need.ok()) return need.status();
    outcome.needs.push_back(std::move(need).value());
    for (const Amount& capacity : study.capacities) {
      need = trial.Least(false, BytesOf(capacity, outcome.dataset_bytes));
      if (!need.ok()) return need.status();
      outcome.needs.push_back(std::move(need).value());
    }
  }
  outcome.bound = BoundOf(study, *load, outcome);
  return outcome;
}

}  // namespace tierctl::simulate
