#!/usr/bin/env python3
"""Writes the Grafana dashboard tierd.json to stdout. A panel is one line of PANELS; a test checks that every metric of docs/metrics.md is in one, that the committed
file is what this prints, and that a Prometheus that scrapes tierd answers every expression.

    config/grafana/make_dashboard.py > config/grafana/tierd.json
"""

import json

R = "[$__rate_interval]"
# A page that is scraped has the job of its scrape and no slot, one that came by a textfile the job of the node exporter and a slot.
SEL = 'job=~"$job",instance=~"$instance",slot=~"$slot"'
ONE = "job, instance, slot"  # what tells daemons apart


def s(name, more=""):
    """A selector: the metric on the nodes chosen."""
    return f"{name}{{{SEL}{',' + more if more else ''}}}"


def rate(name, by="", more=""):
    return f"sum by ({ONE}{', ' + by if by else ''}) (rate({s(name, more)}{R}))"


def quantile(q, name, by=""):
    return f"histogram_quantile({q}, sum by ({ONE}, le{', ' + by if by else ''}) (rate({s(name + '_bucket')}{R})))"


def average(name, by=""):
    return f"{rate(name + '_sum', by)} / ({rate(name + '_count', by)} > 0)"


# Reads, and opens that found no room and were never read: as tierd:hit_ratio:rate5m has it. Of a node without such a series: reads.
ASKED = (f"({rate('tierd_reads_total')} + clamp_min({rate('tierd_fallback_total', more='reason=' + chr(34) + 'no_frame' + chr(34))}"
         f" - {rate('tierd_reads_total', more='tier=' + chr(34) + 'bypass' + chr(34))}, 0) or {rate('tierd_reads_total')})")



def total(name, more="", over="[$__range]", by=""):
    return f"sum{' by (' + by + ')' if by else ''} (increase({s(name, more)}{over}))"


HIT = "result=" + chr(34) + "hit" + chr(34)
SERVED = "tier=~" + chr(34) + "ram|ssd|source" + chr(34)
DEGRADED = (f"(sum by ({ONE}) ({s('tierd_tier_state', 'state=~' + chr(34) + 'degraded|out' + chr(34))})"
            f" + sum by ({ONE}) ({s('tierd_source_states', 'state!=' + chr(34) + 'healthy' + chr(34))}))")

