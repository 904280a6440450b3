#include "tests/ssd/decoder_fuzz.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "tierd/ssd/region_toc.h"

namespace tierd::ssd {
namespace {

void Put32(std::vector<std::uint8_t>& out, std::size_t at, std::uint32_t value) { std::memcpy(out.data() + at, &value, sizeof(value)); }

// Random bytes, and headers with lengths at and around every bound.
TEST(DecoderFuzz, RandomInputsAreSafe) {
  std::mt19937 random(42);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::uint8_t> input(random() % 2048);
    for (std::uint8_t& byte : input) byte = static_cast<std::uint8_t>(random() % 4 == 0 ? random() : 0);
    accepted += RunDecoders(input) > 0 ? 1 : 0;
  }
  (void)accepted;
}

TEST(DecoderFuzz, LengthsAtTheirBoundsAreSafe) {
  const std::uint32_t edges[] = {0, 1, 63, 64, 167, 168, 191, 192, 256, 4095, 4096, 4160, 8192, 65535, 65536, 0x7fffffffu, 0x80000000u, 0xffffffc0u, 0xffffffffu};
  int accepted = 0;
  for (const std::uint32_t header_bytes : edges) {
    for (const std::uint32_t path_bytes : edges) {
      for (const std::uint32_t stored : edges) {
        for (const std::uint32_t record_bytes : edges) {
          std::vector<std::uint8_t> input(1024);
          Put32(input, offsetof(RecordHeader, header_bytes), header_bytes);
          Put32(input, offsetof(RecordHeader, path_bytes), path_bytes);
          Put32(input, offsetof(RecordHeader, stored_bytes), stored);
          Put32(input, offsetof(RecordHeader, raw_bytes), stored);
          Put32(input, offsetof(RecordHeader, record_bytes), record_bytes);
          accepted += RunDecoders(input) > 0 ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(accepted, 0) << "the harness must get past the checksums";
}

}  // namespace
}  // namespace tierd::ssd
