// What a read that nobody waits for any more writes, however late, goes into memory that is still its own (HAZARDS 2.7): the source is pfs_sim, which holds the answer back,
// so that the bytes come when the tier has been filled with others.
#include "tests/engine/engine_fixture.h"
#include "tests/pfs_sim/rig.h"
#include "tests/support/io_uring_allowed.h"

namespace tierd::engine {
namespace {

constexpr std::size_t kBytes = 1 << 20;

class LateBytesTest : public EngineTest, public testing::WithParamInterface<EngineChoice> {
 protected:
  void SetUp() override {
    if (GetParam() == EngineChoice::kUring && !IoUringIsAllowed()) GTEST_SKIP() << "io_uring is refused here";
    std::string why;
    rig_ = pfs_sim::Rig::Start({.backing = tree_.path(), .timeout_ms = 60'000}, &why);
    if (rig_ == nullptr && why.starts_with("unavailable")) GTEST_SKIP() << why;
    ASSERT_NE(rig_, nullptr) << why;
    source_options().path = rig_->mount();
    source_options().engine = GetParam();
    source_options().chunk_bytes = kBytes;
    source_options().policy = "lru";
    options_.ram.capacity_bytes = 16 << 20;
  }
  void TearDown() override {
    if (rig_ != nullptr) rig_->Control("release");
    StopEngine();
  }
  void SetPatience(std::uint32_t ms) { unit().options.demand_timeout_ms = ms; }

  std::unique_ptr<pfs_sim::Rig> rig_;
};

INSTANTIATE_TEST_SUITE_P(Engines, LateBytesTest, testing::Values(EngineChoice::kThreads, EngineChoice::kUring),
                         [](const auto& tested) { return tested.param == EngineChoice::kUring ? "Uring" : "Threads"; });

TEST_P(LateBytesTest, NoCachedFileChangesThroughThem) {
  const auto names = MakeFiles(48, kBytes);  // three times what fits
  const std::string late = Write("late", Bytes("late", kBytes));
  StartEngine();
  ASSERT_EQ(Fetch(late, abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);  // known: it is read into a frame
  rig_->Control("fault add op=read path=late errno=hang");
  SetPatience(100);
  ASSERT_EQ(Fetch(late).status(), abi::FetchStatus::kBypass);
  SetPatience(30'000);
  ASSERT_EQ(engine().fetcher().hung_frames(), 1u);
  Advise(abi::AdviseOp::kInvalidate, late);
  for (int round = 0; round < 2; ++round) {
    for (const std::string& name : names) ASSERT_TRUE(Fetch(name).bytes == Bytes(name, kBytes)) << name;
  }
  ASSERT_EQ(engine().fetcher().hung_frames(), 1u) << "all that time";
  rig_->Control("release");
  ASSERT_TRUE(RunUntil([&] { return engine().fetcher().hung_frames() == 0; }));
  int cached = 0;
  for (const std::string& name : names) {
    if (!InRam(name)) continue;
    ++cached;
    const Answer answer = Fetch(name);
    EXPECT_EQ(answer.tier(), abi::Tier::kRam);
    EXPECT_TRUE(answer.bytes == Bytes(name, kBytes)) << name;
  }
  EXPECT_GE(cached, 12) << "of 16 MiB";
  rig_->Control("fault clear");
  EXPECT_TRUE(Fetch(late).bytes == Bytes(late, kBytes));
}

}  // namespace
}  // namespace tierd::engine
