// The shared memory that tierd publishes and clients map: index, slots, location words, session pages. LAYOUT.md beside this
// file is its manual (protocol, who resolves paths, worked bytes). Values are stored in memory of other processes, perhaps of another
// build: never renumber, never reorder; a change bumps kLayoutVersion.
//
// Owner: the daemon's loop thread is the only writer of the index; clients read. A session page is written by its client
// (leases, ring, counters) and read by the daemon as hostile input: it copies each word once, bounds it, trusts nothing.
// Header-only, depends on libc and <atomic> only: it is compiled into libtier.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tierd::abi {

inline constexpr std::uint32_t kLayoutVersion = 1;
inline constexpr std::uint64_t kIndexMagic = 0x3158444944524954ull;    // "TIRDIDX1", little-endian
inline constexpr std::uint64_t kSessionMagic = 0x3153455344524954ull;  // "TIRDSES1"

// ---- time -----------------------------------------------------------------------------------------------------------------
// Deadlines are CLOCK_MONOTONIC_COARSE >> 24 (ticks of 16.8 ms, 2.3 years of uptime in 32 bits), rounded down.
inline constexpr int kTickShift = 24;
inline constexpr std::uint32_t kDeadlineNever = 0xffffffffu;  // `immutable`
inline constexpr std::uint32_t kDeadlineExpired = 0;
// A reader may use a slot while NowTicks() < deadline (strictly).
constexpr std::uint32_t TicksOf(std::int64_t monotonic_coarse_ns) {
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(monotonic_coarse_ns) >> kTickShift);
}
// The daemon bumps IndexHeader::heartbeat_ticks at least this often while its loop turns; a reader that sees it older than
// kHeartbeatStaleTicks treats the daemon as hung (HAZARDS 2.11): hits on unexpired slots go on, misses go to the source at once.
// The limit is what readers of this layout version go by. One that has nothing to do says so ahead: what it stores then lies in the future by so many ticks (0.13 s),
// which readers take as they take the present. With the limit that stays below a second, after which no reader waits (HAZARDS 2.11); the period leaves a late timer 0.25 s.
inline constexpr std::int64_t kHeartbeatPeriodMs = 675;
inline constexpr std::uint32_t kHeartbeatAheadTicks = 8;
inline constexpr std::uint32_t kHeartbeatStaleTicks = 48;  // 0.8 s

