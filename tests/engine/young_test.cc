// Files that may still be in the making when they are seen first (HAZARDS 2.12): by a reader, by a walk, ahead of use.
#include <sys/stat.h>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class YoungTest : public EngineTest {
 protected:
  static constexpr int kALittleLaterMs = 250;
  static constexpr int kMadeMs = 2100;  // nobody writes to it any more
  YoungTest() {
    source_options().racy_window_ms = 3'600'000;
    source_options().staleness = abi::Staleness::kImmutable;
  }
  void Pause(int ms) { RunUntil([] { return false; }, ms); }
  void ObserveNow(const std::string& name) {
    io::FileStat now;
    ASSERT_EQ(source::StatAt(unit().source->root_fd(), name.c_str(), false, &now), 0);
    EXPECT_EQ(engine().fetcher().Observe(unit(), name, now, SystemClock().PreciseNs()), Fetcher::Observed::kKnown);
  }
  void Prefetch(const std::string& name) {
    const JobStatus status = WaitForJob(engine().jobs().Prefetch({{&unit(), name}}, {}));
    ASSERT_EQ(status.state, JobState::kDone) << status.error;
  }
  std::uint32_t DeadlineOf(const std::string& name) { return engine().catalogue().DeadlineOf(FileOf(name)); }
};

// Between the creation of a file and the first write to it everything that looks sees a file of nothing.
TEST_F(YoungTest, IsEmptyForAMomentOnly) {
  const std::string name = Write("file", "");
  StartEngine();
  ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kMeta);
  ASSERT_EQ(Fetch(name).reply.size, 0u);
  Write(name, Bytes(name, 5000));
  Pause(kALittleLaterMs);
  EXPECT_TRUE(Fetch(name).bytes == Bytes(name, 5000));
}

TEST_F(YoungTest, AlsoToAWalkAndToAStat) {
  const std::string walked = Write("walked", "");
  const std::string asked = Write("asked", "");
  StartEngine();
  ObserveNow(walked);
  ASSERT_EQ(Fetch(asked, abi::FetchOp::kStat).reply.size, 0u);
  for (const std::string& name : {walked, asked}) Write(name, Bytes(name, 5000));
  Pause(kALittleLaterMs);
  EXPECT_EQ(Fetch(walked, abi::FetchOp::kStat).reply.size, 5000u);
  for (const std::string& name : {walked, asked}) EXPECT_TRUE(Fetch(name).bytes == Bytes(name, 5000)) << name;
}

TEST_F(YoungTest, AlsoWhenItTakesThePlaceOfAnother) {
  source_options().ttl_ms = 100;
  const std::string name = Write("file", Bytes("file", 5000, 1));
  StartEngine();
  ASSERT_TRUE(Fetch(name).bytes == Bytes(name, 5000, 1));
  Write(name, "");
  Pause(kALittleLaterMs);
  ASSERT_EQ(Fetch(name).reply.size, 0u);
  Write(name, Bytes(name, 5000, 2));
  Pause(kALittleLaterMs);
  EXPECT_TRUE(Fetch(name).bytes == Bytes(name, 5000, 2));
}

TEST_F(YoungTest, IsEmptyForGoodOnceItIsOld) {
  source_options().racy_window_ms = 3000;
  StartEngine();
  const std::string name = Write("file", "");
  ASSERT_EQ(Fetch(name).reply.size, 0u);
  EXPECT_NE(DeadlineOf(name), abi::kDeadlineNever);
  Pause(3400);
  ASSERT_EQ(Fetch(name).reply.size, 0u);
  EXPECT_EQ(DeadlineOf(name), abi::kDeadlineNever);
}

TEST_F(YoungTest, ItsSizeIsBelievedForATimeOnly) {
  const std::string walked = Write("walked", "half");
  const std::string asked = Write("asked", "half");
  StartEngine();
  ObserveNow(walked);
  ASSERT_EQ(Fetch(asked, abi::FetchOp::kStat).reply.size, 4u);
  EXPECT_NE(DeadlineOf(walked), abi::kDeadlineNever);
  EXPECT_NE(DeadlineOf(asked), abi::kDeadlineNever);
}

TEST_F(YoungTest, IsReadAgainAtItsDeadlineThoughItsStampsAreTheSame) {
  source_options().ttl_ms = 150;
  const std::string name = Write("file", Bytes("file", 5000));
  StartEngine();
  Pause(kMadeMs);
  ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  Pause(kALittleLaterMs);
  EXPECT_TRUE(Fetch(name).bytes == Bytes(name, 5000));
  EXPECT_EQ(source_io_.count(io::Step::kOpen), 2u);
  EXPECT_EQ(engine().counters().invalidated_racy, 1u);
}

// What was asked for before the machine slept is not believed; that its bytes are young is.
TEST_F(YoungTest, WhatWasUnderWayWhileTheMachineSleptIsReadAgainToo) {
  UseSsd();
  source_options().staleness = abi::Staleness::kTtl;
  source_options().ttl_ms = 3'600'000;
  const std::string name = Write("file", Bytes("file", 5000));
  StartEngine();
  Pause(kMadeMs);
  ASSERT_EQ(Fetch(name, abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
  source_io_.Hold(io::Step::kStatAfter);
  const std::uint64_t asked = Ask(name);
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting == 1; }));
  clock_.asleep_ns += 1'000'000'000;
  ASSERT_TRUE(RunUntil([&] { return DeadlineOf(name) == abi::kDeadlineExpired; }));
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return answers().contains(asked) && engine().fetcher().idle(); }));
  EXPECT_FALSE(OnSsd(name)) << "the next life would compare them with a stat";
  const std::uint64_t opens = source_io_.count(io::Step::kOpen);
  EXPECT_TRUE(Fetch(name).bytes == Bytes(name, 5000));
  EXPECT_EQ(source_io_.count(io::Step::kOpen), opens + 1);
  EXPECT_EQ(engine().counters().invalidated_racy, 1u);
}

