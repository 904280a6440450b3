// Memory that others take beside a daemon that is asked nothing (F18). What the node has is said by a file of the test's.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "tests/engine/engine_fixture.h"
#include "tierd/base/unique_fd.h"

namespace tierd::engine {
namespace {

class PressureTest : public EngineTest {
 protected:
  static constexpr std::uint64_t kFloor = 32 << 20;

  PressureTest() {
    options_.ram.capacity_bytes = 128 << 20;
    options_.ram.min_available_bytes = kFloor;
    options_.ram.memory_roots = {node_.path(), node_.path() + "/none"};
    node_.Write("meminfo", "");
    meminfo_ = UniqueFd(::open((node_.path() + "/meminfo").c_str(), O_WRONLY | O_CLOEXEC));
  }
  void SetAvailable(std::int64_t bytes) {
    char text[64];
    const int length = std::snprintf(text, sizeof text, "MemAvailable: %12lld kB\n", static_cast<long long>(std::max<std::int64_t>(bytes, 0) >> 10));
    EXPECT_EQ(::pwrite(meminfo_.get(), text, static_cast<std::size_t>(length), 0), length);
  }
  // The daemon has a full tier, `floors` floors are left, and nobody has asked for anything for a while.
  void FillTier(double floors) {
    SetAvailable(1 << 30);
    StartEngine();
    for (const std::string& name : MakeFiles(220, 500'000)) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
    held_ = Held();
    ASSERT_GT(held_, 90 << 20);
    room_ = static_cast<std::int64_t>(floors * kFloor);
    SetAvailable(room_);
    (void)HandlersIn(4000);
    ASSERT_EQ(Held(), held_);
  }
  std::int64_t Held() { return static_cast<std::int64_t>(engine().ram().stats().allocator.segment_bytes); }
  // Others take memory at that rate until they have `bytes`; the least that was left meanwhile.
  std::int64_t Take(double floors_per_s, std::int64_t bytes) {
    auto last = std::chrono::steady_clock::now();
    std::int64_t least = room_;
    for (std::int64_t taken = 0; taken < bytes;) {
      const auto now = std::chrono::steady_clock::now();
      const double s = std::min(std::chrono::duration<double>(now - last).count(), 0.02);  // nobody takes any while the machine stands still
      last = now;
      taken = std::min(bytes, taken + static_cast<std::int64_t>(s * floors_per_s * kFloor));
      const std::int64_t left = room_ - taken + held_ - Held();
      least = std::min(least, left);
      SetAvailable(left);
      (void)HandlersIn(1);
    }
    return least;
  }

 private:
  source::TempTree node_;
  UniqueFd meminfo_;
  std::int64_t held_ = 0;
  std::int64_t room_ = 0;
};

TEST_F(PressureTest, AnIdleDaemonGivesWayInTime) {
  ASSERT_NO_FATAL_FAILURE(FillTier(4.7));
  EXPECT_GT(Take(4, std::int64_t{kFloor} * 7), 0);
}

TEST_F(PressureTest, AnIdleDaemonThatHasSeenMuchMoreGivesWayInTime) {
  ASSERT_NO_FATAL_FAILURE(FillTier(12));
  EXPECT_GT(Take(4, std::int64_t{kFloor} * 14), 0);
}

// Step by step without a pause, however many they are.
TEST_F(PressureTest, SmallFilesLeaveAsFast) {
  options_.ram.capacity_bytes = 64 << 20;
  SetAvailable(1 << 30);
  StartEngine();
  const auto names = MakeFiles(6000, 4096);
  for (const std::string& name : names) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  (void)HandlersIn(2500);
  SetAvailable(0);
  ASSERT_TRUE(RunUntil([&] { return !engine().placement().HasFrames(); }));
  int ticks = 0;
  engine().on_timer = [&] { ++ticks; };
  EXPECT_TRUE(RunUntil([&] { return Held() == 0; }));
  EXPECT_LT(ticks, 60) << "64 at a tick would be 94";
  engine().on_timer = nullptr;
}

// Where much is left it sleeps as long as ever.
TEST_F(PressureTest, AnIdleDaemonSleepsWhereMemoryIsNotShort) {
  ASSERT_NO_FATAL_FAILURE(FillTier(12));
  EXPECT_LE(HandlersIn(4000), 10u);
}

}  // namespace
}  // namespace tierd::engine
