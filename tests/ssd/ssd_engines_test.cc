// The tier over the real engines, and over a file system that is really full.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <fstream>

#include "tests/ssd/tier_fixture.h"

namespace tierd::ssd {
namespace {

class SsdEngines : public testing::TestWithParam<io::EngineKind> {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<io::IoEngine>> made = io::MakeEngine(GetParam(), {});
    if (!made.ok()) GTEST_SKIP() << made.status().ToString();
    engine_ = std::move(*made);
  }
  std::unique_ptr<io::IoEngine> engine_;
};

TEST_P(SsdEngines, RoundTripAndRestart) {
  TempDirectory dir;
  SsdOptions options = SmallOptions(dir.path() + "/c");
  options.region_bytes = 8u << 20;
  options.write_unit_bytes = 1u << 20;
  options.capacity_bytes = 64u << 20;
  const std::size_t sizes[] = {1, 784, 4096, 16'383, 16'384, 110'000, 262'145, 1'000'003, 4u << 20};
  {
    Life life(options, engine_.get());
    ASSERT_TRUE(life.Start().status.ok());
    for (const std::size_t size : sizes) ASSERT_TRUE(life.Put("f" + std::to_string(size), 1, size).ok());
    life.Settle();
    life.ExpectAllReadable();
    life.Stop();
  }
  Life life(options, engine_.get());
  EXPECT_EQ(life.Start().records, std::size(sizes));
  life.ExpectAllReadable();
  life.Stop();
}

TEST_P(SsdEngines, TurnsOverManyTimes) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  Life life(options, engine_.get());
  ASSERT_TRUE(life.Start().status.ok());
  // A fifth of the records is worth moving.
  life.worth_of = [](const Item& item) { return item.identity.key.lo % 5 == 0 ? 1.0 : 0.0; };
  int stored = 0;
  EXPECT_TRUE(life.RunUntil([&] {
    for (int burst = 0; burst < 8; ++burst) stored += life.Put("f" + std::to_string(stored % 400), 1 + stored / 400, 300 + stored * 37 % 40'000).ok() ? 1 : 0;
    return stored > 1500;
  }, 20)) << stored << " stored, " << life.tier->counters().regions_reclaimed << " reclaimed, moved " << life.moved << ", refused "
          << life.tier->counters().appends_refused_no_space << ", live " << life.tier->status().live_bytes;
  EXPECT_GT(life.tier->counters().regions_reclaimed, 10u);
  life.Settle();
  life.ExpectAllReadable();
  EXPECT_EQ(life.tier->counters().read_corrupt, 0u);
  EXPECT_EQ(life.tier->status().live_records, life.items.size());
  life.Stop();
}

INSTANTIATE_TEST_SUITE_P(Kinds, SsdEngines, testing::Values(io::EngineKind::kUring, io::EngineKind::kThreads),
                         [](const auto& kind) { return kind.param == io::EngineKind::kUring ? "uring" : "threads"; });

// A file system of its own of a few MiB (root only).
class SsdSmallDisk : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to mount a tmpfs";
    if (::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=12m,mode=0700") != 0) GTEST_SKIP() << "mount: " << std::strerror(errno);
    Resize("3m");
    options.capacity_bytes = 64u << 20;
    options.min_free_bytes = 1u << 20;
  }
  void TearDown() override { ::umount2(dir.path().c_str(), MNT_DETACH); }
  void Resize(const std::string& size) { ASSERT_EQ(::mount("tmpfs", dir.path().c_str(), "tmpfs", MS_REMOUNT, ("size=" + size).c_str()), 0) << std::strerror(errno); }
  void OthersTakeAll() {
    std::ofstream others(dir.path() + "/others", std::ios::app);
    const std::string page(4096, 'x');
    while (others.write(page.data(), 4096).flush().good()) {
    }
  }
  void OthersGo() { std::filesystem::remove(dir.path() + "/others"); }
  static void Fill(Life& life, int files) {
    for (int i = 0; i < files; ++i) ASSERT_TRUE(life.Put("f" + std::to_string(i), 1, 20'000).ok()) << i;
    life.Settle();
  }
  std::uint64_t FreeBytes() const { return std::filesystem::space(dir.path()).available; }

  TempDirectory dir;
  SsdOptions options = SmallOptions(dir.path() + "/c");
};

TEST_F(SsdSmallDisk, FillsUpWithoutHarm) {
  options.min_free_bytes = 0;
  {
    Life life(options);
    ASSERT_TRUE(life.Start().status.ok());
    life.no_retry = false;
    int stored = 0;
    Status put;
    while ((put = life.Put("f" + std::to_string(stored), 1, 20'000)).ok()) ++stored;
    EXPECT_EQ(put.code(), Code::kNoSpace) << put.ToString();
    EXPECT_GT(stored, 60);
    life.Settle();
    life.ExpectAllReadable();
    // Forgetting makes room again, the disk stays as full as it is.
    for (int i = 0; i < stored; ++i) {
      // One that was taken, and found no room when it was written, is forgotten already.
      const auto item = life.items.find({"f" + std::to_string(i), 0});
      if (i % 4 == 0 || item == life.items.end()) continue;
      life.tier->Forget(item->second.location);
      life.items.erase(item);
    }
    EXPECT_TRUE(life.RunUntil([&] { return life.Put("again", 1, 20'000).ok(); }));
    life.ExpectAllReadable();
    life.Stop();
  }
}

// Others filled the disk while there was no daemon: what this life needs is made room for, the rest of what is owed is given back, and what remains is served and added to.
TEST_F(SsdSmallDisk, AStartOnAFullDiskKeepsTheWarmSet) {
  Resize("12m");
  {
    Life life(options);
    ASSERT_TRUE(life.Start().status.ok());
    Fill(life, 200);
    life.Stop();
  }
  OthersTakeAll();
  ASSERT_EQ(FreeBytes(), 0u);
  Life life(options);
  const RecoveryReport report = life.Start();
  EXPECT_TRUE(report.status.ok()) << report.status.ToString();
  EXPECT_GE(report.records, 180u);
  EXPECT_TRUE(life.tier->status().writable) << life.tier->note();
  EXPECT_NE(life.tier->note().find("is full: the SSD tier gave back"), std::string::npos) << life.tier->note();
  EXPECT_TRUE(life.RunUntil([&] { return FreeBytes() >= options.min_free_bytes; }));
  EXPECT_FALSE(life.RunUntil([] { return false; }, 10)) << "and it is left at that";
  EXPECT_GE(life.items.size(), 100u);
  life.ExpectAllReadable();
  OthersGo();
  EXPECT_TRUE(life.RunUntil([&] { return life.Put("new", 1, 20'000).ok(); }));
  life.Stop();
}

TEST_F(SsdSmallDisk, ASuperblockThatFoundNoRoomIsWrittenLater) {
  Resize("12m");
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  Fill(life, 200);
  OthersTakeAll();
  Status stored;
  bool done = false;
  life.tier->InvalidateDataset(777, [&](const Status& status) {
    stored = status;
    done = true;
  });
  ASSERT_TRUE(life.RunUntil([&] { return done; }));
  EXPECT_EQ(stored.code(), Code::kNoSpace) << stored.ToString();
  life.no_retry = true;
  EXPECT_EQ(life.Put("late", 1, 100).code(), Code::kBusy) << "a record of a generation that a crash would forget";
  // The tier gives space back, has it written, and goes on.
  EXPECT_TRUE(life.RunUntil([&] { return life.tier->status().writable && FreeBytes() >= options.min_free_bytes; }));
  EXPECT_FALSE(life.RunUntil([] { return false; }, 10));
  EXPECT_GE(life.items.size(), 100u) << "and gives back no more than it must";
  OthersGo();
  EXPECT_TRUE(life.RunUntil([&] { return life.Put("new", 1, 20'000).ok(); }));
  life.ExpectAllReadable();
  life.Stop();
  Life next(options);
  next.Start();
  EXPECT_EQ(next.tier->DatasetGeneration(777), 1u);
}

}  // namespace
}  // namespace tierd::ssd