# (title, unit, [(expression, legend), ...], what it shows). With a type: a panel of that type, not of lines.
PANELS = {
    "At a glance": [
        ("Bytes saved", "bytes", [(f"clamp_min({total('tierd_read_bytes_total', SERVED)} - {total('tierd_source_read_bytes_total')}, 0)", "saved")],
         "In the time shown: what programs got through tierd, less all that tierd read from the sources for it, read-ahead too.", "stat"),
        ("Hit share", "percentunit", [(f"sum ({rate('tierd_reads_total', more=HIT)}) / (sum ({ASKED}) > 0)", "hits")],
         "Of all reads on all nodes chosen, the share served from RAM or SSD; an open that found no room counts as a miss.", "stat"),
        ("Source load", "Bps", [(f"sum ({rate('tierd_source_read_bytes_total')})", "bytes")], "What the daemons chosen read from the sources, all together.", "stat"),
        ("Source requests", "reqps", [(f"sum ({rate('tierd_source_requests_total')})", "requests")], "Opens, reads, stats and listings that the daemons chosen send to the sources.", "stat"),
        ("Degraded nodes", "short", [(f"count (count by (instance) ({DEGRADED} > 0)) or 0 * count({s('tierd_build_info')})", "degraded")],
         "Nodes with a tier that is degraded or out, or a source that is not healthy; the panel of states says which.", "stat"),
        ("Daemons", "short", [(f"count ({s('tierd_build_info')})", "daemons")], "That tell their metrics now.", "stat"),
    ],
    "Overview": [
        ("Hit ratio", "percentunit", [(f"{rate('tierd_reads_total', more='result=' + chr(34) + 'hit' + chr(34))} / ({ASKED} > 0)", "{{instance}} {{slot}}")],
         "Share of reads served from RAM or SSD; an open that found no room (tierctl run) is a miss. Absent on an idle node."),
        ("Reads by tier", "reqps", [(rate("tierd_reads_total", "tier"), "{{instance}} {{slot}} {{tier}}")], "What served them: ram and ssd are hits; source: tierd read it; bypass: the program did."),
        ("Read bandwidth by tier", "Bps", [(rate("tierd_read_bytes_total", "tier"), "{{instance}} {{slot}} {{tier}}")], "Bytes that programs got."),
        ("Read latency, p50 and p99", "s", [(quantile(0.5, "tierd_read_duration_seconds", "tier"), "{{instance}} {{slot}} {{tier}} p50"), (quantile(0.99, "tierd_read_duration_seconds", "tier"), "{{instance}} {{slot}} {{tier}} p99")],
         "Buckets are a factor of 4 apart. Of RAM hits one in 64 is timed."),
        ("Bypassed reads and opens, by reason", "reqps", [(rate("tierd_fallback_total", "reason") + " > 0", "{{instance}} {{slot}} {{reason}}")], "Only reasons that occur; docs/monitoring.md says what each means."),
        ("Opens of the source's own files, by reason", "reqps", [(rate("tierd_real_opens_total", "reason"), "{{instance}} {{slot}} {{reason}}"), (rate("tierd_source_mappings_total"), "{{instance}} {{slot}} mapped")],
         "Programs under the preload library read these from the source themselves; reads through a mapping are in no counter."),
        ("Tier and source states", "short", [(s("tierd_tier_state") + " == 1", "{{instance}} {{slot}} {{tier}} {{state}}"), (s("tierd_source_states"), "{{instance}} {{slot}} sources {{state}}")], "Healthy is good; off: no such tier."),
    ],
    "Tiers": [
        ("Used and capacity", "bytes", [(s("tierd_tier_used_bytes"), "{{instance}} {{slot}} {{tier}} used"), (s("tierd_tier_capacity_bytes"), "{{instance}} {{slot}} {{tier}} capacity"), (s("tierd_tier_allocated_bytes"), "{{instance}} {{slot}} {{tier}} allocated")],
         "Payload, what the tier may hold now, and the memory or disk it holds."),
        ("Objects", "short", [(s("tierd_tier_objects"), "{{instance}} {{slot}} {{tier}}")], "Chunks in each tier."),
        ("Pinned and held bytes", "bytes", [(s("tierd_tier_pinned_bytes"), "{{instance}} {{slot}} {{tier}} pinned"), (s("tierd_tier_limbo_bytes"), "{{instance}} {{slot}} {{tier}} left, but leased"), (s("tierd_leased_bytes"), "{{instance}} {{slot}} leased"), (s("tierd_added_bytes"), "{{instance}} {{slot}} added to clients"), (s("tierd_added_limit_bytes"), "{{instance}} {{slot}} added at most")],
         "What cannot leave, and what has left while programs still look at it."),
        ("Hung frames, hung SSD reads, bad SSD regions", "short", [(s("tierd_tier_hung_frames"), "{{instance}} {{slot}} frames"), (s("tierd_ssd_hung_reads"), "{{instance}} {{slot}} SSD reads"), (s("tierd_ssd_retired_regions"), "{{instance}} {{slot}} SSD regions")],
         "Above zero: a device or the source does not answer; places of the SSD cannot be written."),
        ("SSD slower than the source", "ops", [(rate("tierd_ssd_slow_reads_total"), "{{instance}} {{slot}}")], "Reads of what is on the SSD that went to the source, which answers sooner: the device is overloaded or failing."),
        ("SSD traffic", "Bps", [(rate("tierd_ssd_device_write_bytes_total"), "{{instance}} {{slot}} written"), (rate("tierd_ssd_device_read_bytes_total"), "{{instance}} {{slot}} read"), (rate("tierd_ssd_moved_bytes_total"), "{{instance}} {{slot}} moved")],
         "At the device; moved: payload saved from regions that are reclaimed."),
        ("SSD write amplification", "short", [(s("tierd_ssd_write_amplification_ratio"), "{{instance}} {{slot}}")], "Bytes written per payload byte accepted."),
        ("Not taken by the SSD tier", "ops", [(rate("tierd_ssd_appends_refused_total", "reason"), "{{instance}} {{slot}} {{reason}}")], "Objects the SSD tier did not take, by reason."),
        ("Integrity failures", "short", [(f"increase({s('tierd_integrity_failures_total')}{R})", "{{instance}} {{slot}} {{kind}}")], "ssd: cached bytes that did not verify; source: two reads of one version differed. No reader saw them."),
    ],
    "Movement": [
        ("Promotions", "ops", [(rate("tierd_promotions_total", "from, to, result"), "{{instance}} {{slot}} {{from}} to {{to}} {{result}}")], "Objects brought to a faster tier."),
        ("Promoted bytes", "Bps", [(rate("tierd_promotions_bytes_total", "from, to"), "{{instance}} {{slot}} {{from}} to {{to}}")], "Payload of them."),
        ("On their way", "short", [(s("tierd_promotions_inflight"), "{{instance}} {{slot}}")], "Objects under way now."),
        ("Evictions", "ops", [(rate("tierd_evictions_total", "tier, cause"), "{{instance}} {{slot}} {{tier}} {{cause}}")], "Objects that left a tier, by cause."),
        ("Evicted bytes", "Bps", [(rate("tierd_evicted_bytes_total", "tier"), "{{instance}} {{slot}} {{tier}}")], "Payload of them."),
        ("Through without staying", "ops", [(rate("tierd_transit_frames_total"), "{{instance}} {{slot}}")], "Objects that passed through RAM to one reader."),
        ("Prefetch", "ops", [(rate("tierd_prefetch_objects_total"), "{{instance}} {{slot}} objects"), (rate("tierd_prefetch_late_total"), "{{instance}} {{slot}} late"), (rate("tierd_source_joined_chunks_total"), "{{instance}} {{slot}} with a neighbour")], "Brought ahead of use, those a reader asked for before they were there, and chunks that were read from the source together with their neighbour."),
        ("Prefetch bytes", "Bps", [(rate("tierd_prefetch_bytes_total"), "{{instance}} {{slot}} brought"), (rate("tierd_prefetch_unused_bytes_total"), "{{instance}} {{slot}} for nothing")], "For nothing: left before anybody read it."),
        ("Ahead by plan", "ops", [(rate("tierd_prefetch_lead_seconds_count"), "{{instance}} {{slot}} used")], "Objects that a plan brought and a reader then found in RAM."),
        ("Lead", "s", [(f"{rate('tierd_prefetch_lead_seconds_sum')} / ({rate('tierd_prefetch_lead_seconds_count')} > 0)", "{{instance}} {{slot}}")], "How long they were there before, on average."),
        ("Readers waiting", "short", [(rate("tierd_reader_wait_seconds_total"), "{{instance}} {{slot}}")], "Clients that wait, at a time, for bytes that are not in RAM."),
        ("Plans", "short", [(s("tierd_plans") + " > 0", "{{instance}} {{slot}} {{source}} {{state}}")], "Orders that were told; doubted: what is read is something else."),
        ("Invalidations and revalidations", "ops", [(rate("tierd_invalidations_total", "reason"), "{{instance}} {{slot}} {{reason}}"), (rate("tierd_revalidations_total"), "{{instance}} {{slot}} revalidated"), (rate("tierd_access_checks_total", "result"), "{{instance}} {{slot}} access {{result}}")], "Files that changed, stats and opens that asked, and what the opens heard of access."),
        ("Requests of clients", "ops", [(rate("tierd_fetch_total", "result"), "{{instance}} {{slot}} {{result}}")], "For what they did not find in shared memory themselves."),
    ],
    "Regret": [
        ("Read from the source needlessly", "bytes", [(s("tierd_regret_bytes"), "{{instance}} {{slot}} {{dataset}}")], "Bytes above what any policy has to read, in epochs that have ended."),
        ("Misses above Belady", "percentunit", [(f"{s('tierd_regret_misses')} / {s('tierd_regret_judged_reads')}", "{{instance}} {{slot}} {{dataset}}")], "Share of reads, of a sample of the files."),
        ("Epoch", "short", [(s("tierd_epoch"), "{{instance}} {{slot}} {{dataset}}")], "Number of the epoch that the readers are in."),
        ("Wrong answers of policies, look-ahead at rest", "short", [(f"increase({s('tierd_policy_dropped_answers_total')}{R})", "{{instance}} {{slot}} {{dataset}} wrong answers"), (s("tierd_look_ahead_resting"), "{{instance}} {{slot}} {{dataset}} rests")],
         "A policy with wrong answers is wrong. At rest: too little of what was brought ahead was read."),
        ("Policies that are tried", "short", [(rate("tierd_policy_reads", "dataset, policy, role, tier"), "{{instance}} {{slot}} {{dataset}} {{policy}} {{role}} {{tier}}")], "Reads by tier: of the policy that decides, and of those that are tried beside it (tierctl policy try)."),
    ],
    "Source": [
        ("Requests", "reqps", [(rate("tierd_source_requests_total", "op, result"), "{{instance}} {{slot}} {{op}} {{result}}")], "What tierd asked the sources, by how it ended."),
        ("Bandwidth", "Bps", [(rate("tierd_source_read_bytes_total"), "{{instance}} {{slot}} read"), (rate("tierd_source_discarded_bytes_total"), "{{instance}} {{slot}} discarded")], "Discarded: changed while it was read, or too late."),
        ("Latency, mean and p99", "s", [(average("tierd_source_request_duration_seconds", "op"), "{{instance}} {{slot}} {{op}} mean"), (quantile(0.99, "tierd_source_request_duration_seconds", "op"), "{{instance}} {{slot}} {{op}} p99")], "From sending a request to its end."),
        ("In flight, allowed, hung", "short", [(s("tierd_source_requests_in_flight"), "{{instance}} {{slot}} in flight"), (s("tierd_source_window"), "{{instance}} {{slot}} allowed"), (s("tierd_source_requests_hung"), "{{instance}} {{slot}} hung")],
         "Concurrency adapts to the latency the source shows."),
    ],
    "Clients and daemon": [
        ("Sessions", "short", [(s("tierd_sessions"), "{{instance}} {{slot}} connected"), (s("tierd_sessions_lingering"), "{{instance}} {{slot}} lingering")], "Client processes."),
        ("Leases", "short", [(s("tierd_leases"), "{{instance}} {{slot}} held"), (s("tierd_leases_frozen"), "{{instance}} {{slot}} over a fork")], "Frames that programs look at now."),
        ("Refused", "ops", [(rate("tierd_sessions_refused_total"), "{{instance}} {{slot}} sessions"), (rate("tierd_protocol_errors_total"), "{{instance}} {{slot}} messages")], "Other user, groups, namespace or version, a limit, no descriptor or memory; malformed messages."),
        ("Turned away, by reason", "ops", [(rate("tierd_sessions_turned_away_total", "reason"), "{{instance}} {{slot}} {{reason}}")], "Connections refused, and conversations that tierd ended."),
        ("Accesses reported", "ops", [(rate("tierd_ring_entries_total"), "{{instance}} {{slot}} seen"), (rate("tierd_ring_lost_total"), "{{instance}} {{slot}} lost")], "What policies learn from."),
        ("Loop turns, p99 and mean", "s", [(quantile(0.99, "tierd_loop_lag_seconds"), "{{instance}} {{slot}} p99"), (average("tierd_loop_lag_seconds"), "{{instance}} {{slot}} mean")], "A turn is meant to end within 2 ms."),
        ("Files known", "short", [(s("tierd_files"), "{{instance}} {{slot}}")], "Files, directories and links in the catalogue."),
        ("Memory of the index", "bytes", [(s("tierd_index_bytes"), "{{instance}} {{slot}}")], "Shared index, with the daemon's part."),
        ("Version, policy, engines", "short", [(s("tierd_build_info"), "{{instance}} {{slot}} version {{version}}"), (s("tierd_policy_info"), "{{instance}} {{slot}} {{source}} {{policy}}"), (s("tierd_uring_used"), "{{instance}} {{slot}} io_uring {{device}} {{source}}")],
         "io_uring: 1 used, 0 threads."),
        ("Uptime and recovery", "s", [(f"time() - {s('tierd_start_time_seconds')}", "{{instance}} {{slot}} up"), (s("tierd_index_recovery_seconds"), "{{instance}} {{slot}} recovery of the SSD index")], "Since the start of the daemon."),
    ],
}


