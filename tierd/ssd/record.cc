#include "tierd/ssd/record.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tierd/base/check.h"
#include "tierd/base/crc32c.h"

namespace tierd::ssd {

static_assert(std::endian::native == std::endian::little, "records are little-endian; another machine needs byte swaps here");

std::uint32_t WordsSeed(const RecordSalt& salt, std::span<const std::uint64_t> words) {
  // Non-linear on purpose: a CRC seeded by a CRC of the same words could cancel against a change of those words in the header.
  std::uint64_t state = abi::Mix64(salt.secret[0] + words.size());
  for (std::size_t i = 0; i < words.size(); ++i) state = abi::Mix64((state ^ words[i]) + salt.secret[(i + 1) & 3] + i);
  return static_cast<std::uint32_t>(state ^ (state >> 32));
}

std::uint32_t IdentitySeed(const RecordSalt& salt, const RecordIdentity& identity) {
  std::array<std::uint64_t, sizeof(RecordIdentity) / 8> words;
  std::memcpy(words.data(), &identity, sizeof(identity));
  return WordsSeed(salt, words);
}

RecordGeometry GeometryFor(std::uint32_t alignment) { return {alignment, std::max<std::uint32_t>(16384, 16 * alignment)}; }

namespace {

// The table of parts: this, then a running checksum for each.
struct PartsHead {
  std::uint32_t magic;
  std::uint32_t part_bytes;
};
constexpr std::uint32_t kPartsMagic = 0x54524150u;  // "PART"

std::size_t PartsAt(std::size_t path_bytes) { return (sizeof(RecordHeader) + path_bytes + 7) & ~std::size_t{7}; }

}  // namespace

PayloadRange WidenToParts(std::uint32_t payload_bytes, PayloadRange range) {
  const std::uint32_t part = PartBytes(payload_bytes);
  if (part == 0 || range.bytes == 0 || std::uint64_t{range.begin} + range.bytes > payload_bytes) return {};
  const std::uint32_t begin = range.begin / part * part;
  const std::uint32_t end = std::min(payload_bytes, (range.end() + part - 1) / part * part);
  return {begin, end - begin};
}

std::uint32_t HeaderBytes(const RecordGeometry& geometry, std::uint32_t payload_bytes, std::size_t path_bytes) {
  std::size_t bytes = sizeof(RecordHeader) + path_bytes;
  if (const std::uint32_t count = PartCount(payload_bytes, PartBytes(payload_bytes)); count != 0) bytes = PartsAt(path_bytes) + sizeof(PartsHead) + count * sizeof(std::uint32_t);
  return AlignUp(static_cast<std::uint32_t>(bytes), geometry.AlignmentOf(payload_bytes));
}

std::uint32_t RecordBytes(const RecordGeometry& geometry, std::uint32_t payload_bytes, std::size_t path_bytes) {
  return AlignUp(HeaderBytes(geometry, payload_bytes, path_bytes) + payload_bytes, geometry.AlignmentOf(payload_bytes));
}

std::uint32_t RecordBytes(const RecordGeometry& geometry, const SsdLocation& location) {
  return AlignUp(location.header_bytes() + location.stored_bytes, geometry.AlignmentOf(location.stored_bytes));
}

void EncodeHeader(const RecordSalt& salt, const RecordGeometry& geometry, const RecordPlace& place, const RecordContent& content,
                  std::byte* out) {
  TIERD_CHECK(content.path.size() <= kMaxPathBytes && content.payload_bytes <= kMaxPayloadBytes);
  RecordHeader header{};
  header.magic = kRecordMagic;
  header.format = kFormat;
  header.header_bytes = HeaderBytes(geometry, content.payload_bytes, content.path.size());
  header.uuid = salt.uuid;
  header.region_epoch = place.region_epoch;
  header.region = place.region;
  header.offset = place.offset;
  header.previous_end = place.previous_end;
  header.path_bytes = static_cast<std::uint32_t>(content.path.size());
  header.identity = content.identity;
  header.stored_bytes = content.payload_bytes;
  header.raw_bytes = content.payload_bytes;
  header.codec = 0;
  header.record_bytes = RecordBytes(geometry, content.payload_bytes, content.path.size());
  header.payload_crc = content.payload_crc;
  std::memcpy(out, &header, sizeof(header));
  std::memcpy(out + sizeof(header), content.path.data(), content.path.size());
  const std::size_t used = sizeof(header) + content.path.size();
  std::memset(out + used, 0, header.header_bytes - used);
  const std::uint32_t part_bytes = PartBytes(content.payload_bytes);
  TIERD_CHECK(content.part_sums.size() == PartCount(content.payload_bytes, part_bytes));
  if (part_bytes != 0) {
    const PartsHead head{kPartsMagic, part_bytes};
    std::byte* const to = out + PartsAt(content.path.size());
    std::memcpy(to, &head, sizeof(head));
    std::memcpy(to + sizeof(head), content.part_sums.data(), content.part_sums.size_bytes());
  }
  const std::uint32_t crc = Crc32c(out, header.header_bytes, IdentitySeed(salt, content.identity));
  std::memcpy(out + offsetof(RecordHeader, header_crc), &crc, sizeof(crc));
}

namespace {

bool LengthsHold(const RecordHeader& h, std::size_t available) {
  if (h.header_bytes < sizeof(RecordHeader) || h.header_bytes > available || h.header_bytes % kGranule != 0) return false;
  if (h.path_bytes > kMaxPathBytes || sizeof(RecordHeader) + h.path_bytes > h.header_bytes) return false;
  if (h.stored_bytes == 0 || h.stored_bytes > kMaxPayloadBytes || h.codec != 0 || h.raw_bytes != h.stored_bytes) return false;
  return h.record_bytes % kGranule == 0 && h.record_bytes >= std::uint64_t{h.header_bytes} + h.stored_bytes &&
         h.record_bytes <= std::uint64_t{h.header_bytes} + h.stored_bytes + 4096;
}

}  // namespace

HeaderCheck DecodeHeader(const RecordSalt& salt, std::span<const std::byte> bytes, const RecordPlace& expected, DecodedHeader* out) {
  if (bytes.size() < sizeof(RecordHeader)) return HeaderCheck::kBad;
  RecordHeader& h = out->header;
  std::memcpy(&h, bytes.data(), sizeof(h));
  if (h.magic != kRecordMagic || h.format != kFormat || h.uuid != salt.uuid) return HeaderCheck::kBad;
  if (!LengthsHold(h, bytes.size())) return HeaderCheck::kBad;
  // The checksum is taken as if its own field were zero, without touching the input.
  constexpr std::uint32_t kZero = 0;
  std::uint32_t crc = Crc32c(bytes.data(), offsetof(RecordHeader, header_crc), IdentitySeed(salt, h.identity));
  crc = Crc32c(&kZero, sizeof(kZero), crc);
  crc = Crc32c(bytes.data() + sizeof(RecordHeader), h.header_bytes - sizeof(RecordHeader), crc);
  if (crc != h.header_crc) return HeaderCheck::kBad;
  out->path = {reinterpret_cast<const char*>(bytes.data()) + sizeof(RecordHeader), h.path_bytes};
  if (h.region != expected.region || h.region_epoch != expected.region_epoch || h.offset != expected.offset) return HeaderCheck::kForeign;
  return HeaderCheck::kOk;
}

PartSums DecodeParts(const RecordHeader& header, std::span<const std::byte> bytes) {
  const std::size_t at = PartsAt(header.path_bytes);
  PartsHead head;
  if (at + sizeof(head) > header.header_bytes || header.header_bytes > bytes.size()) return {};
  std::memcpy(&head, bytes.data() + at, sizeof(head));
  if (head.magic != kPartsMagic || head.part_bytes == 0 || head.part_bytes != PartBytes(header.stored_bytes)) return {};
  const std::uint32_t count = PartCount(header.stored_bytes, head.part_bytes);
  if (at + sizeof(head) + count * sizeof(std::uint32_t) > header.header_bytes) return {};
  PartSums parts{head.part_bytes, std::vector<std::uint32_t>(count)};
  std::memcpy(parts.sums.data(), bytes.data() + at + sizeof(head), count * sizeof(std::uint32_t));
  return parts;
}

bool PartsHold(const RecordSalt& salt, const RecordIdentity& identity, const PartSums& parts, PayloadRange range, std::span<const std::byte> bytes) {
  const std::size_t first = range.begin / parts.part_bytes;
  const std::size_t last = (range.end() - 1) / parts.part_bytes;
  const std::uint32_t seed = first == 0 ? IdentitySeed(salt, identity) : parts.sums[first - 1];
  return Crc32cCold(bytes.data(), range.bytes, seed) == parts.sums[last];
}

std::size_t PayloadSums(const RecordSalt& salt, const RecordIdentity& identity, std::span<const std::byte> payload, std::span<std::uint32_t, kMostSums> sums) {
  const std::uint32_t part = PartBytes(static_cast<std::uint32_t>(payload.size()));
  if (part == 0) return 0;
  std::size_t count = 0;
  std::uint32_t sum = IdentitySeed(salt, identity);
  for (std::size_t at = 0; at < payload.size(); at += part) {
    sum = Crc32c(payload.data() + at, std::min<std::size_t>(part, payload.size() - at), sum);
    sums[count++] = sum;
  }
  return count;
}

std::uint32_t PayloadCrc(const RecordSalt& salt, const RecordIdentity& identity, std::span<const std::byte> payload) {
  return Crc32c(payload.data(), payload.size(), IdentitySeed(salt, identity));
}

std::uint32_t PayloadCrcCold(const RecordSalt& salt, const RecordIdentity& identity, std::span<const std::byte> payload) {
  return Crc32cCold(payload.data(), payload.size(), IdentitySeed(salt, identity));
}

}  // namespace tierd::ssd
