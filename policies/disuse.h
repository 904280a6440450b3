// Who of the residents nobody reads any more, for policies that else evict nobody: the data set of a job that has ended gives way to the one that is read now, below the same source.
// Pure; used by `freeze` and, without a plan, by `belady`.
//
// Time is counted in reads, not in seconds: an epoch may take an hour, and a job that stands still loses nothing. A resident is disused when it has not been read for longer than anything
// that is read again and again takes to come back. That is measured: each read of an object that was read before tells a gap, and gaps are kept by their size, eight classes per power of two.
// A class counts as long as its last two gaps came within a quarter of its own size: eight objects that come back keep it, whatever else is read beside them, and one stray does not.
// So the longest gap is that of the slowest job that runs: up to two epochs under a fresh order per epoch, many more when samples are drawn with replacement or an epoch reads a part. Within
// a job no resident is older, and nothing leaves for another one that is no better.
//
// A reader's object may take the place of a disused one if it was read before, with a gap shorter than that one's age. What is read for the first time displaces nobody, nor does anything while a
// quarter of the latest reads are first ones: a scan, the first epoch of a set larger than the tier. Reads of an object by pieces are one: those within 2 s and as many reads of others as a quarter of
// the residents, or 1,024. A set of fewer objects whose epochs take less than that is not seen to come back.
//
// Validation: a set that is read every tenth epoch is worth a tenth of a set that is read in each. It stays as long as all fits, and leaves where the training set lacks the room.
//
// Cost: 4 bytes per object; O(1) per event (a line of memory), at most kLooks objects in order per question. Ages are modulo 2^26 reads: the disused may count as used for a while.
//
// Owner: one policy instance. One thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "policies/paged_array.h"
#include "policies/prefetch.h"
#include "policies/tierd_policy.h"

namespace tierd::policies {

class Disuse {
 public:
  Disuse() {
    for (auto& found : found_) found.reserve(kMostFound);  // no question asks for memory
  }
  void Cover(std::uint32_t id) { words_.Cover(id); }
  void Forget(std::uint32_t id);
  // Of covered ids; others are passed over.
  void Read(std::uint32_t id, std::int64_t now_ns);
  void SetResident(std::uint32_t tier, std::uint32_t id, bool resident);
  bool IsDisused(std::uint32_t id) { return id < words_.Limit() && Age(id) > Longest(); }
  void Prefetch(std::uint32_t id) const {
    if (id < words_.Limit()) PrefetchLine(&words_[id]);
  }

  // Whether a reader's object may take the place of disused residents that have `bytes`; Victims then names them. `bytes_of(id)`: size of an object.
  template <typename BytesOf>
  bool MayDisplace(std::uint32_t tier, std::uint32_t id, std::uint64_t bytes, BytesOf bytes_of) {
    if (id >= words_.Limit() || !ComesBack(id) || Longest() == kNobody) return false;
    return Find(tier, bytes, std::max(Longest(), Beyond(Age(id))), bytes_of) >= bytes;
  }
  template <typename BytesOf>
  std::size_t Victims(std::uint32_t tier, std::uint64_t bytes, std::uint32_t* ids, std::size_t max, BytesOf bytes_of) {
    if (Longest() == kNobody) return 0;
    Find(tier, bytes, Longest(), bytes_of);
    std::size_t count = 0;
    std::uint64_t freed = 0;
    for (; count < std::min(max, found_[tier].size()) && (count == 0 || freed < bytes); ++count) {
      ids[count] = found_[tier][count];
      freed += bytes_of(ids[count]);
    }
    return count;
  }

 private:
  // bits 0-25: number of the latest read, or of the insertion; 26: was read again; 27, 28: listed in found_; 29, 30: in the tier; 31: was read.
  static constexpr std::uint32_t kStampBits = 26;
  static constexpr std::uint32_t kStamp = (1u << kStampBits) - 1;
  static constexpr std::uint32_t kReadAgain = 1u << 26;
  static constexpr std::uint32_t kRead = 1u << 31;
  static constexpr std::uint32_t Listed(std::uint32_t tier) { return 1u << (27 + tier); }
  static constexpr std::uint32_t In(std::uint32_t tier) { return 1u << (29 + tier); }