// ---- keys -----------------------------------------------------------------------------------------------------------------
// 128-bit keyed hash of (source id, canonical path relative to the source root without leading slash): HashPath in path_hash.h.
struct FileKey {
  std::uint64_t lo = 0;
  std::uint64_t hi = 0;
  bool operator==(const FileKey&) const = default;
};
constexpr std::uint64_t Mix64(std::uint64_t x) {  // splitmix64's finaliser
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
// Key of chunk `chunk` of a chunked file. A file of one chunk has no chunk slots: its own slot carries the location.
constexpr FileKey ChunkKeyOf(FileKey file, std::uint32_t chunk) {
  const std::uint64_t n = std::uint64_t{chunk} + 1;
  return {Mix64(file.lo + n * 0x9e3779b97f4a7c15ull), Mix64(file.hi ^ (n * 0xd6e8feb86659fd93ull))};
}
// Key of the *listing* of a directory (its own slot beside the directory's metadata slot).
constexpr FileKey ListingKeyOf(FileKey dir) {
  return {Mix64(dir.lo ^ 0x6c697374696e6721ull), Mix64(dir.hi + 0x6c697374696e6721ull)};
}

// ---- location words -------------------------------------------------------------------------------------------------------
// bits 0-15 fill number (1..65535; 0 never occurs), bits 16-37 offset in units of 64 bytes (segments are <= 256 MiB),
// bits 38-63 segment serial (never reused in an instance's life, starts at 1). 0 = not in RAM.
inline constexpr std::uint64_t kGranule = 64;
inline constexpr std::uint64_t kMaxSegmentBytes = std::uint64_t{256} << 20;
struct Location {
  std::uint32_t segment = 0;
  std::uint64_t offset = 0;  // bytes, multiple of kGranule
  std::uint16_t fill = 0;
};
constexpr std::uint64_t EncodeLocation(Location l) {
  return std::uint64_t{l.fill} | ((l.offset / kGranule) << 16) | (std::uint64_t{l.segment} << 38);
}
constexpr Location DecodeLocation(std::uint64_t word) {
  return {static_cast<std::uint32_t>(word >> 38), ((word >> 16) & 0x3fffffu) * kGranule,
          static_cast<std::uint16_t>(word & 0xffffu)};
}

// ---- slots ----------------------------------------------------------------------------------------------------------------
enum class SlotKind : std::uint8_t {
  kEmpty = 0,      // ends a probe
  kTombstone = 1,  // a probe goes on
  kFile = 2,       // regular file of one chunk (size <= chunk size, also 0 bytes): `location` is its bytes
  kChunked = 3,    // regular file of several chunks: `location` is its version tag (never a frame), chunks have slots of their own
  kChunk = 4,      // one chunk: `location` its bytes, `size` its length, `mtime_ns` the version tag of its file
  kAlias = 5,      // a path that reaches its file through symlinks: (mtime_ns, ctime_ns) are the target's key (lo, hi)
  kDirectory = 6,  // metadata of a directory, or of a FIFO, socket or device (the mode tells which): has no bytes, is opened at the source
  kListing = 7,    // listing of a directory: `location` its bytes (ListingEntry records), `size` their length
  kSymlink = 8,    // metadata of a symbolic link itself (lstat); its target is `location` as bytes when cached
};

// size_attr: bits 0-47 size in bytes, bits 48-59 attribute class (0 = unknown: stat goes to the source), bits 60-63 SlotKind.
inline constexpr std::uint64_t kMaxFileSize = (std::uint64_t{1} << 48) - 1;
constexpr std::uint64_t EncodeSizeAttr(std::uint64_t size, std::uint32_t attr_class, SlotKind kind) {
  return (size & kMaxFileSize) | (std::uint64_t{attr_class & 0xfffu} << 48) | (std::uint64_t{static_cast<std::uint8_t>(kind)} << 60);
}
constexpr std::uint64_t SizeOf(std::uint64_t size_attr) { return size_attr & kMaxFileSize; }
constexpr std::uint32_t AttrClassOf(std::uint64_t size_attr) { return static_cast<std::uint32_t>(size_attr >> 48) & 0xfffu; }
constexpr SlotKind KindOf(std::uint64_t size_attr) { return static_cast<SlotKind>(size_attr >> 60); }

// One cache line. `seq` is odd while the daemon changes anything but `location` (which may be cleared or set without it while
// the version stays). Reader protocol: LAYOUT.md section "Reading" = HAZARDS 2.1. The atime, which no hit needs, lies apart (IndexHeader::atimes_offset) and belongs to the slot like its fields.
struct alignas(64) Slot {
  std::atomic<std::uint32_t> seq;
  std::atomic<std::uint32_t> deadline;  // ticks
  std::atomic<std::uint64_t> key_lo;
  std::atomic<std::uint64_t> key_hi;
  std::atomic<std::uint64_t> size_attr;
  std::atomic<std::uint64_t> location;
  std::atomic<std::int64_t> mtime_ns;
  std::atomic<std::int64_t> ctime_ns;
  std::atomic<std::uint64_t> ino;
};
static_assert(sizeof(Slot) == 64 && alignof(Slot) == 64);
static_assert(offsetof(Slot, seq) == 0 && offsetof(Slot, deadline) == 4 && offsetof(Slot, key_lo) == 8);
static_assert(offsetof(Slot, key_hi) == 16 && offsetof(Slot, size_attr) == 24 && offsetof(Slot, location) == 32);
static_assert(offsetof(Slot, mtime_ns) == 40 && offsetof(Slot, ctime_ns) == 48 && offsetof(Slot, ino) == 56);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// What many files share, so that a slot stays one line: attribute class n is IndexHeader-relative attrs[n]; entry 0 is unused.
// Classes are only added during an index's life, each complete before the first slot names it. Mode 0: only `dev` is known (as entry 0, stat goes to the source).
struct AttrClass {
  std::uint64_t dev = 0;
  std::uint32_t mode = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t nlink = 0;
  std::uint32_t blksize = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(AttrClass) == 32 && std::is_trivially_copyable_v<AttrClass>);
inline constexpr std::uint32_t kMaxAttrClasses = 4096;

// Linear probing over slot_count slots from HomeSlot(key); a probe ends at kEmpty or after probe_limit slots.
constexpr std::uint64_t HomeSlot(FileKey key, std::uint64_t slot_count) {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(key.lo) * slot_count) >> 64);
}

