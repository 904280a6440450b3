#include "client_lib/preload/mapped_frames.h"

#include "client_lib/preload/process.h"
#include "client_lib/preload/zero_table.h"
#include "client_lib/src/views.h"

namespace tierd::preload {

namespace mapped_frames_detail {
constinit std::atomic<std::uint32_t> lock_word{0};
}

using namespace mapped_frames_detail;

namespace {

constexpr std::size_t kMappings = 1024;

constinit ZeroTable<MappedFrames, kMappings> table;
constinit std::atomic<std::uint32_t> used_count{0};
constinit std::size_t free_begin = 0;  // before it no entry is free. Guarded by the lock
constinit std::size_t used_end = 0;  // behind it no entry has been used yet: nobody goes through those. Guarded by the lock

void GiveLeasesBack(MappedFrames& frames) {
  for (std::uint32_t i = 0; i < frames.count; ++i) {
    const client::Piece& piece = frames.pieces[i];
    if (piece.held()) client::GiveLeaseBack(*piece.session, piece.lease, piece.epoch, piece.bytes);
  }
  frames.count = 0;
}

// Under the lock.
void MakeFree(MappedFrames& frames) {
  client::GiveAdded(*process.client, frames.added);
  frames.used = false;
  const auto at = static_cast<std::size_t>(&frames - table.begin());
  if (free_begin > at) free_begin = at;
  used_count.fetch_sub(1, std::memory_order_relaxed);
}

void Free(MappedFrames& frames) {
  GiveLeasesBack(frames);
  const SpinLock lock(lock_word);
  MakeFree(frames);
}

MappedFrames* end_of_used() { return table.begin() + used_end; }

bool Overlap(AddressRange a, AddressRange b) { return a.begin < b.end && b.begin < a.end; }

}  // namespace

// Under the lock. Room for one more range, or its addresses are not followed any more.
void mapped_frames_detail::AddRange(MappedFrames& frames, AddressRange range) {
  if (range.begin >= range.end) return;
  if (frames.ranges == MappedFrames::kRanges) frames.for_good = true;
  else frames.range[frames.ranges++] = range;
}

MappedFrames* NewFrames() {
  const SpinLock lock(lock_word);
  for (; free_begin < kMappings; ++free_begin) {
    MappedFrames& frames = table[free_begin];
    if (frames.used) continue;
    frames.used = true;
    frames.for_good = frames.is_snapshot = frames.is_file_copy = false;
    frames.added = {};
    frames.count = frames.outstanding = frames.ranges = 0;
    frames.whole = {0, 0};
    used_count.fetch_add(1, std::memory_order_relaxed);
    const auto behind = static_cast<std::size_t>(&frames - table.begin()) + 1;
    if (used_end < behind) used_end = behind;
    return &frames;
  }
  return nullptr;
}

void PublishFrames(MappedFrames& frames, AddressRange where, const std::byte* first) {
  frames.whole = where;
  frames.first = first;
  const SpinLock lock(lock_word);
  frames.is_file_copy = first == nullptr;
  AddRange(frames, where);
}

void GiveFramesBack(MappedFrames& frames) {
  GiveLeasesBack(frames);
  client::GiveAdded(*process.client, frames.added);
}

void DiscardFrames(MappedFrames& frames) { Free(frames); }

bool AnyMappings() { return used_count.load(std::memory_order_acquire) != 0; }

bool ShowsFrames(AddressRange where) {
  const SpinLock lock(lock_word);
  for (const MappedFrames* frames = table.begin(); frames != end_of_used(); ++frames) {
    if (!frames->used || frames->is_file_copy) continue;
    if (frames->for_good && Overlap(frames->whole, where)) return true;
    for (std::uint32_t i = 0; i < frames->ranges; ++i) {
      if (Overlap(frames->range[i], where)) return true;
    }
  }
  return false;
}

MappedFrames* NextFrames(AddressRange where, std::size_t* at, FileCopies copies) {
  const SpinLock lock(lock_word);
  while (*at < used_end) {
    MappedFrames& frames = table[(*at)++];
    if (!frames.used ||
        (frames.is_file_copy ? copies == FileCopies::kNot || frames.is_private || frames.is_snapshot
                             : frames.count == 0))
      continue;
    for (std::uint32_t i = 0; i < frames.ranges; ++i) {
      if (!Overlap(frames.range[i], where)) continue;
      ++frames.outstanding;
      return &frames;
    }
  }
  return nullptr;
}

MappedFrames* NextFramesOf(std::uint64_t inode, std::size_t* at) {
  const SpinLock lock(lock_word);
  while (*at < used_end) {
    MappedFrames& frames = table[(*at)++];
    if (!frames.used || frames.ranges == 0 || frames.is_snapshot || frames.facts.ino != inode)
      continue;
    if (frames.is_file_copy ? frames.is_private : frames.count == 0) continue;
    ++frames.outstanding;
    return &frames;
  }
  return nullptr;
}

void KeepAsSnapshot(MappedFrames& frames) {
  const SpinLock lock(lock_word);
  frames.is_snapshot = true;
}

void LeaveFrames(MappedFrames& frames) {
  bool last;
  {
    const SpinLock lock(lock_word);
    last = --frames.outstanding == 0 && frames.ranges == 0 && !frames.for_good;
    if (last && frames.count == 0) {
      MakeFree(frames);
      return;
    }
  }
  if (last) Free(frames);
}

TakenFrames::TakenFrames(AddressRange where) {
  const SpinLock lock(lock_word);
  for (MappedFrames* frames = table.begin(); frames != end_of_used(); ++frames) {
    if (frames->used) Cut(*frames, where);
  }
}

void TakenFrames::Cut(MappedFrames& frames, AddressRange where) {
  for (std::uint32_t i = 0; i < frames.ranges;) {
    const AddressRange range = frames.range[i];
    if (!Overlap(range, where)) {
      ++i;
      continue;
    }
    frames.range[i] = frames.range[--frames.ranges];
    AddRange(frames, {range.begin, where.begin});
    AddRange(frames, {where.end, range.end});
    if (count_ == kParts) {
      frames.for_good = true;
    } else {
      ++frames.outstanding;
      parts_[count_++] = {&frames, {range.begin > where.begin ? range.begin : where.begin, range.end < where.end ? range.end : where.end}};
    }
  }
}

const MappedFrames* TakenFrames::Whole(AddressRange where) const {
  if (count_ != 1 || parts_[0].frames->is_file_copy) return nullptr;
  const SpinLock lock(lock_word);
  const MappedFrames& frames = *parts_[0].frames;
  const AddressRange part = parts_[0].where;
  const bool whole = part.begin == where.begin && part.end == where.end && frames.whole.begin == where.begin && frames.whole.end == where.end;
  return whole && !frames.for_good && frames.outstanding == 1 && frames.ranges == 0 ? &frames : nullptr;
}

void TakenFrames::Gone() {
  for (std::uint32_t i = 0; i < count_; ++i) LeaveFrames(*parts_[i].frames);
  count_ = 0;
}

void TakenFrames::Moved(AddressRange from, AddressRange to, Old old) {
  {
    const SpinLock lock(lock_word);
    for (std::uint32_t i = 0; i < count_; ++i) {
      const AddressRange part = parts_[i].where;
      const std::uint64_t begin = to.begin + (part.begin - from.begin),
                          end = to.begin + (part.end - from.begin);
      const bool longer = part.end == from.end && to.end > end;
      parts_[i].frames->is_snapshot = true;  // its addresses tell no place in the file any more
      AddRange(*parts_[i].frames, {begin, longer || end > to.end ? to.end : end});
      if (old == Old::kBoth) AddRange(*parts_[i].frames, part);
    }
  }
  Gone();
}

void TakenFrames::Restore() {
  const SpinLock lock(lock_word);
  for (std::uint32_t i = 0; i < count_; ++i) {
    --parts_[i].frames->outstanding;
    AddRange(*parts_[i].frames, parts_[i].where);
  }
  count_ = 0;
}

void TakenFrames::KeepForGood() {
  for (std::uint32_t i = 0; i < count_; ++i) {
    {
      const SpinLock lock(lock_word);
      parts_[i].frames->for_good = true;
    }
    LeaveFrames(*parts_[i].frames);
  }
  count_ = 0;
}

}  // namespace tierd::preload
