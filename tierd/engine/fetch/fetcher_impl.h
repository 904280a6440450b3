// The pieces of work that Fetcher's sources share: what a fill, a discovery and a listing under way consist of.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>

#include "tierd/engine/fetch/fetcher.h"

namespace tierd::engine {

inline constexpr std::uint8_t kMaxAttempts = 5;  // rounds through Serve before a waiter bypasses

// Of what Catalogue::Takes() refuses.
inline abi::Fallback WhyNotTaken(const io::FileStat& stat) {
  return Catalogue::DeniesSome(stat) ? abi::Fallback::kPermission : abi::Fallback::kTooLarge;
}

inline bool AnyAwaited(const Waiters& waiters) {
  return std::any_of(waiters.begin(), waiters.end(), [](const Waiter& waiter) { return waiter->is_awaited(); });
}
inline source::Priority PriorityOf(const Waiter& waiter) { return waiter->is_awaited() ? source::Priority::kDemand : source::Priority::kPrefetch; }
inline source::Priority PriorityOf(const Waiters& waiters) { return AnyAwaited(waiters) ? source::Priority::kDemand : source::Priority::kPrefetch; }
// When the last of those who do not wait as long as it takes gives up; 0: there are none.
inline std::int64_t DeadlineOf(const Waiters& waiters) {
  std::int64_t deadline_ns = 0;
  for (const Waiter& waiter : waiters) deadline_ns = std::max(deadline_ns, waiter->deadline_ns);
  return deadline_ns;
}

// The source said nothing; a request without a deadline may still be answered.
inline bool IsNoAnswer(source::ReadError error) {
  return error == source::ReadError::kTimeout || error == source::ReadError::kHung || error == source::ReadError::kStopped;
}

// Nobody has answered for the source: not "it is another kind of file" or "it lies outside", which are answers.
inline bool Unreachable(const source::StatReply& reply) {
  if (reply.error != source::ReadError::kErrno) return reply.error == source::ReadError::kTimeout || reply.error == source::ReadError::kHung;
  constexpr int kErrors[] = {EIO, ENOTCONN, ETIMEDOUT, ECONNREFUSED, ECONNRESET, ECONNABORTED, EHOSTDOWN, EHOSTUNREACH, ENETDOWN, ENETUNREACH, ESHUTDOWN};
  return std::find(std::begin(kErrors), std::end(kErrors), reply.sys_errno) != std::end(kErrors);
}

// What a client hears of a stat that brought neither a file nor an errno.
inline abi::Fallback ReasonOf(source::ReadError error) {
  if (error == source::ReadError::kOutside) return abi::Fallback::kPath;
  return error == source::ReadError::kNoBuffer ? abi::Fallback::kNoFrame : abi::Fallback::kSourceSlow;
}

// One request on its way, for ServicePace.
struct Timing {
  std::uint32_t depth = 0;
  std::uint64_t bytes = 0;
  std::int64_t begun_ns = 0;
  // A read of the source has ended. What was refused says nothing about its pace.
  void End(ServicePace& pace, source::ReadError error, std::int64_t now_ns) const {
    if (error == source::ReadError::kNone || error == source::ReadError::kTimeout) pace.End(depth, bytes, now_ns - begun_ns);
    else pace.Drop();
  }
};

// One chunk on its way into a tier. In fills_ while its object is what it was; an orphan (the version changed under it) only waits for its I/O.
struct Fetcher::Fill {
  ObjectId object = kNoObject;
  // What a reader wants of it now, widened to parts of its SSD record; 0 bytes: somebody wants all of it.
  ssd::PayloadRange wanted;
  ssd::PayloadRange part;  // what the frame is for; 0 bytes: all
  bool little = false;     // too little for anybody to leave for all of it
  ssd::SsdLocation read_from;
  FileId file = kNoFile;
  std::uint16_t unit = 0;
  Waiters waiters;
  source::Priority priority = source::Priority::kDemand;
  bool ssd_only = false;
  bool evict = true;
  bool orphan = false;
  bool late = false;        // readers gave up waiting for the source or the SSD; the I/O still runs
  bool no_memory = false;   // acquire said: wait
  std::int64_t transit_wait_until_ns = 0;  // a client's bytes found no frame to pass through; 0: they did not have to wait
  std::int64_t ssd_wait_until_ns = 0;  // staged bytes that the SSD tier could not take yet; 0: they did not have to wait
  bool skip_ssd = false;    // the SSD refused or failed: read the source
  std::uint8_t rereads = 0;
  std::int64_t sent_ns = 0;  // PreciseNs when the source was asked; 0: it has not been yet
  std::size_t head = 0;     // bytes that are in the frame already (discovery's read)
  std::uint64_t generation = 0;  // of the dataset when the bytes were asked for
  std::weak_ptr<SourceRead> read;  // while the source is asked
  Timing timing;                 // of a read of the SSD that somebody waits for; depth 0: of none
  bool has_paid = false;         // into the SsdAccount
  std::uint64_t hung_bytes = 0;  // of its frame, while late
  // Where the bytes go: a frame, or a staging buffer for the SSD tier alone.
  Placement::Grant grant;
  io::AlignedBuffer staging;
  bool staged = false;  // `staging` has all of them
  bool landed = false;  // they are all there: what keeps the fill is memory, or the SSD tier