inline constexpr std::size_t kHashSecretBytes = 192;
inline constexpr std::uint32_t kGoneSegments = 512;
struct IndexHeader {
  std::uint64_t magic;
  std::uint32_t layout_version;
  std::uint32_t generation;  // 1 for the first index of an instance, +1 at each growth
  std::uint8_t instance[16];  // random, per daemon life
  std::uint64_t slot_count;
  std::uint64_t attrs_offset;  // AttrClass[kMaxAttrClasses]
  std::uint64_t slots_offset;  // Slot[slot_count + kProbeSlack], 64-byte aligned; a probe never wraps: it runs into the slack
  std::uint64_t total_bytes;   // of the memfd
  std::uint32_t probe_limit;   // constant of this index
  std::uint32_t reserved0;
  std::uint8_t hash_secret[kHashSecretBytes];  // for XXH3_128bits_withSecret
  std::uint64_t atimes_offset;  // std::atomic<std::int64_t>[slot_count + kProbeSlack], of each slot, 8-byte aligned
  alignas(64) std::atomic<std::uint32_t> retired;  // 1: a newer index exists, ask for it
  std::uint32_t reserved1;
  // Moves by 2 when a file's slot gets another version, is erased, or expires because somebody told of a change; odd in between. Who keeps bytes of a file looks at its slot
  // again when this has moved. 0: a daemon that does not say.
  std::atomic<std::uint64_t> changes;
  alignas(64) std::atomic<std::uint32_t> heartbeat_ticks;
  // Segments that have left the tier and whose memory returns only when nobody maps them (LAYOUT 4):
  // how many there have been, and the serials of the last ones; that of entry n is at
  // [n % kGoneSegments], stored before the count. 0 in an index of an older daemon.
  alignas(64) std::atomic<std::uint32_t> segments_gone;
  std::atomic<std::uint32_t> oldest_segment;  // serials below have all left; at the last change of the count
  std::atomic<std::uint32_t> gone_segments[kGoneSegments];
};
inline constexpr std::uint64_t kIndexHeaderBytes = 4096;
// Linear probing at load 3/4 has clusters of ~430 slots in 10 M (ln n / (a - 1 - ln a)): 128 would force growth at load .58 and miss the memory bar.
inline constexpr std::uint64_t kProbeSlack = 1024;
static_assert(sizeof(IndexHeader) <= kIndexHeaderBytes);
static_assert(offsetof(IndexHeader, hash_secret) == 72 && offsetof(IndexHeader, atimes_offset) == 264 && offsetof(IndexHeader, retired) == 320);
static_assert(offsetof(IndexHeader, changes) == 328);
static_assert(offsetof(IndexHeader, heartbeat_ticks) == 384 && offsetof(IndexHeader, segments_gone) == 448);
static_assert(offsetof(IndexHeader, oldest_segment) == 452 && offsetof(IndexHeader, gone_segments) == 456);

// ---- listings -------------------------------------------------------------------------------------------------------------
// A listing's bytes: ListingEntry records back to back, each followed by its name (not NUL-terminated), padded to 8 bytes; in the source's order.
struct ListingEntry {
  std::uint64_t ino;
  std::uint16_t name_bytes;
  std::uint8_t d_type;  // DT_* of <dirent.h>
  std::uint8_t reserved[5];
};
static_assert(sizeof(ListingEntry) == 16);

