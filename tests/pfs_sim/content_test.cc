#include "tests/pfs_sim/content.h"

#include <gtest/gtest.h>

#include <vector>

namespace pfs_sim {
namespace {

std::vector<unsigned char> Bytes(const ContentId& id, uint64_t offset, size_t size) {
  std::vector<unsigned char> out(size);
  FillContent(id, offset, out.data(), size);
  return out;
}

// Trees written by one build are checked by another: the function is fixed.
TEST(Content, GoldenBytesNeverChange) {
  const std::vector<unsigned char> expected = {0x54, 0x47, 0x5a, 0x9e, 0x6f, 0x2f, 0x98, 0xa0};
  EXPECT_EQ(Bytes({7, "d0001/f00000001.bin", 3}, 0, 8), expected);
}

TEST(Content, AnyRangeEqualsThatRangeOfTheWhole) {
  const ContentId id{1, "a", 1};
  const auto whole = Bytes(id, 0, 200);
  for (size_t from = 0; from < 40; ++from) {
    for (size_t size = 0; size < 40; ++size) {
      const std::vector<unsigned char> part(whole.begin() + static_cast<long>(from),
                                            whole.begin() + static_cast<long>(from + size));
      ASSERT_EQ(Bytes(id, from, size), part);
    }
  }
}

TEST(Content, CheckNamesTheFirstWrongByte) {
  const ContentId id{1, "a", 1};
  for (size_t wrong = 0; wrong < 100; ++wrong) {
    auto data = Bytes(id, 1003, 100);
    data[wrong] ^= 0x10;
    data[99] ^= 0x01;
    ASSERT_EQ(CheckContent(id, 1003, data.data(), data.size()), 1003 + wrong);
  }
  const auto data = Bytes(id, 1003, 100);
  EXPECT_EQ(CheckContent(id, 1003, data.data(), data.size()), std::nullopt);
}

TEST(Content, SeedPathVersionAndOffsetAllMatter) {
  const auto data = Bytes({1, "a", 1}, 4096, 64);
  EXPECT_TRUE(CheckContent({2, "a", 1}, 4096, data.data(), 64));
  EXPECT_TRUE(CheckContent({1, "b", 1}, 4096, data.data(), 64));
  EXPECT_TRUE(CheckContent({1, "a", 2}, 4096, data.data(), 64));
  EXPECT_TRUE(CheckContent({1, "a", 1}, 4104, data.data(), 64));
  EXPECT_FALSE(CheckContent({1, "a", 1}, 4096, data.data(), 64));
}

TEST(Content, OffsetsBeyond4GiBDiffer) {
  EXPECT_NE(Bytes({1, "a", 1}, 0, 16), Bytes({1, "a", 1}, uint64_t{1} << 32, 16));
}

}  // namespace
}  // namespace pfs_sim
