#include "tierd/server/metric_families.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <utility>

#include "tierd/base/metric_table.h"

namespace tierd::server {
namespace {

using Labels = std::initializer_list<std::pair<const char*, std::string>>;
constexpr const char* kTierNames[abi::kTiers] = {"ram", "ssd", "source", "bypass"};
// A daemon with two sources is to give at most 320 series. From 64 ns to 4 s for each of four tiers: at factor 2 that alone would be a third of them. The turns of the loop follow, as
// only one bound of theirs matters, 16 ms, which stays.
constexpr std::size_t kReadStride = 2, kLagStride = 2;

prometheus::MetricType TypeOf(MetricType type) {
  switch (type) {
    case MetricType::kCounter: return prometheus::MetricType::Counter;
    case MetricType::kGauge: return prometheus::MetricType::Gauge;
    case MetricType::kHistogram: return prometheus::MetricType::Histogram;
    case MetricType::kSummary: return prometheus::MetricType::Summary;
  }
  return prometheus::MetricType::Untyped;
}

class Table {
 public:
  Table& Family(MetricName name) {
    families_.push_back({std::string(name.info.name), std::string(name.info.help), TypeOf(name.info.type), {}});
    return *this;
  }
  Table& Add(double value, Labels labels = {}) {
    prometheus::ClientMetric& metric = Metric(labels);
    if (families_.back().type == prometheus::MetricType::Counter) metric.counter.value = value;
    else metric.gauge.value = value;
    return *this;
  }
  Table& Add(std::uint64_t value, Labels labels = {}) { return Add(static_cast<double>(value), labels); }
  // Buckets: counts per bucket whose upper bound starts at `first_bound_s` and doubles; the last one is open. Every `stride`-th bound is exported.
  template <typename Buckets>
  Table& AddHistogram(const Buckets& buckets, double first_bound_s, double sum_s, Labels labels = {}, std::size_t stride = 1) {
    prometheus::ClientMetric& metric = Metric(labels);
    std::uint64_t cumulative = 0;
    double bound = first_bound_s;
    for (std::size_t i = 0; i + 1 < buckets.size(); ++i, bound *= 2) {
      cumulative += buckets[i];
      if (i % stride == 0) metric.histogram.bucket.push_back({cumulative, bound});
    }
    cumulative += buckets.back();
    metric.histogram.bucket.push_back({cumulative, std::numeric_limits<double>::infinity()});
    metric.histogram.sample_count = cumulative;
    metric.histogram.sample_sum = sum_s;
    return *this;
  }
  // Count and sum alone: one family without labels.
  void AddSummary(MetricName name, std::uint64_t count, double sum) {
    prometheus::ClientMetric& metric = Family(name).Metric({});
    metric.summary.sample_count = count;
    metric.summary.sample_sum = sum;
  }
  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  prometheus::ClientMetric& Metric(Labels labels) {
    prometheus::ClientMetric& metric = families_.back().metric.emplace_back();
    for (const auto& [name, value] : labels) metric.label.push_back({name, value});
    return metric;
  }
  std::vector<prometheus::MetricFamily> families_;
};

double Seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

void AddReads(Table& table, const engine::ReadTotals& totals) {
  table.Family("tierd_reads_total");
  for (std::uint32_t t = 0; t < abi::kTiers; ++t) table.Add(totals.reads[t], {{"tier", kTierNames[t]}, {"result", t == 0 || t == 1 ? "hit" : "miss"}});
  table.Family("tierd_read_bytes_total");
  for (std::uint32_t t = 0; t < abi::kTiers; ++t) table.Add(totals.bytes[t], {{"tier", kTierNames[t]}});
  table.Family("tierd_read_duration_seconds");
  for (std::uint32_t t = 0; t < abi::kTiers; ++t)
    table.AddHistogram(totals.latency[t], 64e-9, Seconds(totals.latency_sum_ns[t]), {{"tier", kTierNames[t]}}, kReadStride);
  table.Family("tierd_fallback_total");
  for (std::uint32_t i = 1; i < abi::kFallbacks; ++i) table.Add(totals.fallback[i], {{"reason", abi::FallbackName(static_cast<abi::Fallback>(i))}});
}

void AddRealOpens(Table& table, const engine::ReadTotals& totals) {
  table.Family("tierd_real_opens_total");
  // A series for each of the frequent reasons; status has all of them by name.
  std::uint64_t others = 0;
  for (std::uint32_t i = 0; i < abi::kRealOpens; ++i) {
    const auto reason = static_cast<abi::RealOpen>(i);
    if (reason == abi::RealOpen::kNotCached || reason == abi::RealOpen::kFlags || reason == abi::RealOpen::kPath) table.Add(totals.real_opens[i], {{"reason", abi::kRealOpenNames[i]}});
    else others += totals.real_opens[i];
  }
  table.Add(others, {{"reason", "other"}});
  table.Family("tierd_source_mappings_total").Add(totals.source_mappings);
}

void AddTiers(Table& table, engine::Engine& engine) {
  engine::Placement& placement = engine.placement();
  const ram::RamTierStats ram = engine.ram().stats();
  ssd::SsdTier* ssd = engine.ssd();
  const ssd::SsdStatus status = ssd != nullptr ? ssd->status() : ssd::SsdStatus{};
  table.Family("tierd_tier_capacity_bytes");
  table.Add(engine.ram().budget(), {{"tier", "ram"}}).Add(status.capacity_bytes, {{"tier", "ssd"}});
  table.Family("tierd_tier_used_bytes");
  table.Add(placement.ram_resident_bytes(), {{"tier", "ram"}}).Add(placement.ssd_resident_bytes(), {{"tier", "ssd"}});
  table.Family("tierd_tier_allocated_bytes");
  table.Add(engine.ram().segment_bytes(), {{"tier", "ram"}}).Add(status.allocated_bytes, {{"tier", "ssd"}});
  table.Family("tierd_tier_objects");
  table.Add(placement.ram_resident_objects(), {{"tier", "ram"}}).Add(placement.ssd_resident_objects(), {{"tier", "ssd"}});
  table.Family("tierd_tier_pinned_bytes");
  table.Add(placement.pinned_bytes(0), {{"tier", "ram"}}).Add(placement.pinned_bytes(1), {{"tier", "ssd"}});
  table.Family("tierd_tier_limbo_bytes");
  table.Add(ram.allocator.limbo_bytes, {{"tier", "ram"}});
  table.Family("tierd_tier_hung_frames");
  table.Add(ram.held_limbo_frames + engine.fetcher().hung_frames(), {{"tier", "ram"}});
  table.Family("tierd_tier_state");
  const char* const states[] = {"healthy", "degraded", "out", "off"};
  // As `tierctl status` has it: a tier that takes nothing more (memory that is not to be had, a disk that cannot be written) is degraded, too.
  const std::size_t ram_state = placement.segment_failure().empty() ? 0 : 1;
  const std::size_t ssd_health = static_cast<std::size_t>(status.health);
  const std::size_t ssd_state = ssd == nullptr ? 3 : ssd_health == 0 && !status.writable ? 1 : ssd_health;
  for (std::size_t i = 0; i < 4; ++i) {
    table.Add(i == ram_state ? 1.0 : 0.0, {{"tier", "ram"}, {"state", states[i]}});
    table.Add(i == ssd_state ? 1.0 : 0.0, {{"tier", "ssd"}, {"state", states[i]}});
  }
  const ssd::SsdCounters counters = ssd != nullptr ? ssd->counters() : ssd::SsdCounters{};
  table.Family("tierd_ssd_write_amplification_ratio").Add(counters.WriteAmplification());
  table.Family("tierd_ssd_device_write_bytes_total").Add(counters.device_write_bytes);
  table.Family("tierd_ssd_device_read_bytes_total").Add(counters.device_read_bytes);
  table.Family("tierd_ssd_moved_bytes_total").Add(counters.moved_bytes);
  table.Family("tierd_ssd_appends_refused_total");
  table.Add(counters.appends_refused_no_space, {{"reason", "no_space"}})
      .Add(counters.appends_refused_busy, {{"reason", "busy"}})
      .Add(counters.appends_refused_health, {{"reason", "health"}})
      .Add(engine.counters().ssd_not_admitted, {{"reason", "policy"}});
  table.Family("tierd_ssd_slow_reads_total").Add(engine.counters().ssd_slow_bypass);
  table.Family("tierd_ssd_hung_reads").Add(status.hung_reads);
  table.Family("tierd_ssd_retired_regions").Add(status.retired_regions);
}

void AddMovement(Table& table, engine::Engine& engine) {
  const engine::EngineCounters& c = engine.counters();
  table.Family("tierd_promotions_total");
  table.Add(c.promotions_source_ram, {{"from", "source"}, {"to", "ram"}, {"result", "ok"}})
      .Add(c.promotions_ssd_ram, {{"from", "ssd"}, {"to", "ram"}, {"result", "ok"}})
      .Add(c.promotions_ram_ssd, {{"from", "ram"}, {"to", "ssd"}, {"result", "ok"}})
      .Add(c.promotions_failed, {{"from", "any"}, {"to", "any"}, {"result", "failed"}});
  table.Family("tierd_promotions_bytes_total");
  table.Add(c.promotion_bytes_source_ram, {{"from", "source"}, {"to", "ram"}})
      .Add(c.promotion_bytes_ssd_ram, {{"from", "ssd"}, {"to", "ram"}})
      .Add(c.promotion_bytes_ram_ssd, {{"from", "ram"}, {"to", "ssd"}});
  table.Family("tierd_promotions_inflight").Add(static_cast<std::uint64_t>(engine.fetcher().fills_in_flight()));
  table.Family("tierd_source_joined_chunks_total").Add(c.source_joined);
  table.Family("tierd_evictions_total");
  for (std::size_t tier = 0; tier < 2; ++tier)
    for (std::size_t cause = 0; cause < engine::kEvictCauses; ++cause)
      table.Add(c.evictions[tier][cause], {{"tier", kTierNames[tier]}, {"cause", engine::kEvictCauseNames[cause]}});
  table.Family("tierd_evicted_bytes_total");
  table.Add(c.evicted_bytes[0], {{"tier", "ram"}}).Add(c.evicted_bytes[1], {{"tier", "ssd"}});
  table.Family("tierd_transit_frames_total").Add(c.transit_frames);
  table.Family("tierd_prefetch_objects_total").Add(c.prefetch_files);
  table.Family("tierd_prefetch_bytes_total").Add(c.prefetch_bytes);
  table.Family("tierd_prefetch_late_total").Add(c.prefetch_late);
  table.Family("tierd_prefetch_unused_bytes_total").Add(c.prefetch_unused_bytes);
  table.AddSummary("tierd_prefetch_lead_seconds", c.ahead_used, Seconds(c.ahead_lead_ns));
  table.Family("tierd_reader_wait_seconds_total").Add(Seconds(c.reader_wait_ns));
  table.Family("tierd_invalidations_total");
  table.Add(c.invalidated_changed, {{"reason", "changed"}}).Add(c.invalidated_request, {{"reason", "request"}}).Add(c.invalidated_racy, {{"reason", "racy"}});
  table.Family("tierd_integrity_failures_total");
  table.Add(c.integrity_ssd, {{"kind", "ssd"}}).Add(c.integrity_ram, {{"kind", "ram"}}).Add(c.integrity_source, {{"kind", "source"}});
  table.Family("tierd_fetch_total");
  table.Add(c.fetches - c.fetch_hits - c.fetch_joined - c.fetch_bypassed, {{"result", "filled"}})
      .Add(c.fetch_hits, {{"result", "hit"}})
      .Add(c.fetch_joined, {{"result", "joined"}})
      .Add(c.fetch_bypassed, {{"result", "bypassed"}});
  table.Family("tierd_revalidations_total").Add(c.revalidations);
  table.Family("tierd_access_checks_total");
  table.Add(c.access_granted, {{"result", "granted"}}).Add(c.access_refused, {{"result", "refused"}});
}

void AddSources(Table& table, engine::Engine& engine) {
  table.Family("tierd_source_requests_total");
  std::array<std::uint64_t, source::kReadErrors> reads{}, stats{};
  std::array<std::uint64_t, source::kLatencyBuckets> latency{}, stat_latency{};
  std::uint64_t bytes = 0, latency_sum = 0, stat_latency_sum = 0, hung = 0, in_flight = 0, discarded = 0, window = 0;
  std::array<std::uint64_t, 3> states{};
  for (const auto& unit : engine.sources()) {
    const source::SourceCounters c = unit->reader->counters();
    for (std::size_t i = 0; i < source::kReadErrors; ++i) {
      reads[i] += c.reads[i];
      stats[i] += c.stats[i];
    }
    for (std::size_t i = 0; i < source::kLatencyBuckets; ++i) {
      latency[i] += c.latency[i];
      stat_latency[i] += c.stat_latency[i];
    }
    bytes += c.bytes_read;
    discarded += c.bytes_discarded;
    latency_sum += c.latency_ns_sum;
    stat_latency_sum += c.stat_latency_ns_sum;
    hung += c.hung;
    in_flight += c.in_flight;
    window += c.window;
    ++states[static_cast<std::size_t>(c.state)];
  }
  for (std::size_t i = 0; i < source::kReadErrors; ++i) {
    const char* result = source::ReadErrorName(static_cast<source::ReadError>(i));
    table.Add(reads[i], {{"op", "read"}, {"result", result}}).Add(stats[i], {{"op", "stat"}, {"result", result}});
  }
  table.Family("tierd_source_read_bytes_total").Add(bytes);
  table.Family("tierd_source_discarded_bytes_total").Add(discarded);
  table.Family("tierd_source_request_duration_seconds");
  table.AddHistogram(latency, 100e-6, Seconds(latency_sum), {{"op", "read"}});
  table.AddHistogram(stat_latency, 100e-6, Seconds(stat_latency_sum), {{"op", "stat"}});
  table.Family("tierd_source_requests_in_flight").Add(in_flight);
  table.Family("tierd_source_requests_hung").Add(hung);
  table.Family("tierd_source_window").Add(window);
  table.Family("tierd_source_states");
  for (std::size_t i = 0; i < states.size(); ++i) table.Add(states[i], {{"state", source::SourceStateName(static_cast<source::SourceState>(i))}});
}

// Names of sources are the user's own labels of the configuration, never paths.
void AddEngines(Table& table, engine::Engine& engine) {
  const auto is_uring = [](std::string_view name) { return name == "io_uring" ? 1.0 : 0.0; };
  table.Family("tierd_uring_used");
  if (engine.ssd() != nullptr) table.Add(is_uring(engine.ssd_engine_name()), {{"device", "ssd"}, {"source", ""}});
  for (const auto& unit : engine.sources()) table.Add(is_uring(unit->reader->counters().engine), {{"device", "source"}, {"source", unit->options.name}});
  table.Family("tierd_policy_info");
  for (const auto& unit : engine.sources()) table.Add(1.0, {{"source", unit->options.name}, {"policy", unit->options.policy}, {"mode", engine.foresight(*unit).told() ? "seeded" : engine.foresight(*unit).declared() ? "observed" : "blind"}});
  table.Family("tierd_plans");
  for (const auto& unit : engine.sources()) {
    std::array<std::uint64_t, std::size(engine::kPlanStateNames)> states{};
    for (const engine::PlanStatus& plan : engine.foresight(*unit).List()) ++states[static_cast<std::size_t>(plan.state)];
    for (std::size_t i = 0; i < states.size(); ++i) table.Add(states[i], {{"source", unit->options.name}, {"state", engine::kPlanStateNames[i]}});
  }
}

void AddRegret(Table& table, engine::Engine& engine) {
  const auto each = [&](auto value) {
    for (const auto& unit : engine.sources()) table.Add(static_cast<double>(value(*unit)), {{"dataset", unit->options.name}});
  };
  table.Family("tierd_epoch");
  each([](const engine::SourceUnit& unit) { return unit.epochs.ended(); });
  table.Family("tierd_regret_bytes");
  each([](const engine::SourceUnit& unit) { return unit.watch->regret().bytes(); });
  table.Family("tierd_regret_judged_reads");
  each([](const engine::SourceUnit& unit) { return unit.watch->judged().reads; });
  table.Family("tierd_regret_misses");
  each([](const engine::SourceUnit& unit) {
    const sim::Hindsight::Epoch judged = unit.watch->judged();
    return judged.missed - std::min(judged.missed, judged.least);
  });
  table.Family("tierd_policy_dropped_answers_total");
  each([](const engine::SourceUnit& unit) { return unit.policy.dropped_by_all(); });
  table.Family("tierd_look_ahead_resting");
  for (const auto& unit : engine.sources()) table.Add(engine.forerunner(*unit).resting() ? 1.0 : 0.0, {{"dataset", unit->options.name}});
  table.Family("tierd_policy_reads");
  for (const auto& unit : engine.sources()) {
    const auto add = [&](const std::string& policy, const char* role, const auto& reads) {
      for (std::size_t i = 0; i < 3; ++i) table.Add(reads[i], {{"dataset", unit->options.name}, {"policy", policy}, {"role", role}, {"tier", kTierNames[i]}});
    };
    std::array<std::uint64_t, 3> reads{};
    for (std::size_t i = 0; i < unit->epochs.count(); ++i) {
      const engine::EpochCounter::Epoch epoch = unit->epochs.epoch(i);
      for (std::size_t origin = 0; origin < epoch.reads.size(); ++origin) reads[std::min(origin, reads.size() - 1)] += epoch.reads[origin];  // what went around it is the source's
    }
    add(unit->options.policy, "deciding", reads);
    for (const engine::AccessWatch::Tried& tried : unit->watch->tried()) add(tried.policy, "tried", tried.counts.reads);
  }
}

}  // namespace

std::vector<prometheus::MetricFamily> CollectFamilies(engine::Engine& engine, SessionHub& sessions, double started_s) {
  Table table;
  const engine::ReadTotals reads = sessions.Totals();
  AddReads(table, reads);
  AddRealOpens(table, reads);
  AddTiers(table, engine);
  AddMovement(table, engine);
  AddSources(table, engine);
  AddRegret(table, engine);
  const SessionTotals totals = sessions.Sessions();
  table.Family("tierd_sessions").Add(totals.sessions);
  table.Family("tierd_sessions_lingering").Add(totals.lingering);
  table.Family("tierd_sessions_refused_total").Add(totals.refused);
  table.Family("tierd_sessions_turned_away_total");
  for (std::size_t i = 0; i < kTurnedAways; ++i) table.Add(totals.turned_away[i], {{"reason", kTurnedAwayNames[i]}});
  table.Family("tierd_protocol_errors_total").Add(totals.protocol_errors);
  table.Family("tierd_leases").Add(totals.leases);
  table.Family("tierd_leases_frozen").Add(totals.frozen_leases);
  table.Family("tierd_leased_bytes").Add(totals.pinned_bytes);
  table.Family("tierd_added_bytes").Add(totals.added_bytes);
  table.Family("tierd_added_limit_bytes").Add(totals.added_budget);
  const engine::EngineCounters& c = engine.counters();
  table.Family("tierd_ring_entries_total").Add(c.ring_entries);
  table.Family("tierd_ring_lost_total").Add(c.ring_lost);
  const engine::LoopLag& lag = engine.lag();
  table.Family("tierd_loop_lag_seconds");
  table.AddHistogram(lag.buckets, 16e-6, Seconds(lag.sum_ns), {}, kLagStride);
  table.Family("tierd_files").Add(static_cast<std::uint64_t>(engine.catalogue().file_count()));
  table.Family("tierd_index_bytes").Add(engine.index().memory_bytes());
  table.Family("tierd_index_recovery_seconds").Add(engine.recovery().seconds);
  AddEngines(table, engine);
  table.Family("tierd_build_info").Add(1.0, {{"version", TIERD_VERSION}});
  table.Family("tierd_start_time_seconds").Add(started_s);
  return table.Take();
}

}  // namespace tierd::server
