// Answers, records and observations that are older than what a client has said since.
#include <sys/stat.h>

#include <algorithm>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class DoubtTest : public EngineTest {
 protected:
  io::FileStat StatNow(const std::string& name) {
    struct stat now{};
    EXPECT_EQ(::stat((tree_ / name).c_str(), &now), 0);
    io::FileStat stat;
    stat.dev = now.st_dev;
    stat.ino = now.st_ino;
    stat.size = static_cast<std::uint64_t>(now.st_size);
    stat.mtime_ns = now.st_mtim.tv_sec * 1'000'000'000 + now.st_mtim.tv_nsec;
    stat.ctime_ns = now.st_ctim.tv_sec * 1'000'000'000 + now.st_ctim.tv_nsec;
    stat.mode = now.st_mode;
    return stat;
  }
};

// The second segment takes tens of milliseconds to be made: what has been read meanwhile waits in staging buffers.
TEST_F(DoubtTest, BytesThatWaitForAFrameAreReadAgainAfterAnInvalidation) {
  constexpr int kFiles = 80;
  options_.ram.capacity_bytes = 256 << 20;
  options_.ram.segment_bytes = 64 << 20;
  std::vector<std::string> names;
  for (int i = 0; i < kFiles; ++i) names.push_back(Write("f" + std::to_string(i), Bytes("f" + std::to_string(i), 1 << 20)));
  StartEngine();
  for (int i = 0; i < 20; ++i) ASSERT_EQ(Fetch(Write("small" + std::to_string(i), Bytes("s", 1 << 20))).status(), abi::FetchStatus::kFrame);  // now it guesses right
  ASSERT_TRUE(RunUntil([&] { return engine().fetcher().idle(); }));
  const std::uint64_t opens = source_io_.count(io::Step::kOpen);
  const std::uint64_t stats = source_io_.count(io::Step::kStatAfter);
  std::vector<std::uint64_t> asked;
  for (const std::string& name : names) asked.push_back(Ask(name));
  ASSERT_TRUE(RunUntil([&] { return source_io_.count(io::Step::kStatAfter) - stats >= kFiles; }));
  (void)HandlersIn(1);
  std::vector<std::string> waiting;
  for (const std::string& name : names) {
    if (FileOf(name) != kNoFile && !InRam(name)) waiting.push_back(name);
  }
  if (waiting.empty()) GTEST_SKIP() << "the segment was there at once";
  for (const std::string& name : waiting) Advise(abi::AdviseOp::kInvalidate, name);
  ASSERT_TRUE(RunUntil([&] { return std::all_of(asked.begin(), asked.end(), [&](std::uint64_t id) { return answers().contains(id); }); }, 30'000));
  EXPECT_GE(source_io_.count(io::Step::kOpen) - opens, kFiles + waiting.size());
  for (std::size_t i = 0; i < asked.size(); ++i) EXPECT_TRUE(answers()[asked[i]].bytes == Bytes(names[i], 1 << 20)) << names[i];
}

// What is told of other files concerns nobody: not those on their way, and not those that wait to be sent.
TEST_F(DoubtTest, ChangesOfOtherFilesCostNoRead) {
  constexpr int kFiles = 120, kChanges = 3000;
  const std::vector<std::string> names = MakeFiles(kFiles, 5000);
  StartEngine();
  const std::uint64_t opens = source_io_.count(io::Step::kOpen);
  source_io_.Hold(io::Step::kStatAfter);
  std::vector<std::uint64_t> asked;
  for (const std::string& name : names) asked.push_back(Ask(name));
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting > 0; }));
  for (int i = 0; i < kChanges; ++i) Advise(abi::AdviseOp::kInvalidate, "log/" + std::to_string(i));
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return std::all_of(asked.begin(), asked.end(), [&](std::uint64_t id) { return answers().contains(id); }); }));
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_TRUE(answers()[asked[i]].bytes == Bytes(names[i], 5000)) << names[i];
  EXPECT_EQ(source_io_.count(io::Step::kOpen) - opens, static_cast<std::uint64_t>(kFiles));
}

// What the source is asked for after a change is told of cannot be older than it, however long before somebody wanted it.
TEST_F(DoubtTest, WhatHadNotBeenSentIsReadOnce) {
  constexpr int kFiles = 120;
  const std::vector<std::string> names = MakeFiles(kFiles, 5000);
  StartEngine();
  const std::uint64_t opens = source_io_.count(io::Step::kOpen);
  source_io_.Hold(io::Step::kStatAfter);
  std::vector<std::uint64_t> asked;
  for (const std::string& name : names) asked.push_back(Ask(name));
  const std::uint64_t sent = unit().reader->counters().in_flight;
  ASSERT_GT(sent, 0u);
  ASSERT_LT(sent, names.size());
  bool told = false;
  engine().Advise(unit(), abi::AdviseOp::kInvalidate, "", true, [&](int, std::uint64_t) { told = true; });
  ASSERT_TRUE(RunUntil([&] { return told; }));
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return std::all_of(asked.begin(), asked.end(), [&](std::uint64_t id) { return answers().contains(id); }); }));
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_TRUE(answers()[asked[i]].bytes == Bytes(names[i], 5000)) << names[i];
  EXPECT_EQ(source_io_.count(io::Step::kOpen) - opens, kFiles + sent);
}

