// Two sources and one RAM tier: who makes room for whom.
#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

constexpr std::size_t kBytes = 1 << 20;  // of a file; the tier holds 64 of them
constexpr std::int64_t kSecondNs = 1'000'000'000;

class TwoSourcesTest : public EngineTest {
 protected:
  TwoSourcesTest() {
    options_.sources.push_back(options_.sources.front());
    options_.sources.back().path = other_tree_.path();
    options_.sources.back().name = "other";
    for (SourceOptions& source : options_.sources) source.staleness = abi::Staleness::kImmutable;  // time that passes changes nothing of files
  }
  ~TwoSourcesTest() override { StopEngine(); }

  void Start(const std::string& policy) {
    for (SourceOptions& source : options_.sources) source.policy = policy;
    StartEngine();
    for (int i = 0; i < 80; ++i) tree_.Write(Name(i), Bytes("a" + Name(i), kBytes));
    for (int i = 0; i < 80; ++i) other_tree_.Write(Name(i), Bytes("b" + Name(i), kBytes));
  }
  static std::string Name(int i) { return "f" + std::to_string(i); }
  SourceUnit& one() { return *engine().sources()[0]; }
  SourceUnit& other() { return *engine().sources()[1]; }
  // A reader goes through the first `count` files; how many of them came from a frame.
  int ReadAll(SourceUnit& unit, int count) {
    int frames = 0;
    for (int i = 0; i < count; ++i) {
      const Answer answer = FetchOf(unit, Name(i));
      if (answer.status() != abi::FetchStatus::kFrame) continue;
      ++frames;
      NoteRead(answer);
    }
    return frames;
  }
  int Resident(const SourceUnit& unit, int count = 80) {
    int resident = 0;
    for (int i = 0; i < count; ++i) {
      const FileId file = engine().catalogue().Find(engine().catalogue().KeyOf(unit.wire_id, Name(i)));
      resident += file != kNoFile && engine().placement().InRam(engine().catalogue().ObjectOf(file, 0)) ? 1 : 0;
    }
    return resident;
  }
  void Pass(std::int64_t seconds) {
    clock_.ahead_ns += seconds * kSecondNs;
    RunUntil([] { return false; }, 20);
  }

  source::TempTree other_tree_;
};

// Names that wait for a source that hangs keep neither the walks of other jobs waiting, of whatever source, nor the processor busy.
TEST_F(TwoSourcesTest, AJobThatStandsStopsNoOther) {
  for (SourceOptions& source : options_.sources) source.policy = "lru";
  StartEngine();
  engine().jobs().set_most_names(1);
  const std::size_t files = 8 * Jobs::kNamesOfJob;
  for (std::size_t i = 0; i < files; ++i) tree_.Write("d" + std::to_string(i % 800) + "/" + std::to_string(i), "");
  tree_.Write("few/file", "1");
  other_tree_.Write("few/file", "1");
  source_io_.Hold(io::Step::kOpen);
  const std::uint64_t stands = engine().jobs().Prefetch({{&one(), ""}}, {});
  ASSERT_TRUE(RunUntil([&] { return engine().jobs().names_waiting() > Jobs::kNamesOfJob; }));
  HandlersIn(300);  // what was under way comes still
  const std::size_t waiting = engine().jobs().names_waiting();
  EXPECT_TRUE(engine().jobs().Find(stands)->walking);
  EXPECT_LT(waiting, files / 2) << "its walk rests";
  EXPECT_LT(HandlersIn(500), 1000u) << "the loop comes with its ticks of 5 ms";
  for (SourceUnit* source : {&one(), &other()}) {
    const std::uint64_t walk = engine().jobs().Walk({{source, "few"}});
    EXPECT_EQ(WaitForJob(walk).files_done, 1u);
  }
  EXPECT_EQ(engine().jobs().names_waiting(), waiting);
  source_io_.Release();
  const JobStatus status = WaitForJob(stands);
  EXPECT_EQ(status.state, JobState::kDone) << status.error;
  EXPECT_EQ(status.files_done, files + 1);
}

