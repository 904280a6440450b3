// Reclaim of regions that cannot be read, or not in full: nothing is dropped that is sound, and of what is not the owner hears.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <fstream>

#include "tests/ssd/bustle.h"

namespace tierd::ssd {
namespace {

void FlipByte(const SsdOptions& options, std::uint32_t region, std::uint64_t at) {
  std::fstream file(options.directory + "/regions-0000", std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(region * std::uint64_t{options.region_bytes} + at));
  const int byte = file.get() ^ 1;
  file.seekp(-1, std::ios::cur);
  file.put(static_cast<char>(byte));
}

// While it lives the bytes [from, to) of the region file cannot be read: `times` times, if that is told.
class Unreadable {
 public:
  explicit Unreadable(const SsdOptions& options, std::uint64_t from = 0, std::uint64_t to = ~std::uint64_t{0}, int times = INT_MAX) {
    left_ = times;
    struct stat file {};
    EXPECT_EQ(::stat((options.directory + "/regions-0000").c_str(), &file), 0);
    inode_ = file.st_ino;
    from_ = from;
    to_ = to;
  }
  ~Unreadable() { to_ = 0; }
  Unreadable(const Unreadable&) = delete;
  Unreadable& operator=(const Unreadable&) = delete;
  static bool Hits(int fd, std::uint64_t offset, std::uint64_t bytes) {
    struct stat file {};
    const bool hits = offset < to_ && offset + bytes > from_ && ::fstat(fd, &file) == 0 && file.st_ino == inode_ && left_-- > 0;
    if (hits) ++failures;
    return hits;
  }
  static inline std::atomic<int> failures{0};

 private:
  static inline std::atomic<ino_t> inode_{0};
  static inline std::atomic<std::uint64_t> from_{0}, to_{0};
  static inline std::atomic<int> left_{0};
};

// F12: in the first header, where a walk finds nothing; in the table of contents as well; in that and a header in the middle.
TEST(SsdUnreadableRegion, ADamagedHeaderCostsItsOwnRecordOnly) {
  for (const int damage : {0, 1, 2}) {
    SCOPED_TRACE(damage);
    TempDirectory dir;
    const SsdOptions options = SmallOptions(dir.path() + "/c");
    Life life(options);
    ASSERT_TRUE(life.Start().status.ok());
    Bustle bustle(life);
    const Item damaged = bustle.dear()[damage == 2 ? 5 : 0];
    FlipByte(options, kVictim, damaged.location.offset() + 100);
    if (damage > 0) FlipByte(options, kVictim, options.region_bytes - 8);
    EXPECT_FALSE(bustle.Run(60)) << "it is the dearest of all, though none of its records may be found";
    EXPECT_GT(life.tier->counters().regions_reclaimed, 5u);
    EXPECT_EQ(life.gone.size(), 0u);
    bustle.MakeItWorthLeast();
    EXPECT_TRUE(bustle.Run(60));
    EXPECT_EQ(life.gone[SsdGone::kDamaged], 1);
    EXPECT_FALSE(life.items.contains({damaged.path, 0}));
    EXPECT_EQ(bustle.Left(), 8);
    EXPECT_EQ(life.tier->status().live_records, life.items.size());
  }
}

// A device, or memory, that fails for a while: what is wanted is there afterwards.
TEST(SsdUnreadableRegion, NothingIsLostWhileRegionsCannotBeRead) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  Bustle bustle(life);
  bustle.MakeItWorthLeast();
  {
    const Unreadable unreadable(options);
    EXPECT_FALSE(bustle.Run(60));
  }
  EXPECT_EQ(bustle.Left(), 9);
  EXPECT_TRUE(bustle.Run(120)) << "and goes on";
  EXPECT_EQ(bustle.Left(), 9);
  EXPECT_EQ(life.gone.size(), 0u);
  life.Settle();
  life.ExpectAllReadable();
  EXPECT_EQ(life.tier->status().live_records, life.items.size());
}

// A place that cannot be read costs the records in it; the others are moved.
TEST(SsdUnreadableRegion, OfARegionThatCannotBeReadInFullTheRestIsMoved) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  Bustle bustle(life);
  const Item bad = bustle.dear()[5];
  const std::uint64_t block = kVictim * std::uint64_t{options.region_bytes} + AlignUp(bad.location.offset() + 5000, 4096);
  bustle.MakeItWorthLeast();
  const Unreadable unreadable(options, block, block + 4096);
  EXPECT_TRUE(bustle.Run(60));
  EXPECT_EQ(life.gone[SsdGone::kDamaged], 1);
  EXPECT_FALSE(life.items.contains({bad.path, 0}));
  EXPECT_EQ(bustle.Left(), 8);
  EXPECT_EQ(life.gone.size(), 1u);
}

// One that cannot be read at all is left, and does not keep others from being reclaimed.
TEST(SsdUnreadableRegion, OneThatCannotBeReadAtAllIsPassedOver) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  Bustle bustle(life);
  bustle.MakeItWorthLeast();
  {
    const Unreadable unreadable(options, kVictim * std::uint64_t{options.region_bytes}, (kVictim + 1) * std::uint64_t{options.region_bytes});
    const int before = Unreadable::failures;
    EXPECT_FALSE(bustle.Run(60));
    EXPECT_LT(Unreadable::failures - before, 500) << "it is not tried again and again";
    EXPECT_GT(life.tier->counters().regions_reclaimed, 5u);
  }
  EXPECT_EQ(bustle.Left(), 9);
  EXPECT_EQ(life.gone.size(), 0u);
  EXPECT_EQ(life.tier->status().live_records, life.items.size());
}

