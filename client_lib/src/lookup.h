// The hit path: from a key to bytes under a lease, in the order that HAZARDS 2.1 proves: sequence (even) and key; the location for its fill number;
// the lease, a full fence; then location, size, deadline; then `retired` and the sequence, last. No system call, no allocation, no lock.
//
// Any thread. It does not: ask the daemon, count, copy.
#pragma once

#include <cstdint>

#include "client_lib/src/fork_mark.h"
#include "client_lib/src/lease.h"
#include "client_lib/src/session.h"

namespace tierd::client {

enum class Look : std::uint8_t {
  kHit,       // bytes under a lease
  kEmpty,     // a known, valid file of 0 bytes; no lease
  kChunked,   // a known, valid file of several chunks; no lease
  kKnown,     // a known, valid file whose bytes were not asked for (LookUpFacts)
  kOther,     // a known, valid directory, link ...: facts only
  kAlias,     // the slot names another key (`target`)
  kMiss,      // unknown, not in RAM, expired, or changed under our eyes: ask the daemon
  kRetired,   // there is a newer index
  kUnmapped,  // in a segment that this process has not mapped (Piece::segment)
  kLeasesTaken,  // all lease slots are taken
  kClosed,    // the session has ended
};

enum class LeaseUse : std::uint8_t { kView, kCall };

// Bytes of one chunk under a lease.
struct Piece {
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  Session* session = nullptr;
  std::uint32_t lease = kNoLease;
  std::uint32_t epoch = 0;         // ForkWord before the lease was taken
  std::uint32_t ordinal = 0xffffffffu;
  std::uint32_t generation = 0;
  std::uint32_t segment = 0;
  abi::Tier tier = abi::Tier::kRam;

  bool held() const { return lease != kNoLease; }
  // Gives the lease of a call back. (Views: views.h.)
  void Free() {
    if (held()) FreeLease(*session->page, lease);
    lease = kNoLease;
  }
};

struct LookUp {
  Session& session;
  const IndexView& index;
  std::int64_t now_ns;
  bool any_age = false;        // the caller compares the facts with the source itself
  FileFacts* facts = nullptr;  // filled when wanted and the slot is valid
};

namespace lookup_detail {

// Takes the lease for `location` of the chunk `key`; kHit when it is taken.
template <LeaseUse kUse>
[[gnu::always_inline]] inline Look Claim(Session& session, abi::FileKey key, std::uint64_t location, Piece& piece) {
  piece.epoch = ForkWord();
  const std::uint64_t word = abi::EncodeLease(abi::LeaseKeyOf(key), abi::DecodeLocation(location).fill);
  piece.lease = kUse == LeaseUse::kView ? ClaimForView(*session.page, word) : ClaimForCall(*session.page, word);
  if (piece.lease == kNoLease) return Look::kLeasesTaken;
  piece.session = &session;
  return Look::kHit;
}

// Asks for the first lines of what will be read, side by side, at most kPrefetchedBytes: the processor goes on by itself from there.
inline constexpr std::uint64_t kPrefetchedBytes = 512;
inline void PrefetchBytes(const std::byte* data, std::uint64_t bytes) {
  if (data == nullptr) return;
  __builtin_prefetch(data);
  for (std::uint64_t at = 64; at < bytes && at < kPrefetchedBytes; at += 64) __builtin_prefetch(data + at);
}

inline Look GiveUp(Piece& piece, Look look) {
  piece.Free();
  return look;
}

inline bool Usable(const LookUp& look_up, const abi::Slot& slot) {
  const std::uint32_t deadline = slot.deadline.load(std::memory_order_acquire);
  return look_up.any_age || deadline == abi::kDeadlineNever || abi::TicksOf(look_up.now_ns) < deadline;
}

// Slots without bytes of their own.
Look LookUpOther(const LookUp& look_up, const SlotRef& ref, abi::FileKey* target);

}  // namespace lookup_detail

// LookUpFile, inlined into each hit whatever its size: what it finds out stays in registers.
template <LeaseUse kUse>
[[gnu::always_inline]] inline Look LookUpHere(const LookUp& look_up, abi::FileKey key, Piece& piece, abi::FileKey* target) {
  Session& session = look_up.session;
  const SlotRef ref = FindSlot(look_up.index, key);
  if (!ref) return look_up.index.Retired() ? Look::kRetired : Look::kMiss;
  const abi::Slot& slot = *ref.slot;
  const std::uint64_t location = slot.location.load(std::memory_order_acquire);
  const abi::SlotKind kind = abi::KindOf(slot.size_attr.load(std::memory_order_acquire));
  if ((kind != abi::SlotKind::kFile && kind != abi::SlotKind::kListing) || location == 0) [[unlikely]] {
    const LookUp copy = look_up;  // what is passed by its address lies in memory from the first line on
    const Look other = lookup_detail::LookUpOther(copy, SlotRef(ref), target);
    return other == Look::kKnown ? Look::kMiss : other;
  }
  // The bytes begin to come while the lease is taken: hints only, nothing that is read before the lease is used.
  lookup_detail::PrefetchBytes(session.arena->Find(abi::DecodeLocation(location), 0), kUse == LeaseUse::kCall ? abi::SizeOf(slot.size_attr.load(std::memory_order_relaxed)) : 1);
  if (const Look claim = lookup_detail::Claim<kUse>(session, key, location, piece); claim != Look::kHit) [[unlikely]] return claim;
  // From here on under the lease.
  const std::uint64_t again = slot.location.load(std::memory_order_acquire);
  const std::uint64_t size = abi::SizeOf(slot.size_attr.load(std::memory_order_acquire));
  const bool usable = lookup_detail::Usable(look_up, slot);
  if (look_up.facts != nullptr) *look_up.facts = ReadFacts(look_up.index, ref);
  if (session.closed.load(std::memory_order_acquire) != 0) [[unlikely]] return lookup_detail::GiveUp(piece, Look::kClosed);
  const bool retired = look_up.index.Retired();
  if (!ref.Unchanged() || again != location || !usable || retired) [[unlikely]]
    return lookup_detail::GiveUp(piece, retired ? Look::kRetired : Look::kMiss);
  const std::byte* const data = session.arena->Find(abi::DecodeLocation(location), size);
  if (data == nullptr) [[unlikely]] {
    piece.segment = abi::DecodeLocation(location).segment;
    return lookup_detail::GiveUp(piece, Look::kUnmapped);
  }
  piece.data = data;
  piece.bytes = size;
  piece.ordinal = look_up.index.OrdinalOf(ref.slot);
  piece.generation = look_up.index.generation;
  piece.tier = abi::Tier::kRam;
  return Look::kHit;
}

// The file or listing with that key. kFile and kListing slots give bytes; `target` gets the key that an alias names.
Look LookUpFile(const LookUp& look_up, abi::FileKey key, LeaseUse use, Piece& piece, abi::FileKey* target);

// One chunk of a chunked file, of the version in `version`: file slot and chunk slot must agree on the version's tag, and both sequences are looked at
// last. With any_age (an open file keeps its version whatever its age) the deadline does not matter. kMiss also when the file has another version.
Look LookUpChunk(const LookUp& look_up, abi::FileKey file, std::uint32_t chunk, const FileFacts& version, LeaseUse use, Piece& piece);

// Valid facts of whatever has that key, without its bytes. kKnown/kEmpty/kChunked/kOther: known. An alias is followed, or else is kAlias.
Look LookUpFacts(const LookUp& look_up, abi::FileKey key, bool follow);

}  // namespace tierd::client