// ---- session page ---------------------------------------------------------------------------------------------------------
// Lease word: bits 0-15 fill number (0 = any fill: taken before a miss), bits 16-63 lease key of the chunk. 0 = free.
constexpr std::uint64_t LeaseKeyOf(FileKey chunk_or_file) {  // 48 bits, never 0; a collision only keeps a frame longer
  const std::uint64_t k = (chunk_or_file.lo ^ ((chunk_or_file.hi << 32) | (chunk_or_file.hi >> 32))) >> 16;
  return k == 0 ? 1 : k;
}
constexpr std::uint64_t EncodeLease(std::uint64_t lease_key, std::uint16_t fill) { return (lease_key << 16) | fill; }

// Ring entry: bits 0-31 slot ordinal, 32-39 index generation (low 8), 40-51 coarse time (ns >> 22, low 12), 52-53 Tier, 54-55 spare,
// 56-63 lap: ((position / kRingEntries) + 1) & 0xff, so that an entry not yet written is told from one that is.
enum class Tier : std::uint8_t { kRam = 0, kSsd = 1, kSource = 2, kBypass = 3 };  // never renumber
inline constexpr std::uint32_t kTiers = 4;
inline constexpr std::uint32_t kRingEntries = 4096;
constexpr std::uint64_t EncodeRingEntry(std::uint32_t ordinal, std::uint32_t generation, std::int64_t now_ns, Tier tier, std::uint64_t position) {
  return std::uint64_t{ordinal} | (std::uint64_t{generation & 0xffu} << 32) |
         (((static_cast<std::uint64_t>(now_ns) >> 22) & 0xfffu) << 40) | (std::uint64_t{static_cast<std::uint8_t>(tier)} << 52) |
         (((position / kRingEntries + 1) & 0xffu) << 56);
}

// Why a read did not come from the cache. Labels of tierd_fallback_total{reason}; never renumber; names in FallbackName().
enum class Fallback : std::uint8_t {
  kNone = 0, kNoDaemon = 1, kHung = 2, kTimeout = 3, kNoFrame = 4, kPath = 5, kNamespace = 6, kSourceSlow = 7, kNotRegular = 8,
  kTooLarge = 9, kClock = 10, kPinCap = 11, kProtocol = 12, kChanged = 13, kDegraded = 14, kDisabled = 15, kOverload = 16, kNotAdmitted = 17,
  kPermission = 18, kRevoked = 19,
};
inline constexpr std::uint32_t kFallbacks = 20;
constexpr const char* FallbackName(Fallback f) {
  constexpr const char* kNames[kFallbacks] = {"none", "no_daemon", "hung", "timeout", "no_frame", "path", "namespace", "source_slow",
      "not_regular", "too_large", "clock", "pin_cap", "protocol", "changed", "degraded", "disabled", "overload", "not_admitted",
      "permission", "revoked"};
  return static_cast<std::uint32_t>(f) < kFallbacks ? kNames[static_cast<std::uint32_t>(f)] : "unknown";
}

// Latency buckets: bucket i counts durations < 2^i * 64 ns, the last one everything above (64 ns * 2^26 = 4.3 s).
inline constexpr std::uint32_t kLatencyBuckets = 28;
// RAM hits are timed one in kLatencySampling per thread; everything else always.
inline constexpr std::uint32_t kLatencySampling = 64;

struct SessionCounters {  // written by the client (relaxed adds), monotone; one read = one call of the application
  std::atomic<std::uint64_t> reads[kTiers];
  std::atomic<std::uint64_t> bytes[kTiers];
  std::atomic<std::uint64_t> fallback[kFallbacks];
  std::atomic<std::uint64_t> latency[kTiers][kLatencyBuckets];
  std::atomic<std::uint64_t> latency_sum_ns[kTiers];
};

