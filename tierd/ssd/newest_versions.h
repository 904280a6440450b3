// Which of the records found at a start are current: per (source, path) only the version with the highest fill sequence, per chunk the
// highest, of equal copies (a moved record and its original) the one in the younger region (HAZARDS 2.16 b, c).
//
// Used by one scan: Offer() every record in a fixed order, then Decide(), then ask Wins() by the record's number in that order. About
// 45 bytes per file while it lives; 2^31 records at most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tierd/ssd/record.h"

namespace tierd::ssd {

class NewestVersions {
 public:
  // `expected` records (a hint: saves growing).
  explicit NewestVersions(std::size_t expected);
  // The n-th call is about record number n (from 0).
  void Offer(const RecordIdentity& identity, std::uint64_t region_epoch);
  // A number without a record that could win.
  void Skip() { ++offered_; }
  // Frees the tables; only Wins() may be called afterwards.
  void Decide();
  bool Wins(std::uint32_t number) const { return wins_[number]; }

 private:
  struct Entry {
    std::uint64_t key = 0;  // 0: empty
    std::uint64_t fill = 0;
    std::uint64_t epoch = 0;
    std::uint32_t version = 0;  // digest; of a file of one chunk unused
    std::uint32_t number : 31 = 0;  // of the best record; for a file of several chunks unused
    std::uint32_t chunked : 1 = 0;
  };
  static_assert(sizeof(Entry) == 32);
  struct Table {
    std::vector<Entry> slots;
    std::size_t used = 0;
    std::size_t HomeOf(std::uint64_t key) const;
    Entry& Find(std::uint64_t key);
    void Grow();
  };
  static bool Better(const Entry& entry, std::uint64_t fill, std::uint64_t epoch);

  Table files_;
  Table chunks_;  // of files of several chunks; `version` as in files_
  struct ChunkFile {
    std::uint64_t chunk_key;
    std::uint64_t file_key;
  };
  std::vector<ChunkFile> chunk_files_;
  std::vector<bool> wins_;
  std::uint32_t offered_ = 0;
};

}  // namespace tierd::ssd
