// Plain counters of the engine; the loop thread writes them, the metrics exporter and the control plane copy them on the loop thread.
#pragma once

#include <array>
#include <cstdint>

#include "client_lib/abi/layout.h"

namespace tierd::engine {

// What clients did, summed over live and ended sessions: application-request level.
struct ReadTotals {
  std::array<std::uint64_t, abi::kTiers> reads{};
  std::array<std::uint64_t, abi::kTiers> bytes{};
  std::array<std::uint64_t, abi::kFallbacks> fallback{};
  std::array<std::array<std::uint64_t, abi::kLatencyBuckets>, abi::kTiers> latency{};
  std::array<std::uint64_t, abi::kTiers> latency_sum_ns{};
  // Of the preload library (abi::RealCounters).
  std::array<std::uint64_t, abi::kRealOpens> real_opens{};
  std::uint64_t real_reads = 0, real_bytes = 0, source_mappings = 0;
};

enum class EvictCause : std::uint8_t { kCapacity = 0, kRequest = 1, kChanged = 2, kPressure = 3, kDamaged = 4 };
inline constexpr std::uint32_t kEvictCauses = 5;
inline constexpr const char* kEvictCauseNames[kEvictCauses] = {"capacity", "request", "changed", "pressure", "damaged"};

struct EngineCounters {
  // Promotions: [from][to], from: 1 ssd, 2 source; to: 0 ram, 1 ssd.
  std::uint64_t promotions_ssd_ram = 0, promotions_source_ram = 0, promotions_ram_ssd = 0;
  std::uint64_t promotion_bytes_ssd_ram = 0, promotion_bytes_source_ram = 0, promotion_bytes_ram_ssd = 0;
  std::uint64_t promotions_failed = 0;
  std::uint64_t source_joined = 0;           // chunks that were read from the source in a neighbour's request
  std::array<std::array<std::uint64_t, kEvictCauses>, 2> evictions{};       // [tier][cause]
  std::array<std::uint64_t, 2> evicted_bytes{};
  std::uint64_t prefetch_files = 0, prefetch_bytes = 0;
  std::uint64_t prefetch_late = 0;           // brought ahead, but a reader asked before it was there
  std::uint64_t prefetch_unused_bytes = 0;   // brought ahead and gone before anybody read it
  std::uint64_t ahead_used = 0;              // brought by a plan, and read from RAM
  std::uint64_t ahead_lead_ns = 0;           // how long these were there before, summed
  std::uint64_t reader_wait_ns = 0;          // that clients waited for bytes that were not in RAM, summed
  std::uint64_t invalidated_changed = 0, invalidated_request = 0, invalidated_racy = 0;
  std::uint64_t integrity_ssd = 0;           // records that did not verify
  std::uint64_t integrity_ram = 0;           // frames that were not what had been read into them
  std::uint64_t integrity_source = 0;        // chunks of which two reads of one version differed
  std::uint64_t ssd_read_errors = 0, ssd_slow_bypass = 0;
  std::uint64_t ssd_not_admitted = 0;        // the policy, told what is free, did not want them on the SSD
  std::uint64_t fetches = 0, fetch_hits = 0, fetch_joined = 0, fetch_bypassed = 0, revalidations = 0;
  std::uint64_t access_granted = 0, access_refused = 0;  // opens that asked whether a known file may still be read
  std::uint64_t transit_frames = 0;
  std::uint64_t ring_entries = 0, ring_lost = 0, ring_stale = 0;
  std::uint64_t bypass_seen = 0;             // reads around the cache of which the daemon knows the file
  std::uint64_t unseen = 0;                  // reads and opens around the cache that it learns of from counters alone
};

}  // namespace tierd::engine
