// The table of parts in a record's header: what of a long payload can be checked by itself.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "tierd/base/crc32c.h"
#include "tierd/ssd/record.h"

namespace tierd::ssd {
namespace {

constexpr std::uint32_t kMiB = 1u << 20;

RecordSalt Salt() {
  RecordSalt salt;
  salt.secret = {1, 2, 3, 4};
  return salt;
}
RecordIdentity Identity() {
  RecordIdentity id;
  id.source_id = 0x11;
  id.dataset_id = 0x22;
  id.dataset_generation = 1;
  id.key = {0x3333, 0x4444};
  id.version = {1234, 8 * kMiB, 1'700'000'000'000'000'000, 1'700'000'000'000'000'001};
  id.chunk_bytes = 4 * kMiB;
  id.fill_sequence = 7;
  return id;
}
const RecordPlace kPlace{3, 4096, 5, 4096};

std::vector<std::byte> Payload(std::size_t bytes) {
  std::vector<std::byte> payload(bytes);
  std::uint64_t state = bytes;
  for (std::byte& byte : payload) byte = static_cast<std::byte>((state = abi::Mix64(state + 1)) & 0xff);
  return payload;
}

std::vector<std::byte> Header(const std::vector<std::byte>& payload, std::string_view path = "a/b", std::uint32_t alignment = 4096) {
  const auto bytes = static_cast<std::uint32_t>(payload.size());
  std::array<std::uint32_t, kMostSums> sums;
  const std::size_t parts = PayloadSums(Salt(), Identity(), payload, sums);
  const RecordGeometry geometry = GeometryFor(alignment);
  std::vector<std::byte> header(HeaderBytes(geometry, bytes, path.size()));
  EncodeHeader(Salt(), geometry, kPlace, {Identity(), path, bytes, PayloadCrc(Salt(), Identity(), payload), std::span(sums).first(parts)}, header.data());
  return header;
}

PartSums PartsOf(const std::vector<std::byte>& header) {
  DecodedHeader decoded;
  EXPECT_EQ(DecodeHeader(Salt(), header, kPlace, &decoded), HeaderCheck::kOk);
  return DecodeParts(decoded.header, header);
}

TEST(RecordParts, ShortPayloadsHaveNoneAndLongOnesAtMost256) {
  for (const std::uint32_t bytes : {1u, 65536u, kMiB - 1}) EXPECT_EQ(PartBytes(bytes), 0u) << bytes;
  EXPECT_EQ(PartBytes(kMiB), 16384u);
  EXPECT_EQ(PartBytes(4 * kMiB), 16384u);
  EXPECT_EQ(PartBytes(4 * kMiB + 1), 32768u);
  EXPECT_EQ(PartBytes(kMaxPayloadBytes), 262144u);
  for (std::uint32_t bytes = kMiB; bytes <= kMaxPayloadBytes; bytes += 99'991) {
    EXPECT_LE(PartCount(bytes, PartBytes(bytes)), kMostSums) << bytes;
    EXPECT_EQ(PartBytes(bytes) % 4096, 0u) << bytes;
  }
}

TEST(RecordParts, ARangeIsWidenedToWholeParts) {
  const std::uint32_t bytes = 2 * kMiB + 100;
  const auto widened = [bytes](std::uint32_t begin, std::uint32_t count) { return WidenToParts(bytes, {begin, count}); };
  EXPECT_EQ(widened(0, 1), (PayloadRange{0, 16384}));
  EXPECT_EQ(widened(16383, 2), (PayloadRange{0, 32768}));
  EXPECT_EQ(widened(40000, 16384), (PayloadRange{32768, 32768}));
  EXPECT_EQ(widened(2 * kMiB, 100), (PayloadRange{2 * kMiB, 100})) << "the last part ends with the payload";
  EXPECT_EQ(widened(0, bytes), (PayloadRange{0, bytes}));
  EXPECT_EQ(widened(2 * kMiB, 101), PayloadRange{}) << "beyond the payload";
  EXPECT_EQ(widened(~std::uint32_t{0}, 2), PayloadRange{});
  EXPECT_EQ(widened(5, 0), PayloadRange{});
  EXPECT_EQ(WidenToParts(65536, {0, 10}), PayloadRange{});
}

TEST(RecordParts, EveryRunOfPartsIsCheckedByItself) {
  const std::vector<std::byte> payload = Payload(kMiB + 12345);
  const PartSums parts = PartsOf(Header(payload));
  ASSERT_EQ(parts.part_bytes, 16384u);
  ASSERT_EQ(parts.sums.size(), 65u);
  EXPECT_EQ(parts.sums.back(), PayloadCrc(Salt(), Identity(), payload));
  for (std::uint32_t first = 0; first < 65; first += 7) {
    for (std::uint32_t count = 1; first + count <= 65; count += 5) {
      const PayloadRange range = WidenToParts(static_cast<std::uint32_t>(payload.size()), {first * 16384, std::min<std::uint32_t>(count * 16384, payload.size() - first * 16384)});
      std::vector<std::byte> bytes(payload.begin() + range.begin, payload.begin() + range.end());
      EXPECT_TRUE(PartsHold(Salt(), Identity(), parts, range, bytes)) << first << " " << count;
      bytes[bytes.size() * 3 / 4] ^= std::byte{1};
      EXPECT_FALSE(PartsHold(Salt(), Identity(), parts, range, bytes)) << first << " " << count;
    }
  }
  // The same bytes at another place of the payload, and of another file.
  const std::span<const std::byte> second = std::span(payload).subspan(16384, 16384);
  EXPECT_TRUE(PartsHold(Salt(), Identity(), parts, {16384, 16384}, second));
  EXPECT_FALSE(PartsHold(Salt(), Identity(), parts, {32768, 16384}, second));
  RecordIdentity other = Identity();
  other.version.ino ^= 1;
  EXPECT_FALSE(PartsHold(Salt(), other, parts, {0, 16384}, payload));
}

TEST(RecordParts, TheTableIsCoveredByTheHeadersChecksum) {
  for (const std::uint32_t alignment : {512u, 4096u}) {
    const std::vector<std::byte> header = Header(Payload(4 * kMiB), std::string(kMaxPathBytes, 'p'), alignment);
    EXPECT_LE(header.size(), 8192u);
    DecodedHeader decoded;
    ASSERT_EQ(DecodeHeader(Salt(), header, kPlace, &decoded), HeaderCheck::kOk);
    EXPECT_EQ(DecodeParts(decoded.header, header).sums.size(), 256u);
    EXPECT_TRUE(DecodeParts(decoded.header, std::span(header).first(header.size() - 1)).sums.empty());
    for (std::size_t at = sizeof(RecordHeader) + kMaxPathBytes; at < header.size(); at += 61) {
      std::vector<std::byte> flipped = header;
      flipped[at] ^= std::byte{4};
      EXPECT_EQ(DecodeHeader(Salt(), flipped, kPlace, &decoded), HeaderCheck::kBad) << at;
    }
  }
}

// What this program wrote before there were parts: zeros where the table is now.
TEST(RecordParts, ARecordOfBeforeIsReadAsAWhole) {
  std::vector<std::byte> header = Header(Payload(kMiB));
  std::memset(header.data() + sizeof(RecordHeader) + 3, 0, header.size() - sizeof(RecordHeader) - 3);
  std::memset(header.data() + offsetof(RecordHeader, header_crc), 0, 4);
  const std::uint32_t crc = Crc32c(header.data(), header.size(), IdentitySeed(Salt(), Identity()));
  std::memcpy(header.data() + offsetof(RecordHeader, header_crc), &crc, 4);
  EXPECT_TRUE(PartsOf(header).sums.empty());
}

TEST(RecordParts, WorkedBytesOfFormatPageHold) {
  const std::vector<std::byte> header = Header(std::vector<std::byte>(kMiB));
  std::string hex;
  for (std::size_t at = 176; at < 192; ++at) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(header[at]));
    hex += two;
    if (at % 4 == 3 && at != 191) hex += ' ';
  }
  std::ifstream page(FORMAT_PAGE);
  const std::string text((std::istreambuf_iterator<char>(page)), {});
  EXPECT_NE(text.find(hex), std::string::npos) << hex;
}

}  // namespace
}  // namespace tierd::ssd