  bool has_memory() const { return grant.outcome == Placement::Outcome::kGranted || staging.size() != 0; }
  bool has_client() const {
    return std::any_of(waiters.begin(), waiters.end(), [](const Waiter& waiter) { return waiter->is_client(); });
  }
  bool is_awaited() const { return AnyAwaited(waiters); }
};

// One request to the source: a chunk, or neighbours in one file that were asked for while it stood in the reader's line. Shared with its callbacks, which alone keep it.
struct Fetcher::SourceRead {
  struct Piece {
    FillPtr fill;
    std::size_t bytes = 0;
  };
  std::vector<Piece> pieces;  // by chunk; those of a request that was sent follow one another
  std::uint64_t bytes = 0;    // of them all
  std::int64_t sent_ns = 0;  // as the fills'
  source::RequestId request{};
  Timing timing;
};

// A stat of a directory, and the files whose confirmation waits for it.
struct Fetcher::DirectoryQuestion {
  struct File {
    FileId file = kNoFile;
    std::uint64_t tag = 0;
    std::shared_ptr<const bool> asked;  // Revalidation::asked
  };
  source::RequestId request{};
  std::vector<File> files;
};

// A path that the catalogue does not know yet.
struct Fetcher::Discovery {
  abi::FileKey key;
  std::string path;
  std::uint16_t unit = 0;
  Waiters waiters;
  bool late = false;
  std::uint64_t generation = 0;
  source::RequestId request{};
  Timing timing;
  io::AlignedBuffer staging;
  std::size_t capacity = 0;  // of `staging` for this file; what it has beyond that, of the first chunk, is in `rest`
  std::shared_ptr<io::RestBuffer> rest;  // shared with the read under way; null when no file can have more
  // Once the bytes are in the staging buffer.
  FileId file = kNoFile;
  std::uint64_t tag = 0;    // version_tag of the file then
  std::size_t bytes = 0;
  std::uint64_t inode = 0;    // of what was read
  std::int64_t asked_ns = 0;  // PreciseNs when they, or where the path leads, were asked for: a change that was told of later may not be in that

  bool in_one_piece() const { return bytes <= capacity; }
  void CopyTo(std::byte* to, std::size_t count) const {
    std::memcpy(to, staging.data(), std::min(count, capacity));
    if (count > capacity) std::memcpy(to + capacity, rest->data(), count - capacity);
  }
};

// A directory being listed: walked, then put in order and encoded (by a worker when it is large), then copied into a frame.
struct Fetcher::Listing {
  struct Name {
    std::string name;
    std::uint64_t ino = 0;
    std::uint64_t place = 0;
    std::uint8_t type = 0;
  };
  SourceUnit* unit = nullptr;
  std::string path;
  Waiters waiters;
  io::FileStat stat;
  int error = 0;
  bool walked = false;
  bool complete = false;
  bool spoiled = false;
  bool too_large = false;           // its walk is given up
  bool waited = false;              // for a record, or for memory
  std::int64_t sent_ns = 0;
  source::WalkId walk{};
  std::uint64_t bytes = 0;          // of the names, encoded
  std::vector<Name> names;          // until they are encoded
  std::vector<std::byte> encoded;
  // While it is copied.
  FileId directory = kNoFile;
  std::uint64_t tag = 0;            // version_tag of the directory then
  ObjectId object = kNoObject;
  Placement::Grant grant;
  std::size_t copied = 0;
  bool durable = false;
};

}  // namespace tierd::engine
