// Checks on every access that a consumer reads what it was expected to read, and says where it stands. The order may be wrong from the
// start, become wrong, or be right with workers running ahead of one another.
//
// Several readers may be seen: those of the consumer (its worker processes), and others, of which some turn out to be the consumer's later. What another one has
// read moves on what is waited for, but is not held against the consumer's own readers when they come to it.
//
// Nor need they be heard of in turn: a daemon that looks at one worker's accesses after the other's hears a whole small epoch of the first before anything of the second.
// A reader that has only gone forward, and goes on from its own last entry by less than a window, is as expected, up to kBurst entries beyond the window of all.
//
// Owner: whoever follows a consumer. One thread at a time. Memory: 9 bytes per entry of the epoch and 4 per sample of the dataset, and 1 KiB,
// for the epoch that is being read alone. Observe is O(1) amortised.
#pragma once

#include <algorithm>
#include <array>
#include <bitset>
#include <cstdint>
#include <span>
#include <vector>

#include "tierd/base/prefetch.h"

namespace tierd::orders {

// Whose access it is.
struct ReaderTag {
  std::uint8_t tag = 1;  // not 0; two readers may have the same by chance, which is for what they read as if they were one
  bool own = true;       // known to be the consumer's
};

class OrderFollower {
 public:
  enum class Verdict : std::uint8_t {
    kExpected,  // one of the next `window` entries, or of those behind the reader's last one
    kShared,    // is one, and another reader that is not known to be the consumer's has read it before: neither expected nor repeated in Counts
    kRepeated,  // has been read in this epoch
    kEarly,     // of this epoch, but far from now
    kFound,     // that too, and the latest such accesses say that the consumer is there: now the entries behind them are expected. Expected in Counts
    kForeign,   // not in this epoch's order at all
  };
  struct Counts {
    std::uint64_t expected = 0;
    std::uint64_t repeated = 0;
    std::uint64_t early = 0;
    std::uint64_t foreign = 0;
    std::uint64_t missed = 0;  // entries that were passed by
    // Of what was read, how much had been foretold; of what was foretold up to now, how much was read.
    double recall() const;
    double precision() const;
  };

  // order: what the consumer reads in this epoch, indices below `samples`, each at most once (a second mention is the later one's
  // repeat). window: how far accesses may run ahead of the first entry not yet read, at least 1.
  OrderFollower(std::uint32_t samples, std::vector<std::uint32_t> order, std::uint32_t window);

  Verdict Observe(std::uint32_t index, ReaderTag reader = {});
  // Whether it is one of the entries that may come now, and has not: Observe would say kExpected or kShared.
  bool Expects(std::uint32_t index, ReaderTag reader = {}) const {
    const std::uint32_t entry = index < entry_of_.size() ? entry_of_[index] : kAbsent;
    return entry != kAbsent && (entry < std::uint64_t{frontier_} + window_ || GoesOn(entry, reader)) && (!read_[entry] || Shared(entry, reader));
  }
  // A hint: it will be asked about soon.
  void Soon(std::uint32_t index) const {
    if (index < entry_of_.size()) PrefetchToRead(&entry_of_[index]);
  }
  // An entry that has not been read, but lies before one that this reader has: readers go forward.
  bool GoesBack(std::uint32_t index, ReaderTag reader) const {
    const std::uint32_t entry = index < entry_of_.size() ? entry_of_[index] : kAbsent;
    return entry != kAbsent && !read_[entry] && HasRead(reader) && entry < last_[reader.tag];
  }
  // An entry that has not been read, less than a window behind this reader's last one.
  bool GoesOnWith(std::uint32_t index, ReaderTag reader) const {
    const std::uint32_t entry = index < entry_of_.size() ? entry_of_[index] : kAbsent;
    return entry != kAbsent && !read_[entry] && GoesOn(entry, reader);
  }
  bool HasRead(ReaderTag reader) const { return last_[reader.tag] != kAbsent; }
  // It has, and never went back.
  bool GoesForward(ReaderTag reader) const { return HasRead(reader) && !went_back_[reader.tag]; }
  // Less than a window is left, for all readers or for this one.
  bool NearEnd(ReaderTag reader) const {
    const std::size_t at = !HasRead(reader) ? frontier_ : std::max(frontier_, last_[reader.tag]);
    return order_.size() - at <= window_;
  }

  // The first entry that is neither read nor passed by; order().size() when the epoch is through.
  std::uint32_t frontier() const { return frontier_; }
  std::span<const std::uint32_t> order() const { return order_; }
  bool finished() const { return frontier_ == order_.size(); }
  std::uint32_t window() const { return window_; }
  // False as soon as a quarter of the latest accesses (an average over about a quarter of a window, 16 to 256) is early or foreign;
  // true again when they are as expected, or when a consumer that is in mid-epoch (resumed, or told of late) is found where it is.
  bool trusted() const { return wrong_ < kTolerated; }
  const Counts& counts() const { return counts_; }

  static constexpr std::uint32_t kBurst = 512;

 private:
  static constexpr double kTolerated = 0.25;
  static constexpr std::uint32_t kAbsent = UINT32_MAX;

  Verdict Judge(std::uint32_t index, ReaderTag reader);
  // An entry that was read, by somebody else: it may come now.
  bool Shared(std::uint32_t entry, ReaderTag reader) const {
    return reader.own && guest_[entry] != 0 && guest_[entry] != reader.tag && std::uint64_t{entry} + window_ >= frontier_;
  }
  bool GoesOn(std::uint32_t entry, ReaderTag reader) const {
    const std::uint32_t last = last_[reader.tag];
    return GoesForward(reader) && entry > last && entry - last <= window_ && entry < std::uint64_t{frontier_} + window_ + kBurst;
  }
  void Advance();
  std::uint32_t Behind() const;
  void Admit();
  bool FoundBy(std::uint32_t entry);
  void MoveTo(std::uint32_t entry);

  const std::vector<std::uint32_t> order_;
  const std::uint32_t window_;
  const double step_;                   // weight of the latest access in wrong_
  std::vector<std::uint32_t> entry_of_; // sample -> place in order_
  std::vector<bool> read_;
  std::vector<std::uint8_t> guest_;     // of entries that were read: by whom, while none of the consumer's own has; else 0
  std::array<std::uint32_t, 256> last_;  // by tag: the entry that was read last
  std::bitset<256> went_back_;           // by tag
  std::uint32_t frontier_ = 0;
  std::uint32_t ahead_ = 0;             // read entries from frontier_ on
  std::vector<std::uint32_t> early_;    // places of the latest early accesses, each once, since one was expected
  double wrong_ = 0;
  Counts counts_;
};

}  // namespace tierd::orders
