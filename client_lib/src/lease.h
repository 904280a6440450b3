// Claims and frees slots of the lease table (HAZARDS 2.1, 2.4, 2.6). A lease word in a slot keeps the daemon from reusing the frames it names.
//
// Thread rule: any thread; a slot belongs to whoever claimed it. Slots [0, kViewSlots) are for views and files that callers hold as long as they like; the
// rest is for the library's own short claims, so that a process full of views can still read by copying.
#pragma once

#include <cstdint>

#include "client_lib/abi/layout.h"
#include "client_lib/src/thread_state.h"

namespace tierd::client {

inline constexpr std::uint32_t kNoLease = 0xffffffffu;
inline constexpr std::uint32_t kViewSlots = abi::kLeaseSlots - 640;  // a batch claims two slots for each of up to 256 misses

// First slot of a thread that never leased: a cache line of its own.
std::uint32_t FirstLeaseHint();

namespace lease_detail {

inline void RaiseLeaseHigh(abi::SessionPage& page, std::uint32_t slot) {
  std::uint32_t high = page.lease_high.load(std::memory_order_relaxed);
  while (high <= slot && !page.lease_high.compare_exchange_weak(high, slot + 1, std::memory_order_seq_cst)) {
  }
}

inline bool TryClaim(abi::SessionPage& page, std::uint32_t slot, std::uint64_t word) {
  if (page.leases[slot].load(std::memory_order_relaxed) != 0) return false;
  if (page.lease_high.load(std::memory_order_relaxed) <= slot) RaiseLeaseHigh(page, slot);
  std::uint64_t free_slot = 0;
  if (!page.leases[slot].compare_exchange_strong(free_slot, word, std::memory_order_seq_cst)) return false;
#if !defined(__x86_64__)
  std::atomic_thread_fence(std::memory_order_seq_cst);  // the lease is visible before anything of the slot is read; on x86 the exchange is a full fence
#endif
  return true;
}

// Out of line: the hint was taken.
std::uint32_t ClaimElsewhere(abi::SessionPage& page, std::uint64_t word, std::uint32_t begin, std::uint32_t end, std::uint32_t hint);

}  // namespace lease_detail

// Puts `word` into a free slot, with a full fence behind it; kNoLease when all view slots are taken.
inline std::uint32_t ClaimForView(abi::SessionPage& page, std::uint64_t word) {
  if (thread_state.lease_hint == 0) thread_state.lease_hint = FirstLeaseHint();
  const std::uint32_t hint = (thread_state.lease_hint - 1) % kViewSlots;
  std::uint32_t slot = hint;
  if (!lease_detail::TryClaim(page, hint, word)) slot = lease_detail::ClaimElsewhere(page, word, 0, kViewSlots, hint);
  if (slot != kNoLease) thread_state.lease_hint = slot + 2;
  return slot;
}

// The same for a claim that ends within the call.
inline std::uint32_t ClaimForCall(abi::SessionPage& page, std::uint64_t word) {
  const std::uint32_t slot = ClaimForView(page, word);
  return slot != kNoLease ? slot : lease_detail::ClaimElsewhere(page, word, kViewSlots, abi::kLeaseSlots, kViewSlots);
}

inline void FreeLease(abi::SessionPage& page, std::uint32_t slot) {
  page.leases[slot].store(0, std::memory_order_release);
  thread_state.lease_hint = slot + 1;
}

// From "any fill" to one fill: the frames covered get fewer, so no fence is needed.
inline void NarrowLease(abi::SessionPage& page, std::uint32_t slot, abi::FileKey key, std::uint16_t fill) {
  page.leases[slot].store(abi::EncodeLease(abi::LeaseKeyOf(key), fill), std::memory_order_release);
}

}  // namespace tierd::client
