// The objects of a tier by age, for `lru`: a log of uses, newest at the end. An object's stamp is the place of its latest use; entries of earlier uses and of
// what has left are stale and passed over. A linked list says who is next only when its line has come from memory, once per eviction; the log is read in
// order, so what is needed soon is asked for long before, and a use touches one word beside the log's end.
//
// Stale entries are swept out, a few with each use, once they are as many as the members: 4 bytes per object, 4 to 12 per member. A call costs O(1) amortised, and
// never looks at more than kMostLooks entries.
//
// Owner: one policy instance. One thread.
#pragma once

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
  bool Has(std::uint32_t id) const { return id < stamps_.Limit() && stamps_[id].place != kNowhere; }
  // Room for the id; otherwise its first insertion makes it, for all ids below as well.
  void Cover(std::uint32_t id) { stamps_.Cover(id); }

  // As Use(), of a member; nothing for others.
  void Touch(std::uint32_t id) {
    if (Has(id)) Use(id);
  }
  // The id is the newest from now on.
  void Use(std::uint32_t id) {
    if (stamps_.Limit() <= id) stamps_.Cover(id);
    Stamp& stamp = stamps_[id];
    if (stamp.place == Low(end_ - 1)) return;
    members_ += stamp.place == kNowhere ? 1 : 0;
    stamp.place = end_ < room_ ? AppendHere(id) : Append(id);
    if (sweeping_ || end_ - begin_ > 2 * members_ + kSlack) Sweep(kSweepPerUse);
  }
  void Remove(std::uint32_t id) {
    if (!Has(id)) return;
    const bool oldest = stamps_[id].place == Low(begin_);
    stamps_[id].place = kNowhere;
    --members_;
    if (oldest && !sweeping_ && begin_ % kPageEntries != kPageEntries - 1) PrefetchBehind(++begin_);
  }
  // The oldest members, oldest first: writes at most max, and stops when `enough(id)` says so.
  template <typename Enough>
  std::size_t Oldest(std::uint32_t* ids, std::size_t max, Enough enough);
  // 0: the newest; 1: the oldest. Of a member.
  double Age(std::uint32_t id) const {
    const std::uint32_t span = Low(end_ - 1) - Low(begin_);
    return span == 0 ? 0 : static_cast<double>(Low(end_ - 1) - stamps_[id].place) / span;
  }
  void Prefetch(std::uint32_t id) const {
    if (id < stamps_.Limit()) PrefetchLine(&stamps_[id]);
  }

 private:
  static constexpr std::uint32_t kNowhere = UINT32_MAX;  // no place has these low bits
  static constexpr std::uint32_t kPageEntries = 1u << 14;
  static constexpr std::uint64_t kSlack = 4 * kPageEntries;
  static constexpr std::uint32_t kSweepPerUse = 4;
  static constexpr std::uint32_t kAhead = 24;  // entries whose stamps are asked for
  struct Stamp {
    std::uint32_t place = kNowhere;
  };
  struct Page {
    std::uint32_t ids[kPageEntries];
  };

  static std::uint32_t Low(std::uint64_t place) { return static_cast<std::uint32_t>(place); }
  std::uint32_t& At(std::uint64_t place) { return pages_[place / kPageEntries & mask_]->ids[place % kPageEntries]; }
  bool IsLive(std::uint32_t id, std::uint64_t place) const { return id != kNowhere && stamps_[id].place == Low(place); }
  // The place behind this one: what a sweep has emptied is passed over.
  std::uint64_t Behind(std::uint64_t place) const { return place + 1 == hole_ ? sweep_ : place + 1; }
  std::uint32_t Append(std::uint32_t id);
  std::uint32_t AppendHere(std::uint32_t id) {
    At(end_) = id;
    return Low(end_++);
  }
  void AddPage();
  // Nothing is written at a place that looks like kNowhere.
  void SetRoom(std::uint64_t places) { room_ = Low(places) == 0 ? places - 1 : places; }
  void DropPages(std::uint64_t from, std::uint64_t to);
  void AdvanceBegin(std::uint32_t looks);
  void Sweep(std::uint32_t entries);
  void PrefetchBehind(std::uint64_t place) {
    if (place + kAhead >= end_) return;
    const std::uint32_t id = At(place + kAhead);
    if (id < stamps_.Limit()) Prefetch(id);
  }

  PagedArray<Stamp> stamps_;
  std::vector<std::unique_ptr<Page>> pages_;  // by place / kPageEntries, modulo their number, a power of two
  std::uint64_t mask_ = 0;                    // that number less one
  std::uint64_t begin_;                       // no live entry before it
  std::uint64_t end_;
  std::uint64_t room_ = 0;                    // places below it are there to be written
  std::uint64_t members_ = 0;
  // While sweeping: live entries below sweep_ have been moved together below hole_; between the two there is nothing.
  bool sweeping_ = false;
  std::uint64_t hole_ = UINT64_MAX;
  std::uint64_t sweep_ = 0;
  std::unique_ptr<Page> spare_;
};

template <typename Enough>
std::size_t UseLog::Oldest(std::uint32_t* ids, std::size_t max, Enough enough) {
  if (begin_ == end_) return 0;
  if (!IsLive(At(begin_), begin_)) AdvanceBegin(kMostLooks);
  std::size_t count = 0;
  std::uint32_t looks = 0;
  for (std::uint64_t place = begin_; count < max && place < end_; place = Behind(place)) {
    if (++looks > kMostLooks) {  // much is stale behind what stays: the next call finds less of it
      if (!sweeping_) sweeping_ = true, hole_ = sweep_ = begin_;
      Sweep(kMostLooks);
      break;
    }
    const std::uint32_t id = At(place);
    if (!IsLive(id, place)) continue;
    ids[count++] = id;
    if (enough(id)) break;
  }
  return count;
}

}  // namespace tierd::policies
