#!/usr/bin/env python3
"""Writes the Grafana dashboard tierd.json to stdout. A panel is one line of PANELS; a test checks that every metric of docs/metrics.md is in one, that the committed
file is what this prints, and that a Prometheus that scrapes tierd answers every expression.

    config/grafana/make_dashboard.py > config/grafana/tierd.json
"""

import json

R = "[$__rate_interval]"
SEL = 'job="tierd",instance=~"$instance"'


def s(name, more=""):
    """A selector: the metric on the nodes chosen."""
    return f"{name}{{{SEL}{',' + more if more else ''}}}"


def rate(name, by="", more=""):
    return f"sum by (instance{', ' + by if by else ''}) (rate({s(name, more)}{R}))"


def quantile(q, name, by=""):
    return f"histogram_quantile({q}, sum by (instance, le{', ' + by if by else ''}) (rate({s(name + '_bucket')}{R})))"


def average(name, by=""):
    return f"{rate(name + '_sum', by)} / ({rate(name + '_count', by)} > 0)"


# Reads, and opens that found no room, whose reads nobody counts: as tierd:hit_ratio:rate5m has it. Of a node without such a series: reads.
ASKED = (f"({rate('tierd_reads_total')} + clamp_min({rate('tierd_fallback_total', more='reason=' + chr(34) + 'no_frame' + chr(34))}"
         f" - {rate('tierd_reads_total', more='tier=' + chr(34) + 'bypass' + chr(34))}, 0) or {rate('tierd_reads_total')})")

