#include "client_lib/src/lookup.h"

namespace tierd::client {

using lookup_detail::Claim;
using lookup_detail::Usable;

namespace {

Look GiveUp(Piece& piece, Look look) {
  piece.Free();
  return look;
}

}  // namespace

Look lookup_detail::LookUpOther(const LookUp& look_up, const SlotRef& ref, abi::FileKey* target) {
  FileFacts facts = ReadFacts(look_up.index, ref);
  if (look_up.facts != nullptr) facts.atime_ns = ReadAtime(look_up.index, ref);
  const bool usable = Usable(look_up, *ref.slot);
  if (look_up.index.Retired()) return Look::kRetired;
  if (!ref.Unchanged() || !usable) return Look::kMiss;
  if (look_up.facts != nullptr) *look_up.facts = facts;
  switch (facts.kind) {
    case abi::SlotKind::kFile: return facts.size == 0 ? Look::kEmpty : Look::kKnown;
    case abi::SlotKind::kChunked: return Look::kChunked;
    case abi::SlotKind::kDirectory:
    case abi::SlotKind::kSymlink: return Look::kOther;
    case abi::SlotKind::kAlias:
      if (target == nullptr) return Look::kMiss;
      *target = {static_cast<std::uint64_t>(facts.mtime_ns), static_cast<std::uint64_t>(facts.ctime_ns)};
      return Look::kAlias;
    default: return Look::kMiss;
  }
}

Look lookup_detail::LookUpUnleased(const LookUp& look_up, abi::FileKey key, abi::FileKey* target) {
  const SlotRef ref = FindSlot(look_up.index, key);
  if (!ref) return look_up.index.Retired() ? Look::kRetired : Look::kMiss;
  const Look other = LookUpOther(look_up, ref, target);
  return other == Look::kKnown || abi::KindOf(ref.slot->size_attr.load(std::memory_order_relaxed)) == abi::SlotKind::kListing ? Look::kLeasesTaken : other;
}

Look LookUpFile(const LookUp& look_up, abi::FileKey key, LeaseUse use, Piece& piece, abi::FileKey* target) {
  return use == LeaseUse::kView ? LookUpHere<LeaseUse::kView>(look_up, key, piece, target) : LookUpHere<LeaseUse::kCall>(look_up, key, piece, target);
}

Look LookUpChunk(const LookUp& look_up, abi::FileKey file_key, std::uint32_t chunk, const FileFacts& version, LeaseUse use, Piece& piece) {
  Session& session = look_up.session;
  const SlotRef file = FindSlot(look_up.index, file_key);
  const abi::FileKey key = abi::ChunkKeyOf(file_key, chunk);
  const SlotRef ref = file ? FindSlot(look_up.index, key) : SlotRef{};
  if (!ref) return look_up.index.Retired() ? Look::kRetired : Look::kMiss;
  const abi::Slot& slot = *ref.slot;
  const std::uint64_t location = slot.location.load(std::memory_order_acquire);
  if (location == 0) return look_up.index.Retired() ? Look::kRetired : Look::kMiss;
  piece.epoch = ForkWord();
  const std::uint16_t fill = abi::DecodeLocation(location).fill;
  piece.lease = use == LeaseUse::kView ? Claim<LeaseUse::kView>(session, key, fill) : Claim<LeaseUse::kCall>(session, key, fill);
  if (piece.lease == kNoLease) return Look::kLeasesTaken;
  piece.session = &session;
  const std::uint64_t again = slot.location.load(std::memory_order_acquire);
  const std::uint64_t size_attr = slot.size_attr.load(std::memory_order_acquire);
  const auto tag = static_cast<std::uint64_t>(slot.mtime_ns.load(std::memory_order_acquire));
  const FileFacts facts = ReadFacts(look_up.index, file);
  const std::uint64_t version_tag = file.slot->location.load(std::memory_order_acquire);
  const bool usable = Usable(look_up, *file.slot);
  if (session.closed.load(std::memory_order_acquire) != 0) return GiveUp(piece, Look::kClosed);
  if (look_up.index.Retired()) return GiveUp(piece, Look::kRetired);
  if (!ref.Unchanged() || !file.Unchanged() || again != location || !usable) return GiveUp(piece, Look::kMiss);
  if (abi::KindOf(size_attr) != abi::SlotKind::kChunk || facts.kind != abi::SlotKind::kChunked || tag != version_tag || !facts.SameVersion(version))
    return GiveUp(piece, Look::kMiss);
  piece.bytes = abi::SizeOf(size_attr);
  piece.data = session.arena->Find(abi::DecodeLocation(location), piece.bytes);
  piece.segment = abi::DecodeLocation(location).segment;
  if (piece.data == nullptr) return GiveUp(piece, Look::kUnmapped);
  piece.ordinal = look_up.index.OrdinalOf(ref.slot);
  piece.generation = look_up.index.generation;
  piece.tier = abi::Tier::kRam;
  return Look::kHit;
}

bool SaysChanged(const LookUp& look_up, abi::FileKey key, const FileFacts& version) {
  SlotRef ref = FindSlot(look_up.index, key);
  if (!ref) return !look_up.index.Retired();
  FileFacts facts = ReadFacts(look_up.index, ref);
  if (facts.kind == abi::SlotKind::kAlias) {
    ref = FindSlot(look_up.index, {static_cast<std::uint64_t>(facts.mtime_ns), static_cast<std::uint64_t>(facts.ctime_ns)});
    if (!ref) return true;
    facts = ReadFacts(look_up.index, ref);
  }
  const bool told = ref.slot->deadline.load(std::memory_order_acquire) == abi::kDeadlineExpired;
  return ref.Unchanged() && (told || !facts.SameVersion(version));
}

Look LookUpFacts(const LookUp& look_up, abi::FileKey key, bool follow) {
  const SlotRef ref = FindSlot(look_up.index, key);
  if (!ref) return look_up.index.Retired() ? Look::kRetired : Look::kMiss;
  abi::FileKey target;
  const Look look = lookup_detail::LookUpOther(look_up, ref, &target);
  if (look == Look::kAlias && follow) {
    const SlotRef next = FindSlot(look_up.index, target);
    if (!next) return Look::kMiss;
    const Look there = lookup_detail::LookUpOther(look_up, next, nullptr);
    return ref.Unchanged() && Usable(look_up, *ref.slot) ? there : Look::kMiss;
  }
  return look;
}

bool FindAtime(const IndexView& index, abi::FileKey key, FileFacts& facts) {
  const SlotRef ref = FindSlot(index, key);
  if (!ref) return false;
  const bool same = ReadFacts(index, ref).SameVersion(facts);
  facts.atime_ns = ReadAtime(index, ref);
  return same && ref.Unchanged();
}

}  // namespace tierd::client