// Why the preload library opened a file below a source as the source's own file. Labels of tierd_real_opens_total{reason}; never renumber; names in RealOpenName().
enum class RealOpen : std::uint8_t { kFlags = 0, kLowDescriptor = 1, kPath = 2, kMode = 3, kNoDescriptor = 4, kNotCached = 5, kWriter = 6, kStdio = 7, kCount = 8 };
inline constexpr std::uint32_t kRealOpens = static_cast<std::uint32_t>(RealOpen::kCount);
inline constexpr const char* kRealOpenNames[kRealOpens] = {"flags", "low_descriptor", "path", "mode", "no_descriptor", "not_cached", "writer", "stdio"};

// What a process read from the source through descriptors that are the source's own. Written by the client (relaxed adds), monotone; 0 from a client that does not know these words.
struct RealCounters {
  std::atomic<std::uint64_t> opens[16];  // by RealOpen; the rest is room for more reasons
  std::atomic<std::uint64_t> reads;      // calls that read through them; SessionCounters::reads[kBypass] includes these
  std::atomic<std::uint64_t> bytes;      // SessionCounters::bytes[kBypass] includes these
  std::atomic<std::uint64_t> mappings;   // of a source's own file; no counter has what is read through a mapping
};

inline constexpr std::uint32_t kLeaseSlots = 2048;
struct SessionPage {
  // Written by the daemon before it is handed out, and `revoked` later.
  std::uint64_t magic;
  std::uint32_t layout_version;
  std::uint32_t session_id;
  std::uint8_t instance[16];
  std::uint64_t pin_cap_bytes;              // leased bytes past which the library copies instead
  std::atomic<std::uint32_t> revoked;       // HAZARDS 2.5: serve no new request; copying reads test it after the copy
  std::atomic<std::uint32_t> mounts_changed;  // raised when mounts have changed in the client's mount namespace: it looks at them again
  std::atomic<std::uint64_t> added_limit_bytes;        // what the library may add to the process's memory; 0: a daemon that does not say
  // Written by the client.
  alignas(64) std::atomic<std::uint32_t> lease_high;   // lease slots [0, lease_high) may be in use; raised (seq_cst) before the first use of a slot
  std::atomic<std::uint32_t> frozen_leases;            // held over a fork (HAZARDS 2.6)
  std::atomic<std::uint64_t> leased_bytes;
  std::atomic<std::uint32_t> left;                     // 1: the client has given up the page and reads nothing through it (LAYOUT 4)
  std::atomic<std::uint32_t> gone_seen;                // IndexHeader::segments_gone up to which the client has unmapped what left
  std::atomic<std::uint64_t> added_bytes;              // what it has added, without what it inherited over a fork
  std::atomic<std::uint32_t> untold;                   // raised by a change of a file that the daemon could not be told of
  alignas(64) std::atomic<std::uint64_t> ring_head;    // entries ever appended; position p lives at ring[p % kRingEntries]; old ones are overwritten
  alignas(64) SessionCounters counters;
  alignas(64) RealCounters real;
  alignas(4096) std::atomic<std::uint64_t> leases[kLeaseSlots];
  alignas(4096) std::atomic<std::uint64_t> ring[kRingEntries];
};
static_assert(sizeof(SessionPage) == 4096 + 8 * kLeaseSlots + 8 * kRingEntries && sizeof(SessionPage) <= 65536);
static_assert(offsetof(SessionPage, revoked) == 40 && offsetof(SessionPage, mounts_changed) == 44);
static_assert(offsetof(SessionPage, lease_high) == 64 && offsetof(SessionPage, left) == 80 && offsetof(SessionPage, gone_seen) == 84 &&
              offsetof(SessionPage, added_limit_bytes) == 48 && offsetof(SessionPage, added_bytes) == 88 && offsetof(SessionPage, untold) == 96 && offsetof(SessionPage, ring_head) == 128);
static_assert(offsetof(SessionPage, counters) == 192 && offsetof(SessionPage, real) == 1344 && sizeof(RealCounters) == 152);
static_assert(offsetof(SessionPage, leases) == 4096);

}  // namespace tierd::abi