def stat(number, title, unit, targets, about, x, y):
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": number, "type": "stat", "title": title, "description": about, "datasource": source, "gridPos": {"h": 4, "w": 4, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []}, "options": {"reduceOptions": {"calcs": ["lastNotNull"]}, "graphMode": "area"},
        "targets": [{"refId": chr(65 + i), "expr": expr, "legendFormat": legend, "datasource": source} for i, (expr, legend) in enumerate(targets)],
    }


def panel(number, title, unit, targets, about, x, y):
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": number, "type": "timeseries", "title": title, "description": about, "datasource": source, "gridPos": {"h": 8, "w": 8, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {"fillOpacity": 8, "showPoints": "never"}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [{"refId": chr(65 + i), "expr": expr, "legendFormat": legend, "datasource": source} for i, (expr, legend) in enumerate(targets)],
    }


def variable(name, label, query):
    """All of them: also series that have no such label."""
    return {"name": name, "label": label, "type": "query", "datasource": {"type": "prometheus", "uid": "${datasource}"}, "query": {"query": query, "refId": name}, "refresh": 2,
            "multi": True, "includeAll": True, "allValue": ".*", "current": {"text": ["All"], "value": ["$__all"]}}


def dashboard():
    panels, y = [], 0
    for row, members in PANELS.items():
        panels.append({"id": len(panels) + 1, "type": "row", "title": row, "collapsed": False, "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}, "panels": []})
        y += 1
        stats = [member for member in members if member[-1] == "stat"]
        for i, (title, unit, targets, about, _) in enumerate(stats):
            panels.append(stat(len(panels) + 1, title, unit, targets, about, 4 * (i % 6), y + 4 * (i // 6)))
        y += 4 * ((len(stats) + 5) // 6)
        lines = members[len(stats):]
        for i, (title, unit, targets, about) in enumerate(lines):
            panels.append(panel(len(panels) + 1, title, unit, targets, about, 8 * (i % 3), y + 8 * (i // 3)))
        y += 8 * ((len(lines) + 2) // 3)
    source = {"type": "prometheus", "uid": "${datasource}"}
    variables = [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        variable("job", "Job", "label_values(tierd_build_info, job)"),
        variable("instance", "Node", 'label_values(tierd_build_info{job=~"$job"}, instance)'),
        variable("slot", "Slot (textfiles)", 'label_values(tierd_build_info{job=~"$job",instance=~"$instance"}, slot)'),
    ]
    return {"uid": "tierd", "title": "tierd", "tags": ["tierd"], "schemaVersion": 38, "version": 1, "editable": True, "refresh": "30s", "time": {"from": "now-3h", "to": "now"},
            "templating": {"list": variables}, "annotations": {"list": []}, "panels": panels}


print(json.dumps(dashboard(), indent=1))
