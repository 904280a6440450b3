// What the rig counts: requests per operation, bytes, requests in flight, per-path reads.
//
// All figures are counted before the reply is written, so that a client which has its answer finds it
// counted. Thread rule: relaxed atomics, any thread; the reset is exact only while nothing is in flight.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "tests/pfs_sim/ops.h"

namespace pfs_sim {

using Count = std::atomic<uint64_t>;

// One per node (file); the totals of forgotten nodes are folded into a map by path.
struct PathCounters {
  Count opens = 0;
  Count reads = 0;
  Count bytes = 0;

  bool Any() const { return opens != 0 || reads != 0; }
  void Reset() { opens = reads = bytes = 0; }
};

struct Counters {
  std::array<Count, kOpCount> requests{};
  std::array<Count, kOpCount> errors{};
  std::array<Count, kOpCount> latency_us{};  // that answers were made to wait, in sum
  Count bytes_read = 0;
  Count bytes_written = 0;
  Count in_flight = 0;  // costed requests received and not yet answered, the hung ones included
  Count max_concurrency = 0;
  Count faults = 0;      // requests that a fault rule changed
  Count interrupts = 0;  // FUSE_INTERRUPT messages (ignored: the request is answered when it is due)
  Count forgets = 0;

  void Begin(Op op) {
    ++requests[Index(op)];
    if (!IsCosted(op)) return;
    const uint64_t now = ++in_flight;
    uint64_t seen = max_concurrency;
    while (now > seen && !max_concurrency.compare_exchange_weak(seen, now)) {
    }
  }

  void End(Op op, int error) {
    if (error != 0) ++errors[Index(op)];
    if (IsCosted(op)) --in_flight;
  }

  // Everything but the gauge `in_flight`.
  void Reset() {
    for (auto& count : requests) count = 0;
    for (auto& count : errors) count = 0;
    for (auto& count : latency_us) count = 0;
    bytes_read = bytes_written = max_concurrency = faults = interrupts = forgets = 0;
  }
};

}  // namespace pfs_sim
