// The index that clients read without asking: the daemon's side. A hash table of one-line slots in a memfd; the loop thread is its only writer.
// It grows by generations: a worker makes a larger table, GrowStep copies a bounded number of slots per loop turn while every change goes to both,
// then the old header says `retired` and only from then on the new table alone changes (HAZARDS 2.2).
//
// Ordinals name slots of the *published* table. They stay valid until Erase or until GrowStep returns true; ask again with Find after that.
//
// Owner: Engine. Loop thread only, but CreateTable, which is pure and blocks.
// It does not: decide deadlines, know what an owner is, reclaim frames.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>

#include "client_lib/abi/layout.h"
#include "tierd/base/status.h"
#include "tierd/ram/index_table.h"

namespace tierd::ram {

struct IndexOptions {
  std::uint64_t initial_slots = 4096;  // rounded up to 64; give 2 x the number of known files to spare growth at start
  std::uint64_t max_slots = std::uint64_t{64} << 20;  // hard limit (5.1 GB); Insert fails beyond it
  std::uint8_t instance[16] = {};      // random, per daemon life
  std::uint8_t hash_secret[abi::kHashSecretBytes] = {};  // abi::DeriveHashSecret
  const PrivateTmpfs* tmpfs = nullptr;  // for large tables; outlives the index
};

class SharedIndex {
 public:
  // Makes the first table (blocking: at start-up).
  static Result<std::unique_ptr<SharedIndex>> Create(const IndexOptions& options);

  struct Found {
    std::uint32_t ordinal;
    OwnerId owner;
  };
  std::optional<Found> Find(abi::FileKey key) const;
  // Adds or, when the key is there, rewrites a slot. None when no slot can be had now: growth is due or under way, or max_slots is
  // reached; the caller goes on without caching this one.
  std::optional<std::uint32_t> Insert(abi::FileKey key, const SlotValues& values, OwnerId owner);
  // Rewrites all fields but the key under a moved sequence: readers see all of it or none.
  void Update(std::uint32_t ordinal, const SlotValues& values);
  // The location alone, while size and version stay; no sequence move. ClearLocation comes before a scan (LeaseScanner has the fence).
  void SetLocation(std::uint32_t ordinal, std::uint64_t location);
  void ClearLocation(std::uint32_t ordinal) { SetLocation(ordinal, 0); }
  void SetDeadline(std::uint32_t ordinal, std::uint32_t deadline);
  void SetOwner(std::uint32_t ordinal, OwnerId owner);
  void Erase(std::uint32_t ordinal);
  // Somebody told of a change of files that may have no slot: readers look at what they keep (IndexHeader::changes).
  void NoteChange();

  SlotValues Read(std::uint32_t ordinal) const { return current_->Read(ordinal); }
  // Of these the slot alone is looked at.
  std::uint32_t Deadline(std::uint32_t ordinal) const { return current_->Deadline(ordinal); }
  std::uint64_t Size(std::uint32_t ordinal) const { return current_->Size(ordinal); }
  abi::FileKey KeyAt(std::uint32_t ordinal) const { return current_->KeyAt(ordinal); }
  OwnerId Owner(std::uint32_t ordinal) const { return current_->owner(ordinal); }
  // Owner named by a ring entry (hostile): none when the generation is neither the current nor the last one, the ordinal is out of range or
  // the slot is empty. An entry of a just retired generation answers as of its retirement.
  std::optional<OwnerId> OwnerAt(std::uint8_t generation_low, std::uint32_t ordinal) const;
  // A hint: OwnerAt will be asked soon.
  void PrefetchOwnerAt(std::uint8_t generation_low, std::uint32_t ordinal) const;

  // The id of that class of attributes, made when new. Classes are never given back (readers read them without a lock): when they run out, the class that says the
  // device and nothing else (mode 0: clients stat the source), of which some are kept back, so that versions can still be compared. Directories, whose link
  // counts change with each subdirectory, get half of the classes. 0 ("unknown") when those kept back are taken, too.
  std::uint32_t AttrClass(const abi::AttrClass& attrs);
  static constexpr std::uint32_t kBareClasses = 64;  // kept back: as many devices
  // All zero for id 0 or one never given out.
  abi::AttrClass Attrs(std::uint32_t attr_class) const;

