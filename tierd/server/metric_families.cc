#include "tierd/server/metric_families.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <utility>

namespace tierd::server {
namespace {

using Labels = std::initializer_list<std::pair<const char*, std::string>>;
constexpr const char* kTierNames[abi::kTiers] = {"ram", "ssd", "source", "bypass"};
// A daemon with two sources is to give at most 320 series. From 64 ns to 4 s for each of four tiers: at factor 2 that alone would be a third of them. The turns of the loop follow, as
// only one bound of theirs matters, 16 ms, which stays.
constexpr std::size_t kReadStride = 2, kLagStride = 2;

class Table {
 public:
  Table& Family(const char* name, const char* help, prometheus::MetricType type) {
    families_.push_back({name, help, type, {}});
    return *this;
  }
  Table& Counter(const char* name, const char* help) { return Family(name, help, prometheus::MetricType::Counter); }
  Table& Gauge(const char* name, const char* help) { return Family(name, help, prometheus::MetricType::Gauge); }
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
  void AddSummary(const char* name, const char* help, std::uint64_t count, double sum) {
    prometheus::ClientMetric& metric = Family(name, help, prometheus::MetricType::Summary).Metric({});
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
  table.Counter("tierd_reads_total", "Reads of applications through libtier or the preload library, by the tier that served them; bypass: by the client from the source itself.");
  for (std::uint32_t t = 0; t < abi::kTiers; ++t) table.Add(totals.reads[t], {{"tier", kTierNames[t]}, {"result", t == 0 || t == 1 ? "hit" : "miss"}});
  table.Counter("tierd_read_bytes_total", "Bytes those reads delivered.");
  for (std::uint32_t t = 0; t < abi::kTiers; ++t) table.Add(totals.bytes[t], {{"tier", kTierNames[t]}});
  table.Family("tierd_read_duration_seconds", "How long reads took; of RAM hits one in 64 is timed.", prometheus::MetricType::Histogram);
  for (std::uint32_t t = 0; t < abi::kTiers; ++t)
    table.AddHistogram(totals.latency[t], 64e-9, Seconds(totals.latency_sum_ns[t]), {{"tier", kTierNames[t]}}, kReadStride);
  table.Counter("tierd_fallback_total", "Reads and opens that bypassed the cache, by reason.");
  for (std::uint32_t i = 1; i < abi::kFallbacks; ++i) table.Add(totals.fallback[i], {{"reason", abi::FallbackName(static_cast<abi::Fallback>(i))}});
}

void AddRealOpens(Table& table, const engine::ReadTotals& totals) {
  table.Counter("tierd_real_opens_total", "Opens under the preload library that bypassed the cache, by reason. Reads through them are those of the tier bypass.");
  // A series for each of the frequent reasons; status has all of them by name.
  std::uint64_t others = 0;
  for (std::uint32_t i = 0; i < abi::kRealOpens; ++i) {
    const auto reason = static_cast<abi::RealOpen>(i);
    if (reason == abi::RealOpen::kNotCached || reason == abi::RealOpen::kFlags || reason == abi::RealOpen::kPath) table.Add(totals.real_opens[i], {{"reason", abi::kRealOpenNames[i]}});
    else others += totals.real_opens[i];
  }
  table.Add(others, {{"reason", "other"}});
  table.Counter("tierd_source_mappings_total", "Mappings of a source's own file under the preload library; what is read through them is in no counter.").Add(totals.source_mappings);
}

void AddTiers(Table& table, engine::Engine& engine) {
  engine::Placement& placement = engine.placement();
  const ram::RamTierStats ram = engine.ram().stats();
  ssd::SsdTier* ssd = engine.ssd();
  const ssd::SsdStatus status = ssd != nullptr ? ssd->status() : ssd::SsdStatus{};
  table.Gauge("tierd_tier_capacity_bytes", "What a tier may hold now: configured, less what memory, other users of the disk or its state take.");
  table.Add(engine.ram().budget(), {{"tier", "ram"}}).Add(status.capacity_bytes, {{"tier", "ssd"}});
  table.Gauge("tierd_tier_used_bytes", "Payload bytes of the objects in a tier.");
  table.Add(placement.ram_resident_bytes(), {{"tier", "ram"}}).Add(placement.ssd_resident_bytes(), {{"tier", "ssd"}});
  table.Gauge("tierd_tier_allocated_bytes", "Memory or disk space a tier holds.");
  table.Add(engine.ram().segment_bytes(), {{"tier", "ram"}}).Add(status.allocated_bytes, {{"tier", "ssd"}});
  table.Gauge("tierd_tier_objects", "Chunks in a tier.");
  table.Add(placement.ram_resident_objects(), {{"tier", "ram"}}).Add(placement.ssd_resident_objects(), {{"tier", "ssd"}});
  table.Gauge("tierd_tier_pinned_bytes", "Payload bytes of pinned files in a tier.");
  table.Add(placement.pinned_bytes(0), {{"tier", "ram"}}).Add(placement.pinned_bytes(1), {{"tier", "ssd"}});
  table.Gauge("tierd_tier_limbo_bytes", "Memory of objects that have left RAM but are still leased by a client or under I/O.");
  table.Add(ram.allocator.limbo_bytes, {{"tier", "ram"}});
  table.Gauge("tierd_tier_hung_frames", "Frames that a request to a hung device or source still owns.");
  table.Add(ram.held_limbo_frames + engine.fetcher().hung_frames(), {{"tier", "ram"}});
  table.Gauge("tierd_tier_state", "1 for the state a tier is in.");
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
  table.Gauge("tierd_ssd_write_amplification_ratio", "Bytes written to the device per payload byte accepted.").Add(counters.WriteAmplification());
  table.Counter("tierd_ssd_device_write_bytes_total", "Bytes written to the SSD.").Add(counters.device_write_bytes);
  table.Counter("tierd_ssd_device_read_bytes_total", "Bytes read from the SSD.").Add(counters.device_read_bytes);
  table.Counter("tierd_ssd_moved_bytes_total", "Payload moved to save it when a region was reclaimed.").Add(counters.moved_bytes);
  table.Counter("tierd_ssd_appends_refused_total", "Objects the SSD tier did not take.");
  table.Add(counters.appends_refused_no_space, {{"reason", "no_space"}})
      .Add(counters.appends_refused_busy, {{"reason", "busy"}})
      .Add(counters.appends_refused_health, {{"reason", "health"}})
      .Add(engine.counters().ssd_not_admitted, {{"reason", "policy"}});
  table.Counter("tierd_ssd_slow_reads_total", "Reads of what is on the SSD that went to the source, which answers sooner.").Add(engine.counters().ssd_slow_bypass);
  table.Gauge("tierd_ssd_hung_reads", "SSD reads that take longer than a second.").Add(status.hung_reads);
  table.Gauge("tierd_ssd_retired_regions", "Regions of the SSD tier that are left alone for an hour, as writes to them failed or they could not be read at the start.").Add(status.retired_regions);
}

void AddMovement(Table& table, engine::Engine& engine) {
  const engine::EngineCounters& c = engine.counters();
  table.Counter("tierd_promotions_total", "Objects brought from tier to tier.");
  table.Add(c.promotions_source_ram, {{"from", "source"}, {"to", "ram"}, {"result", "ok"}})
      .Add(c.promotions_ssd_ram, {{"from", "ssd"}, {"to", "ram"}, {"result", "ok"}})
      .Add(c.promotions_ram_ssd, {{"from", "ram"}, {"to", "ssd"}, {"result", "ok"}})
      .Add(c.promotions_failed, {{"from", "any"}, {"to", "any"}, {"result", "failed"}});
  table.Counter("tierd_promotions_bytes_total", "Payload of those objects.");
  table.Add(c.promotion_bytes_source_ram, {{"from", "source"}, {"to", "ram"}})
      .Add(c.promotion_bytes_ssd_ram, {{"from", "ssd"}, {"to", "ram"}})
      .Add(c.promotion_bytes_ram_ssd, {{"from", "ram"}, {"to", "ssd"}});
  table.Gauge("tierd_promotions_inflight", "Objects on their way now.").Add(static_cast<std::uint64_t>(engine.fetcher().fills_in_flight()));
  table.Counter("tierd_source_joined_chunks_total", "Chunks read from a source in the request of their neighbour in the file.").Add(c.source_joined);
  table.Counter("tierd_evictions_total", "Objects that left a tier, by cause.");
  for (std::size_t tier = 0; tier < 2; ++tier)
    for (std::size_t cause = 0; cause < engine::kEvictCauses; ++cause)
      table.Add(c.evictions[tier][cause], {{"tier", kTierNames[tier]}, {"cause", engine::kEvictCauseNames[cause]}});
  table.Counter("tierd_evicted_bytes_total", "Payload of those objects.");
  table.Add(c.evicted_bytes[0], {{"tier", "ram"}}).Add(c.evicted_bytes[1], {{"tier", "ssd"}});
  table.Counter("tierd_transit_frames_total", "Objects that passed through RAM to one reader without staying.").Add(c.transit_frames);
  table.Counter("tierd_prefetch_objects_total", "Objects brought ahead of use.").Add(c.prefetch_files);
  table.Counter("tierd_prefetch_bytes_total", "Payload of those objects.").Add(c.prefetch_bytes);
  table.Counter("tierd_prefetch_late_total", "Objects on their way ahead of use when a reader asked for them: it had to wait.").Add(c.prefetch_late);
  table.Counter("tierd_prefetch_unused_bytes_total", "Payload brought ahead of use that left before anybody read it.").Add(c.prefetch_unused_bytes);
  table.AddSummary("tierd_prefetch_lead_seconds", "How long what a plan had brought was in RAM before a reader found it there.", c.ahead_used, Seconds(c.ahead_lead_ns));
  table.Counter("tierd_reader_wait_seconds_total", "How long clients waited for bytes that were not in RAM, summed.").Add(Seconds(c.reader_wait_ns));
  table.Counter("tierd_invalidations_total", "Files whose cached bytes were given up, by reason.");
  table.Add(c.invalidated_changed, {{"reason", "changed"}}).Add(c.invalidated_request, {{"reason", "request"}}).Add(c.invalidated_racy, {{"reason", "racy"}});
  table.Counter("tierd_integrity_failures_total", "Bytes that did not verify, from the SSD, in RAM or by two reads of the source; each such read was completed from the source.");
  table.Add(c.integrity_ssd, {{"kind", "ssd"}}).Add(c.integrity_ram, {{"kind", "ram"}}).Add(c.integrity_source, {{"kind", "source"}});
  table.Counter("tierd_fetch_total", "Requests of clients for what they did not find themselves, by how they went.");
  table.Add(c.fetches - c.fetch_hits - c.fetch_joined - c.fetch_bypassed, {{"result", "filled"}})
      .Add(c.fetch_hits, {{"result", "hit"}})
      .Add(c.fetch_joined, {{"result", "joined"}})
      .Add(c.fetch_bypassed, {{"result", "bypassed"}});
  table.Counter("tierd_revalidations_total", "Stats and opens that compared a known file with the source.").Add(c.revalidations);
  table.Counter("tierd_access_checks_total", "Opens that asked whether a known file may still be read, by the answer; refused stats count, too.");
  table.Add(c.access_granted, {{"result", "granted"}}).Add(c.access_refused, {{"result", "refused"}});
}

void AddSources(Table& table, engine::Engine& engine) {
  table.Counter("tierd_source_requests_total", "Requests to the sources, by how they ended.");
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
  table.Counter("tierd_source_read_bytes_total", "Bytes read from the sources by the daemon.").Add(bytes);
  table.Counter("tierd_source_discarded_bytes_total", "Of those, bytes thrown away: the file changed while it was read, or they came too late.").Add(discarded);
  table.Family("tierd_source_request_duration_seconds", "From sending a request to the source to its completion.", prometheus::MetricType::Histogram);
  table.AddHistogram(latency, 100e-6, Seconds(latency_sum), {{"op", "read"}});
  table.AddHistogram(stat_latency, 100e-6, Seconds(stat_latency_sum), {{"op", "stat"}});
  table.Gauge("tierd_source_requests_in_flight", "Requests to the sources under way, hung ones not counted.").Add(in_flight);
  table.Gauge("tierd_source_requests_hung", "Requests to the sources that hang.").Add(hung);
  table.Gauge("tierd_source_window", "Requests that adaptation allows in flight.").Add(window);
  table.Gauge("tierd_source_states", "Sources in each state.");
  for (std::size_t i = 0; i < states.size(); ++i) table.Add(states[i], {{"state", source::SourceStateName(static_cast<source::SourceState>(i))}});
}

// Names of sources are the user's own labels of the configuration, never paths.
void AddEngines(Table& table, engine::Engine& engine) {
  const auto is_uring = [](std::string_view name) { return name == "io_uring" ? 1.0 : 0.0; };
  table.Gauge("tierd_uring_used", "1 where io_uring does the I/O, 0 where a pool of threads does.");
  if (engine.ssd() != nullptr) table.Add(is_uring(engine.ssd_engine_name()), {{"device", "ssd"}, {"source", ""}});
  for (const auto& unit : engine.sources()) table.Add(is_uring(unit->reader->counters().engine), {{"device", "source"}, {"source", unit->options.name}});
  table.Gauge("tierd_policy_info", "1; the policy of each source is in the label, and in mode what it knows of the order.");
  for (const auto& unit : engine.sources()) table.Add(1.0, {{"source", unit->options.name}, {"policy", unit->options.policy}, {"mode", engine.foresight(*unit).told() ? "seeded" : engine.foresight(*unit).declared() ? "observed" : "blind"}});
  table.Gauge("tierd_plans", "Plans of each source, by state: mapping, waiting, followed, doubted.");
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
  table.Gauge("tierd_epoch", "Number of the epoch that the readers of a dataset are in; the first is 0.");
  each([](const engine::SourceUnit& unit) { return unit.epochs.ended(); });
  table.Gauge("tierd_regret_bytes", "Bytes that reads took from the source above what any policy has to read, in epochs that have ended.");
  each([](const engine::SourceUnit& unit) { return unit.watch->regret().bytes(); });
  table.Gauge("tierd_regret_judged_reads", "Reads of which is known what Belady's algorithm would have hit: of a sample of the files, one to two epochs late.");
  each([](const engine::SourceUnit& unit) { return unit.watch->judged().reads; });
  table.Gauge("tierd_regret_misses", "Of those, misses above Belady's.");
  each([](const engine::SourceUnit& unit) {
    const sim::Hindsight::Epoch judged = unit.watch->judged();
    return judged.missed - std::min(judged.missed, judged.least);
  });
  table.Counter("tierd_policy_dropped_answers_total", "Answers of a dataset's policy that were wrong and not followed: unknown objects, objects of another tier, duplicates. A policy that has any is wrong.");
  each([](const engine::SourceUnit& unit) { return unit.policy.dropped_by_all(); });
  table.Gauge("tierd_look_ahead_resting", "1 while nothing is brought ahead by plan, as too little of it was read before it had to leave.");
  for (const auto& unit : engine.sources()) table.Add(engine.forerunner(*unit).resting() ? 1.0 : 0.0, {{"dataset", unit->options.name}});
  table.Gauge("tierd_policy_reads", "Reads by the tier that a policy served them from (the deciding one), or would have since it is tried.");
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
  table.Gauge("tierd_sessions", "Connected client processes.").Add(totals.sessions);
  table.Gauge("tierd_sessions_lingering", "Sessions whose socket is closed while the process (or a child with its views) lives.").Add(totals.lingering);
  table.Counter("tierd_sessions_refused_total", "Connections refused: other user, groups or namespace, protocol version, limit, no descriptor or memory.").Add(totals.refused);
  table.Counter("tierd_sessions_turned_away_total", "Connections refused, and conversations that tierd ended, by reason.");
  for (std::size_t i = 0; i < kTurnedAways; ++i) table.Add(totals.turned_away[i], {{"reason", kTurnedAwayNames[i]}});
  table.Counter("tierd_protocol_errors_total", "Connections ended because of a malformed message.").Add(totals.protocol_errors);
  table.Gauge("tierd_leases", "Leases that clients hold now.").Add(totals.leases);
  table.Gauge("tierd_leases_frozen", "Of those, held over a fork.").Add(totals.frozen_leases);
  table.Gauge("tierd_leased_bytes", "Bytes that clients have leased, as they tell.").Add(totals.pinned_bytes);
  table.Gauge("tierd_added_bytes", "Memory that the library has added to client processes, as they tell: copies for mappings and forks, kept handles.").Add(totals.added_bytes);
  table.Gauge("tierd_added_limit_bytes", "What it may add to all of them together: 1/16 of ram.capacity, at least 64 MiB.").Add(totals.added_budget);
  const engine::EngineCounters& c = engine.counters();
  table.Counter("tierd_ring_entries_total", "Accesses that clients reported.").Add(c.ring_entries);
  table.Counter("tierd_ring_lost_total", "Accesses that were overwritten before the daemon read them.").Add(c.ring_lost);
  const engine::LoopLag& lag = engine.lag();
  table.Family("tierd_loop_lag_seconds", "How long turns of the loop thread took.", prometheus::MetricType::Histogram);
  table.AddHistogram(lag.buckets, 16e-6, Seconds(lag.sum_ns), {}, kLagStride);
  table.Gauge("tierd_files", "Files, directories and links in the catalogue.").Add(static_cast<std::uint64_t>(engine.catalogue().file_count()));
  table.Gauge("tierd_index_bytes", "Memory of the shared index, with the daemon's part.").Add(engine.index().memory_bytes());
  table.Gauge("tierd_index_recovery_seconds", "How long reading the SSD index took at the start.").Add(engine.recovery().seconds);
  AddEngines(table, engine);
  table.Gauge("tierd_build_info", "1; the version is in the label.").Add(1.0, {{"version", TIERD_VERSION}});
  table.Gauge("tierd_start_time_seconds", "When the daemon started, in seconds since the epoch.").Add(started_s);
  return table.Take();
}

}  // namespace tierd::server
