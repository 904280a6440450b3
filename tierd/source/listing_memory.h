// Remembers directory listings as sets of name hashes, to tell a listing that can be relied on from one that may be partial
// because a part of the source is down (HAZARDS 2.15). Pure; owner: the engine; loop thread only.
// It stores no names and no entries (the catalogue does), and evicts nothing by itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tierd::source {

enum class ListingVerdict : std::uint8_t {
  kFresh = 0,    // nothing speaks against it: cache it for at most one ttl
  kDurable = 1,  // the same set was seen at least `confirm_after` before: cache it as the dataset's mode says
  kLostNames = 2,  // names known so far are missing: pass it on, do not cache it, evict nothing
};

struct ListingMemoryOptions {
  std::int64_t confirm_after_ns = 10'000'000'000;
  // Remembered over all directories, 8 bytes each, and kNamesPerDirectory for each directory; least recently seen directories are forgotten.
  std::size_t max_names = 4'000'000;
};

class ListingMemory {
 public:
  static constexpr std::size_t kNamesPerDirectory = 40;  // as many take as much memory as a directory without names: some 300 bytes and its path

  explicit ListingMemory(const ListingMemoryOptions& options) : options_(options) {}

  // A complete, error-free listing of `directory` ended at `now_ns` (MonotonicNs). `name_hashes` made by HashName, in any order; a sorted million of them
  // costs little.
  // A loss that a second listing at least confirm_after later repeats exactly is believed: kDurable, and the set is replaced.
  ListingVerdict Observe(std::string_view directory, std::vector<std::uint64_t> name_hashes, std::int64_t now_ns);
  // Names that were added or removed with our knowledge (invalidate, read-your-writes): the directory starts over.
  void Forget(std::string_view directory);
  static std::uint64_t HashName(std::string_view name);
  std::size_t directories() const { return known_.size(); }
  std::size_t counted() const { return counted_; }  // against max_names

 private:
  struct Listing {
    std::string directory;
    std::vector<std::uint64_t> names;  // sorted: what is believed
    std::int64_t since_ns = 0;         // when this set was seen first
    std::vector<std::uint64_t> suspect;  // sorted: the last listing that lost names
    std::int64_t suspect_since_ns = 0;
  };
  static std::size_t CountOf(const Listing& listing);
  ListingVerdict Compare(Listing& listing, std::vector<std::uint64_t> names, std::int64_t now_ns);
  void Trim();

  ListingMemoryOptions options_;
  std::list<Listing> order_;  // most recently seen first
  std::unordered_map<std::string_view, std::list<Listing>::iterator> known_;  // keys point into order_
  std::size_t counted_ = 0;
};

}  // namespace tierd::source
