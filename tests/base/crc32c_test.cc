#include "tierd/base/crc32c.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tierd {
namespace {

std::uint32_t Of(std::string_view bytes) { return Crc32c(bytes.data(), bytes.size()); }

// By definition: reflected polynomial 0x1edc6f41, bit by bit.
std::uint32_t Slow(std::string_view bytes) {
  std::uint32_t crc = 0xffffffffU;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0);
  }
  return ~crc;
}

std::string Sample(std::size_t size) {
  std::string bytes(size, '\0');
  std::uint32_t state = 1;
  for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

// RFC 3720, B.4.
TEST(Crc32c, KnownVectors) {
  EXPECT_EQ(Of(""), 0U);
  EXPECT_EQ(Of("123456789"), 0xe3069283U);
  EXPECT_EQ(Of(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(Of(std::string(32, '\xff')), 0x62a8ab43U);
  std::string rising(32, '\0');
  std::string falling(32, '\0');
  for (int i = 0; i < 32; ++i) {
    rising[static_cast<std::size_t>(i)] = static_cast<char>(i);
    falling[static_cast<std::size_t>(i)] = static_cast<char>(31 - i);
  }
  EXPECT_EQ(Of(rising), 0x46dd794eU);
  EXPECT_EQ(Of(falling), 0x113fdb5cU);
}

TEST(Crc32c, AgreesWithTheDefinitionAtEveryLengthAndAlignment) {
  const std::string bytes = Sample(600);
  for (std::size_t at = 0; at < 16; ++at) {
    for (std::size_t size = 0; size < 300; size += 7) {
      const std::string_view part = std::string_view(bytes).substr(at, size);
      ASSERT_EQ(Of(part), Slow(part)) << at << " " << size;
    }
  }
}

TEST(Crc32c, ContinuesFromAPart) {
  const std::string bytes = Sample(10'000);
  const std::uint32_t whole = Of(bytes);
  for (const std::size_t cut : {std::size_t{0}, std::size_t{1}, std::size_t{4097}, std::size_t{9'999}, std::size_t{10'000}}) {
    EXPECT_EQ(Crc32c(bytes.data() + cut, bytes.size() - cut, Crc32c(bytes.data(), cut)), whole) << cut;
  }
}

TEST(Crc32c, SeesEveryFlippedBit) {
  std::string bytes = Sample(256);
  const std::uint32_t whole = Of(bytes);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    EXPECT_NE(Of(bytes), whole);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
  }
}

}  // namespace
}  // namespace tierd
