// The objects of a tier by age, for `lru`: a log of uses, newest at the end. An object's stamp is the place of its latest use; the object is a member as long as
// the log names it there. A use wipes out the entry of the use before, a removal the entry of the last one, so that who is next is read off the log, in order,
// without a look at any object: a linked list says it only when its line has come from memory, once per eviction. What leaves as the oldest needs no more than that
// either; a use touches the object's stamp, the log's end, and if the object was a member, the entry that is wiped out.
//
// Empty entries are swept out, a few with each use, once they are as many as the members: 4 bytes per object, 4 to 12 per member. A call costs O(1) amortised, and
// never looks at more than kMostLooks entries.
//
// Owner: one policy instance. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "policies/paged_array.h"
#include "policies/prefetch.h"
#include "policies/tierd_policy.h"

namespace tierd::policies {

class UseLog {
 public:
  static constexpr std::uint32_t kMostLooks = 1u << 16;

  // `first`: where places begin. For tests: stamps have the low 32 bits of a place.
  explicit UseLog(std::uint64_t first = 1) : begin_(first), end_(first) {}

  bool empty() const { return members_ == 0; }
  bool Has(std::uint32_t id) const { return id < stamps_.Limit() && Names(PlaceOf(id), id); }
  // Room for the id; otherwise its first insertion makes it, for all ids below as well.
  void Cover(std::uint32_t id) { stamps_.Cover(id); }

  // Not a member so far: becomes one, the newest. Nothing for members.
  void Add(std::uint32_t id) {
    if (stamps_.Limit() <= id) stamps_.Cover(id);
    if (Names(PlaceOf(id), id)) return;
    ++members_;
    Append(id);
  }
  // The newest from now on; nothing for those that are not members.
  void Touch(std::uint32_t id) {
    if (id >= stamps_.Limit()) return;
    const std::uint64_t place = PlaceOf(id);
    if (!Names(place, id) || place + 1 == end_) return;
    At(place) = TIERD_NO_OBJECT;
    Append(id);
  }
  void Remove(std::uint32_t id) {
    if (id >= stamps_.Limit()) return;
    const std::uint64_t place = Names(begin_, id) ? begin_ : PlaceOf(id);  // the oldest without a look at its stamp
    if (!Names(place, id)) return;
    At(place) = TIERD_NO_OBJECT;
    --members_;
    if (place == begin_ && !sweeping_ && begin_ % kPageEntries != kPageEntries - 1) ++begin_;
  }
  // The oldest members, oldest first: writes at most max, and stops when `enough(id)` says so.
  template <typename Enough>
  std::size_t Oldest(std::uint32_t* ids, std::size_t max, Enough enough);
  // 0: the newest; 1: the oldest. Of a member.
  double Age(std::uint32_t id) const { return static_cast<double>(end_ - 1 - PlaceOf(id)) / static_cast<double>(std::max<std::uint64_t>(1, end_ - 1 - begin_)); }
  // Cache lines only, in two steps: the object's stamp, and when that has come, the entry that a use would wipe out.
  void PrefetchStamp(std::uint32_t id) const {
    if (id < stamps_.Limit()) PrefetchLine(&stamps_[id]);
  }
  void PrefetchEntry(std::uint32_t id) const {
    if (id >= stamps_.Limit()) return;
    const std::uint64_t place = PlaceOf(id);
    if (place < end_) PrefetchLine(&At(place));
  }

 private:
  static constexpr std::uint32_t kPageEntries = 1u << 14;
  static constexpr std::uint64_t kSlack = 4 * kPageEntries;
  static constexpr std::uint32_t kSweepPerUse = 4;
  static constexpr std::uint32_t kAhead = 24;  // entries whose stamps are asked for, in a sweep
  struct Page {
    std::uint32_t ids[kPageEntries];
  };

  static std::uint32_t Low(std::uint64_t place) { return static_cast<std::uint32_t>(place); }
  std::uint32_t& At(std::uint64_t place) { return pages_[place / kPageEntries & mask_]->ids[place % kPageEntries]; }
  const std::uint32_t& At(std::uint64_t place) const { return pages_[place / kPageEntries & mask_]->ids[place % kPageEntries]; }
  // Where the object's stamp points to, from begin_ on: at or beyond end_, or at somebody else's entry, if it is no member.
  std::uint64_t PlaceOf(std::uint32_t id) const { return begin_ + (stamps_[id] - Low(begin_)); }
  bool Names(std::uint64_t place, std::uint32_t id) const { return place < end_ && At(place) == id; }
  // The place behind this one: what a sweep has emptied is passed over.
  std::uint64_t Behind(std::uint64_t place) const { return place + 1 == hole_ ? sweep_ : place + 1; }
  void Append(std::uint32_t id) {
    if (end_ >= room_) AddPage();
    At(end_) = id;
    stamps_[id] = Low(end_++);
    if (sweeping_ || end_ - begin_ > 2 * members_ + kSlack) Sweep(kSweepPerUse);
  }
  void AddPage();
  void DropPages(std::uint64_t from, std::uint64_t to);
  void PassEmpty(std::uint32_t looks);
  void BeginSweep() { sweeping_ = true, hole_ = sweep_ = begin_; }
  void Sweep(std::uint32_t entries);

  PagedArray<std::uint32_t> stamps_;          // low bits of places
  std::vector<std::unique_ptr<Page>> pages_;  // by place / kPageEntries, modulo their number, a power of two
  std::uint64_t mask_ = 0;                    // that number less one
  std::uint64_t begin_;                       // no member's entry before it
  std::uint64_t end_;
  std::uint64_t room_ = 0;                    // places below it are there to be written
  std::uint64_t members_ = 0;
  // While sweeping: members' entries below sweep_ have been moved together below hole_; between the two there is nothing.
  bool sweeping_ = false;
  std::uint64_t hole_ = UINT64_MAX;
  std::uint64_t sweep_ = 0;
  std::unique_ptr<Page> spare_;
};

template <typename Enough>
std::size_t UseLog::Oldest(std::uint32_t* ids, std::size_t max, Enough enough) {
  if (members_ == 0) return 0;
  if (At(begin_) == TIERD_NO_OBJECT) PassEmpty(kMostLooks);
  std::size_t count = 0;
  std::uint32_t looks = 0;
  for (std::uint64_t place = begin_; count < max && place < end_; place = Behind(place)) {
    if (++looks > kMostLooks) {  // much is empty behind what stays: the next call finds less of it
      if (!sweeping_) BeginSweep();
      Sweep(kMostLooks);
      break;
    }
    const std::uint32_t id = At(place);
    if (id == TIERD_NO_OBJECT) continue;
    ids[count++] = id;
    if (enough(id)) break;
  }
  return count;
}

}  // namespace tierd::policies
