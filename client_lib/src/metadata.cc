// tier_stat and tier_list: from the index under the rules of HAZARDS 2.15, else from the source.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "client_lib/src/cached_file.h"
#include "client_lib/src/process.h"
#include "client_lib/src/source_io.h"
#include "client_lib/src/views.h"

// Entries as the ABI lays them out (abi::ListingEntry): leased memory of the cache, or a private block.
struct tier_listing {
  const std::byte* data;
  std::size_t bytes;
  std::size_t at;
  tierd::client::Piece piece;
  std::byte* block;
  char name[PATH_MAX];  // NAME_MAX is not the longest: CIFS and exFAT count 255 UTF-16 units, FUSE up to 1,024 bytes
};

namespace tierd::client {
namespace {

// A file's facts from the cache: kNone with `attr` filled; kDone means the source's own answer is in *error.
bool StatCached(const Call& call, bool follow, tier_attr& attr, int* error) {
  const SlowPath slow;
  if (!slow.entered()) return false;
  Cached cached;
  Wish wish;
  wish.bytes = false;
  wish.follow = follow;
  FindCached(call, wish, cached);
  *error = 0;
  if (cached.outcome == Outcome::kError) {
    *error = cached.error;
    return true;
  }
  if (cached.outcome != Outcome::kKnown && cached.outcome != Outcome::kOther) return false;
  if (!cached.facts.has_attrs) return false;
  // A link's own attributes are no answer to a stat that follows it.
  if (follow && cached.facts.kind == abi::SlotKind::kSymlink) return false;
  AttrFromFacts(cached.facts, cached.target.source->dev, attr);
  attr.origin = cached.asked ? TIER_FROM_SOURCE : TIER_FROM_RAM;
  return true;
}

// Reads a directory of the source into a private block, which has room for any entry from the first.
constexpr std::size_t kFirstBlock = 8192;
static_assert(kFirstBlock >= abi::PadTo8(sizeof(abi::ListingEntry) + sizeof(tier_listing::name)));
int ListSource(const char* path, tier_listing& listing) {
  const int fd = ::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return -errno;
  DIR* const directory = ::fdopendir(fd);
  if (directory == nullptr) {
    const int error = -errno;
    ::close(fd);
    return error;
  }
  std::size_t capacity = 0;
  int error = 0;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(directory);
    if (entry == nullptr) {
      error = -errno;
      break;
    }
    if (std::strcmp(entry->d_name, ".") == 0 || std::strcmp(entry->d_name, "..") == 0) continue;
    const std::size_t name_bytes = std::strlen(entry->d_name);
    if (name_bytes >= sizeof listing.name) {
      error = -ENAMETOOLONG;
      break;
    }
    const std::size_t bytes = abi::PadTo8(sizeof(abi::ListingEntry) + name_bytes);
    if (listing.bytes + bytes > capacity) {
      capacity = capacity == 0 ? kFirstBlock : capacity * 2;
      auto* const larger = static_cast<std::byte*>(std::realloc(listing.block, capacity));
      if (larger == nullptr) {
        error = -ENOMEM;
        break;
      }
      listing.block = larger;
    }
    abi::ListingEntry head{};
    head.ino = entry->d_ino;
    head.name_bytes = static_cast<std::uint16_t>(name_bytes);
    head.d_type = entry->d_type;
    std::memcpy(listing.block + listing.bytes, &head, sizeof head);
    std::memcpy(listing.block + listing.bytes + sizeof head, entry->d_name, name_bytes);
    listing.bytes += bytes;
  }
  ::closedir(directory);
  listing.data = listing.block;
  return error;
}

// Whether the bytes are a listing from the first to the last entry.
bool HoldsTogether(const tier_listing& listing) {
  std::size_t at = 0;
  while (at < listing.bytes) {
    abi::ListingEntry head;
    if (listing.bytes - at < sizeof head) return false;
    std::memcpy(&head, listing.data + at, sizeof head);
    if (head.name_bytes == 0 || head.name_bytes >= sizeof listing.name) return false;
    const std::size_t bytes = abi::PadTo8(sizeof head + head.name_bytes);
    if (bytes > listing.bytes - at) return false;
    at += bytes;
  }
  return true;
}

bool ListCached(const Call& call, tier_listing& listing, abi::Fallback* reason) {
  const SlowPath slow;
  *reason = abi::Fallback::kOverload;
  if (!slow.entered()) return false;
  Target target;
  PathText text;
  *reason = FindListing(call, target, text, listing.piece, nullptr);
  if (*reason != abi::Fallback::kNone) return false;
  listing.data = listing.piece.data;
  listing.bytes = static_cast<std::size_t>(listing.piece.bytes);
  if (HoldsTogether(listing)) return true;
  *reason = abi::Fallback::kProtocol;
  listing.piece.Free();
  listing.bytes = 0;
  return false;
}

}  // namespace
}  // namespace tierd::client

