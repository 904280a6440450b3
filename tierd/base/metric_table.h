// The daemon's metrics: name, type and help of each family. The daemon gives them values
// (tierd/server/metric_families.cc). `tierctl metrics --from` takes name, type and help from here, so
// that a page of another user's daemon cannot bring its own.
#pragma once

#include <string_view>

namespace tierd {

enum class MetricType { kCounter, kGauge, kHistogram, kSummary };

// As the exposition format writes it.
constexpr std::string_view MetricTypeName(MetricType type) {
  constexpr std::string_view kNames[] = {"counter", "gauge", "histogram", "summary"};
  return kNames[static_cast<int>(type)];
}

struct MetricInfo {
  std::string_view name;
  MetricType type;
  std::string_view help;
};

inline constexpr MetricInfo kMetrics[] = {
    {"tierd_reads_total", MetricType::kCounter,
     "Reads of applications through libtier or the preload library, by the tier that served "
     "them; bypass: by the client from the source itself."},
    {"tierd_read_bytes_total", MetricType::kCounter,
     "Bytes those reads delivered."},
    {"tierd_read_duration_seconds", MetricType::kHistogram,
     "How long reads took; of RAM hits one in 64 is timed."},
    {"tierd_fallback_total", MetricType::kCounter,
     "Reads and opens that bypassed the cache, by reason."},
    {"tierd_real_opens_total", MetricType::kCounter,
     "Opens under the preload library that bypassed the cache, by reason. Reads through them are "
     "those of the tier bypass."},
    {"tierd_source_mappings_total", MetricType::kCounter,
     "Mappings of a source's own file under the preload library; what is read through them is in "
     "no counter."},
    {"tierd_tier_capacity_bytes", MetricType::kGauge,
     "What a tier may hold now: configured, less what memory, other users of the disk or its "
     "state take."},
    {"tierd_tier_used_bytes", MetricType::kGauge,
     "Payload bytes of the objects in a tier."},
    {"tierd_tier_allocated_bytes", MetricType::kGauge,
     "Memory or disk space a tier holds."},
    {"tierd_tier_objects", MetricType::kGauge,
     "Chunks in a tier."},
    {"tierd_tier_pinned_bytes", MetricType::kGauge,
     "Payload bytes of pinned files in a tier."},
    {"tierd_tier_limbo_bytes", MetricType::kGauge,
     "Memory of objects that have left RAM but are still leased by a client or under I/O."},
    {"tierd_tier_hung_frames", MetricType::kGauge,
     "Frames that a request to a hung device or source still owns."},
    {"tierd_tier_state", MetricType::kGauge,
     "1 for the state a tier is in."},
    {"tierd_ssd_write_amplification_ratio", MetricType::kGauge,
     "Bytes written to the device per payload byte accepted."},
    {"tierd_ssd_device_write_bytes_total", MetricType::kCounter,
     "Bytes written to the SSD."},
    {"tierd_ssd_device_read_bytes_total", MetricType::kCounter,
     "Bytes read from the SSD."},
    {"tierd_ssd_moved_bytes_total", MetricType::kCounter,
     "Payload moved to save it when a region was reclaimed."},
    {"tierd_ssd_appends_refused_total", MetricType::kCounter,
     "Objects the SSD tier did not take."},
    {"tierd_ssd_slow_reads_total", MetricType::kCounter,
     "Reads of what is on the SSD that went to the source, which answers sooner."},
    {"tierd_ssd_hung_reads", MetricType::kGauge,
     "SSD reads that take longer than a second."},
    {"tierd_ssd_retired_regions", MetricType::kGauge,
     "Regions of the SSD tier that are left alone for an hour, as writes to them failed or they "
     "could not be read at the start."},
    {"tierd_promotions_total", MetricType::kCounter,
     "Objects brought from tier to tier."},
    {"tierd_promotions_bytes_total", MetricType::kCounter,
     "Payload of those objects."},
    {"tierd_promotions_inflight", MetricType::kGauge,
     "Objects on their way now."},
    {"tierd_source_joined_chunks_total", MetricType::kCounter,
     "Chunks read from a source in the request of their neighbour in the file."},
    {"tierd_evictions_total", MetricType::kCounter,
     "Objects that left a tier, by cause."},
    {"tierd_evicted_bytes_total", MetricType::kCounter,
     "Payload of those objects."},
    {"tierd_transit_frames_total", MetricType::kCounter,
     "Objects that passed through RAM to one reader without staying."},
    {"tierd_prefetch_objects_total", MetricType::kCounter,
     "Objects brought ahead of use."},
    {"tierd_prefetch_bytes_total", MetricType::kCounter,
     "Payload of those objects."},
    {"tierd_prefetch_late_total", MetricType::kCounter,
     "Objects on their way ahead of use when a reader asked for them: it had to wait."},
    {"tierd_prefetch_unused_bytes_total", MetricType::kCounter,
     "Payload brought ahead of use that left before anybody read it."},
    {"tierd_prefetch_lead_seconds", MetricType::kSummary,
     "How long what a plan had brought was in RAM before a reader found it there."},
    {"tierd_reader_wait_seconds_total", MetricType::kCounter,
     "How long clients waited for bytes that were not in RAM, summed."},
    {"tierd_invalidations_total", MetricType::kCounter,
     "Files whose cached bytes were given up, by reason."},
    {"tierd_integrity_failures_total", MetricType::kCounter,
     "Bytes that did not verify, from the SSD, in RAM or by two reads of the source; each such "
     "read was completed from the source."},
    {"tierd_fetch_total", MetricType::kCounter,
     "Requests of clients for what they did not find themselves, by how they went."},
    {"tierd_revalidations_total", MetricType::kCounter,
     "Stats and opens that compared a known file with the source."},
    {"tierd_access_checks_total", MetricType::kCounter,
     "Opens that asked whether a known file may still be read, by the answer; refused stats "
     "count, too."},
    {"tierd_source_requests_total", MetricType::kCounter,
     "Requests to the sources, by how they ended."},
    {"tierd_source_read_bytes_total", MetricType::kCounter,
     "Bytes read from the sources by the daemon."},
    {"tierd_source_discarded_bytes_total", MetricType::kCounter,
     "Of those, bytes thrown away: the file changed while it was read, or they came too late."},
    {"tierd_source_request_duration_seconds", MetricType::kHistogram,
     "From sending a request to the source to its completion."},
    {"tierd_source_requests_in_flight", MetricType::kGauge,
     "Requests to the sources under way, hung ones not counted."},
    {"tierd_source_requests_hung", MetricType::kGauge,
     "Requests to the sources that hang."},
    {"tierd_source_window", MetricType::kGauge,
     "Requests that adaptation allows in flight."},
    {"tierd_source_states", MetricType::kGauge,
     "Sources in each state."},
    {"tierd_uring_used", MetricType::kGauge,
     "1 where io_uring does the I/O, 0 where a pool of threads does."},
    {"tierd_policy_info", MetricType::kGauge,
     "1; the policy of each source is in the label, and in mode what it knows of the order."},
    {"tierd_plans", MetricType::kGauge,
     "Plans of each source, by state: mapping, waiting, followed, doubted."},
    {"tierd_epoch", MetricType::kGauge,
     "Number of the epoch that the readers of a dataset are in; the first is 0."},
    {"tierd_regret_bytes", MetricType::kGauge,
     "Bytes that reads took from the source above what any policy has to read, in epochs that "
     "have ended."},
    {"tierd_regret_judged_reads", MetricType::kGauge,
     "Reads of which is known what Belady's algorithm would have hit: of a sample of the files, "
     "one to two epochs late."},
    {"tierd_regret_misses", MetricType::kGauge,
     "Of those, misses above Belady's."},
    {"tierd_policy_dropped_answers_total", MetricType::kCounter,
     "Answers of a dataset's policy that were wrong and not followed: unknown objects, objects "
     "of another tier, duplicates. A policy that has any is wrong."},
    {"tierd_look_ahead_resting", MetricType::kGauge,
     "1 while nothing is brought ahead by plan, as too little of it was read before it had to "
     "leave."},
    {"tierd_policy_reads", MetricType::kGauge,
     "Reads by the tier that a policy served them from (the deciding one), or would have since "
     "it is tried."},
    {"tierd_sessions", MetricType::kGauge,
     "Connected client processes."},
    {"tierd_sessions_lingering", MetricType::kGauge,
     "Sessions whose socket is closed while the process (or a child with its views) lives."},
    {"tierd_sessions_refused_total", MetricType::kCounter,
     "Connections refused: other user, groups or namespace, protocol version, limit, no "
     "descriptor or memory."},
    {"tierd_sessions_turned_away_total", MetricType::kCounter,
     "Connections refused, and conversations that tierd ended, by reason."},
    {"tierd_protocol_errors_total", MetricType::kCounter,
     "Connections ended because of a malformed message."},
    {"tierd_leases", MetricType::kGauge,
     "Leases that clients hold now."},
    {"tierd_leases_frozen", MetricType::kGauge,
     "Of those, held over a fork."},
    {"tierd_leased_bytes", MetricType::kGauge,
     "Bytes that clients have leased, as they tell."},
    {"tierd_added_bytes", MetricType::kGauge,
     "Memory that the library has added to client processes, as they tell: copies for mappings "
     "and forks, kept handles."},
    {"tierd_added_limit_bytes", MetricType::kGauge,
     "What it may add to all of them together: 1/16 of ram.capacity, at least 64 MiB."},
    {"tierd_ring_entries_total", MetricType::kCounter,
     "Accesses that clients reported."},
    {"tierd_ring_lost_total", MetricType::kCounter,
     "Accesses that were overwritten before the daemon read them."},
    {"tierd_loop_lag_seconds", MetricType::kHistogram,
     "How long turns of the loop thread took."},
    {"tierd_files", MetricType::kGauge,
     "Files, directories and links in the catalogue."},
    {"tierd_index_bytes", MetricType::kGauge,
     "Memory of the shared index, with the daemon's part."},
    {"tierd_index_recovery_seconds", MetricType::kGauge,
     "How long reading the SSD index took at the start."},
    {"tierd_build_info", MetricType::kGauge,
     "1; the version is in the label."},
    {"tierd_start_time_seconds", MetricType::kGauge,
     "When the daemon started, in seconds since the epoch."},
};

// The name of a metric in kMetrics. Any other name does not compile.
struct MetricName {
  consteval MetricName(const char* name) : info(Find(name)) {}  // NOLINT(google-explicit-constructor)
  const MetricInfo& info;

 private:
  static consteval const MetricInfo& Find(std::string_view name) {
    for (const MetricInfo& info : kMetrics) {
      if (info.name == name) return info;
    }
    throw "this metric is not in kMetrics";
  }
};

}  // namespace tierd