  // Says "alive" (kHeartbeatPeriodMs).
  void Heartbeat(std::int64_t monotonic_coarse_ns);
  // On a clean stop: every deadline-free reader too turns to the source. Stores retired = 1 in every table.
  void Retire();

  // ---- growth, driven by the engine:
  //   if (index.WantsGrowth()) worker: t = SharedIndex::CreateTable(index.NextTable()); loop: index.AdoptTable(t); each turn: index.GrowStep(2000);
  //   on true: later worker: destroys index.TakeRetired().
  // Load (tombstones included) has passed 3/4, an insertion failed, and no growth is under way. Stays true until AdoptTable.
  bool WantsGrowth() const;
  // What to create next; about 4/3 x the live slots' table, the same or less when tombstones are the reason. Room for `expected_live` slots if more.
  IndexTableOptions NextTable(std::uint64_t expected_live = 0) const;
  static Result<std::unique_ptr<IndexTable>> CreateTable(const IndexTableOptions& options) { return IndexTable::Create(options); }
  // Starts copying. kBusy when growth is already under way, kInvalid when the table is not what NextTable asked for (too small by now).
  Status AdoptTable(std::unique_ptr<IndexTable> table);
  bool growing() const { return next_ != nullptr; }
  // Copies up to `budget_slots` slots (~50 ns each). True in the one call that publishes the new table: ordinals and client_fd() changed.
  bool GrowStep(std::uint32_t budget_slots);
  // The table that was replaced last, kept to answer OwnerAt; null if none. Destroy it on a worker, after the rings were drained, before the next
  // growth ends (else that frees it on the loop thread).
  std::unique_ptr<IndexTable> TakeRetired() { return std::move(retired_); }

  // Tells clients that a segment has left and is to be unmapped; `oldest`: every serial below has left.
  // Returns the number of this notice, which clients store as SessionPage::gone_seen.
  std::uint32_t NoteSegmentGone(std::uint32_t serial, std::uint32_t oldest);

  // The published table as this process maps it, for readers in this process (tests); clients map client_fd().
  const abi::IndexHeader* header() const { return current_->header(); }
  const std::uint8_t* hash_secret() const { return current_->header()->hash_secret; }
  // Read-only, for SCM_RIGHTS; of the published table.
  int client_fd() const { return current_->client_fd(); }
  std::uint32_t generation() const { return current_->header()->generation; }
  std::uint64_t shared_bytes() const { return current_->shared_bytes(); }
  std::uint64_t live() const { return current_->live(); }
  std::uint64_t tombstones() const { return current_->tombstones(); }
  std::uint64_t slot_count() const { return current_->slot_count(); }
  std::uint64_t total_slots() const { return current_->total_slots(); }  // ordinals are below it
  // Shared and private memory of all tables held.
  std::uint64_t memory_bytes() const;
  bool huge_pages() const { return current_->huge_pages(); }
  // Inserts refused since start.
  std::uint64_t refused() const { return refused_; }

 private:
  explicit SharedIndex(const IndexOptions& options) : options_(options) {}
  // Ordinal of the copy in the table being filled, when the slot was copied already.
  std::optional<std::uint32_t> Twin(std::uint32_t ordinal) const;
  void Abandon();
  void Publish();
  class Changing;
  // Whether the slot is one of a file's bytes, which readers may keep.
  bool OfFile(std::uint32_t ordinal) const;

  struct AttrHash {
    std::size_t operator()(const abi::AttrClass& a) const;
  };
  struct AttrEqual {
    bool operator()(const abi::AttrClass& a, const abi::AttrClass& b) const;
  };

  // Constant after construction.
  const IndexOptions options_;
  // Owned by the loop thread.
  std::unique_ptr<IndexTable> current_;
  std::unique_ptr<IndexTable> next_;     // being filled; nobody reads it
  std::unique_ptr<IndexTable> retired_;
  std::uint64_t cursor_ = 0;             // slots of current_ below it are in next_
  bool insert_failed_ = false;           // a probe ran too long: grow whatever the load
  std::uint64_t refused_ = 0;
  std::uint32_t next_class_ = 1;
  std::unordered_map<abi::AttrClass, std::uint32_t, AttrHash, AttrEqual> classes_;
};

}  // namespace tierd::ram
