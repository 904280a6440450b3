// Which addresses show frames of the cache, and the leases that must last as long as they do.
//
// Addresses are taken out of the table *before* the kernel is asked to unmap or replace them, and what was taken decides afterwards whether leases are given back: by
// then the same addresses may be another thread's new mapping. Addresses that cannot be followed any further (moved, cut into too many parts) are
// forgotten and their leases kept for good: wrong in neither direction.
// Any thread. A table of fixed size behind a lock of a few instructions; processes that map nothing of ours pay one load.
#pragma once

#include <limits.h>

#include <cstddef>
#include <cstdint>

#include "client_lib/preload/spin_lock.h"
#include "client_lib/src/added_memory.h"
#include "client_lib/src/lookup.h"

namespace tierd::preload {

struct AddressRange {
  std::uint64_t begin;
  std::uint64_t end;
};
// To the end of the last page.
inline AddressRange RangeOf(const void* address, std::size_t length) {
  constexpr std::uint64_t kPage = 4096;
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  return {begin, begin + (length + kPage - 1) / kPage * kPage};
}

// One mapping: the frames, one after the other from `address` on, and the addresses that still show them. Without frames (`count` 0): addresses that show a copy of some,
// behind which there is nothing; or, `is_file_copy`, a mapping of a file in memory that has the file's bytes to its end. Shared ones become the source's before this process
// writes to the file. Private ones may have been written to and stay: they are followed for the memory that they take.
struct MappedFrames {
  static constexpr std::uint32_t kMost = 64;
  static constexpr std::uint32_t kRanges = 4;

  std::uint64_t address;
  bool is_private;
  bool is_file_copy;
  std::uint32_t count;
  client::Piece pieces[kMost];

  // What the whole of it would be as a mapping of the source's file.
  int protection;
  std::uint64_t offset;
  client::FileFacts facts;
  char path[PATH_MAX];

  // Constant after PublishFrames.
  AddressRange whole;
  const std::byte* first;  // where in the arena it begins

  // Guarded by the table's lock.
  bool used;
  client::AddedBytes added;   // memory of its own: copies and the last page; it lasts until the last address is gone
  bool for_good;              // some of its addresses are not followed any more
  bool is_snapshot;           // of a version that the source does not have any more
  std::uint32_t outstanding;  // ranges that are taken just now
  std::uint32_t ranges;
  AddressRange range[kRanges];
};

// An entry to be filled; null: the table is full.
MappedFrames* NewFrames();
// Its frames are at [begin, end) from now on, the first of them from `first` on (null: a copy of the file).
// The caller has filled in `added`.
void PublishFrames(MappedFrames& frames, AddressRange where, const std::byte* first);
// Gives back what an entry that was not published has so far: leases and its part of the budget.
void GiveFramesBack(MappedFrames& frames);
// The same, and frees the entry.
void DiscardFrames(MappedFrames& frames);

bool AnyMappings();
// Whether some of these addresses are in the table, or may show frames although they are not followed any more.
bool ShowsFrames(AddressRange where);

// An entry with frames that overlaps `where`, at `*at` of the table or behind; it stays until it is left. `*at` moves behind it. Null: no more. kToo: copies of files as well.
enum class FileCopies : std::uint8_t { kNot, kToo };
MappedFrames* NextFrames(AddressRange where, std::size_t* at, FileCopies copies);
// The same of the mappings of a file, copies too, but for snapshots; and makes it one.
MappedFrames* NextFramesOf(std::uint64_t inode, std::size_t* at);
void KeepAsSnapshot(MappedFrames& frames);
void LeaveFrames(MappedFrames& frames);

namespace mapped_frames_detail {
extern std::atomic<std::uint32_t> lock_word;
void AddRange(MappedFrames& frames, AddressRange range);
}  // namespace mapped_frames_detail

// Calls `map` for each part of `within` that still shows these frames, and forgets those for which it is true; `copy`, an entry without frames, has them then. Nobody
// unmaps such a part meanwhile: whoever is about to waits.
template <typename Map>
void Remap(MappedFrames& frames, AddressRange within, MappedFrames* copy, Map map) {
  using namespace mapped_frames_detail;
  const SpinLock lock(lock_word);
  for (std::uint32_t i = 0; i < frames.ranges;) {
    const AddressRange range = frames.range[i];
    const AddressRange part{range.begin > within.begin ? range.begin : within.begin, range.end < within.end ? range.end : within.end};
    if (part.begin >= part.end || !map(part)) {
      ++i;
      continue;
    }
    frames.range[i] = frames.range[--frames.ranges];
    AddRange(frames, {range.begin, part.begin});
    AddRange(frames, {part.end, range.end});
    if (copy != nullptr) AddRange(*copy, part);
  }
}

// What was taken out of the table for a call that is about to change these addresses.
class TakenFrames {
 public:
  explicit TakenFrames(AddressRange where);
  TakenFrames(const TakenFrames&) = delete;
  TakenFrames& operator=(const TakenFrames&) = delete;

  // The one mapping that `where` is, as it was made: nothing of it was unmapped or replaced before; null otherwise.
  const MappedFrames* Whole(AddressRange where) const;

  // The addresses show the frames no longer.
  void Gone();
  // The call has moved `from` to `to`, which may be longer or shorter. For copies of files only. kBoth: `from` shows them as well.
  enum class Old : std::uint8_t { kGone, kBoth };
  void Moved(AddressRange from, AddressRange to, Old old);
  // The call failed and has changed nothing.
  void Restore();
  // Who knows: their leases and what they take of the budget stay.
  void KeepForGood();

 private:
  struct Part {
    MappedFrames* frames;
    AddressRange where;
  };
  static constexpr std::uint32_t kParts = 32;
  void Cut(MappedFrames& frames, AddressRange where);
  Part parts_[kParts];
  std::uint32_t count_ = 0;
};

}  // namespace tierd::preload
