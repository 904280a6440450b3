// What a read leaves behind for the daemon: an entry in the access ring and counts in the session page. No lock, no system call.
// Writers: any thread of this process. The ring overwrites its oldest entries; the daemon counts what it lost.
#pragma once

#include <bit>
#include <cstdint>

#include "client_lib/abi/layout.h"
#include "client_lib/src/thread_state.h"

namespace tierd::client {

inline void AppendToRing(abi::SessionPage& page, std::uint32_t ordinal, std::uint32_t generation, std::int64_t now_ns, abi::Tier tier) {
  std::uint64_t position;
  if (OnlyThread()) {
    position = page.ring_head.load(std::memory_order_relaxed);
    page.ring_head.store(position + 1, std::memory_order_release);
  } else {
    position = page.ring_head.fetch_add(1, std::memory_order_acq_rel);
  }
  page.ring[position % abi::kRingEntries].store(abi::EncodeRingEntry(ordinal, generation, now_ns, tier, position), std::memory_order_release);
}

inline void CountRead(abi::SessionCounters& counters, abi::Tier tier, std::uint64_t bytes) {
  const auto t = static_cast<std::size_t>(tier);
  AddOwn(counters.reads[t], 1, counters.bytes[t], bytes);
}

inline void CountFallback(abi::SessionCounters& counters, abi::Fallback reason) { AddOwn(counters.fallback[static_cast<std::size_t>(reason)], 1); }

// Bucket i: durations below 64 ns * 2^i.
constexpr std::uint32_t LatencyBucket(std::int64_t ns) {
  if (ns < 64) return 0;
  const auto bucket = static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint64_t>(ns) >> 6));
  return bucket < abi::kLatencyBuckets ? bucket : abi::kLatencyBuckets - 1;
}

inline void CountLatency(abi::SessionCounters& counters, abi::Tier tier, std::int64_t ns) {
  const auto t = static_cast<std::size_t>(tier);
  AddOwn(counters.latency[t][LatencyBucket(ns)], 1);
  AddOwn(counters.latency_sum_ns[t], static_cast<std::uint64_t>(ns < 0 ? 0 : ns));
}

// True for one RAM hit, or read without a daemon, in kLatencySampling of each thread: a clock costs as much as all the rest of them.
inline bool SampleThisHit() { return (++thread_state.samples & (abi::kLatencySampling - 1)) == 0; }

}  // namespace tierd::client
