// How much a tier gives back, over a file system that the test makes up: what others have taken, less what the region file holds.
#include <gtest/gtest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>

#include "tests/ssd/tier_fixture.h"

namespace tierd::ssd {
namespace {

// Bytes for all that are in it.
std::atomic<std::uint64_t> disk_bytes{0};

TEST(SsdSpace, OfAMeasurementThatWasTakenBeforeSpaceWentBackNothingGoesBackTwice) {
  TempDirectory dir;
  SsdOptions options = SmallOptions(dir.path() + "/c");
  const std::uint64_t region = options.region_bytes;
  options.min_free_bytes = 4 * region;
  disk_bytes = 24 * region;
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  for (int i = 0; life.Put("f" + std::to_string(i), 1, 20'000).ok();) ++i;
  life.Settle();
  ASSERT_EQ(life.tier->status().allocated_bytes, 16 * region);
  disk_bytes = 16 * region + region / 2;  // others take what is left: four must go
  life.Pass(10'000'000'000);
  while (life.Turn()) {
  }
  life.Pass(10'000'000'000);  // hears of it, and has it measured once more
  while (life.Turn()) {
  }
  EXPECT_EQ(life.tier->counters().regions_punched, 4u);
  EXPECT_FALSE(life.RunUntil([] { return false; }, 5));
  EXPECT_EQ(life.tier->counters().regions_punched, 4u);
  EXPECT_EQ(life.tier->status().allocated_bytes, 12 * region);
}

}  // namespace

std::uint64_t FreeOf(int dir_fd) {
  struct stat file {};
  const bool any = ::fstatat(dir_fd, "regions-0000", &file, 0) == 0;
  const std::uint64_t used = any ? static_cast<std::uint64_t>(file.st_blocks) * 512 : 0;
  return disk_bytes - std::min<std::uint64_t>(disk_bytes, used);
}

}  // namespace tierd::ssd

// In libc's place, for all of this program.
extern "C" int fstatvfs(int fd, struct statvfs* out) {
  *out = {};
  out->f_frsize = out->f_bsize = 4096;
  out->f_bavail = out->f_bfree = tierd::ssd::FreeOf(fd) / 4096;
  return 0;
}
