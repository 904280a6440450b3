// A source that hangs holds frames; how many is bounded, and what is cached is served all the time (F39, HAZARDS 2.7).
#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class HungTest : public EngineTest {
 protected:
  static constexpr std::size_t kBytes = 1 << 20;
  HungTest() {
    source_options().demand_timeout_ms = 60;
    source_options().chunk_bytes = 1 << 20;
    options_.ram.capacity_bytes = 32 << 20;
  }
};

TEST_F(HungTest, FramesOfHungReadsAreBoundedAndReadersAreServed) {
  constexpr int kCached = 8;
  constexpr int kHanging = 16;
  const auto names = MakeFiles(kCached + kHanging, kBytes);
  StartEngine();
  for (int i = 0; i < kCached; ++i) ASSERT_EQ(Fetch(names[static_cast<std::size_t>(i)]).status(), abi::FetchStatus::kFrame);
  // Known, so that their reads go into frames at once.
  for (const std::string& name : names) ASSERT_EQ(Fetch(name, abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
  source_io_.Hold(io::Step::kRead);
  // One reader at a time, so that nothing else is under way beside the hung ones.
  for (int i = kCached; i < kCached + kHanging; ++i) {
    const Answer answer = Fetch(names[static_cast<std::size_t>(i)]);
    EXPECT_EQ(answer.status(), abi::FetchStatus::kBypass);
    EXPECT_EQ(answer.reply.reason, static_cast<std::uint8_t>(abi::Fallback::kSourceSlow));
  }
  EXPECT_GT(engine().fetcher().hung_frames(), 0u);
  EXPECT_LE(engine().fetcher().hung_frames() * kBytes, (32u << 20) / 8 + kBytes);
  for (int i = 0; i < kCached; ++i) EXPECT_EQ(Fetch(names[static_cast<std::size_t>(i)]).tier(), abi::Tier::kRam);
  source_io_.Release();
  EXPECT_TRUE(RunUntil([&] { return engine().fetcher().hung_frames() == 0 && engine().fetcher().idle(); }));
  for (const std::string& name : names) {
    EXPECT_TRUE(RunUntil([&] {
      const Answer answer = Fetch(name);
      return answer.status() == abi::FetchStatus::kFrame && answer.bytes == Bytes(name, kBytes);
    })) << name;
  }
}

TEST_F(HungTest, ALateCompletionOfAnInvalidatedFileGoesNowhere) {
  const std::string name = Write("file", Bytes("file", kBytes, 1));
  StartEngine();
  ASSERT_EQ(Fetch(name, abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
  source_io_.Hold(io::Step::kStatAfter);
  ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kBypass);
  Write(name, Bytes(name, kBytes, 2));
  Advise(abi::AdviseOp::kInvalidate, name);
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return engine().fetcher().hung_frames() == 0; }));
  EXPECT_TRUE(Fetch(name).bytes == Bytes(name, kBytes, 2));
}

// What the daemon brings for itself takes as long as it takes, also when a reader with less patience wants it too.
class PatienceTest : public HungTest {
 protected:
  static constexpr std::size_t kChunk = 64 << 10;
  PatienceTest() { source_options().demand_timeout_ms = 60; }

