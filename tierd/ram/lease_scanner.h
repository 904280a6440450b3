// Which frames are leased: reads the lease tables of all sessions in one pass (HAZARDS 2.1-2.5). Session pages are hostile: each word is copied once,
// `lease_high` is bounded, a word that names no frame of ours means nothing.
//
// Owner: RamTier. Loop thread only; accesses_told() also the engine's heart, while the loop rests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client_lib/abi/layout.h"

namespace tierd::ram {

// The leases of one moment: a sorted set of lease words.
class LeaseSet {
 public:
  // Whether a frame with this lease word (key, fill) is claimed: by exactly this word, or by the key with fill 0 ("any").
  bool Covers(std::uint64_t lease_word) const;
  bool empty() const { return words_.empty(); }
  std::size_t size() const { return words_.size(); }

 private:
  friend class LeaseScanner;
  std::vector<std::uint64_t> words_;
};

class LeaseScanner {
 public:
  // The page stays mapped until Remove. A session is removed only when its process has ended (HAZARDS 2.5), never at the end of its socket.
  void Add(const abi::SessionPage* page) { pages_.push_back({page, next_serial_++}); }
  void Remove(const abi::SessionPage* page);
  std::size_t sessions() const { return pages_.size(); }
  // Sessions are numbered as they come: the next number, and the oldest session's that is still there (the next one if none is).
  std::uint64_t next_serial() const { return next_serial_; }
  std::uint64_t oldest_serial() const { return pages_.empty() ? next_serial_ : pages_.front().serial; }

  // Whether every session with a number below has ended, or says that it maps no segment of the
  // first `notices` that were announced as gone (SharedIndex::NoteSegmentGone).
  bool HaveUnmapped(std::uint64_t below, std::uint32_t notices) const;

  // A sum over how many accesses each session has ever told in its ring: another value than before says that somebody has read, or come or gone (two that read as much as
  // two before them make another one).
  std::uint64_t accesses_told() const;

  // One full fence, then every lease word. The caller has cleared (or moved) the location words of the frames it asks about *before*. The set
  // lives until the next Scan. 1,000 sessions x 64 slots: 0.2 ms.
  const LeaseSet& Scan();
  // Leased words seen by the last scan, duplicates included.
  std::uint64_t leases() const { return leases_; }
  std::uint64_t scans() const { return scans_; }
  // What a scan costs, in lease words that lie side by side (2 ns): by the slots of the last one, and the sessions of now.
  std::uint64_t cost() const { return looked_at_ + kWordsPerPage * pages_.size(); }
  static constexpr std::uint64_t kWordsPerPage = 64;  // its first lines come from other processors' caches

 private:
  struct Page {
    const abi::SessionPage* page;
    std::uint64_t serial;
  };
  std::vector<Page> pages_;  // oldest first
  std::uint64_t next_serial_ = 1;
  LeaseSet set_;
  std::uint64_t leases_ = 0;
  std::uint64_t scans_ = 0;
  std::uint64_t looked_at_ = 0;  // words, by the last scan
};

}  // namespace tierd::ram
