#include "client_lib/src/lease.h"

namespace tierd::client {

std::uint32_t FirstLeaseHint() {
  static constinit std::atomic<std::uint32_t> threads{0};
  constexpr std::uint32_t kSlotsPerLine = 8;
  return threads.fetch_add(1, std::memory_order_relaxed) * kSlotsPerLine % kViewSlots + 1;
}

std::uint32_t lease_detail::ClaimElsewhere(abi::SessionPage& page, std::uint64_t word, std::uint32_t begin, std::uint32_t end, std::uint32_t hint) {
  const std::uint32_t count = end - begin;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t slot = begin + (hint - begin + i) % count;
    if (TryClaim(page, slot, word)) return slot;
  }
  return kNoLease;
}

}  // namespace tierd::client
