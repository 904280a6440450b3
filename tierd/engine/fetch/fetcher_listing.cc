// Listings: a directory's names, read once, published as a frame, and believed only as far as HAZARDS 2.15 allows.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tierd/engine/fetch/fetcher_impl.h"

namespace tierd::engine {
namespace {

constexpr std::size_t kSortedHere = 4096;             // more names are put in order and encoded by a worker
constexpr std::size_t kCopiedPerTurn = 4 << 20;  // ~1 ms
constexpr std::size_t kMostWalks = 1024;         // of a source; who asks for one more lists it himself
constexpr std::size_t kUnawaitedWalks = 64;      // while there are no more walks, one goes on for who asks next

std::size_t EntryBytes(std::size_t name_bytes) { return abi::PadTo8(sizeof(abi::ListingEntry) + name_bytes); }

template <typename Names>
void EncodeNames(const Names& names, std::vector<std::byte>* out) {
  std::size_t bytes = 0;
  for (const auto& entry : names) bytes += EntryBytes(entry.name.size());
  out->assign(bytes, std::byte{0});
  std::byte* at = out->data();
  for (const auto& entry : names) {
    abi::ListingEntry head{};
    head.ino = entry.ino;
    head.name_bytes = static_cast<std::uint16_t>(entry.name.size());
    head.d_type = entry.type;
    std::memcpy(at, &head, sizeof head);
    std::memcpy(at + sizeof head, entry.name.data(), entry.name.size());
    at += EntryBytes(entry.name.size());
  }
}

// Encodes the names in the source's order, which whoever lists it himself sees too: processes that number files by it must agree. Drops them; returns their
// hashes, sorted. Touches nothing that is shared.
template <typename Names>
std::vector<std::uint64_t> SortAndEncode(Names names, std::vector<std::byte>* encoded) {
  std::sort(names.begin(), names.end(), [](const auto& a, const auto& b) { return a.place < b.place; });
  EncodeNames(names, encoded);
  std::vector<std::uint64_t> hashes;
  hashes.reserve(names.size());
  for (const auto& entry : names) hashes.push_back(source::ListingMemory::HashName(entry.name));
  std::sort(hashes.begin(), hashes.end());
  return hashes;
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
  if (const auto it = too_large_listings_.find(key); it != too_large_listings_.end()) {
    if (NowTicks() < it->second) return Finish(waiter, BringOutcome::kFailed, abi::Fallback::kTooLarge, kNoFile);
    too_large_listings_.erase(it);
  }
  if (unit.reader->state() == source::SourceState::kHung || unit.walker->active() >= kMostWalks) return Finish(waiter, BringOutcome::kFailed, abi::Fallback::kSourceSlow, kNoFile);
  StartListing(unit, key, path, std::move(waiter));
}

void Fetcher::StartListing(SourceUnit& unit, abi::FileKey key, std::string_view path, Waiter waiter) {
  auto listing = std::make_shared<Listing>();
  listing->unit = &unit;
  listing->path = std::string(path);
  listing->waiters.push_back(std::move(waiter));
  listing->sent_ns = clock_.PreciseNs();
  listings_.emplace(key, listing);
  source::WalkRequest walk;
  walk.path = std::string(path);
  walk.recursive = false;
  walk.on_batch = [this, &unit, listing](const source::WalkBatch& batch) {
    for (const source::WalkEntry& entry : batch.entries) listing->bytes += EntryBytes(entry.name.size());
    if (listing->bytes > std::min(largest_listing_, placement_.LargestFrame())) {
      listing->too_large = true;
      return unit.walker->Cancel(listing->walk);
    }
    listing->spoiled |= !Survives([&] {
      for (const source::WalkEntry& entry : batch.entries) listing->names.push_back({entry.name, entry.ino, entry.place, entry.type});
    });
    if (!batch.last) return;
    listing->error = batch.error;
    listing->stat = batch.stat;
    listing->complete = batch.error == 0;
  };
  walk.on_done = [this, &unit, key, listing](const source::WalkTotals& totals) {
    if (const auto it = listings_.find(key); it == listings_.end() || it->second != listing) return;  // dropped
    Guard([&] { OnListed(unit, key, totals); });
  };
  listing->walk = unit.walker->Start(std::move(walk));
}

void Fetcher::EndListing(abi::FileKey key, const std::function<void(const Waiter&)>& answer) {
  const auto found = listings_.extract(key);
  const Listing& listing = *found.mapped();
  if (listing.grant.outcome == Placement::Outcome::kGranted) placement_.Abandon(listing.grant);
  for (const Waiter& waiter : listing.waiters) answer(waiter);
}

// What nobody waits for any more, and has brought nothing yet, stands in the line of others.
void Fetcher::DropUnawaitedWalks() {
  std::erase_if(listings_, [](const auto& one) {
    const Listing& listing = *one.second;
    if (listing.walked || listing.bytes != 0 || !listing.waiters.empty() || listing.unit->walker->active() <= kUnawaitedWalks) return false;
    listing.unit->walker->Cancel(listing.walk);
    return true;
  });
}

void Fetcher::SpoilListings(std::string_view changed) {
  const std::size_t slash = changed.rfind('/');
  const std::string_view parent = slash == std::string_view::npos ? std::string_view() : changed.substr(0, slash);
  for (auto& [key, listing] : listings_) {
    std::string_view rest;
    listing->spoiled |= listing->path == parent || changed.empty() || source::RelativeTo(changed, listing->path, &rest);
  }
}

void Fetcher::OnListed(SourceUnit& unit, abi::FileKey key, const source::WalkTotals& totals) {
  const std::shared_ptr<Listing> listing = listings_.at(key);
  listing->walked = true;
  if (listing->too_large) return GiveListingUp(unit, key);
  if (!listing->complete || !totals.complete()) {
    return EndListing(key, [this, error = listing->error](const Waiter& waiter) {
      if (error == EXDEV) Finish(waiter, BringOutcome::kFailed, abi::Fallback::kPath, kNoFile);  // behind a mount
      else if (error != 0) Finish(waiter, BringOutcome::kFailed, abi::Fallback::kNone, kNoFile, error);
      else Finish(waiter, BringOutcome::kFailed, abi::Fallback::kSourceSlow, kNoFile);
    });
  }
  if (Catalogue::DeniesSome(listing->stat)) {
    return EndListing(key, [this](const Waiter& waiter) {
      Finish(waiter, BringOutcome::kFailed, abi::Fallback::kPermission, kNoFile);
    });
  }
  if (listing->names.size() <= kSortedHere) return OnEncoded(unit, key, SortAndEncode(std::move(listing->names), &listing->encoded));
  const bool handed = workers_.Run([listing] { return Result<std::vector<std::uint64_t>>(SortAndEncode(std::move(listing->names), &listing->encoded)); },
                                   [this, &unit, key, listing](Result<std::vector<std::uint64_t>> hashes) {
                                     listing->spoiled |= !hashes.ok();  // no memory for it
                                     OnEncoded(unit, key, hashes.ok() ? std::move(hashes).value() : std::vector<std::uint64_t>());
                                   });
  if (!handed) NoteLost();  // nobody works at it any more: Reap answers
}

// Clients list it by themselves, and for a ttl nobody walks it again for them. Nothing of it is remembered beside those that can be served.
void Fetcher::GiveListingUp(SourceUnit& unit, abi::FileKey key) {
  const std::shared_ptr<Listing> listing = listings_.at(key);
  if (too_large_listings_.size() >= kTooLargeListings) too_large_listings_.clear();
  too_large_listings_[key] = DeadlineFor(unit, listing->sent_ns, true);
  // They take their time to free.
  const bool handed = workers_.Run([listing] { return std::exchange(listing->names, {}).empty(); }, [this, key, listing](bool) {
    EndListing(key, [this](const Waiter& waiter) { Finish(waiter, BringOutcome::kFailed, abi::Fallback::kTooLarge, kNoFile); });
  });
  if (!handed) NoteLost();
}

std::optional<FileId> Fetcher::ListedDirectory(SourceUnit& unit, abi::FileKey key, const Listing& listing) {
  FileId directory = catalogue_.Find(key);
  if (directory == kNoFile) {
    const auto added = catalogue_.Add(unit.index, listing.path, key, listing.stat, unit.options.chunk_bytes);
    if (!added) return std::nullopt;
    directory = *added;
  } else if (!unit.reader->SameVersion(catalogue_.StatOf(directory), listing.stat)) {
    ApplyVersion(unit, directory, listing.stat);
  }
  if ((catalogue_.file(directory).flags & kFileDirectory) == 0) return std::nullopt;
  return directory;
}

void Fetcher::OnEncoded(SourceUnit& unit, abi::FileKey key, std::vector<std::uint64_t> hashes) {
  const std::shared_ptr<Listing> listing = listings_.at(key);
  const auto refuse = [&](abi::Fallback reason) {
    EndListing(key, [this, reason](const Waiter& waiter) { Finish(waiter, BringOutcome::kFailed, reason, kNoFile); });
  };
  if (listing->spoiled) return refuse(abi::Fallback::kChanged);
  const auto verdict = unit.listings.Observe(listing->path, std::move(hashes), clock_.MonotonicNs());
  // Names are missing that were there: passed on by the client's own listing, never from here.
  if (verdict == source::ListingVerdict::kLostNames) return refuse(abi::Fallback::kChanged);
  PlaceListing(unit, key, verdict == source::ListingVerdict::kDurable && unit.options.staleness == abi::Staleness::kImmutable);
}

// A record of the directory and a frame for its listing; waits for either while there is hope.
void Fetcher::PlaceListing(SourceUnit& unit, abi::FileKey key, bool durable) {
  const std::shared_ptr<Listing> listing = listings_.at(key);
  const auto refuse = [&](abi::Fallback reason) {
    EndListing(key, [this, reason](const Waiter& waiter) { Finish(waiter, BringOutcome::kFailed, reason, kNoFile); });
  };
  if (listing->spoiled) return refuse(abi::Fallback::kChanged);
  if (!Catalogue::Takes(listing->stat, unit.options.chunk_bytes)) return GiveListingUp(unit, key);
  // What the source has said since it was walked is not taken back.
  const FileId known = listing->waited ? catalogue_.Find(key) : kNoFile;
  if (known != kNoFile && !unit.reader->SameVersion(catalogue_.StatOf(known), listing->stat)) return refuse(abi::Fallback::kChanged);
  const auto wait = [&] {
    listing->waited = true;
    stalled_.Add([this, &unit, key, listing, durable] { PlaceListing(unit, key, durable); });
  };
  const auto directory = ListedDirectory(unit, key, *listing);
  if (!directory && !catalogue_.growing()) return refuse(abi::Fallback::kNoFrame);
  if (!directory) return wait();
  ConfirmFacts(unit, *directory, listing->sent_ns, unit.reader->IsYoung(listing->stat, listing->sent_ns));
  listing->directory = *directory;
  listing->tag = catalogue_.file(*directory).version_tag;
  listing->object = catalogue_.ListingOf(*directory, true);
  if (placement_.InRam(listing->object)) placement_.EvictRam(listing->object, EvictCause::kChanged);
  catalogue_.object(listing->object).bytes = static_cast<std::uint32_t>(listing->encoded.size());
  if (listing->encoded.empty()) return EndListing(key, [this, directory](const Waiter& waiter) { ReplyMeta(waiter, *directory); });
  listing->grant = placement_.Acquire(listing->object, {.may_transit = true, .may_evict = true});
  if (listing->grant.outcome == Placement::Outcome::kWait) return wait();
  if (listing->grant.outcome != Placement::Outcome::kGranted) return refuse(abi::Fallback::kNoFrame);
  listing->durable = durable;
  CopyListing(unit, key);
}

// Names that not everybody may list are listed again when their access is asked about: a walk opens the directory.
std::uint32_t Fetcher::DurableUntil(const SourceUnit& unit, const Listing& listing) const {
  const bool anybody = (listing.stat.mode & S_IROTH) != 0 && WayTo(unit, listing.directory).state == Way::State::kOpen;
  return anybody ? abi::kDeadlineNever : abi::TicksOf(listing.sent_ns + unit.options.AccessRecheckNs());
}

// A piece per turn of the loop; then it is published.
void Fetcher::CopyListing(SourceUnit& unit, abi::FileKey key) {
  const std::shared_ptr<Listing> listing = listings_.at(key);
  const bool same = catalogue_.Find(key) == listing->directory && catalogue_.file(listing->directory).version_tag == listing->tag;
  if (listing->spoiled || !same) {
    return EndListing(key, [this](const Waiter& waiter) { Finish(waiter, BringOutcome::kFailed, abi::Fallback::kChanged, kNoFile); });
  }
  const std::size_t piece = std::min(kCopiedPerTurn, listing->encoded.size() - listing->copied);
  std::memcpy(placement_.FrameSpan(listing->grant.frame).data() + listing->copied, listing->encoded.data() + listing->copied, piece);
  listing->copied += piece;
  if (listing->copied < listing->encoded.size()) {
    if (!workers_.Run([] { return true; }, [this, &unit, key, listing](bool) { CopyListing(unit, key); })) NoteLost();
    return;
  }
  const ObjectId object = listing->object;
  const std::uint64_t word = placement_.Publish(object, std::exchange(listing->grant, {}));
  catalogue_.SetListingDeadline(object, listing->durable ? DurableUntil(unit, *listing) : DeadlineFor(unit, listing->sent_ns, true));
  EndListing(key, [this, object, word](const Waiter& waiter) { ReplyFrame(waiter, object, word, abi::Tier::kSource); });
}

}  // namespace tierd::engine
