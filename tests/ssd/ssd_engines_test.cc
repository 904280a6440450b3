// The tier over the real engines, and over a file system that is really full.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

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

// A file system of its own of 3 MiB (root only).
TEST(SsdSmallDisk, FillsUpWithoutHarm) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to mount a tmpfs";
  TempDirectory dir;
  if (::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=3m,mode=0700") != 0) GTEST_SKIP() << "mount: " << std::strerror(errno);
  {
    SsdOptions options = SmallOptions(dir.path() + "/c");
    options.capacity_bytes = 64u << 20;
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
      if (i % 4 == 0) continue;
      life.tier->Forget(life.items.at({"f" + std::to_string(i), 0}).location);
      life.items.erase({"f" + std::to_string(i), 0});
    }
    EXPECT_TRUE(life.RunUntil([&] { return life.Put("again", 1, 20'000).ok(); }));
    life.ExpectAllReadable();
    life.Stop();
  }
  ::umount2(dir.path().c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace tierd::ssd
