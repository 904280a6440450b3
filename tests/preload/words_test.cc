// Names looked at eight bytes at a time, against the same letter by letter; at the end of a page behind which nothing is mapped.
#include "client_lib/preload/words.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <random>
#include <string>

namespace tierd::preload {
namespace {

class PreloadWordsTest : public testing::Test {
 protected:
  static constexpr std::size_t kPage = 4096;

  void SetUp() override {
    pages_ = static_cast<char*>(::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(static_cast<void*>(pages_), MAP_FAILED);
    ASSERT_EQ(::mprotect(pages_ + kPage, kPage, PROT_NONE), 0);
  }
  void TearDown() override { ::munmap(pages_, 2 * kPage); }
  // `name`, so that `behind` bytes of it and of what happens to follow are left of the page.
  const char* Place(const std::string& name, std::size_t behind) {
    std::memset(pages_ + kPage - 64, '/', 64);
    char* const at = pages_ + kPage - name.size() - 1 - behind;
    std::memcpy(at, name.c_str(), name.size() + 1);
    return at;
  }

  char* pages_ = nullptr;
};

TEST_F(PreloadWordsTest, FirstComponentsAreToldApart) {
  std::mt19937_64 random(7);
  std::map<std::string, std::uint64_t> known;
  for (int i = 0; i < 200'000; ++i) {
    std::string name;
    for (std::size_t length = random() % 40; name.size() < length;) name += "ab./-\xff.\x01"[random() % 8];
    const std::string first = name.substr(0, name.find('/'));
    const std::uint64_t hash = HashOfFirstComponent(Place(name, random() % 9));
    ASSERT_EQ(hash == 0, first.empty() || first == "." || first == "..") << name;
    const auto [known_first, is_new] = known.emplace(first, hash);
    ASSERT_EQ(known_first->second, hash) << name;
  }
  std::map<std::uint64_t, std::string> names;
  for (const auto& [first, hash] : known) {
    if (hash == 0) continue;
    const auto [other, is_new] = names.emplace(hash, first);
    EXPECT_TRUE(is_new) << first << " and " << other->second;
  }
}

TEST_F(PreloadWordsTest, WaysUpAreSeenWhereverTheyAre) {
  std::mt19937_64 random(9);
  int up = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string name;
    for (std::size_t length = random() % 40; name.size() < length;) name += "abcdefgh./.-\xff,\x02x"[random() % 16];
    const bool goes_up = name.find("/..") != std::string::npos;
    ASSERT_EQ(GoesUp(Place(name, random() % 9)), goes_up) << name;
    up += goes_up ? 1 : 0;
  }
  EXPECT_GT(up, 1000);
}

}  // namespace
}  // namespace tierd::preload