# (title, unit, [(expression, legend), ...], what it shows)
PANELS = {
    "Overview": [
        ("Hit ratio", "percentunit", [(f"{rate('tierd_reads_total', more='result=' + chr(34) + 'hit' + chr(34))} / ({ASKED} > 0)", "{{instance}}")],
         "Share of reads served from RAM or SSD; an open that found no room (tierctl run) is a miss. Absent on an idle node."),
        ("Reads by tier", "reqps", [(rate("tierd_reads_total", "tier"), "{{instance}} {{tier}}")], "What served them: ram and ssd are hits; source: tierd read it; bypass: the program did."),
        ("Read bandwidth by tier", "Bps", [(rate("tierd_read_bytes_total", "tier"), "{{instance}} {{tier}}")], "Bytes that programs got."),
        ("Read latency, p50 and p99", "s", [(quantile(0.5, "tierd_read_duration_seconds", "tier"), "{{instance}} {{tier}} p50"), (quantile(0.99, "tierd_read_duration_seconds", "tier"), "{{instance}} {{tier}} p99")],
         "Buckets are a factor of 4 apart. Of RAM hits one in 64 is timed."),
        ("Reads and opens past the cache, by reason", "reqps", [(rate("tierd_fallback_total", "reason") + " > 0", "{{instance}} {{reason}}")], "Only reasons that occur; docs/monitoring.md says what each means."),
        ("Tier and source states", "short", [(s("tierd_tier_state") + " == 1", "{{instance}} {{tier}} {{state}}"), (s("tierd_source_states"), "{{instance}} sources {{state}}")], "Healthy is good; off: no such tier."),
    ],
    "Tiers": [
        ("Used and capacity", "bytes", [(s("tierd_tier_used_bytes"), "{{instance}} {{tier}} used"), (s("tierd_tier_capacity_bytes"), "{{instance}} {{tier}} capacity"), (s("tierd_tier_allocated_bytes"), "{{instance}} {{tier}} allocated")],
         "Payload, what the tier may hold now, and the memory or disk it holds."),
        ("Objects", "short", [(s("tierd_tier_objects"), "{{instance}} {{tier}}")], "Chunks in each tier."),
        ("Pinned and held bytes", "bytes", [(s("tierd_tier_pinned_bytes"), "{{instance}} {{tier}} pinned"), (s("tierd_tier_limbo_bytes"), "{{instance}} {{tier}} left, but leased"), (s("tierd_leased_bytes"), "{{instance}} leased")],
         "What cannot leave, and what has left while programs still look at it."),
        ("Hung frames, hung SSD reads, bad SSD regions", "short", [(s("tierd_tier_hung_frames"), "{{instance}} frames"), (s("tierd_ssd_hung_reads"), "{{instance}} SSD reads"), (s("tierd_ssd_retired_regions"), "{{instance}} SSD regions")],
         "Above zero: a device or the source does not answer; places of the SSD cannot be written."),
        ("SSD slower than the source", "ops", [(rate("tierd_ssd_slow_reads_total"), "{{instance}}")], "Reads of what is on the SSD that went to the source, which answers sooner: the device is overloaded or failing."),
        ("SSD traffic", "Bps", [(rate("tierd_ssd_device_write_bytes_total"), "{{instance}} written"), (rate("tierd_ssd_device_read_bytes_total"), "{{instance}} read"), (rate("tierd_ssd_moved_bytes_total"), "{{instance}} moved")],
         "At the device; moved: payload saved from regions that are reclaimed."),
        ("SSD write amplification", "short", [(s("tierd_ssd_write_amplification_ratio"), "{{instance}}")], "Bytes written per payload byte accepted."),
        ("Not taken by the SSD tier", "ops", [(rate("tierd_ssd_appends_refused_total", "reason"), "{{instance}} {{reason}}")], "Objects the SSD tier did not take, by reason."),
        ("Integrity failures", "short", [(f"increase({s('tierd_integrity_failures_total')}{R})", "{{instance}} {{kind}}")], "ssd: cached bytes that did not verify; source: two reads of one version differed. No reader saw them."),
    ],
    "Movement": [
        ("Promotions", "ops", [(rate("tierd_promotions_total", "from, to, result"), "{{instance}} {{from}} to {{to}} {{result}}")], "Objects brought to a faster tier."),
        ("Promoted bytes", "Bps", [(rate("tierd_promotions_bytes_total", "from, to"), "{{instance}} {{from}} to {{to}}")], "Payload of them."),
        ("On their way", "short", [(s("tierd_promotions_inflight"), "{{instance}}")], "Objects under way now."),
        ("Evictions", "ops", [(rate("tierd_evictions_total", "tier, cause"), "{{instance}} {{tier}} {{cause}}")], "Objects that left a tier, by cause."),
        ("Evicted bytes", "Bps", [(rate("tierd_evicted_bytes_total", "tier"), "{{instance}} {{tier}}")], "Payload of them."),
        ("Through without staying", "ops", [(rate("tierd_transit_frames_total"), "{{instance}}")], "Objects that passed through RAM to one reader."),
        ("Prefetch", "ops", [(rate("tierd_prefetch_objects_total"), "{{instance}} objects"), (rate("tierd_prefetch_late_total"), "{{instance}} late"), (rate("tierd_source_joined_chunks_total"), "{{instance}} with a neighbour")], "Brought ahead of use, those a reader asked for before they were there, and chunks that were read from the source together with their neighbour."),
        ("Prefetch bytes", "Bps", [(rate("tierd_prefetch_bytes_total"), "{{instance}} brought"), (rate("tierd_prefetch_unused_bytes_total"), "{{instance}} for nothing")], "For nothing: left before anybody read it."),
        ("Ahead by plan", "ops", [(rate("tierd_prefetch_lead_seconds_count"), "{{instance}} used")], "Objects that a plan brought and a reader then found in RAM."),
        ("Lead", "s", [(f"{rate('tierd_prefetch_lead_seconds_sum')} / ({rate('tierd_prefetch_lead_seconds_count')} > 0)", "{{instance}}")], "How long they were there before, on average."),
        ("Readers waiting", "short", [(rate("tierd_reader_wait_seconds_total"), "{{instance}}")], "Clients that wait, at a time, for bytes that are not in RAM."),
        ("Plans", "short", [(s("tierd_plans") + " > 0", "{{instance}} {{source}} {{state}}")], "Orders that were told; doubted: what is read is something else."),
        ("Invalidations and revalidations", "ops", [(rate("tierd_invalidations_total", "reason"), "{{instance}} {{reason}}"), (rate("tierd_revalidations_total"), "{{instance}} revalidated")], "Files that changed, and stats that asked."),
        ("Requests of clients", "ops", [(rate("tierd_fetch_total", "result"), "{{instance}} {{result}}")], "For what they did not find in shared memory themselves."),
    ],
    "Regret": [
        ("Read from the source needlessly", "bytes", [(s("tierd_regret_bytes"), "{{instance}} {{dataset}}")], "Bytes above what any policy has to read, in epochs that have ended."),
        ("Misses above Belady", "percentunit", [(f"{s('tierd_regret_misses')} / {s('tierd_regret_judged_reads')}", "{{instance}} {{dataset}}")], "Share of reads, of a sample of the files."),
        ("Epoch", "short", [(s("tierd_epoch"), "{{instance}} {{dataset}}")], "Number of the epoch that the readers are in."),
        ("Policies that are tried", "short", [(rate("tierd_policy_reads", "dataset, policy, role, tier"), "{{instance}} {{dataset}} {{policy}} {{role}} {{tier}}")], "Reads by tier: of the policy that decides, and of those that are tried beside it (tierctl policy try)."),
    ],
    "Source": [
        ("Requests", "reqps", [(rate("tierd_source_requests_total", "op, result"), "{{instance}} {{op}} {{result}}")], "What tierd asked the sources, by how it ended."),
        ("Bandwidth", "Bps", [(rate("tierd_source_read_bytes_total"), "{{instance}} read"), (rate("tierd_source_discarded_bytes_total"), "{{instance}} discarded")], "Discarded: changed while it was read, or too late."),
        ("Latency, mean and p99", "s", [(average("tierd_source_request_duration_seconds", "op"), "{{instance}} {{op}} mean"), (quantile(0.99, "tierd_source_request_duration_seconds", "op"), "{{instance}} {{op}} p99")], "From sending a request to its end."),
        ("In flight, allowed, hung", "short", [(s("tierd_source_requests_in_flight"), "{{instance}} in flight"), (s("tierd_source_window"), "{{instance}} allowed"), (s("tierd_source_requests_hung"), "{{instance}} hung")],
         "Concurrency adapts to the latency the source shows."),
    ],
    "Clients and daemon": [
        ("Sessions", "short", [(s("tierd_sessions"), "{{instance}} connected"), (s("tierd_sessions_lingering"), "{{instance}} lingering")], "Client processes."),
        ("Leases", "short", [(s("tierd_leases"), "{{instance}} held"), (s("tierd_leases_frozen"), "{{instance}} over a fork")], "Frames that programs look at now."),
        ("Refused", "ops", [(rate("tierd_sessions_refused_total"), "{{instance}} sessions"), (rate("tierd_protocol_errors_total"), "{{instance}} messages")], "Other user, groups, namespace or version, a limit, no descriptor or memory; malformed messages."),
        ("Accesses reported", "ops", [(rate("tierd_ring_entries_total"), "{{instance}} seen"), (rate("tierd_ring_lost_total"), "{{instance}} lost")], "What policies learn from."),
        ("Loop turns, p99 and mean", "s", [(quantile(0.99, "tierd_loop_lag_seconds"), "{{instance}} p99"), (average("tierd_loop_lag_seconds"), "{{instance}} mean")], "A turn is meant to end within 2 ms."),
        ("Files known", "short", [(s("tierd_files"), "{{instance}}")], "Files, directories and links in the catalogue."),
        ("Memory of the index", "bytes", [(s("tierd_index_bytes"), "{{instance}}")], "Shared index, with the daemon's part."),
        ("Version, policy, engines", "short", [(s("tierd_build_info"), "{{instance}} version {{version}}"), (s("tierd_policy_info"), "{{instance}} {{source}} {{policy}}"), (s("tierd_uring_used"), "{{instance}} io_uring {{device}} {{source}}")],
         "io_uring: 1 used, 0 threads."),
        ("Uptime and recovery", "s", [(f"time() - {s('tierd_start_time_seconds')}", "{{instance}} up"), (s("tierd_index_recovery_seconds"), "{{instance}} recovery of the SSD index")], "Since the start of the daemon."),
    ],
}


