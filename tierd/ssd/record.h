// The SSD tier's record: who it is (identity), where it is (location), and its header on disk. FORMAT.md beside this file is
// the manual, with worked bytes that record_test recomputes. Values are stored: never renumber, never reorder; a change bumps kFormat.
//
// Pure functions and plain values; thread-safe. Does no I/O. Integers on disk are little-endian, structs have no padding.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "client_lib/abi/layout.h"

namespace tierd::ssd {

inline constexpr std::uint32_t kFormat = 1;
inline constexpr std::uint64_t kRecordMagic = 0x4345524452454954ull;  // "TIERDREC"
// Offsets and header lengths are counted in granules of 64 bytes.
inline constexpr std::uint32_t kGranule = 64;
inline constexpr std::uint32_t kMaxPathBytes = 4096;
// Largest payload of one record; a chunk is never larger.
inline constexpr std::uint32_t kMaxPayloadBytes = 64u << 20;

// version(stored): st_dev is replaced by the source id (HAZARDS 2.13), which is part of the identity.
struct StoredVersion {
  std::uint64_t ino = 0;
  std::uint64_t size = 0;  // of the whole file
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;
  bool operator==(const StoredVersion&) const = default;
};

// Whose bytes a payload is. A record answers for nothing else: both of its checksums are seeded with all of this.
struct RecordIdentity {
  // Persistent id of the source: hash of configured root, fstype and non-zero f_fsid. Never a number of this daemon life.
  std::uint64_t source_id = 0;
  // Persistent id of the dataset (hash of its name) and the generation that was current when the bytes were *asked from the source*.
  std::uint64_t dataset_id = 0;
  std::uint64_t dataset_generation = 0;
  // Keyed hash of (source, path), made with SsdTier::path_hash_key(), so that it means the same file after a restart.
  abi::FileKey key;
  StoredVersion version;
  std::uint32_t chunk = 0;
  std::uint32_t chunk_bytes = 0;  // the chunk *size* of the dataset, not this chunk's length
  // From SsdTier::NextFillSequence(), taken when the bytes were read from the source; a moved record keeps it.
  std::uint64_t fill_sequence = 0;
  bool operator==(const RecordIdentity&) const = default;
};
static_assert(sizeof(RecordIdentity) == 88 && std::has_unique_object_representations_v<StoredVersion>);

// Where a record is: what the engine keeps per chunk that is on SSD (24 bytes).
struct SsdLocation {
  std::uint64_t fill_sequence = 0;
  std::uint32_t region = 0;
  std::uint32_t epoch = 0;  // low 32 bits of the region's epoch
  std::uint32_t place = 0;  // bits 0-23 offset in granules, bits 24-31 header length in granules (0 = no location)
  std::uint32_t stored_bytes = 0;  // of the payload on disk
  bool valid() const { return place != 0; }
  std::uint32_t offset() const { return (place & 0xffffffu) * kGranule; }
  std::uint32_t header_bytes() const { return (place >> 24) * kGranule; }
  bool operator==(const SsdLocation&) const = default;
};
static_assert(sizeof(SsdLocation) == 24);
constexpr std::uint32_t EncodePlace(std::uint32_t offset, std::uint32_t header_bytes) {
  return (offset / kGranule) | ((header_bytes / kGranule) << 24);
}

// Long payloads can be read in parts: their header has a running checksum at the end of each part of so many bytes (the last one may be shorter), so that any
// run of parts is checked by itself. 0: too short, read as a whole.
constexpr std::uint32_t PartBytes(std::uint32_t payload_bytes) {
  constexpr std::uint32_t kFrom = 1u << 20, kSmallest = 16384, kMostParts = 256;
  return payload_bytes < kFrom ? 0 : std::max(kSmallest, std::bit_ceil((payload_bytes + kMostParts - 1) / kMostParts));
}
constexpr std::uint32_t PartCount(std::uint32_t payload_bytes, std::uint32_t part_bytes) {
  return part_bytes == 0 ? 0 : (payload_bytes + part_bytes - 1) / part_bytes;
}
// A piece of a payload. 0 bytes: all of it.
struct PayloadRange {
  std::uint32_t begin = 0;
  std::uint32_t bytes = 0;
  std::uint32_t end() const { return begin + bytes; }
  bool operator==(const PayloadRange&) const = default;
  bool Covers(PayloadRange other) const { return begin <= other.begin && other.end() <= end(); }
};
// The parts that have to be read for it; 0 bytes where the payload is read as a whole, or `range` is not within it.
PayloadRange WidenToParts(std::uint32_t payload_bytes, PayloadRange range);
// What a header says of the parts: sums[i] covers the payload from its begin to the end of part i.
struct PartSums {
  std::uint32_t part_bytes = 0;
  std::vector<std::uint32_t> sums;
};

// The fixed part of a record header; the relative path and the table of parts follow, then zeros up to header_bytes, then the payload.
struct RecordHeader {
  std::uint64_t magic;
  std::uint32_t format;
  std::uint32_t header_bytes;   // fixed part + path + table of parts + padding; multiple of kGranule
  std::array<std::uint8_t, 16> uuid;  // of the superblock
  std::uint64_t region_epoch;
  std::uint32_t region;
  std::uint32_t offset;         // of this header in its region
  std::uint32_t previous_end;   // where the record before it ended (payload padding included); chains the walk
  std::uint32_t path_bytes;
  RecordIdentity identity;
  std::uint32_t stored_bytes;   // payload as stored
  std::uint32_t raw_bytes;      // payload as delivered; equal while codec is 0
  std::uint32_t codec;          // 0 = none
  std::uint32_t record_bytes;   // header + payload + padding: the next record starts at or after offset + record_bytes
  std::uint32_t payload_crc;
  std::uint32_t header_crc;     // over header_bytes with this field 0
};
static_assert(sizeof(RecordHeader) == 168 && offsetof(RecordHeader, identity) == 56 && offsetof(RecordHeader, stored_bytes) == 144);
static_assert(offsetof(RecordHeader, header_crc) == 164 && std::is_trivially_copyable_v<RecordHeader>);
static_assert(std::has_unique_object_representations_v<RecordHeader>);

// What every checksum of a directory is bound to: from its superblock.
struct RecordSalt {
  std::array<std::uint8_t, 16> uuid{};
  std::array<std::uint64_t, 4> secret{};
};

// Seed of both checksums of a record: a keyed, non-linear digest of the identity.
std::uint32_t IdentitySeed(const RecordSalt& salt, const RecordIdentity& identity);
// Seed for other checked blocks (TOC), bound to what they are about.
std::uint32_t WordsSeed(const RecordSalt& salt, std::span<const std::uint64_t> words);

// How records of one directory are laid out: follows from the superblock's record alignment.
struct RecordGeometry {
  std::uint32_t alignment = 4096;           // of header and payload of direct records: 512 or 4096
  std::uint32_t direct_threshold = 65536;   // payloads at least this long are direct, shorter ones are packed at kGranule
  bool IsDirect(std::uint32_t payload_bytes) const { return payload_bytes >= direct_threshold; }
  std::uint32_t AlignmentOf(std::uint32_t payload_bytes) const { return IsDirect(payload_bytes) ? alignment : kGranule; }
};
// Threshold max(16 KiB, 16 × alignment): header block and padding stay below 10 % of the smallest direct record.
RecordGeometry GeometryFor(std::uint32_t alignment);

constexpr std::uint32_t AlignUp(std::uint32_t value, std::uint32_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}
std::uint32_t HeaderBytes(const RecordGeometry& geometry, std::uint32_t payload_bytes, std::size_t path_bytes);
std::uint32_t RecordBytes(const RecordGeometry& geometry, std::uint32_t payload_bytes, std::size_t path_bytes);
// The same from a location: what the record takes in its region.
std::uint32_t RecordBytes(const RecordGeometry& geometry, const SsdLocation& location);

// Where a record is being written.
struct RecordPlace {
  std::uint32_t region = 0;
  std::uint32_t offset = 0;
  std::uint64_t region_epoch = 0;
  std::uint32_t previous_end = 0;
};

// What EncodeHeader needs besides the place.
struct RecordContent {
  const RecordIdentity& identity;
  std::string_view path;
  std::uint32_t payload_bytes = 0;
  std::uint32_t payload_crc = 0;
  std::span<const std::uint32_t> part_sums{};  // of PayloadSums
};
// Writes header, path, table of parts and padding to `out` (HeaderBytes long).
void EncodeHeader(const RecordSalt& salt, const RecordGeometry& geometry, const RecordPlace& place, const RecordContent& content,
                  std::byte* out);

enum class HeaderCheck : std::uint8_t {
  kOk,
  kBad,      // no header of ours: magic, format, lengths or checksum do not hold
  kForeign,  // a sound header of this directory, but of another region, epoch or offset: an older or moved record
};

struct DecodedHeader {
  RecordHeader header;
  std::string_view path;  // points into the input
};

// Checks the header at `bytes` (may be longer than the header). `expected` names region, epoch and offset; previous_end is not compared.
HeaderCheck DecodeHeader(const RecordSalt& salt, std::span<const std::byte> bytes, const RecordPlace& expected, DecodedHeader* out);

// The table of parts of a header that DecodeHeader accepted; none: empty (short payloads, and records of before there were parts).
PartSums DecodeParts(const RecordHeader& header, std::span<const std::byte> bytes);
// Does a run of parts hold? `range` as WidenToParts gave it.
bool PartsHold(const RecordSalt& salt, const RecordIdentity& identity, const PartSums& parts, PayloadRange range, std::span<const std::byte> bytes);

// Running checksums of the parts of a payload; returns how many, 0 where it has no parts. The last one is PayloadCrc.
inline constexpr std::size_t kMostSums = 256;
std::size_t PayloadSums(const RecordSalt& salt, const RecordIdentity& identity, std::span<const std::byte> payload, std::span<std::uint32_t, kMostSums> sums);
// Checksum of a payload under its identity.
std::uint32_t PayloadCrc(const RecordSalt& salt, const RecordIdentity& identity, std::span<const std::byte> payload);
// The same for bytes that a device has just written to memory.
std::uint32_t PayloadCrcCold(const RecordSalt& salt, const RecordIdentity& identity, std::span<const std::byte> payload);

}  // namespace tierd::ssd
