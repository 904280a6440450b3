// tier_view: what its fields mean, how one is made from leased bytes or from private memory, and how it ends.
// A view belongs to one thread at a time; the leases and mappings behind it are shared.
#pragma once

#include <cstdint>

#include "client_lib/src/fork_mark.h"
#include "client_lib/src/lookup.h"
#include "tier/tier.h"

namespace tierd::client {

enum ViewKind : std::uint32_t {
  kViewNone = 0,     // zeroed: nothing to release
  kViewEmpty = 1,    // 0 bytes
  kViewLeased = 2,   // opaque_[0]: Session*, [1]: epoch << 32 | lease slot
  kViewPrivate = 3,  // opaque_[0]: malloc'ed block
  kViewMapped = 4,   // opaque_[0]: MappedChunks*
};

constexpr enum tier_origin OriginOf(abi::Tier tier) { return static_cast<enum tier_origin>(tier); }

// Counts a large view against the cap of the session; false: it would go past it.
inline bool Account(Session& session, std::uint64_t bytes) {
  if (bytes < session.account_from) return true;
  std::atomic<std::uint64_t>& leased = session.page->leased_bytes;
  if (leased.fetch_add(bytes, std::memory_order_relaxed) + bytes <= session.pin_cap_bytes) return true;
  leased.fetch_sub(bytes, std::memory_order_relaxed);
  return false;
}

// Whether so many bytes in views of `each` would be counted without going past the cap, as far as that is known beforehand.
inline bool MayAccount(const Session& session, std::uint64_t bytes, std::uint64_t each) {
  return each < session.account_from || session.page->leased_bytes.load(std::memory_order_relaxed) + bytes <= session.pin_cap_bytes;
}

inline void GiveLeaseBack(Session& session, std::uint32_t slot, std::uint32_t epoch, std::uint64_t bytes) {
  const bool same_process = SameProcess();
  if (!same_process || session.fork_generation != ForkGeneration() || MayBeInAChild(epoch)) {
    // Held over a fork: the lease stays for whoever else has the view (HAZARDS 2.6).
    session.frozen_released.fetch_add(1, std::memory_order_release);
    if (same_process && !session.serves()) SweepClosed();
    return;
  }
  if (bytes >= session.account_from) session.page->leased_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  FreeLease(*session.page, slot);
  if (!session.serves()) [[unlikely]] SweepClosed();
}

// From an accounted piece under a view lease.
inline void LeasedView(const Piece& piece, const std::byte* data, std::size_t size, tier_view& view) {
  view.data = data;
  view.size = size;
  view.origin = OriginOf(piece.tier);
  view.kind_ = kViewLeased;
  view.opaque_[0] = reinterpret_cast<std::uint64_t>(piece.session);
  view.opaque_[1] = (std::uint64_t{piece.epoch} << 32) | piece.lease;
  view.opaque_[2] = piece.bytes;
}

void EmptyView(abi::Tier tier, tier_view& view);
// Takes the malloc'ed block over.
void PrivateView(void* block, std::size_t size, abi::Tier tier, tier_view& view);

// Chunks of a large file mapped side by side, each under its lease.
struct MappedChunks {
  void* data;
  std::uint64_t bytes;  // of the mapping
  std::uint32_t count;
  struct Held {
    Session* session;
    std::uint32_t lease;
    std::uint32_t epoch;
    std::uint64_t bytes;
  } held[];
};
void MappedView(MappedChunks* chunks, std::size_t size, abi::Tier tier, tier_view& view);

// Any kind but kViewLeased.
void ReleaseOther(tier_view& view);

}  // namespace tierd::client
