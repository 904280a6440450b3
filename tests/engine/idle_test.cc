// A daemon that nobody asks anything wakes for its heartbeat and little else (anchor A4b). Counted in handlers that the loop ran.
#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class IdleTest : public EngineTest {
 protected:
  IdleTest() { options_.ram.min_available_bytes = 1 << 20; }  // plenty of memory: it is rarely looked at
  void ReadSomething() {
    for (const std::string& name : MakeFiles(4, 4096)) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
    (void)HandlersIn(1500);  // what a start and its readers leave behind is not idling
  }
};

// In four seconds: six or seven heartbeats, at most one look at the node's memory.
TEST_F(IdleTest, WithoutAnSsdOnlyTheHeartBeats) {
  StartEngine();
  ReadSomething();
  EXPECT_LE(HandlersIn(4000), 9u);
}

// However rarely: nobody takes it for hung, and it says so no farther ahead than readers were told.
TEST_F(IdleTest, NobodyTakesAnIdleDaemonForHung) {
  StartEngine();
  ReadSomething();
  std::int64_t oldest = 0, farthest = 0;
  for (int i = 0; i < 40; ++i) {
    (void)HandlersIn(50);
    const std::int64_t age = std::int64_t{abi::TicksOf(SystemClock().MonotonicNs())} - engine().index().header()->heartbeat_ticks.load();
    oldest = std::max(oldest, age);
    farthest = std::max(farthest, -age);
  }
  EXPECT_LT(oldest, abi::kHeartbeatStaleTicks);
  EXPECT_LE(farthest, abi::kHeartbeatAheadTicks);
  EXPECT_GT(farthest, 0);
}

// And one look at the disk's free space: nobody writes.
TEST_F(IdleTest, WithAnSsdItsSpaceIsLookedAtToo) {
  UseSsd();
  StartEngine();
  ReadSomething();
  EXPECT_LE(HandlersIn(4000), 11u);
}

// Who reads fast fills a ring of 4,096 entries in less than the tick of a daemon that is asked nothing.
TEST_F(IdleTest, RingsOfFastReadersAreReadBeforeTheyRunOver) {
  StartEngine();
  ReadSomething();
  int ticks = 0, reads = 4;
  engine().on_timer = [&] {
    ++ticks;
    for (int i = 0; i < reads; ++i) NoteEntry(kReader, 0);
  };
  while (ticks == 0) (void)HandlersIn(1);
  ticks = 0;
  (void)HandlersIn(1000);
  EXPECT_LE(ticks, 6) << "16 reads a second";
  ticks = 0;
  reads = 3000;
  (void)HandlersIn(1000);
  EXPECT_GE(ticks, 40);
  engine().on_timer = nullptr;
}

}  // namespace
}  // namespace tierd::engine