// An answer that is too old to confirm a file takes nothing from what a younger one has confirmed.
TEST_F(DoubtTest, AnAnswerFromBeforeAChangeEndsNoDeadlineFromAfterIt) {
  source_options().ttl_ms = 60'000;
  const std::string name = Write("f", Bytes("f", 5000, 1));
  StartEngine();
  ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  source_io_.Hold(io::Step::kStat);
  engine().fetcher().RefreshAhead(unit(), FileOf(name), [](const BringResult&) {});
  engine().EndTurn();
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting == 1; }));
  Advise(abi::AdviseOp::kInvalidate, name);
  const std::int64_t told_ns = clock_.PreciseNs();
  ASSERT_TRUE(RunUntil([&] { return clock_.MonotonicNs() > told_ns; }));
  ASSERT_TRUE(Fetch(name).bytes == Bytes("f", 5000, 1));
  const std::uint32_t deadline = engine().catalogue().DeadlineOf(FileOf(name));
  ASSERT_NE(deadline, abi::kDeadlineExpired);
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return engine().fetcher().idle(); }));
  EXPECT_EQ(engine().catalogue().DeadlineOf(FileOf(name)), deadline);
  EXPECT_EQ(source_io_.count(io::Step::kStat), 1u) << "nor is the source asked once more";
}

class RecoveryDoubtTest : public DoubtTest {
 protected:
  void FillSsd() {
    UseSsd();
    names_ = MakeFiles(24, 20'000);
    StartEngine();
    for (const std::string& name : names_) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
    for (const std::string& name : names_) ASSERT_TRUE(OnSsd(name));
    StopEngine();
    BeginEngine();
  }
  void AwaitRecovery() { ASSERT_TRUE(RunUntil([&] { return !engine().recovering(); })); }
  std::vector<std::string> names_;
};

// What a client tells a new daemon first of all: its records are not known yet.
TEST_F(RecoveryDoubtTest, ARecordThatComesAfterTheInvalidationOfItsFileIsNotAdopted) {
  FillSsd();
  ASSERT_EQ(Advise(abi::AdviseOp::kInvalidate, names_[5]), 0u);
  AwaitRecovery();
  for (std::size_t i = 0; i < names_.size(); ++i) EXPECT_EQ(FileOf(names_[i]) != kNoFile && OnSsd(names_[i]), i != 5) << names_[i];
  EXPECT_EQ(Fetch(names_[5]).tier(), abi::Tier::kSource);
}

TEST_F(RecoveryDoubtTest, NorAreThoseOfATree) {
  FillSsd();
  bool done = false;
  engine().Advise(unit(), abi::AdviseOp::kInvalidate, "d3", true, [&](int error, std::uint64_t) {
    EXPECT_EQ(error, 0);
    done = true;
  });
  AwaitRecovery();
  ASSERT_TRUE(RunUntil([&] { return done; }));
  for (const std::string& name : names_) EXPECT_EQ(FileOf(name) != kNoFile && OnSsd(name), !name.starts_with("d3/")) << name;
}

TEST_F(RecoveryDoubtTest, NorAreThoseOfEverything) {
  FillSsd();
  engine().Advise(unit(), abi::AdviseOp::kInvalidate, "", true, [](int, std::uint64_t) {});
  AwaitRecovery();
  for (const std::string& name : names_) EXPECT_EQ(FileOf(name), kNoFile) << name;
}

// HAZARDS 2.16: what a record says is true once a stat of this daemon's life has said so too.
TEST_F(RecoveryDoubtTest, ARecordIsComparedWithTheSourceAtItsFirstUseAlsoOfAnImmutableSet) {
  source_options().staleness = abi::Staleness::kImmutable;
  FillSsd();
  AwaitRecovery();
  const auto asked = [&] { return source_io_.count(io::Step::kStat) + source_io_.count(io::Step::kOpen); };
  const std::uint64_t before = asked();
  EXPECT_EQ(Fetch(names_[4]).tier(), abi::Tier::kSsd);
  EXPECT_EQ(asked() - before, 2u) << "its directory, and the file";
  Write(names_[5], Bytes(names_[5], 20'000, 2));
  ASSERT_TRUE(OnSsd(names_[5]));
  EXPECT_TRUE(Fetch(names_[5]).bytes == Bytes(names_[5], 20'000, 2));
}

// An entry of a walk may have waited for room in the index while the file was read anew.
TEST_F(DoubtTest, AnEntryThatAWalkSawLongAgoDoesNotReplaceWhatIsKnownNow) {
  StartEngine();
  const std::string name = Write("f", Bytes("f", 5000, 1));
  const io::FileStat then = StatNow(name);
  Write(name, Bytes("f", 6000, 2));
  ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  EXPECT_EQ(engine().fetcher().Observe(unit(), name, then, 1), Fetcher::Observed::kKnown);
  EXPECT_TRUE(InRam(name));
  engine().EndTurn();
  ASSERT_TRUE(RunUntil([&] { return engine().fetcher().idle(); }));
  EXPECT_TRUE(InRam(name));
  EXPECT_EQ(engine().catalogue().SizeOf(FileOf(name)), 6000u);
  // And the other way round: it changed, and the walk was the first to see it.
  Write(name, Bytes("f", 7000, 3));
  EXPECT_EQ(engine().fetcher().Observe(unit(), name, StatNow(name), 1), Fetcher::Observed::kKnown);
  engine().EndTurn();
  ASSERT_TRUE(RunUntil([&] { return engine().fetcher().idle(); }));
  EXPECT_EQ(engine().catalogue().SizeOf(FileOf(name)), 7000u);
}

}  // namespace
}  // namespace tierd::engine
