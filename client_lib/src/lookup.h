// The hit path: from a key to bytes under a lease, in the order that LAYOUT.md says and the model proves (HAZARDS 2.1): the lease, a full fence; sequence (even)
// and key; location, size, deadline; then `retired` and the sequence, last. (A chunk of a large file: the lease behind the key.) No system call, no allocation, no lock.
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
  std::uint64_t begin = 0;         // where in the chunk `data` lies: not 0 only of a part that was asked for
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

// Takes a lease of that fill number of the chunk `key`, 0: of any. kNoLease when all slots are taken.
template <LeaseUse kUse>
[[gnu::always_inline]] inline std::uint32_t Claim(Session& session, abi::FileKey key, std::uint16_t fill) {
  const std::uint64_t word = abi::EncodeLease(abi::LeaseKeyOf(key), fill);
  return kUse == LeaseUse::kView ? ClaimForView(*session.page, word) : ClaimForCall(*session.page, word);
}

// Asks for the first lines of what will be read, side by side, at most kPrefetchedBytes: the processor goes on by itself from there.
inline constexpr std::uint64_t kPrefetchedBytes = 512;
inline void PrefetchBytes(const std::byte* data, std::uint64_t bytes) {
  if (data == nullptr) return;
  __builtin_prefetch(data);
  for (std::uint64_t at = 64; at < bytes && at < kPrefetchedBytes; at += 64) __builtin_prefetch(data + at);
}

inline bool Usable(const LookUp& look_up, const abi::Slot& slot) {
  const std::uint32_t deadline = slot.deadline.load(std::memory_order_acquire);
  return look_up.any_age || deadline == abi::kDeadlineNever || abi::TicksOf(look_up.now_ns) < deadline;
}

// Slots without bytes of their own.
Look LookUpOther(const LookUp& look_up, const SlotRef& ref, abi::FileKey* target);
// When no lease can be had: what needs none is found all the same.
Look LookUpUnleased(const LookUp& look_up, abi::FileKey key, abi::FileKey* target);

}  // namespace lookup_detail

// LookUpFile, inlined into each hit whatever its size: what it finds out stays in registers.
template <LeaseUse kUse>
[[gnu::always_inline]] inline Look LookUpHere(const LookUp& look_up, abi::FileKey key, Piece& piece, abi::FileKey* target) {
  Session& session = look_up.session;
  const std::uint32_t epoch = ForkWord();
  // Of whatever frame the file has: the fence is over by the time that the slot has come from memory.
  const std::uint32_t lease = lookup_detail::Claim<kUse>(session, key, 0);
  if (lease == kNoLease) [[unlikely]] {
    const LookUp copy = look_up;  // what is passed by its address lies in memory from the first line on
    return lookup_detail::LookUpUnleased(copy, key, target);
  }
  // From here on under the lease.
  const auto give_up = [&](Look look) {
    FreeLease(*session.page, lease);
    if (!session.serves()) [[unlikely]] SweepClosed();  // what it kept
    return look;
  };
  if (look_up.facts != nullptr) PrefetchAtime(look_up.index, key);
  const SlotRef ref = FindSlot(look_up.index, key);
  if (!ref) return give_up(look_up.index.Retired() ? Look::kRetired : Look::kMiss);
  const abi::Slot& slot = *ref.slot;
  const std::uint64_t location = slot.location.load(std::memory_order_acquire);
  const std::uint64_t size_attr = slot.size_attr.load(std::memory_order_acquire);
  const abi::SlotKind kind = abi::KindOf(size_attr);
  if ((kind != abi::SlotKind::kFile && kind != abi::SlotKind::kListing) || location == 0) [[unlikely]] {
    const LookUp copy = look_up;
    const Look other = lookup_detail::LookUpOther(copy, SlotRef(ref), target);
    return give_up(other == Look::kKnown ? Look::kMiss : other);
  }
  const std::uint64_t size = abi::SizeOf(size_attr);
  const std::byte* const data = session.arena->Find(abi::DecodeLocation(location), size);
  lookup_detail::PrefetchBytes(data, kUse == LeaseUse::kCall ? size : 1);
  if (!lookup_detail::Usable(look_up, slot)) [[unlikely]] return give_up(look_up.index.Retired() ? Look::kRetired : Look::kMiss);
  if (look_up.facts != nullptr) {
    *look_up.facts = ReadFacts(look_up.index, ref);
    look_up.facts->atime_ns = ReadAtime(look_up.index, ref);
  }
  // Of this frame and no other from now on: older ones of a file that somebody reads all the time are to leave limbo.
  NarrowLease(*session.page, lease, key, abi::DecodeLocation(location).fill);
  if (session.closed.load(std::memory_order_acquire) != 0) [[unlikely]] return give_up(Look::kClosed);
  if (look_up.index.Retired()) [[unlikely]] return give_up(Look::kRetired);
  if (!ref.Unchanged()) [[unlikely]] return give_up(Look::kMiss);
  if (data == nullptr) [[unlikely]] {
    piece.segment = abi::DecodeLocation(location).segment;
    return give_up(Look::kUnmapped);
  }
  piece.data = data;
  piece.bytes = size;
  piece.session = &session;
  piece.lease = lease;
  piece.epoch = epoch;
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

// Whether the index says, of what was found by that key as `version`, that it is another by now, or that somebody told of a change (then it may be forgotten altogether).
// No proof: the source knows.
bool SaysChanged(const LookUp& look_up, abi::FileKey key, const FileFacts& version);

// Valid facts of whatever has that key, without its bytes. kKnown/kEmpty/kChunked/kOther: known. An alias is followed, or else is kAlias.
Look LookUpFacts(const LookUp& look_up, abi::FileKey key, bool follow);

// The atime of what an answer has told of, which is in the index alone. False: no slot says that version (any more); a stat is the source's then.
bool FindAtime(const IndexView& index, abi::FileKey key, FileFacts& facts);

}  // namespace tierd::client
