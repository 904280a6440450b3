// One generation of the shared index: the memory file, its mapping, and the daemon-private owner of each slot. Writes slots by the protocol of HAZARDS 2.1;
// SharedIndex decides which table is written and when clients see it.
//
// Owner: SharedIndex. Created (and destroyed) by a worker thread: 0.5 s per GiB of first touch; afterwards loop thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "client_lib/abi/layout.h"
#include "tierd/base/status.h"
#include "tierd/base/unique_fd.h"
#include "tierd/ram/frame_id.h"
#include "tierd/ram/private_tmpfs.h"

namespace tierd::ram {

// The fields of a slot, in plain form.
struct SlotValues {
  std::uint64_t size = 0;
  std::uint32_t attr_class = 0;
  abi::SlotKind kind = abi::SlotKind::kEmpty;
  std::uint32_t deadline = abi::kDeadlineExpired;
  std::uint64_t location = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;
  std::int64_t atime_ns = 0;
  std::uint64_t ino = 0;
  bool operator==(const SlotValues&) const = default;
};

struct IndexTableOptions {
  std::uint64_t slot_count = 4096;  // 64..2^32 - 1
  std::uint32_t generation = 1;
  std::uint8_t instance[16] = {};
  std::uint8_t hash_secret[abi::kHashSecretBytes] = {};
  const PrivateTmpfs* tmpfs = nullptr;  // for large tables; outlives the call
};

class IndexTable {
 public:
  // Allocates and touches. A memfd, sealed SHRINK|GROW|FUTURE_WRITE|SEAL; large tables, where memfds
  // have no huge pages, a file of the private tmpfs with 2 MiB pages, of which only a read-only
  // descriptor is left. Blocking, pure; any thread.
  static Result<std::unique_ptr<IndexTable>> Create(const IndexTableOptions& options);
  ~IndexTable();
  IndexTable(const IndexTable&) = delete;
  IndexTable& operator=(const IndexTable&) = delete;

  // Where the key is.
  std::optional<std::uint32_t> Find(abi::FileKey key) const;
  // Writes a new slot; the key is not in the table. None when the probe would exceed the limit.
  std::optional<std::uint32_t> Insert(abi::FileKey key, const SlotValues& values, OwnerId owner);
  // Rewrites everything but the key; moves the sequence.
  void Update(std::uint32_t ordinal, const SlotValues& values);
  void SetDeadline(std::uint32_t ordinal, std::uint32_t deadline);  // moves the sequence
  void SetLocation(std::uint32_t ordinal, std::uint64_t location);  // does not
  void Erase(std::uint32_t ordinal);

  SlotValues Read(std::uint32_t ordinal) const;
  std::uint32_t Deadline(std::uint32_t ordinal) const { return slots_[ordinal].deadline.load(std::memory_order_relaxed); }
  abi::SlotKind Kind(std::uint32_t ordinal) const { return abi::KindOf(slots_[ordinal].size_attr.load(std::memory_order_relaxed)); }
  std::uint64_t Size(std::uint32_t ordinal) const { return abi::SizeOf(slots_[ordinal].size_attr.load(std::memory_order_relaxed)); }
  abi::FileKey KeyAt(std::uint32_t ordinal) const;
  bool Occupied(std::uint32_t ordinal) const;  // neither empty nor tombstone
  // kNoOwner: of a slot that is not occupied, or of none. The slot itself, which readers have in their caches, is not looked at.
  OwnerId owner(std::uint32_t ordinal) const { return ordinal < owners_.size() ? owners_[ordinal] : kNoOwner; }
  void PrefetchOwner(std::uint32_t ordinal) const;  // a hint, of any ordinal
  void set_owner(std::uint32_t ordinal, OwnerId owner) { owners_[ordinal] = owner; }

  abi::IndexHeader* header() const { return header_; }
  std::span<abi::AttrClass> attrs() const { return {attrs_, abi::kMaxAttrClasses}; }
  int client_fd() const { return client_fd_.get(); }
  std::uint64_t total_slots() const { return slot_count_ + abi::kProbeSlack; }
  std::uint64_t slot_count() const { return slot_count_; }
  std::uint64_t live() const { return live_; }
  std::uint64_t tombstones() const { return tombstones_; }
  std::uint64_t shared_bytes() const { return bytes_; }
  std::uint64_t memory_bytes() const { return bytes_ + owners_.size() * sizeof(OwnerId); }
  bool huge_pages() const { return huge_; }

 private:
  IndexTable() = default;
  void WriteSlot(std::uint32_t ordinal, abi::FileKey key, const SlotValues& values);

  // Each allocates, maps and touches the memory and makes the read-only descriptor; nothing changes when it fails.
  Status MakeMemfdMemory(std::uint64_t bytes);
  Status MakeTmpfsMemory(const PrivateTmpfs* tmpfs, std::uint64_t bytes);

  // Constant after Create.
  UniqueFd client_fd_;
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t slot_count_ = 0;
  abi::IndexHeader* header_ = nullptr;
  abi::AttrClass* attrs_ = nullptr;
  abi::Slot* slots_ = nullptr;
  std::atomic<std::int64_t>* atimes_ = nullptr;
  bool huge_ = false;
  // Owned by the loop thread.
  std::vector<OwnerId> owners_;
  std::uint64_t live_ = 0;
  std::uint64_t tombstones_ = 0;
};

}  // namespace tierd::ram
