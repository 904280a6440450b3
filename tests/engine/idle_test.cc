// A daemon that nobody asks anything sleeps, but for its heart (anchor A4b). Counted in handlers that the loop ran.
#include <boost/asio/post.hpp>

#include <thread>

#include "tests/engine/engine_fixture.h"
#include "tierd/ram/session_page.h"

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

// In four seconds: two looks at everything, at most one of them at the node's memory.
TEST_F(IdleTest, WithoutAnSsdOnlyTheHeartBeats) {
  StartEngine();
  ReadSomething();
  EXPECT_LE(HandlersIn(4000), 4u);
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

// The heart does not beat for a loop that something keeps.
TEST_F(IdleTest, ALoopThatIsKeptIsTakenForHung) {
  StartEngine();
  ReadSomething();
  const auto age = [&] { return std::int64_t{abi::TicksOf(SystemClock().MonotonicNs())} - engine().index().header()->heartbeat_ticks.load(); };
  const auto handler = engine().CountHandler("test");
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_GT(age(), abi::kHeartbeatStaleTicks);
}

// And one look at the disk's free space: nobody writes.
TEST_F(IdleTest, WithAnSsdItsSpaceIsLookedAtToo) {
  UseSsd();
  StartEngine();
  ReadSomething();
  EXPECT_LE(HandlersIn(4000), 6u);
}

// Nor does it oversleep what its source owes somebody (`tierctl explain` of a source that hangs).
TEST_F(IdleTest, WhatTheSourceDoesNotAnswerIsSaidInTime) {
  StartEngine();
  ReadSomething();
  source_io_.Hold(io::Step::kStat);
  bool told = false;
  source::StatQuery query;
  query.path = "d0/f0";
  query.deadline_ns = clock_.MonotonicNs() + 300'000'000;
  query.done = [&](const source::StatReply&) { told = true; };
  unit().reader->Stat(std::move(query));
  const auto begin = std::chrono::steady_clock::now();
  const auto others_ask_all_the_time = [&] {
    engine().EndTurn();
    return told;
  };
  EXPECT_TRUE(RunUntil(others_ask_all_the_time, 5000));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(1000));
  source_io_.Release();
}

// It sleeps for two seconds; rings are looked at for it.
TEST_F(IdleTest, WhoBeginsToReadMakesTheLoopCome) {
  StartEngine();
  auto session = ram::SessionPage::Create({});
  ASSERT_TRUE(session.ok());
  AddSession(session->page());
  ReadSomething();
  int ticks = 0;
  engine().on_timer = [&] { ++ticks; };
  while (ticks == 0) (void)HandlersIn(1);  // the next one is two seconds away
  (void)HandlersIn(100);
  ticks = 0;
  session->page()->ring_head.store(1);
  const auto begin = std::chrono::steady_clock::now();
  while (ticks == 0) (void)HandlersIn(1);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(1300));
  engine().on_timer = nullptr;
  StopEngine();
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
