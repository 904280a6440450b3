// Messages between a client and tierd on a SOCK_SEQPACKET Unix socket. One datagram = one MessageHeader + `count` entries.
// Fixed layout, little-endian, versioned; PROTOCOL.md beside this file has the conversation and worked bytes.
// Both sides check every length before they read a field; anything malformed ends the connection (the client goes on with the source).
// Protocol changelog: 1 = first; kFetchPart was added to it, for those who both know of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tierd::abi {

inline constexpr std::uint16_t kProtocolVersion = 1;     // newest we speak
inline constexpr std::uint16_t kProtocolVersionMin = 1;  // oldest we speak
inline constexpr std::uint32_t kMessageMagic = 0x52454954u;  // "TIER"
inline constexpr std::size_t kMaxMessageBytes = 65536;   // a batch is split to fit
inline constexpr std::uint32_t kMaxBatch = 256;

enum class MessageType : std::uint16_t {  // never renumber
  kHello = 1,         // c->d: Hello
  kWelcome = 2,       // d->c: Welcome, fds: index, session page
  kRefuse = 3,        // d->c: Refuse, then the daemon closes
  kSources = 4,       // d->c after kWelcome and whenever sources change: `count` x SourceEntry
  kGetIndex = 5,      // c->d: IdEntry                -> kIndex
  kIndex = 6,         // d->c: IndexEntry, fd: index
  kGetSegment = 7,    // c->d: IdEntry (id = serial)  -> kSegment
  kSegment = 8,       // d->c: SegmentEntry, fd: segment (none and bytes = 0 when it is gone)
  kFetch = 9,         // c->d: count x FetchEntry     -> one FetchReply each, in any order, any batching
  kFetchReply = 10,   // d->c: count x FetchReply
  kAdvise = 11,       // c->d: count x AdviseEntry    -> one AdviseReply each (kInvalidate: after it took effect)
  kAdviseReply = 12,  // d->c: count x AdviseReply
};

struct MessageHeader {
  std::uint32_t magic;
  std::uint16_t type;
  std::uint16_t version;  // kHello: kProtocolVersion of the client; afterwards the agreed one
  std::uint32_t bytes;    // of the whole datagram
  std::uint32_t count;    // entries
};
static_assert(sizeof(MessageHeader) == 16);

struct Hello {
  std::uint16_t version_min;
  std::uint16_t version_max;
  std::uint32_t layout_version;
  std::int64_t monotonic_coarse_ns;  // difference > 100 ms: another time namespace -> staleness mode `open` for this session
  std::uint32_t pid;                 // in the client's own pid namespace; informative, the daemon uses SO_PEERPIDFD / SO_PEERCRED
  std::uint32_t flags;               // kHello...
};
inline constexpr std::uint32_t kHelloNoMappings = 1;  // taken: never send it, never give 1 to something else
inline constexpr std::uint32_t kHelloUntold = 2;      // files have changed of which the daemon could not be told; nothing is answered
inline constexpr std::uint32_t kHelloMarks = 4;       // this client raises SessionPage::untold
static_assert(sizeof(Hello) == 24);

struct Welcome {
  std::uint16_t version;   // agreed
  std::uint16_t flags;     // kWelcomeForeignClock
  std::uint32_t session_id;
  std::uint8_t instance[16];
  std::int64_t monotonic_coarse_ns;
  std::uint64_t index_bytes;
  std::uint64_t session_bytes;
  std::uint32_t source_count;  // entries of the kSources that follows at once
  std::uint32_t page_kind;     // PageKind of the segments
};
inline constexpr std::uint16_t kWelcomeForeignClock = 1;
inline constexpr std::uint16_t kWelcomeParts = 2;  // kFetchPart is understood
static_assert(sizeof(Welcome) == 56);

struct Refuse {
  std::uint32_t reason;  // errno: EPROTO version, EACCES process without a pidfd, without a group of ours, or outside of our user namespace
  char text[124];        // NUL-terminated sentence
};
static_assert(sizeof(Refuse) == 128);

enum class Staleness : std::uint8_t { kImmutable = 0, kTtl = 1, kOpen = 2 };  // never renumber

// Variable: followed by path_bytes of path, then padding to 8.
struct SourceEntry {
  std::uint32_t entry_bytes;  // this struct + path + padding
  std::uint32_t source_id;
  std::uint64_t root_dev;
  std::uint64_t root_ino;
  std::uint64_t chunk_bytes;  // power of two
  std::uint8_t staleness;     // Staleness of the source's default dataset
  std::uint8_t reserved;
  std::uint16_t path_bytes;
  std::uint32_t ttl_ms;
};
static_assert(sizeof(SourceEntry) == 40);

struct IdEntry {
  std::uint64_t request_id;
  std::uint64_t id;
};
static_assert(sizeof(IdEntry) == 16);

struct IndexEntry {
  std::uint64_t request_id;
  std::uint64_t bytes;
  std::uint32_t generation;
  std::uint32_t reserved;
};
static_assert(sizeof(IndexEntry) == 24);

struct SegmentEntry {
  std::uint64_t request_id;
  std::uint64_t bytes;   // 0: no such segment any more
  std::uint32_t serial;
  std::uint32_t page_kind;
};
static_assert(sizeof(SegmentEntry) == 24);

