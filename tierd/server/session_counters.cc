// What clients write into their pages: accesses, counters, leases. Words are read once and bounded; what they say harms nobody but who wrote it.
#include <algorithm>

#include "tierd/server/session_impl.h"

namespace tierd::server {

void SessionHub::DrainRing(Session& session) {
  abi::SessionPage* page = session.page.page();
  const std::uint64_t head = page->ring_head.load(std::memory_order_acquire);
  std::uint64_t& tail = session.ring_tail;
  if (head - tail > abi::kRingEntries) {
    // Overrun, or a hostile head: what was overwritten is lost and counted.
    const std::uint64_t lost = head - tail - abi::kRingEntries;
    engine_.CountRingLost(std::min<std::uint64_t>(lost, std::uint64_t{1} << 40));
    tail = head - abi::kRingEntries;
  }
  while (tail != head) {
    const std::uint64_t entry = page->ring[tail % abi::kRingEntries].load(std::memory_order_acquire);
    const auto lap = static_cast<std::uint8_t>(tail / abi::kRingEntries + 1);
    if (static_cast<std::uint8_t>(entry >> 56) != lap) {
      // Reserved, not written yet: looked at again next time; a writer that died in between is overrun in the end.
      if (head - tail < abi::kRingEntries / 2) break;
      engine_.CountRingLost(1);
    } else {
      engine_.OnAccess(static_cast<engine::SessionId>(session.id), entry);
    }
    ++tail;
  }
}

void SessionHub::DrainRings() {
  for (auto& [id, session] : sessions_) DrainRing(*session);
}

void SessionHub::OnTimer() {
  DrainRings();
  FlushReplies();
}

// Takes over what a page says beyond what was taken before; a client that lowers its counters adds nothing.
void SessionHub::AddCounters(Session& session, engine::ReadTotals& totals) {
  const abi::SessionCounters& counters = session.page.page()->counters;
  const auto take = [](const std::atomic<std::uint64_t>& word, std::uint64_t& seen, std::uint64_t& total) {
    const std::uint64_t now = word.load(std::memory_order_relaxed);
    if (now > seen) total += now - seen;
    seen = std::max(seen, now);
  };
  for (std::uint32_t tier = 0; tier < abi::kTiers; ++tier) {
    take(counters.reads[tier], session.seen.reads[tier], totals.reads[tier]);
    take(counters.bytes[tier], session.seen.bytes[tier], totals.bytes[tier]);
    take(counters.latency_sum_ns[tier], session.seen.latency_sum_ns[tier], totals.latency_sum_ns[tier]);
    for (std::uint32_t b = 0; b < abi::kLatencyBuckets; ++b) take(counters.latency[tier][b], session.seen.latency[tier][b], totals.latency[tier][b]);
  }
  for (std::uint32_t i = 0; i < abi::kFallbacks; ++i) take(counters.fallback[i], session.seen.fallback[i], totals.fallback[i]);
}

engine::ReadTotals SessionHub::Totals() {
  for (auto& [id, session] : sessions_) AddCounters(*session, ended_);
  return ended_;
}

SessionTotals SessionHub::Sessions() const {
  SessionTotals totals;
  totals.refused = refused_;
  totals.protocol_errors = protocol_errors_;
  for (const auto& [id, session] : sessions_) {
    if (session->closed) ++totals.lingering;
    else ++totals.sessions;
    const abi::SessionPage* page = session->page.page();
    const std::uint32_t high = std::min(page->lease_high.load(std::memory_order_relaxed), abi::kLeaseSlots);
    for (std::uint32_t i = 0; i < high; ++i) totals.leases += page->leases[i].load(std::memory_order_relaxed) != 0 ? 1 : 0;
    totals.frozen_leases += std::min(page->frozen_leases.load(std::memory_order_relaxed), abi::kLeaseSlots);
    totals.pinned_bytes += std::min<std::uint64_t>(page->leased_bytes.load(std::memory_order_relaxed), std::uint64_t{1} << 50);
  }
  return totals;
}

}  // namespace tierd::server
