#include "tierd/source/listing_memory.h"

#include <algorithm>
#include <utility>

namespace tierd::source {

std::uint64_t ListingMemory::HashName(std::string_view name) {
  // FNV-1a and a final mix: names come from a directory the user owns, so no key is needed.
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  hash ^= hash >> 32;
  hash *= 0x9E3779B97F4A7C15ULL;
  return hash ^ (hash >> 29);
}

ListingVerdict ListingMemory::Compare(Listing& listing, std::vector<std::uint64_t> names, std::int64_t now_ns) {
  if (names == listing.names) {
    listing.suspect.clear();
    listing.suspect_since_ns = 0;
    return now_ns - listing.since_ns >= options_.confirm_after_ns ? ListingVerdict::kDurable : ListingVerdict::kFresh;
  }
  const bool lost = !std::includes(names.begin(), names.end(), listing.names.begin(), listing.names.end());
  if (!lost) {
    listing.names = std::move(names);
    listing.since_ns = now_ns;
    listing.suspect.clear();
    listing.suspect_since_ns = 0;
    return ListingVerdict::kFresh;
  }
  if (names != listing.suspect || listing.suspect_since_ns == 0) {
    listing.suspect = std::move(names);
    listing.suspect_since_ns = now_ns;
    return ListingVerdict::kLostNames;
  }
  if (now_ns - listing.suspect_since_ns < options_.confirm_after_ns) return ListingVerdict::kLostNames;
  listing.names = std::move(listing.suspect);
  listing.since_ns = listing.suspect_since_ns;
  listing.suspect.clear();
  listing.suspect_since_ns = 0;
  return ListingVerdict::kDurable;
}

ListingVerdict ListingMemory::Observe(std::string_view directory, std::vector<std::uint64_t> name_hashes,
                                      std::int64_t now_ns) {
  if (!std::is_sorted(name_hashes.begin(), name_hashes.end())) std::sort(name_hashes.begin(), name_hashes.end());
  const auto found = known_.find(directory);
  if (found == known_.end()) {
    order_.push_front(Listing{std::string(directory), std::move(name_hashes), now_ns, {}, 0});
    counted_ += CountOf(order_.front());
    known_.emplace(order_.front().directory, order_.begin());
    Trim();
    return ListingVerdict::kFresh;
  }
  order_.splice(order_.begin(), order_, found->second);
  Listing& listing = order_.front();
  counted_ -= CountOf(listing);
  const ListingVerdict verdict = Compare(listing, std::move(name_hashes), now_ns);
  counted_ += CountOf(listing);
  Trim();
  return verdict;
}

std::size_t ListingMemory::CountOf(const Listing& listing) {
  return listing.names.size() + listing.suspect.size() + kNamesPerDirectory + listing.directory.size() / sizeof(std::uint64_t);
}

void ListingMemory::Trim() {
  while (counted_ > options_.max_names && !order_.empty()) {
    const Listing& oldest = order_.back();
    counted_ -= CountOf(oldest);
    known_.erase(oldest.directory);
    order_.pop_back();
  }
}

void ListingMemory::Forget(std::string_view directory) {
  const auto found = known_.find(directory);
  if (found == known_.end()) return;
  const auto listing = found->second;
  counted_ -= CountOf(*listing);
  known_.erase(found);
  order_.erase(listing);
}

}  // namespace tierd::source