using namespace tierd::client;
namespace abi = tierd::abi;

int tier_stat(tier_client* client, const char* path, tier_attr* attr, unsigned flags) noexcept {
  if (path == nullptr || attr == nullptr || (flags & ~(TIER_CACHED | TIER_NOWAIT | TIER_NOFOLLOW)) != 0) return -EINVAL;
  const KeepErrno keep;
  const Call call(ClientOf(client), path, flags);
  const bool follow = (flags & TIER_NOFOLLOW) == 0;
  tier_attr found;
  int error = 0;
  if (!StatCached(call, follow, found, &error)) {
    if (!call.may_read_source()) return -ENODATA;
    error = StatSource(path, follow, found);
  }
  return error != 0 ? error : GiveAttr(found, attr);
}

int tier_list(tier_client* client, const char* path, tier_listing** listing, unsigned flags) noexcept {
  if (path == nullptr || listing == nullptr || (flags & ~(TIER_CACHED | TIER_NOWAIT)) != 0) return -EINVAL;
  const KeepErrno keep;
  *listing = nullptr;
  void* const memory = std::calloc(1, sizeof(tier_listing));
  if (memory == nullptr) return -ENOMEM;
  auto* const made = new (memory) tier_listing{};
  const Call call(ClientOf(client), path, flags);
  abi::Fallback reason;
  int error = 0;
  if (!ListCached(call, *made, &reason)) {
    made->piece = {};
    error = call.may_read_source() ? ListSource(path, *made) : -ENODATA;
  }
  if (error != 0) {
    std::free(made->block);
    std::free(made);
    return error;
  }
  *listing = made;
  return 0;
}

int tier_list_next(tier_listing* listing, tier_entry* entry) noexcept {
  if (listing == nullptr || entry == nullptr) return -EINVAL;
  if (listing->at >= listing->bytes) return 0;
  abi::ListingEntry head;
  std::memcpy(&head, listing->data + listing->at, sizeof head);
  std::memcpy(listing->name, listing->data + listing->at + sizeof head, head.name_bytes);
  listing->name[head.name_bytes] = '\0';
  listing->at += abi::PadTo8(sizeof head + head.name_bytes);
  entry->name = listing->name;
  entry->name_bytes = head.name_bytes;
  entry->ino = head.ino;
  entry->type = head.d_type;
  entry->reserved = 0;
  entry->position = listing->at;
  return 1;
}

int tier_list_seek(tier_listing* listing, uint64_t position) noexcept {
  if (listing == nullptr) return -EINVAL;
  // Only where an entry begins.
  std::size_t at = 0;
  while (at < position && at < listing->bytes) {
    abi::ListingEntry head;
    std::memcpy(&head, listing->data + at, sizeof head);
    at += abi::PadTo8(sizeof head + head.name_bytes);
  }
  if (at != position) return -EINVAL;
  listing->at = at;
  return 0;
}

void tier_list_close(tier_listing* listing) noexcept {
  if (listing == nullptr) return;
  const KeepErrno keep;
  if (listing->piece.held()) GiveLeaseBack(*listing->piece.session, listing->piece.lease, listing->piece.epoch, 0);
  std::free(listing->block);
  std::free(listing);
}
