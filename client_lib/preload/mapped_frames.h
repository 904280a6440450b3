// Which addresses show frames of the cache, and the leases that must last as long as they do.
//
// Addresses are taken out of the table *before* the kernel is asked to unmap or replace them, and what was taken decides afterwards whether leases are given back: by
// then the same addresses may be another thread's new mapping. Addresses that cannot be followed any further (moved, cut into too many parts) are
// forgotten and their leases kept for good: wrong in neither direction.
// Any thread. A table of fixed size behind a lock of a few instructions; processes that map nothing of ours pay one load.
#pragma once

#include <cstddef>
#include <cstdint>

#include "client_lib/src/lookup.h"

namespace tierd::preload {

struct AddressRange {
  std::uint64_t begin;
  std::uint64_t end;
};

// One mapping: the frames, one after the other from `address` on, and the addresses that still show them.
struct MappedFrames {
  static constexpr std::uint32_t kMost = 64;
  static constexpr std::uint32_t kRanges = 4;

  std::uint64_t address;
  bool is_private;
  std::uint32_t count;
  client::Piece pieces[kMost];

  // Constant after PublishFrames.
  AddressRange whole;
  const std::byte* first;  // where in the arena it begins

  // Guarded by the table's lock.
  bool used;
  bool for_good;              // some of its addresses are not followed any more
  std::uint32_t outstanding;  // ranges that are taken just now
  std::uint32_t ranges;
  AddressRange range[kRanges];
};

// An entry to be filled; null: the table is full.
MappedFrames* NewFrames();
// Its frames are at [begin, end) from now on, the first of them from `first` on.
void PublishFrames(MappedFrames& frames, AddressRange where, const std::byte* first);
// Gives the leases back and frees an entry that was not published.
void DiscardFrames(MappedFrames& frames);

bool AnyMappings();
bool ShowsFrames(AddressRange where);

// What was taken out of the table for a call that is about to change these addresses.
class TakenFrames {
 public:
  enum class Which { kAll, kPrivate };
  explicit TakenFrames(AddressRange where, Which which = Which::kAll);
  TakenFrames(const TakenFrames&) = delete;
  TakenFrames& operator=(const TakenFrames&) = delete;

  struct Part {
    MappedFrames* frames;
    AddressRange where;
  };
  const Part* begin() const { return parts_; }
  const Part* end() const { return parts_ + count_; }

  // The one mapping that `where` is, as it was made: nothing of it was unmapped or replaced before; null otherwise.
  const MappedFrames* Whole(AddressRange where) const;

  // The addresses show the frames no longer.
  void Gone();
  // The call failed and has changed nothing.
  void Restore();
  // Who knows: their leases stay.
  void KeepForGood();

 private:
  static constexpr std::uint32_t kParts = 32;
  void Cut(MappedFrames& frames, AddressRange where);
  Part parts_[kParts];
  std::uint32_t count_ = 0;
};

}  // namespace tierd::preload
