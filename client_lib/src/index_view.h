// One generation of the shared index as this process sees it, and how a slot of it is found and read.
//
// A view is made once and never changes. When a newer generation replaces it, its mapping is overlaid with zero pages instead of being
// unmapped: a reader that is still in the middle of it finds empty slots and a sequence that moved, never a fault.
// Thread rule: read by any thread; Retire by the session that owns it.
#pragma once

#include <cstdint>

#include "client_lib/abi/layout.h"
#include "client_lib/abi/path_hash.h"

namespace tierd::client {

struct IndexView {
  const abi::IndexHeader* header = nullptr;
  const abi::Slot* slots = nullptr;
  const abi::AttrClass* attrs = nullptr;
  const std::atomic<std::int64_t>* atimes = nullptr;
  std::uint64_t slot_count = 0;
  std::uint32_t probe_limit = 0;
  std::uint32_t generation = 0;
  std::uint64_t bytes = 0;
  std::uint8_t hash_secret[abi::kHashSecretBytes] = {};  // a copy: the mapping may turn to zeros under a reader
  IndexView* next = nullptr;  // chain of its owner

  abi::FileKey KeyOf(std::uint32_t source_id, const char* relative, std::size_t relative_bytes) const {
    return abi::HashPath(hash_secret, source_id, relative, relative_bytes);
  }
  std::uint32_t OrdinalOf(const abi::Slot* slot) const { return static_cast<std::uint32_t>(slot - slots); }
  bool Retired() const { return header->retired.load(std::memory_order_acquire) != 0; }
};

// Maps the index behind `fd` and checks everything it says about itself against `bytes` and `instance`. Null: it does not hold together, or no memory.
// The descriptor stays the caller's. `populate` faults all pages in.
IndexView* MapIndex(int fd, std::uint64_t bytes, const std::uint8_t instance[16], bool populate);
// Gives the memory of a view back; the view itself stays.
void RetireIndex(IndexView& view);

// A slot with the even sequence and the key under which it was found.
struct SlotRef {
  const abi::Slot* slot = nullptr;
  std::uint32_t seq = 0;
  explicit operator bool() const { return slot != nullptr; }
  // The last look (HAZARDS 2.1): nothing but the location changed since the slot was found. Loads before it are acquire loads.
  bool Unchanged() const { return slot->seq.load(std::memory_order_acquire) == seq; }
};

// A hint: the line that a search for `key` begins with will be read soon.
inline void PrefetchSlot(const IndexView& index, abi::FileKey key) { __builtin_prefetch(index.slots + abi::HomeSlot(key, index.slot_count)); }

// Finds the slot of `key`. A slot under change counts as absent: the caller asks the daemon, which is right and rare.
inline SlotRef FindSlot(const IndexView& index, abi::FileKey key) {
  const abi::Slot* slot = index.slots + abi::HomeSlot(key, index.slot_count);
  for (const abi::Slot* const end = slot + index.probe_limit; slot != end; ++slot) {
    const std::uint32_t seq = slot->seq.load(std::memory_order_acquire);
    if (slot->key_lo.load(std::memory_order_acquire) == key.lo && slot->key_hi.load(std::memory_order_acquire) == key.hi) {
      const abi::SlotKind kind = abi::KindOf(slot->size_attr.load(std::memory_order_acquire));
      if ((seq & 1) == 0 && kind > abi::SlotKind::kTombstone) return {slot, seq};
      return {};
    }
    if (abi::KindOf(slot->size_attr.load(std::memory_order_relaxed)) == abi::SlotKind::kEmpty) return {};
  }
  return {};
}

// Version and attributes of a file or directory: from its slot or from a reply.
struct FileFacts {
  std::uint64_t size = 0;
  std::uint64_t ino = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;
  std::int64_t atime_ns = 0;  // no part of the version
  std::uint32_t deadline = abi::kDeadlineExpired;
  abi::SlotKind kind = abi::SlotKind::kEmpty;
  bool has_attrs = false;
  abi::AttrClass attrs;

  bool SameVersion(const FileFacts& other) const {
    return size == other.size && ino == other.ino && mtime_ns == other.mtime_ns && ctime_ns == other.ctime_ns;
  }
  bool UsableAt(std::int64_t now_ns) const { return deadline == abi::kDeadlineNever || abi::TicksOf(now_ns) < deadline; }
};

// Of a slot, in a line of its own: for those alone who show it. Right only if `ref.Unchanged()` holds afterwards.
inline std::int64_t ReadAtime(const IndexView& index, const SlotRef& ref) { return index.atimes[index.OrdinalOf(ref.slot)].load(std::memory_order_acquire); }
// A hint: ReadAtime of what is found by `key` comes next.
inline void PrefetchAtime(const IndexView& index, abi::FileKey key) { __builtin_prefetch(index.atimes + abi::HomeSlot(key, index.slot_count)); }

// The fields of a slot but the atime. Right only if `ref.Unchanged()` holds afterwards.
inline FileFacts ReadFacts(const IndexView& index, const SlotRef& ref) {
  FileFacts facts;
  const std::uint64_t size_attr = ref.slot->size_attr.load(std::memory_order_acquire);
  facts.size = abi::SizeOf(size_attr);
  facts.kind = abi::KindOf(size_attr);
  facts.deadline = ref.slot->deadline.load(std::memory_order_acquire);
  facts.ino = ref.slot->ino.load(std::memory_order_acquire);
  facts.mtime_ns = ref.slot->mtime_ns.load(std::memory_order_acquire);
  facts.ctime_ns = ref.slot->ctime_ns.load(std::memory_order_acquire);
  if (const std::uint32_t attr_class = abi::AttrClassOf(size_attr); attr_class != 0) {
    facts.attrs = index.attrs[attr_class];
    facts.has_attrs = facts.attrs.mode != 0;  // a walk may know a name and its size before anybody asked for the rest
  }
  return facts;
}

}  // namespace tierd::client