// What the pages of a segment are; also the text of `doctor` and `status`.
enum class PageKind : std::uint32_t { k4KiB = 0, kHugetlb = 1, kShmemHuge = 2, kTmpfsHuge = 3 };  // never renumber

enum class FetchOp : std::uint8_t {  // never renumber
  kChunk = 1,    // bring chunk `chunk` into RAM; the client holds the lease (fill 0) already
  kStat = 2,     // metadata only (revalidates, extends the deadline)
  kList = 3,     // listing of a directory, as a frame; the client holds the lease of ListingKeyOf
};
inline constexpr std::uint8_t kFetchForeground = 0;
inline constexpr std::uint8_t kFetchHandle = 1;      // of an open handle: expect `expected_*`, else kChanged
inline constexpr std::uint8_t kFetchSequential = 2;  // the reader walks through the file: read ahead
inline constexpr std::uint8_t kFetchNoFollow = 4;    // kStat: of a symlink itself
inline constexpr std::uint8_t kFetchPart = 16;       // kChunk: a FetchPart follows path and padding; only to a daemon that said kWelcomeParts
inline constexpr std::uint8_t kFetchAlias = 8;       // `path` leads through symlinks to the file whose key is (expected_ino, expected_size): the client holds its lease

// Variable: followed by path_bytes of the path relative to the source root, then padding to 8.
struct FetchEntry {
  std::uint32_t entry_bytes;
  std::uint8_t op;
  std::uint8_t flags;
  std::uint16_t path_bytes;
  std::uint64_t request_id;  // unique in the session; replies to ids nobody waits for are discarded
  std::uint32_t source_id;
  std::uint32_t chunk;
  std::uint64_t expected_ino;
  std::int64_t expected_mtime_ns;
  std::int64_t expected_ctime_ns;
  std::uint64_t expected_size;
};
static_assert(sizeof(FetchEntry) == 56);

// The bytes of the chunk that are needed now. The answer may be a frame with these and what lies about them (FetchReply::begin, length) or with all of the chunk.
struct FetchPart {
  std::uint32_t begin;  // in the chunk
  std::uint32_t bytes;  // > 0
};
static_assert(sizeof(FetchPart) == 8);

enum class FetchStatus : std::uint8_t {  // never renumber
  kFrame = 1,   // `location` is valid under the lease the client took before asking; metadata valid
  kMeta = 2,    // metadata valid, no bytes (kStat; or kChunk of a 0-byte file)
  kBypass = 3,  // read the source yourself; `reason` is a Fallback
  kError = 4,   // the source answered sys_errno; the client asks it itself and so gets the exact error
  kRetry = 5,   // the path leads through symlinks: its kAlias slot is published now and the target is cached; or it leads through none any more (kFetchAlias); look up again, once
};
struct FetchReply {
  std::uint64_t request_id;
  std::uint8_t status;
  std::uint8_t reason;       // Fallback
  std::uint16_t sys_errno;
  std::uint8_t tier;         // Tier that the bytes came from
  std::uint8_t kind;         // SlotKind of the file
  std::uint16_t reserved;
  std::uint64_t location;    // location word of the frame
  std::uint64_t length;      // bytes in the frame
  std::uint64_t size;        // of the file
  std::uint64_t dev;
  std::uint64_t ino;
  std::int64_t mtime_ns;
  std::int64_t ctime_ns;
  std::uint32_t mode;
  std::uint32_t uid;
  std::uint32_t gid;
  std::uint32_t nlink;
  std::uint32_t deadline;    // ticks, of the metadata
  std::uint32_t ordinal;     // slot of the chunk in index `generation`, for the access ring; 0xffffffff: none
  std::uint32_t generation;
  std::uint32_t begin;       // where in the chunk the frame's first byte lies; not 0 only where a part was asked for
};
static_assert(sizeof(FetchReply) == 104 && std::is_trivially_copyable_v<FetchReply>);

enum class AdviseOp : std::uint8_t {  // never renumber
  kPrefetch = 1,
  kEvict = 2,       // drop from RAM and SSD
  kPin = 3,
  kUnpin = 4,
  kInvalidate = 5,  // the file (or everything below the directory) changed: read-your-writes; replied when no hit can return the old bytes
  kDoubt = 6,       // it, or anything below it, may have changed: replied when nothing is used before the source has confirmed it. Nothing is dropped
};
// Variable: followed by path_bytes of path (relative to the root), padding to 8.
struct AdviseEntry {
  std::uint32_t entry_bytes;
  std::uint8_t op;
  std::uint8_t flags;  // kAdviseRecursive
  std::uint16_t path_bytes;
  std::uint64_t request_id;
  std::uint32_t source_id;
  // kInvalidate: when it was said, for one that is told again because no answer came; 0: now. CLOCK_MONOTONIC_COARSE >> kTickShift, rounded up: what the daemon
  // has begun since then serves. A daemon that does not know the field begins anew.
  std::uint32_t said_ticks;
};
inline constexpr std::uint8_t kAdviseRecursive = 1;
static_assert(sizeof(AdviseEntry) == 24);

struct AdviseReply {
  std::uint64_t request_id;
  std::int32_t error;  // 0 or errno
  std::uint32_t reserved;
  std::uint64_t affected;  // files
};
static_assert(sizeof(AdviseReply) == 24);

constexpr std::size_t PadTo8(std::size_t n) { return (n + 7) & ~std::size_t{7}; }

}  // namespace tierd::abi