def panel(number, title, unit, targets, about, x, y):
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": number, "type": "timeseries", "title": title, "description": about, "datasource": source, "gridPos": {"h": 8, "w": 8, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {"fillOpacity": 8, "showPoints": "never"}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [{"refId": chr(65 + i), "expr": expr, "legendFormat": legend, "datasource": source} for i, (expr, legend) in enumerate(targets)],
    }


def dashboard():
    panels, y = [], 0
    for row, members in PANELS.items():
        panels.append({"id": len(panels) + 1, "type": "row", "title": row, "collapsed": False, "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}, "panels": []})
        y += 1
        for i, (title, unit, targets, about) in enumerate(members):
            panels.append(panel(len(panels) + 1, title, unit, targets, about, 8 * (i % 3), y + 8 * (i // 3)))
        y += 8 * ((len(members) + 2) // 3)
    source = {"type": "prometheus", "uid": "${datasource}"}
    variables = [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {"name": "instance", "label": "Node", "type": "query", "datasource": source, "query": {"query": 'label_values(tierd_build_info{job="tierd"}, instance)', "refId": "instance"}, "refresh": 2,
         "multi": True, "includeAll": True, "current": {"text": ["All"], "value": ["$__all"]}},
    ]
    return {"uid": "tierd", "title": "tierd", "tags": ["tierd"], "schemaVersion": 38, "version": 1, "editable": True, "refresh": "30s", "time": {"from": "now-3h", "to": "now"},
            "templating": {"list": variables}, "annotations": {"list": []}, "panels": panels}


print(json.dumps(dashboard(), indent=1))
