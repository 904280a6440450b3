// Every way of copying copies the same bytes, and nothing beside them.
#include "client_lib/src/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace tierd::client {
namespace {

using Copy = void (*)(void*, const void*, std::size_t);
constexpr std::pair<const char*, Copy> kWays[] = {{"ahead", CopyAhead}, {"by string", CopyByString}, {"streaming", CopyStreaming}};

TEST(Copy, EachWayGivesTheBytesAndTouchesNothingElse) {
  constexpr std::size_t kRoom = 8192;
  std::vector<unsigned char> from(kRoom);
  for (std::size_t i = 0; i < kRoom; ++i) from[i] = static_cast<unsigned char>(i * 7 + i / 256);
  for (const auto& [name, copy] : kWays) {
    for (const std::size_t bytes : {0, 1, 15, 63, 64, 65, 127, 128, 191, 4096, 5000}) {
      for (const std::size_t to_at : {64, 65, 80, 127}) {
        for (const std::size_t from_at : {0, 1, 63, 64}) {
          std::vector<unsigned char> to(kRoom, 0xEE);
          copy(to.data() + to_at, from.data() + from_at, bytes);
          std::vector<unsigned char> wanted(kRoom, 0xEE);
          std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(from_at), bytes, wanted.begin() + static_cast<std::ptrdiff_t>(to_at));
          ASSERT_TRUE(to == wanted) << name << ": " << bytes << " bytes from " << from_at << " to " << to_at;
        }
      }
    }
  }
}

TEST(Copy, OfACallInPieces) {
  const std::size_t piece = 3 * kCopyLargeFrom + 17;
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