// A reader that comes after the writer has ended sees what he wrote, whoever was there before him.
TEST_F(YoungTest, WhatWasReadInTheMakingIsComparedAtEachUse) {
  for (const abi::Staleness mode : {abi::Staleness::kImmutable, abi::Staleness::kTtl}) {
    source_options().staleness = mode;
    const std::string small = Write("small" + std::to_string(static_cast<int>(mode)), "half of");
    const std::string large = Write("large" + std::to_string(static_cast<int>(mode)), Bytes("half", 200'000));
    source_options().chunk_bytes = 64 << 10;
    StartEngine();
    ASSERT_EQ(Fetch(small).bytes, "half of");
    ASSERT_EQ(Fetch(large).status(), abi::FetchStatus::kFrame);
    Write(small, Bytes(small, 5000));
    Write(large, Bytes(large, 200'000));
    Pause(50);
    EXPECT_TRUE(Fetch(small).bytes == Bytes(small, 5000));
    EXPECT_TRUE(Fetch(large).bytes == Bytes(large, 200'000).substr(0, 64 << 10));
    StopEngine();
  }
}

// Warm-up was there first, and has seen half a file of a writer who pauses.
TEST_F(YoungTest, WhatWasReadAheadIsComparedBeforeItsFirstUse) {
  const std::string name = Write("file", "half of");
  StartEngine();
  Pause(kMadeMs);
  Prefetch(name);
  ASSERT_TRUE(InRam(name));
  Write(name, Bytes(name, 5000));
  EXPECT_TRUE(Fetch(name).bytes == Bytes(name, 5000));
}

TEST_F(YoungTest, AndThatCostsOneStat) {
  const std::string name = Write("file", Bytes("file", 5000));
  const std::string large = Write("large", Bytes("large", 200'000));
  source_options().chunk_bytes = 64 << 10;
  StartEngine();
  Pause(kMadeMs);
  Prefetch(name);
  Prefetch(name);
  Prefetch(large);
  const std::uint64_t opens = source_io_.count(io::Step::kOpen);
  ASSERT_EQ(source_io_.count(io::Step::kStat), 0u) << "the daemon itself needs none";
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Fetch(name).bytes == Bytes(name, 5000));
    for (std::uint32_t chunk = 0; chunk < 4; ++chunk) EXPECT_TRUE(Fetch(large, abi::FetchOp::kChunk, chunk).bytes == Bytes("large", 200'000).substr(chunk << 16, 64 << 10));
    Pause(50);
  }
  EXPECT_EQ(source_io_.count(io::Step::kStat), 2u);
  EXPECT_EQ(source_io_.count(io::Step::kOpen), opens);
  EXPECT_NE(engine().catalogue().file(FileOf(name)).flags & kFileRacy, 0);
}

TEST_F(YoungTest, WhoReadsAFileThatIsMadeComparesUntilItIsOlder) {
  const std::string name = Write("file", Bytes("file", 5000));
  StartEngine();
  EXPECT_TRUE(Fetch(name).bytes == Bytes(name, 5000));
  Pause(kMadeMs);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Fetch(name).bytes == Bytes(name, 5000));
    Pause(50);
  }
  EXPECT_EQ(source_io_.count(io::Step::kStat), 1u);
  EXPECT_EQ(source_io_.count(io::Step::kOpen), 1u);
}

// Another read, whatever its stat says of the file's age, says nothing about the bytes that were read when it was young: its own take their place.
TEST_F(YoungTest, BytesReadInTheMakingAreNotConfirmedByAnotherRead) {
  source_options().racy_window_ms = 2500;
  source_options().staleness = abi::Staleness::kTtl;
  source_options().ttl_ms = 60'000;
  const std::string name = Write("file", Bytes("file", 5000));
  StartEngine();
  std::this_thread::sleep_for(std::chrono::milliseconds(kMadeMs));  // not Pause: where the loop turns meanwhile the second read ends later, beyond the window
  std::atomic<int>& late = source_io_.delay_us[static_cast<std::size_t>(io::Step::kOpen)];
  late = 800'000;
  bool brought = false;
  engine().fetcher().Bring(unit(), {.path = name, .done = [&](const BringResult&) { brought = true; }});
  ASSERT_TRUE(RunUntil([&] { return source_io_.count(io::Step::kOpen) == 1; }));
  Pause(20);
  late = 0;
  ObserveNow(name);
  ASSERT_TRUE(Fetch(name).bytes == Bytes(name, 5000));
  ASSERT_FALSE(brought);
  ASSERT_EQ(engine().catalogue().file(FileOf(name)).flags & kFileRacy, kFileRacy);
  const std::uint64_t read = engine().counters().promotions_source_ram;
  ASSERT_TRUE(RunUntil([&] { return brought; }));
  EXPECT_TRUE(InRam(name));
  EXPECT_EQ(engine().counters().promotions_source_ram, read + 1) << "the bytes that are there are the ones that were read last";
}

}  // namespace
}  // namespace tierd::engine
