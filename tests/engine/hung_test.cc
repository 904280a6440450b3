// A source or an SSD that hangs holds frames; how many is bounded, and what is cached is served all the time (F07, F39, HAZARDS 2.7).
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

// Loads from the SSD whose device does not answer.
class HungSsdTest : public HungTest {
 protected:
  static constexpr std::int64_t kHungNs = 1'100'000'000;  // longer than the SSD tier gives its device
  HungSsdTest() {
    UseSsd();
    source_options().demand_timeout_ms = 30'000;
  }
  // Of a life before, so that none is in a buffer; compared with the source since.
  std::vector<std::string> FilesOnSsd(int count) {
    const auto names = MakeFiles(count, kBytes);
    StartEngine();
    const std::uint64_t job = engine().jobs().Prefetch({{&unit(), ""}}, {.ssd_only = true});
    engine().EndTurn();
    EXPECT_EQ(WaitForJob(job).verified_files, names.size());
    StopEngine();
    StartEngine();
    for (const std::string& name : names) EXPECT_EQ(Fetch(name, abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
    return names;
  }
  // The device is asked for that many, and says nothing for longer than a device takes.
  void Hang(const std::function<void()>& ask, std::size_t reads) {
    ssd_io_.Hold(io::Step::kReadv);
    ask();
    ASSERT_TRUE(RunUntil([&] { return engine().ssd()->status().reads_in_flight == reads; }));
    EXPECT_EQ(engine().fetcher().hung_frames(), 0u);
    clock_.ahead_ns += kHungNs;
    EXPECT_TRUE(RunUntil([&] { return engine().fetcher().hung_frames() == reads; }, 5000));
  }
  void ExpectBypass(std::uint64_t id) {
    ASSERT_TRUE(RunUntil([&] { return answers().contains(id); }, 5000));
    EXPECT_EQ(answers()[id].status(), abi::FetchStatus::kBypass);
    EXPECT_EQ(answers()[id].reply.reason, static_cast<std::uint8_t>(abi::Fallback::kSourceSlow));
  }
  void ReleaseAll() {
    ssd_io_.Release();
    EXPECT_TRUE(RunUntil([&] { return engine().fetcher().hung_frames() == 0 && engine().fetcher().idle(); }));
  }
};

TEST_F(HungSsdTest, FramesOfHungLoadsAreCountedAndBounded) {
  constexpr std::size_t kCached = 4;
  constexpr std::size_t kHanging = 6;  // more than an eighth of the tier
  const auto names = FilesOnSsd(kCached + kHanging + 1);
  const std::string other = Write("other", Bytes("other", kBytes));
  for (std::size_t i = 0; i < kCached; ++i) ASSERT_EQ(Fetch(names[i]).tier(), abi::Tier::kSsd);
  std::vector<std::uint64_t> asked;
  Hang([&] { for (std::size_t i = 0; i < kHanging; ++i) asked.push_back(Ask(names[kCached + i])); }, kHanging);
  for (const std::uint64_t id : asked) ExpectBypass(id);
  // Neither from the SSD nor from the source does another reader get a frame; what is cached is served.
  ExpectBypass(Ask(names.back()));
  ASSERT_EQ(Fetch(other, abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
  ExpectBypass(Ask(other));
  for (std::size_t i = 0; i < kCached; ++i) EXPECT_EQ(Fetch(names[i]).tier(), abi::Tier::kRam);
  ReleaseAll();
  for (const std::string& name : names) EXPECT_TRUE(Fetch(name).bytes == Bytes(name, kBytes)) << name;
  EXPECT_EQ(Fetch(other).status(), abi::FetchStatus::kFrame);
}

TEST_F(HungSsdTest, NobodyWaitsForAHungLoadAndTheNextOneDoesNotEither) {
  const std::string name = FilesOnSsd(1).front();
  std::uint64_t first = 0;
  Hang([&] { first = Ask(name); }, 1);
  ExpectBypass(first);
  ExpectBypass(Ask(name));  // no time has passed
  ReleaseAll();
  const Answer answer = Fetch(name);
  EXPECT_EQ(answer.tier(), abi::Tier::kRam) << "its late bytes are good";
  EXPECT_TRUE(answer.bytes == Bytes(name, kBytes));
}

TEST_F(HungSsdTest, ALateLoadOfAnInvalidatedFileGoesNowhere) {
  const std::string name = FilesOnSsd(1).front();
  ssd_io_.Hold(io::Step::kReadv);
  (void)Ask(name);
  Write(name, Bytes(name, kBytes, 2));
  Hang([&] { Advise(abi::AdviseOp::kInvalidate, name); }, 1);
  ReleaseAll();
  EXPECT_TRUE(Fetch(name).bytes == Bytes(name, kBytes, 2));
}

// The reclaimer has put it elsewhere while it was being read, and the device fails where it was.
TEST_F(HungSsdTest, WhatWasMovedMeanwhileIsReadWhereItIsNow) {
  const std::string name = FilesOnSsd(1).front();
  const ObjectId object = ObjectOf(name);
  ssd_io_.Hold(io::Step::kReadv);
  const std::uint64_t asked = Ask(name);
  ASSERT_TRUE(RunUntil([&] { return ssd_io_.waiting == 1; }));
  const ssd::RecordIdentity identity = engine().placement().IdentityOf(object, engine().ssd()->DatasetGeneration(unit().dataset_id));
  const std::string bytes = Bytes(name, kBytes);
  const auto moved = engine().ssd()->Append(identity, name, std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(moved.ok()) << moved.status().message();
  engine().placement().OnMoved({identity, engine().catalogue().object(object).ssd}, *moved);
  const std::uint64_t opens = source_io_.count(io::Step::kOpen);
  ssd_io_.released_with = EIO;
  ssd_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return answers().contains(asked); }));
  EXPECT_EQ(answers()[asked].tier(), abi::Tier::kSsd);
  EXPECT_TRUE(answers()[asked].bytes == bytes);
  EXPECT_EQ(source_io_.count(io::Step::kOpen), opens);
  EXPECT_TRUE(OnSsd(name));
}

// What the daemon brings for itself goes on, and its frame is as lost meanwhile.
TEST_F(HungSsdTest, APrefetchsHungLoadIsCountedAndWaitedFor) {
  const std::string name = FilesOnSsd(1).front();
  std::vector<BringOutcome> brought;
  const auto bring = [&] {
    engine().fetcher().Bring(unit(), {.path = name, .evict = true, .done = [&](const BringResult& result) { brought.push_back(result.outcome); }});
    engine().EndTurn();
  };
  Hang(bring, 1);
  ExpectBypass(Ask(name));
  EXPECT_TRUE(brought.empty());
  ReleaseAll();
  EXPECT_EQ(brought, std::vector<BringOutcome>{BringOutcome::kCached});
  EXPECT_TRUE(InRam(name));
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