// In a life without an index: the table of contents says what is there. Without that, too, nobody could tell the owner: the region is left.
TEST(SsdUnreadableRegion, WithoutAnIndexNothingIsLostUnheard) {
  for (const bool toc_too : {false, true}) {
    TempDirectory dir;
    const SsdOptions options = SmallOptions(dir.path() + "/c");
    {
      Life life(options);
      ASSERT_TRUE(life.Start().status.ok());
      life.Stop();
    }
    std::filesystem::remove_all(options.directory + "/index");
    std::ofstream(options.directory + "/index") << "in its place";
    Life life(options);
    EXPECT_FALSE(life.Start().status.ok());
    Bustle bustle(life);
    FlipByte(options, kVictim, 100);
    if (toc_too) FlipByte(options, kVictim, options.region_bytes - 8);
    bustle.MakeItWorthLeast();
    EXPECT_EQ(bustle.Run(60), !toc_too);
    EXPECT_GT(life.tier->counters().regions_reclaimed, toc_too ? 5u : 0u);
    EXPECT_EQ(life.gone[SsdGone::kDamaged], toc_too ? 0 : 1);
    EXPECT_EQ(life.tier->status().live_records, life.items.size());
    EXPECT_EQ(bustle.Left(), 8);
  }
}

// For as short as a turn, at whichever: also between the look at a region and the reading of it.
TEST(SsdUnreadableRegion, AReadThatFailsAtAnyTurnLosesNothing) {
  for (int failing = 0; failing < 40; ++failing) {
    TempDirectory dir;
    const SsdOptions options = SmallOptions(dir.path() + "/c");
    Life life(options);
    ASSERT_TRUE(life.Start().status.ok());
    Bustle bustle(life);
    bustle.MakeItWorthLeast();
    life.no_retry = true;
    (void)life.Put("new", 1, kBytes);
    life.Pass(1'100'000'000);
    for (int i = 0; i < failing; ++i) life.Turn();
    {
      const Unreadable unreadable(options);
      life.Turn();
      life.Turn();
    }
    EXPECT_FALSE(life.RunUntil([] { return false; }, 2));
    EXPECT_EQ(bustle.Left(), 9) << failing;
    EXPECT_EQ(life.gone.size(), 0u) << failing;
    EXPECT_EQ(life.tier->status().live_records, life.items.size()) << failing;
  }
}

// And one that is well again while a region is read piece by piece.
TEST(SsdUnreadableRegion, ADeviceThatRecoversBetweenTwoPiecesLosesNothing) {
  for (int times = 1; times < 24; ++times) {
    TempDirectory dir;
    const SsdOptions options = SmallOptions(dir.path() + "/c");
    Life life(options);
    ASSERT_TRUE(life.Start().status.ok());
    Bustle bustle(life);
    bustle.MakeItWorthLeast();
    const int before = Unreadable::failures;
    const Unreadable unreadable(options, kVictim * std::uint64_t{options.region_bytes}, (kVictim + 1) * std::uint64_t{options.region_bytes} - 8192, times);
    (void)bustle.Run(20);
    EXPECT_EQ(Unreadable::failures - before, times);
    EXPECT_EQ(bustle.Left(), 9) << times;
    EXPECT_EQ(life.gone.size(), 0u) << times;
  }
}

// At the start, of which a kill has left one region half written: nobody knows what is in it, so nobody overwrites it, and the next start finds it.
TEST(SsdUnreadableRegion, AStartThatCannotReadOneLosesNothing) {
  for (const bool index_lost : {false, true}) {
    SCOPED_TRACE(index_lost);
    TempDirectory dir;
    const SsdOptions options = SmallOptions(dir.path() + "/c");
    std::map<Life::Name, Item> before;
    {
      Life life(options);
      ASSERT_TRUE(life.Start().status.ok());
      for (int i = 0; i < 30; ++i) ASSERT_TRUE(life.Put("f" + std::to_string(i), 1, kBytes).ok());
      life.Settle();
      before = life.items;
    }
    const std::uint32_t open = before.at({"f29", 0}).location.region;
    if (index_lost) std::filesystem::remove_all(options.directory + "/index");
    {
      Life life(options);
      {
        const std::uint64_t from = open * std::uint64_t{options.region_bytes};
        const Unreadable unreadable(options, from, from + options.region_bytes);
        ASSERT_TRUE(life.Start().status.ok());
      }
      EXPECT_EQ(life.tier->status().retired_regions, 1u);
      EXPECT_FALSE(life.items.contains({"f29", 0}));
      EXPECT_TRUE(life.items.contains({"f0", 0}));
      for (int i = 0; life.Put("new" + std::to_string(i), 1, kBytes).ok();) ++i;
      life.Stop();
    }
    Life life(options);
    ASSERT_TRUE(life.Start().status.ok());
    for (const auto& [name, item] : before) EXPECT_TRUE(life.items.contains(name)) << name.first;
    EXPECT_EQ(life.tier->status().retired_regions, 0u);
    life.ExpectAllReadable();
  }
}

}  // namespace

bool CannotBeRead(int fd, std::uint64_t offset, std::uint64_t bytes) { return Unreadable::Hits(fd, offset, bytes); }

}  // namespace tierd::ssd

// In libc's place, for all of this program.
extern "C" ssize_t pread(int fd, void* to, std::size_t bytes, off_t offset) {
  if (tierd::ssd::CannotBeRead(fd, static_cast<std::uint64_t>(offset), bytes)) {
    errno = EIO;
    return -1;
  }
  return ::syscall(SYS_pread64, fd, to, bytes, offset);
}