TEST_F(TwoSourcesTest, OneThatHasFilledTheTierLeavesHalfToAnother) {
  Start("lru");
  ReadAll(one(), 80);
  ASSERT_GE(Resident(one()), 60);
  EXPECT_EQ(ReadAll(other(), 20), 20);
  EXPECT_GE(Resident(other(), 20), 18);
  // More than half of it is not taken from one that is read as well, by neither.
  for (int round = 0; round < 3; ++round) {
    ReadAll(other(), 60);
    ReadAll(one(), 60);
  }
  EXPECT_GE(Resident(one()), 30);
  EXPECT_GE(Resident(other()), 30);
}

// freeze names no victims: its readers find what they have found before as long as they come.
TEST_F(TwoSourcesTest, FreezeKeepsWhatItHasWhileItsReadersAreThere) {
  Start("freeze");
  ReadAll(one(), 80);
  const int before = Resident(one());
  ASSERT_GE(before, 60);
  for (int round = 0; round < 4; ++round) {
    ReadAll(other(), 20);
    EXPECT_GE(Resident(one()), before);
    Pass(50);
    ReadAll(one(), 80);
  }
}

TEST_F(TwoSourcesTest, WhatNobodyReadsAnyMoreLeavesForWhatIsRead) {
  for (const char* policy : {"freeze", "auto", "lru"}) {
    SCOPED_TRACE(policy);
    Start(policy);
    ReadAll(one(), 80);
    Pass(70);
    EXPECT_EQ(ReadAll(other(), 64), 64);
    EXPECT_GE(Resident(other()), 60) << "all of it, not a half";
    // The first one's readers are back: they take nothing from those that are there now.
    if (std::string(policy) != "lru") {
      const int had = Resident(other());
      ReadAll(one(), 80);
      EXPECT_EQ(Resident(other()), had);
    }
    StopEngine();
  }
}

// A training set while the validation set is read: behind its first pause it is known to come back.
TEST_F(TwoSourcesTest, OneThatCameBackBehindAPauseIsWaitedForTwiceAsLong) {
  Start("freeze");
  ReadAll(one(), 80);
  const int before = Resident(one());
  Pass(180);
  ReadAll(one(), 1);
  Pass(340);
  ReadAll(other(), 20);
  EXPECT_EQ(Resident(one()), before);
  Pass(40);
  EXPECT_EQ(ReadAll(other(), 20), 20);
  EXPECT_GE(Resident(other(), 20), 18);
}

TEST_F(TwoSourcesTest, WhatIsPinnedStays) {
  Start("freeze");
  ReadAll(one(), 80);
  for (int i = 0; i < 40; ++i) {
    if (InRam(Name(i))) engine().placement().SetPinned(FileOf(Name(i)), true);
  }
  const int pinned = Resident(one(), 40);
  ASSERT_GE(pinned, 30);
  Pass(70);
  ReadAll(other(), 80);
  EXPECT_EQ(Resident(one(), 40), pinned);
  EXPECT_EQ(Resident(one()), pinned);
  EXPECT_GE(Resident(other()), 20);
}

// What was staged for a reader to come is not given up at once because nobody has read it yet.
TEST_F(TwoSourcesTest, WhatWasBroughtALittleWhileAgoIsInUse) {
  Start("freeze");
  std::vector<Jobs::Item> items;
  for (int i = 0; i < 80; ++i) items.push_back({&one(), Name(i)});
  WaitForJob(engine().jobs().Prefetch(std::move(items), {}));
  const int before = Resident(one());
  ASSERT_GE(before, 60);
  Pass(50);
  ReadAll(other(), 20);
  EXPECT_EQ(Resident(one()), before);
}

}  // namespace
}  // namespace tierd::engine