  static constexpr std::uint32_t kNobody = UINT32_MAX;     // no age is that large
  static constexpr std::uint32_t kLooks = 256;             // at objects, per question; 1 KB in order
  static constexpr std::size_t kMostFound = 512;
  static constexpr std::uint32_t kSmallest = 16;           // gaps below are one class
  static constexpr std::uint32_t kClassesPerPower = 8;
  static constexpr std::uint32_t kClasses = (kStampBits - 4) * kClassesPerPower;
  static constexpr std::uint32_t kVisitReads = 1024;
  static constexpr std::int64_t kVisitNs = 2'000'000'000;
  static constexpr double kFresh = 1.0 / 64;               // weight of the latest read among first ones and others
  static constexpr double kMostFresh = 0.25;

  struct Class {
    std::uint64_t last = 0;
    std::uint64_t before = 0;
  };
  static std::uint32_t ClassOf(std::uint32_t gap);
  static std::uint32_t Edge(std::uint32_t number) { return (kClassesPerPower + number % kClassesPerPower + 1) << (number / kClassesPerPower + 1); }
  // A class is up to an eighth wide; gaps of small sets are few.
  static std::uint32_t Beyond(std::uint32_t gap) { return gap + gap / 16 + 16; }
  // Reads of one object within so many of others may be of one visit.
  std::uint32_t Together() const { return std::clamp(residents_ / 4, kSmallest, kVisitReads - 1); }
  // Of an object that is being read: not by pieces for the first time.
  bool ComesBack(std::uint32_t id) const { return (words_[id] & kReadAgain) != 0 || ((words_[id] & kRead) != 0 && Age(id) > Together()); }
  std::uint32_t Age(std::uint32_t id) const { return (static_cast<std::uint32_t>(reads_) - words_[id]) & kStamp; }
  void Stamp(std::uint32_t id) { words_[id] = (words_[id] & ~kStamp) | (static_cast<std::uint32_t>(reads_) & kStamp); }
  // What is older is disused; kNobody: nothing can be said.
  std::uint32_t Longest();
  // Lists disused residents that are older than `age` until they have `bytes`, as far as kLooks goes; returns what they have.
  template <typename BytesOf>
  std::uint64_t Find(std::uint32_t tier, std::uint64_t bytes, std::uint32_t age, BytesOf bytes_of) {
    std::uint64_t sum = 0;
    std::erase_if(found_[tier], [&](std::uint32_t id) {
      const bool holds = (words_[id] & In(tier)) != 0 && Age(id) > age;
      if (holds) sum += bytes_of(id);
      else words_[id] &= ~Listed(tier);
      return !holds;
    });
    for (std::uint32_t look = 0; look < std::min(kLooks, words_.Limit()) && sum < bytes && found_[tier].size() < kMostFound; ++look) {
      std::uint32_t& hand = hand_[tier];
      if (++hand >= words_.Limit()) hand = 0;
      if ((words_[hand] & (In(tier) | Listed(tier))) != In(tier) || Age(hand) <= age) continue;
      words_[hand] |= Listed(tier);
      found_[tier].push_back(hand);
      sum += bytes_of(hand);
    }
    return sum;
  }

  PagedArray<std::uint32_t> words_;
  std::uint64_t reads_ = 1;
  std::array<std::int64_t, kVisitReads> times_{};          // of the latest reads, by number
  std::array<Class, kClasses> classes_{};
  std::uint32_t residents_ = 0;                            // in both tiers
  std::uint32_t top_ = 0;                                  // no class from here on counts
  double fresh_ = 1;                                       // share of first reads among the latest
  std::vector<std::uint32_t> found_[TIERD_POLICY_TIERS];
  std::uint32_t hand_[TIERD_POLICY_TIERS] = {0, 0};
};

}  // namespace tierd::policies
