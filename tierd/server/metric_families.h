// The metric table: every family tierd exports, with its help text, made from the engine's counters. tierd/server/metrics.cc serves it.
// Loop thread only. docs/metrics.md lists the same ones (a test compares).
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "tierd/engine/engine.h"
#include "tierd/server/session_hub.h"

namespace tierd::server {

// `started_s`: start of the daemon, seconds since the epoch.
std::vector<prometheus::MetricFamily> CollectFamilies(engine::Engine& engine, SessionHub& sessions, double started_s);

}  // namespace tierd::server
