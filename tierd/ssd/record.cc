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

std::uint32_t HeaderBytes(const RecordGeometry& geometry, std::uint32_t payload_bytes, std::size_t path_bytes) {
  return AlignUp(static_cast<std::uint32_t>(sizeof(RecordHeader) + path_bytes), geometry.AlignmentOf(payload_bytes));
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

std::uint32_t PayloadCrc(const RecordSalt& salt, const RecordIdentity& identity, std::span<const std::byte> payload) {
  return Crc32c(payload.data(), payload.size(), IdentitySeed(salt, identity));
}

std::uint32_t PayloadCrcCold(const RecordSalt& salt, const RecordIdentity& identity, std::span<const std::byte> payload) {
  return Crc32cCold(payload.data(), payload.size(), IdentitySeed(salt, identity));
}

}  // namespace tierd::ssd