  void ExpectSentToTheSource(std::uint64_t id) {
    ASSERT_TRUE(RunUntil([&] { return answers().contains(id); }));
    EXPECT_EQ(answers()[id].status(), abi::FetchStatus::kBypass);
    EXPECT_EQ(answers()[id].reply.reason, static_cast<std::uint8_t>(abi::Fallback::kSourceSlow));
  }
  // Each is in the tiers in the end.
  void ExpectBrought(std::size_t count) {
    EXPECT_TRUE(brought_.empty()) << "while the source gave no answer";
    source_io_.Release();
    EXPECT_TRUE(RunUntil([&] { return brought_.size() == count && engine().fetcher().idle(); }, 10'000));
    for (const BringOutcome outcome : brought_) EXPECT_EQ(outcome, BringOutcome::kCached);
  }
  void Bring(const std::string& path, std::uint32_t chunk = 0) {
    engine().fetcher().Bring(unit(), {.path = path, .chunk = chunk, .done = Note()});
    engine().EndTurn();
  }
  BringCallback Note() {
    return [this](const BringResult& result) { brought_.push_back(result.outcome); };
  }
  void ExpectDoneThoughAReaderGaveUp(const std::string& name) {
    source_io_.Hold(io::Step::kRead);
    const std::uint64_t job = engine().jobs().Prefetch({{&unit(), "d"}}, {});
    engine().EndTurn();
    ASSERT_TRUE(RunUntil([&] { return source_io_.waiting == 1; }));
    ExpectSentToTheSource(Ask(name));
    source_io_.Release();
    const JobStatus status = WaitForJob(job);
    EXPECT_EQ(status.state, JobState::kDone) << status.files_failed << " failed: " << status.error;
    EXPECT_EQ(status.files_done, 1u);
    EXPECT_EQ(status.verified_files, 1u);
  }
  std::vector<BringOutcome> brought_;
};

TEST_F(PatienceTest, OfAFileThatNobodyKnew) {
  const std::string name = Write("d/file", Bytes("file", 300'000));
  StartEngine();
  ExpectDoneThoughAReaderGaveUp(name);
}

TEST_F(PatienceTest, OfAKnownFile) {
  const std::string name = Write("d/file", Bytes("file", 300'000));
  StartEngine();
  ASSERT_EQ(Fetch(name, abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
  ExpectDoneThoughAReaderGaveUp(name);
}

TEST_F(PatienceTest, OfWhoComesWhenTheReaderHasGone) {
  const std::string known = Write("known", Bytes("known", 3000));
  const std::string unknown = Write("unknown", Bytes("unknown", 3000));
  StartEngine();
  ASSERT_EQ(Fetch(known, abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
  source_io_.Hold(io::Step::kRead);
  for (const std::string& name : {known, unknown}) {
    ExpectSentToTheSource(Ask(name));
    Bring(name);
    ExpectSentToTheSource(Ask(name));
  }
  ExpectBrought(2);
  EXPECT_EQ(source_io_.count(io::Step::kRead), 2u);
}

TEST_F(PatienceTest, OfWhoWantsToKnowWhetherAFileIsTheSame) {
  const std::string name = Write("file", Bytes("file", 3000));
  StartEngine();
  ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  Advise(abi::AdviseOp::kInvalidate, name);
  (void)HandlersIn(20);
  source_io_.Hold(io::Step::kStat);
  engine().fetcher().Refresh(unit(), FileOf(name), Note());
  engine().EndTurn();
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting == 1; }));
  ExpectSentToTheSource(Ask(name, abi::FetchOp::kStat));
  ExpectBrought(1);
}

// The source refuses whoever has not been sent yet, and chunks stand in the line together.
TEST_F(PatienceTest, OfChunksThatStandInTheLine) {
  source_options().chunk_bytes = kChunk;
  source_options().hung_cap = 1;
  const std::string content = Bytes("large", 4 * kChunk);
  const std::string name = Write("large", content);
  Write("hangs", "hangs");
  Write("probe", "probe");
  StartEngine();
  ASSERT_EQ(Fetch(name, abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
  source_io_.Hold(io::Step::kRead);
  ExpectSentToTheSource(Ask("hangs"));
  Bring("probe");
  for (std::uint32_t chunk = 0; chunk < 4; ++chunk) Bring(name, chunk);
  ExpectSentToTheSource(Ask(name, abi::FetchOp::kChunk, 2));
  ExpectBrought(5);
  for (std::uint32_t chunk = 0; chunk < 4; ++chunk) EXPECT_TRUE(Fetch(name, abi::FetchOp::kChunk, chunk).bytes == content.substr(chunk * kChunk, kChunk)) << chunk;
}

}  // namespace
}  // namespace tierd::engine
