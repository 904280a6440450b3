#include "tierd/ssd/record.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace tierd::ssd {
namespace {

std::vector<std::byte> Bytes(std::string_view text) {
  const auto* p = reinterpret_cast<const std::byte*>(text.data());
  return {p, p + text.size()};
}

// The example of FORMAT.md.
RecordSalt ExampleSalt() {
  RecordSalt salt;
  for (std::size_t i = 0; i < salt.uuid.size(); ++i) salt.uuid[i] = static_cast<std::uint8_t>(0xa0 + i);
  salt.secret = {1, 2, 3, 4};
  return salt;
}
RecordIdentity ExampleIdentity() {
  RecordIdentity id;
  id.source_id = 0x11;
  id.dataset_id = 0x22;
  id.dataset_generation = 1;
  id.key = {0x3333, 0x4444};
  id.version = {1234, 5, 1'700'000'000'000'000'000, 1'700'000'000'000'000'001};
  id.chunk = 0;
  id.chunk_bytes = 4u << 20;
  id.fill_sequence = (std::uint64_t{1} << 40) + 7;
  return id;
}
const RecordPlace kPlace{3, 64, (std::uint64_t{1} << 24) + 2, 64};

std::vector<std::byte> EncodeExample(std::string_view path = "a/b", std::string_view payload = "hello") {
  const RecordGeometry geometry = GeometryFor(512);
  const auto bytes = static_cast<std::uint32_t>(payload.size());
  std::vector<std::byte> out(RecordBytes(geometry, bytes, path.size()));
  const std::vector<std::byte> content = Bytes(payload);
  const std::uint32_t crc = PayloadCrc(ExampleSalt(), ExampleIdentity(), content);
  EncodeHeader(ExampleSalt(), geometry, kPlace, {ExampleIdentity(), path, bytes, crc}, out.data());
  std::memcpy(out.data() + HeaderBytes(geometry, bytes, path.size()), content.data(), bytes);
  return out;
}

std::string Hex(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte b : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    out += kDigits[static_cast<unsigned>(b) >> 4];
    out += kDigits[static_cast<unsigned>(b) & 15];
  }
  return out;
}

TEST(Record, WorkedBytesOfFormatPageHold) {
  const std::vector<std::byte> record = EncodeExample();
  ASSERT_EQ(record.size(), 256u);
  EXPECT_EQ(Hex(std::span(record).first(56)),
            "544945524452454301000000c0000000a0a1a2a3a4a5a6a7a8a9aaabacadaeaf020000010000000003000000400000004000000003000000");
  EXPECT_EQ(Hex(std::span(record).subspan(144, 27)), "05000000050000000000000000010000413c92ba50bab2f5612f62");
}

TEST(Record, DecodesWhatItEncoded) {
  const std::vector<std::byte> record = EncodeExample();
  DecodedHeader out;
  ASSERT_EQ(DecodeHeader(ExampleSalt(), record, kPlace, &out), HeaderCheck::kOk);
  EXPECT_EQ(out.path, "a/b");
  EXPECT_EQ(out.header.identity, ExampleIdentity());
  EXPECT_EQ(out.header.stored_bytes, 5u);
  EXPECT_EQ(out.header.previous_end, 64u);
}

TEST(Record, NoticesEveryFlippedBitOfTheHeader) {
  const std::vector<std::byte> good = EncodeExample();
  DecodedHeader out;
  const std::size_t header_bytes = 192;
  for (std::size_t bit = 0; bit < header_bytes * 8; ++bit) {
    std::vector<std::byte> bad = good;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_EQ(DecodeHeader(ExampleSalt(), bad, kPlace, &out), HeaderCheck::kBad) << "bit " << bit;
  }
}

TEST(Record, NoticesEveryFlippedBitOfThePayload) {
  std::vector<std::byte> payload = Bytes("hello");
  const std::uint32_t good = PayloadCrc(ExampleSalt(), ExampleIdentity(), payload);
  for (std::size_t bit = 0; bit < payload.size() * 8; ++bit) {
    payload[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_NE(PayloadCrc(ExampleSalt(), ExampleIdentity(), payload), good);
    payload[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST(Record, ColdAndCachedSumsAgree) {
  std::vector<std::byte> payload(9000);
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i * 7 + i / 256);
  for (const std::size_t size : {0u, 1u, 63u, 64u, 1023u, 1024u, 1025u, 2048u, 3071u, 3073u, 4096u, 8999u, 9000u}) {
    const auto part = std::span<const std::byte>(payload).first(size);
    EXPECT_EQ(PayloadCrcCold(ExampleSalt(), ExampleIdentity(), part), PayloadCrc(ExampleSalt(), ExampleIdentity(), part)) << size;
  }
}

TEST(Record, IsRefusedAtEveryTruncation) {
  const std::vector<std::byte> record = EncodeExample();
  DecodedHeader out;
  for (std::size_t n = 0; n < 192; ++n) EXPECT_EQ(DecodeHeader(ExampleSalt(), std::span(record).first(n), kPlace, &out), HeaderCheck::kBad);
}

TEST(Record, IsForeignAtAnotherPlace) {
  const std::vector<std::byte> record = EncodeExample();
  DecodedHeader out;
  for (const RecordPlace& place : {RecordPlace{4, 64, kPlace.region_epoch, 64}, RecordPlace{3, 128, kPlace.region_epoch, 64},
                                   RecordPlace{3, 64, kPlace.region_epoch + 1, 64}}) {
    EXPECT_EQ(DecodeHeader(ExampleSalt(), record, place, &out), HeaderCheck::kForeign);
  }
}

// Whoever knows everything but the secret cannot make a record that verifies.
TEST(Record, IsBoundToTheSecretAndTheIdentity) {
  const std::vector<std::byte> record = EncodeExample();
  RecordSalt other = ExampleSalt();
  other.secret[3] ^= 1;
  DecodedHeader out;
  EXPECT_EQ(DecodeHeader(other, record, kPlace, &out), HeaderCheck::kBad);
  RecordIdentity neighbour = ExampleIdentity();
  const std::vector<std::byte> payload = Bytes("hello");
  for (std::size_t byte = 0; byte < sizeof(RecordIdentity); ++byte) {
    RecordIdentity changed = neighbour;
    reinterpret_cast<unsigned char*>(&changed)[byte] ^= 1;
    EXPECT_NE(PayloadCrc(ExampleSalt(), changed, payload), PayloadCrc(ExampleSalt(), neighbour, payload)) << "identity byte " << byte;
  }
}

TEST(Record, LaysOutPackedAndDirectRecords) {
  const RecordGeometry small = GeometryFor(512);
  EXPECT_EQ(small.direct_threshold, 16384u);
  EXPECT_EQ(RecordBytes(small, 784, 60), 256u + 832u);
  EXPECT_EQ(HeaderBytes(small, 16384, 60), 512u);
  EXPECT_EQ(RecordBytes(small, 16385, 60), 512u + 16896u);
  const RecordGeometry large = GeometryFor(4096);
  EXPECT_EQ(large.direct_threshold, 65536u);
  EXPECT_EQ(HeaderBytes(large, 110'000, kMaxPathBytes), 8192u);
  const SsdLocation location{1, 0, 0, EncodePlace(65536, 512), 16385};
  EXPECT_EQ(location.offset(), 65536u);
  EXPECT_EQ(location.header_bytes(), 512u);
  EXPECT_EQ(RecordBytes(small, location), 512u + 16896u);
}

}  // namespace
}  // namespace tierd::ssd
