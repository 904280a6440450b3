#include "tierd/ssd/superblock.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/ssd/tier_fixture.h"

namespace tierd::ssd {
namespace {

Superblock Example() {
  Superblock s;
  s.salt.uuid[3] = 7;
  s.salt.secret = {1, 2, 3, 4};
  s.path_hash_key[31] = 8;
  s.machine = MachineDigest("m");
  s.lives = 12;
  s.region_bytes = 16u << 20;
  s.record_alignment = 512;
  s.regions_per_file = 1024;
  s.dataset_generations = {{5, 1}, {6, 9}};
  return s;
}

TEST(Superblock, ComesBackAsWritten) {
  Superblock out;
  ASSERT_EQ(DecodeSuperblock(EncodeSuperblock(Example()), &out), SuperblockCheck::kOk);
  EXPECT_EQ(out.lives, 12u);
  EXPECT_EQ(out.path_hash_key[31], 8);
  EXPECT_EQ(out.salt.secret[3], 4u);
  EXPECT_EQ(out.dataset_generations, Example().dataset_generations);
}

TEST(Superblock, NoticesEveryFlippedByteAndEveryTruncation) {
  const std::string good = EncodeSuperblock(Example());
  Superblock out;
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x20);
    EXPECT_NE(DecodeSuperblock(bad, &out), SuperblockCheck::kOk) << "byte " << at;
  }
  for (std::size_t n = 0; n < good.size(); n += 97) EXPECT_NE(DecodeSuperblock(good.substr(0, n), &out), SuperblockCheck::kOk);
}

TEST(Superblock, TellsOlderAndNewerFormatsBeforeReadingOn) {
  std::string bytes = EncodeSuperblock(Example());
  Superblock out;
  bytes[8] = 0;
  EXPECT_EQ(DecodeSuperblock(bytes, &out), SuperblockCheck::kOlder);
  bytes[8] = 2;
  EXPECT_EQ(DecodeSuperblock(bytes.substr(0, 512), &out), SuperblockCheck::kNewer);
}

TEST(Superblock, IsReplacedByRename) {
  TempDirectory dir;
  UniqueFd fd(::open(dir.path().c_str(), O_RDONLY | O_DIRECTORY));
  Superblock out;
  EXPECT_EQ(*LoadSuperblock(fd.get(), &out), SuperblockCheck::kMissing);
  Superblock s = Example();
  for (std::uint64_t life = 1; life < 4; ++life) {
    s.lives = life;
    ASSERT_TRUE(StoreSuperblock(fd.get(), s).ok());
    ASSERT_EQ(*LoadSuperblock(fd.get(), &out), SuperblockCheck::kOk);
    EXPECT_EQ(out.lives, life);
  }
  EXPECT_FALSE(std::filesystem::exists(dir.path() + "/superblock.new"));
}

}  // namespace
}  // namespace tierd::ssd
