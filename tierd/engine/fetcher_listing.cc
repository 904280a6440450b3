// Listings: a directory's names, read once, published as a frame, and believed only as far as HAZARDS 2.15 allows.
#include <dirent.h>

#include <algorithm>
#include <cstring>

#include "tierd/engine/fetcher_impl.h"

namespace tierd::engine {
namespace {

std::size_t EntryBytes(const source::WalkEntry& entry) { return abi::PadTo8(sizeof(abi::ListingEntry) + entry.name.size()); }

void Encode(const std::vector<source::WalkEntry>& entries, std::byte* out) {
  for (const source::WalkEntry& entry : entries) {
    const std::size_t bytes = EntryBytes(entry);
    std::memset(out, 0, bytes);
    abi::ListingEntry head{};
    head.ino = entry.ino;
    head.name_bytes = static_cast<std::uint16_t>(entry.name.size());
    head.d_type = entry.type;
    std::memcpy(out, &head, sizeof head);
    std::memcpy(out + sizeof head, entry.name.data(), entry.name.size());
    out += bytes;
  }
}

}  // namespace

void Fetcher::ServeListing(SourceUnit& unit, abi::FileKey key, std::string_view path, Waiter waiter) {
  const FileId directory = catalogue_.Find(key);
  if (directory != kNoFile) {
    const ObjectId listing = catalogue_.ListingOf(directory, false);
    if (listing != kNoObject && placement_.InRam(listing)) {
      if (NowTicks() < catalogue_.ListingDeadline(listing)) return ReplyFrame(waiter, listing, placement_.LocationWordOf(listing), abi::Tier::kRam);
      placement_.EvictRam(listing, EvictCause::kChanged);
    }
  }
  if (const auto it = listings_.find(key); it != listings_.end()) {
    it->second->waiters.push_back(std::move(waiter));
    return;
  }
  auto listing = std::make_unique<Listing>();
  listing->path = std::string(path);
  listing->unit = unit.index;
  listing->waiters.push_back(std::move(waiter));
  listing->sent_ns = clock_.MonotonicNs();
  listings_.emplace(key, std::move(listing));
  source::WalkRequest walk;
  walk.path = std::string(path);
  walk.recursive = false;
  walk.on_batch = [this, key](const source::WalkBatch& batch) {
    const auto it = listings_.find(key);
    if (it == listings_.end()) return;
    Listing& under_way = *it->second;
    under_way.entries.insert(under_way.entries.end(), batch.entries.begin(), batch.entries.end());
    if (!batch.last) return;
    under_way.error = batch.error;
    under_way.stat = batch.stat;
    under_way.complete = batch.error == 0;
  };
  walk.on_done = [this, &unit, key](const source::WalkTotals& totals) { OnListed(unit, key, totals); };
  unit.walker->Start(std::move(walk));
}

void Fetcher::OnListed(SourceUnit& unit, abi::FileKey key, const source::WalkTotals& totals) {
  const auto it = listings_.find(key);
  if (it == listings_.end()) return;
  const std::unique_ptr<Listing> listing = std::move(it->second);
  listings_.erase(it);
  if (!listing->complete || !totals.complete()) {
    for (const Waiter& waiter : listing->waiters) {
      if (listing->error != 0) Finish(waiter, BringOutcome::kFailed, abi::Fallback::kNone, kNoFile, listing->error);
      else Finish(waiter, BringOutcome::kFailed, abi::Fallback::kSourceSlow, kNoFile);
    }
    return;
  }
  std::sort(listing->entries.begin(), listing->entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  PublishListing(unit, key, *listing);
}

void Fetcher::PublishListing(SourceUnit& unit, abi::FileKey key, Listing& listing) {
  std::vector<std::uint64_t> hashes;
  hashes.reserve(listing.entries.size());
  std::size_t bytes = 0;
  for (const source::WalkEntry& entry : listing.entries) {
    hashes.push_back(source::ListingMemory::HashName(entry.name));
    bytes += EntryBytes(entry);
  }
  const auto verdict = unit.listings.Observe(listing.path, std::move(hashes), clock_.MonotonicNs());
  const auto refuse = [&](abi::Fallback reason) {
    for (const Waiter& waiter : listing.waiters) Finish(waiter, BringOutcome::kFailed, reason, kNoFile);
  };
  // Names are missing that were there: passed on by the client's own listing, never from here.
  if (verdict == source::ListingVerdict::kLostNames) return refuse(abi::Fallback::kChanged);
  if (bytes > unit.options.chunk_bytes) return refuse(abi::Fallback::kTooLarge);
  FileId directory = catalogue_.Find(key);
  if (directory == kNoFile) {
    const auto added = catalogue_.Add(unit.index, listing.path, key, listing.stat, unit.options.chunk_bytes);
    if (!added) return refuse(abi::Fallback::kNoFrame);
    directory = *added;
  } else if (!unit.reader->SameVersion(catalogue_.StatOf(directory), listing.stat)) {
    ApplyVersion(unit, directory, listing.stat);
  }
  if ((catalogue_.file(directory).flags & kFileDirectory) == 0) return refuse(abi::Fallback::kNotRegular);
  Confirm(unit, directory, listing.sent_ns, false);
  const ObjectId object = catalogue_.ListingOf(directory, true);
  if (placement_.InRam(object)) placement_.EvictRam(object, EvictCause::kChanged);
  catalogue_.object(object).bytes = static_cast<std::uint32_t>(bytes);
  if (bytes == 0) {
    for (const Waiter& waiter : listing.waiters) ReplyMeta(waiter, directory);
    return;
  }
  const auto grant = placement_.Acquire(object, {.may_transit = true, .may_evict = true});
  if (grant.outcome != Placement::Outcome::kGranted) return refuse(abi::Fallback::kNoFrame);
  Encode(listing.entries, placement_.FrameSpan(grant.frame).data());
  const std::uint64_t word = placement_.Publish(object, grant);
  const bool durable = verdict == source::ListingVerdict::kDurable && unit.options.staleness == abi::Staleness::kImmutable;
  catalogue_.SetListingDeadline(object, durable ? abi::kDeadlineNever : DeadlineFor(unit, listing.sent_ns, true));
  for (const Waiter& waiter : listing.waiters) ReplyFrame(waiter, object, word, abi::Tier::kSource);
}

}  // namespace tierd::engine
