// Files in use are asked about again before their deadline (Refresher).
#include <algorithm>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class RefreshTest : public EngineTest {
 protected:
  static constexpr std::uint32_t kTtlMs = 1000;
  RefreshTest() { source_options().ttl_ms = kTtlMs; }
  // Time until the first of the files is no longer valid; <= 0: one is not now.
  std::int64_t LeastLeftNs(const std::vector<std::string>& names) {
    std::uint32_t deadline = abi::kDeadlineNever;
    for (const std::string& name : names) deadline = std::min(deadline, engine().catalogue().DeadlineOf(FileOf(name)));
    return (std::int64_t{deadline} << abi::kTickShift) - SystemClock().MonotonicNs();
  }
};

TEST_F(RefreshTest, WhatIsReadStaysValidAndIdleAsksNothing) {
  const auto names = MakeFiles(200, 500);
  StartEngine();
  std::vector<Answer> read;
  for (const std::string& name : names) read.push_back(Fetch(name));
  // Hits of a reader that goes on for two ttl; the daemon sees them in the ring.
  std::int64_t least_ns = std::int64_t{kTtlMs} * 1'000'000;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2 * kTtlMs);
  for (std::size_t i = 0; std::chrono::steady_clock::now() < end; ++i) {
    NoteRead(read[i % read.size()]);
    RunUntil([] { return false; }, 3);
    least_ns = std::min(least_ns, LeastLeftNs(names));
  }
  EXPECT_GT(least_ns, 0);
  EXPECT_EQ(source_io_.count(io::Step::kOpen), names.size());
  EXPECT_GE(engine().counters().revalidations, names.size());
  EXPECT_LE(engine().counters().revalidations, 6 * names.size());
  // Nobody reads: after a moment nothing is asked any more.
  RunUntil([] { return false; }, static_cast<int>(Refresher::kIdleNs / 1'000'000) + 300);
  const std::uint64_t asked = engine().counters().revalidations;
  RunUntil([] { return false; }, 2 * kTtlMs);
  EXPECT_EQ(engine().counters().revalidations, asked);
}

TEST_F(RefreshTest, CostsTheSourceAtMostFourRequestsPerRead) {
  const auto names = MakeFiles(300, 500);
  StartEngine();
  std::vector<Answer> read;
  for (const std::string& name : names) read.push_back(Fetch(name));
  const std::uint64_t before = engine().counters().revalidations;
  for (int i = 0; i < 20; ++i) NoteRead(read[static_cast<std::size_t>(i)]);
  RunUntil([] { return false; }, 2 * kTtlMs);
  EXPECT_GT(engine().counters().revalidations, before);
  EXPECT_LE(engine().counters().revalidations - before, 20 * Refresher::kStatsPerRead);
}

TEST_F(RefreshTest, AChangeIsFoundAheadOfUseAndAMissingFileIsKept) {
  const std::string changed = Write("changed", Bytes("changed", 3000, 1));
  const std::string missing = Write("missing", Bytes("missing", 3000));
  StartEngine();
  const Answer answer = Fetch(changed);
  Fetch(missing);
  Write(changed, Bytes(changed, 4000, 2));
  std::filesystem::remove(tree_ / missing);
  EXPECT_TRUE(RunUntil([&] {
    NoteRead(answer);
    return engine().counters().invalidated_changed == 1;
  }, 2 * kTtlMs));
  EXPECT_FALSE(InRam(changed));
  RunUntil([] { return false; }, kTtlMs);
  EXPECT_TRUE(InRam(missing)) << "an ENOENT proves nothing (HAZARDS 2.15)";
  EXPECT_LE(LeastLeftNs({missing}), 0) << "but its time is not extended";
  EXPECT_EQ(Fetch(changed).bytes, Bytes(changed, 4000, 2));
}

TEST_F(RefreshTest, NothingIsAskedInTheOtherModes) {
  for (const abi::Staleness mode : {abi::Staleness::kImmutable, abi::Staleness::kOpen}) {
    source_options().staleness = mode;
    const auto names = MakeFiles(20, 500);
    StartEngine();
    std::vector<Answer> read;
    for (const std::string& name : names) read.push_back(Fetch(name));
    const std::uint64_t before = source_io_.count(io::Step::kStat);
    RunUntil([&] {
      for (const Answer& answer : read) NoteRead(answer);
      return false;
    }, kTtlMs + 200);
    EXPECT_EQ(source_io_.count(io::Step::kStat), before);
    StopEngine();
  }
}

}  // namespace
}  // namespace tierd::engine
