// Who of the residents is worth least where sizes differ and a read from the source costs more than its bytes: for `belady`. The worth of keeping an object until
// its next use is what it saves per byte and time: (operation + bytes) / bytes / (uses until then), with the cost of an operation in bytes that could be read
// meanwhile. For equal sizes that is the order of next use.
//
// Objects are sorted into classes by what they save per byte, half a power of two each; within a class the last used is worth least, so the least of all is the
// last of some class. Entries are not taken out when they no longer hold, but passed over. Memory: 16 bytes per entry, at most two or so per resident.
//
// Owner: one policy instance, beside the Timeline that knows the uses. One thread. A call costs O(log residents) per entry that it looks at, amortised.
#pragma once

#include <cstdint>
#include <vector>

#include "policies/timeline.h"

namespace tierd::policies {

class CostOrder {
 public:
  CostOrder(const Timeline& timeline, std::uint32_t tier) : timeline_(timeline), tier_(tier) {}

  void SetOperationBytes(std::uint64_t bytes) { operation_bytes_ = static_cast<double>(bytes); }
  // The object is a resident and its next use is known, or has changed.
  void Add(std::uint32_t id);

  // What keeping an object saves per use that is waited for; 0 without a known use.
  double Gain(std::uint32_t id, std::uint64_t next_use) const;
  // The residents that would leave for `bytes`, worth least first, at most `most`; and what keeping them all would save. False: they do not suffice.
  bool Least(std::uint64_t bytes, std::size_t most, std::vector<std::uint32_t>* ids, double* gain);

 private:
  struct Entry {
    std::uint64_t use;  // slot
    std::uint32_t id;
  };
  static constexpr std::uint32_t kClasses = 64;
  static bool Sooner(const Entry& a, const Entry& b) { return a.use < b.use || (a.use == b.use && a.id < b.id); }
  std::uint32_t ClassOf(std::uint32_t id) const;
  bool Holds(const Entry& entry) const { return timeline_.IsKnown(entry.id) && timeline_.IsResident(tier_, entry.id) && timeline_.NextUse(entry.id, false) == entry.use; }
  // Its last entry that holds; false if there is none.
  bool Settle(std::vector<Entry>* heap);
  void Tidy();

  const Timeline& timeline_;
  const std::uint32_t tier_;
  double operation_bytes_ = 0;
  std::vector<Entry> heaps_[kClasses];  // the last used on top
  std::size_t entries_ = 0;
  std::size_t tidy_at_ = 4096;
  std::vector<std::pair<std::uint32_t, Entry>> taken_;  // scratch: by class
};

}  // namespace tierd::policies
