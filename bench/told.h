// Plans told to a daemon, as a training script does (client_lib/python/PLAN.md), and a reader that goes by them at the pace of an accelerator.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/harness.h"
#include "policies/orders/plan_orders.h"

namespace bench {

// Tells the daemon the plan of one rank over `paths`; its number, or 0.
std::uint64_t TellPlan(const Daemon& daemon, const std::vector<std::string>& paths, const tierd::orders::Plan& plan);

// Until the files of the only plan are known; false after ten seconds.
bool AwaitMapped(const Daemon& daemon);

// What a reader found that reads `order` through the default client and takes `bytes_per_second` at most: the accelerator is busy until it has used what it
// was given, and what it had to wait for is lost.
struct PacedRead {
  double seconds = 0;  // all of it
  double waited = 0;   // of these
  double longest = 0;  // wait for one file
};
// `after_each` runs after every file. Nothing if a file could not be read.
std::optional<PacedRead> ReadPaced(const std::vector<std::string>& paths, const std::vector<std::uint32_t>& order, double bytes_per_second,
                                   const std::function<void()>& after_each = nullptr);

}  // namespace bench
