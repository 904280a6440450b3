// Every way of copying copies the same bytes, and nothing beside them.
#include "client_lib/src/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace tierd::client {
namespace {

using Copy = void (*)(void*, const void*, std::size_t);
constexpr std::pair<const char*, Copy> kWays[] = {{"side by side", CopySideBySide}, {"by string", CopyByString}, {"streaming", CopyStreaming}};

TEST(Copy, EachWayGivesTheBytesAndTouchesNothingElse) {
  constexpr std::size_t kRoom = std::size_t{1} << 20;
  std::vector<unsigned char> from(kRoom);
  for (std::size_t i = 0; i < kRoom; ++i) from[i] = static_cast<unsigned char>(i * 7 + i / 256);
  std::vector<unsigned char> to(kRoom), wanted(kRoom);
  for (const auto& [name, copy] : kWays) {
    for (const std::size_t bytes : {0, 1, 15, 63, 64, 65, 127, 128, 191, 2048, 4096, 5000, 6144, 12'287, 12'288, 24'575, 24'576, 25'000, 110'001, 600'000}) {
      for (const std::size_t to_at : {64, 65, 80, 127}) {
        for (const std::size_t from_at : {0, 1, 63, 64}) {
          std::memset(to.data(), 0xEE, to_at + bytes + 256);
          copy(to.data() + to_at, from.data() + from_at, bytes);
          std::memset(wanted.data(), 0xEE, to_at + bytes + 256);
          std::memcpy(wanted.data() + to_at, from.data() + from_at, bytes);
          ASSERT_EQ(std::memcmp(to.data(), wanted.data(), to_at + bytes + 256), 0) << name << ": " << bytes << " bytes from " << from_at << " to " << to_at;
        }
      }
    }
  }
}

TEST(Copy, OfACallInPieces) {
  const std::size_t piece = 3 * kStringFrom + 17;
  std::vector<unsigned char> from(2 * piece), to(2 * piece + 1, 0xEE);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 13 + i / 256);
  for (const std::size_t call_bytes : {2 * piece, 2 * kStreamFrom}) {
    std::fill(to.begin(), to.end(), 0xEE);
    CopyOut(to.data(), from.data(), piece, call_bytes);
    CopyOut(to.data() + piece, from.data() + piece, piece, call_bytes);
    EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin())) << call_bytes;
    EXPECT_EQ(to.back(), 0xEE);
  }
}

}  // namespace
}  // namespace tierd::client
