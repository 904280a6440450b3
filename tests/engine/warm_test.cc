// Warm-up on first touch: all of a dataset that fits, next to nothing of one that does not.
#include <algorithm>

#include "tests/engine/engine_fixture.h"
#include "tests/pfs_sim/rig.h"

namespace tierd::engine {
namespace {

constexpr std::size_t kBytes = 4096;
constexpr std::size_t kUnderWay = 64 + 1536;  // before a size is known, and after

class WarmTest : public EngineTest {
 protected:
  WarmTest() {
    source_options().warm = true;
    options_.ram.capacity_bytes = 16 << 20;  // 4,096 files at most
    options_.ram.segment_bytes = 16 << 20;
  }
  ~WarmTest() override { StopEngine(); }
  // The first `count` files, each read by a client.
  void Read(const std::vector<std::string>& names, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(Fetch(names[i]).status(), abi::FetchStatus::kFrame) << names[i];
  }
  JobStatus WarmJob() {
    const std::vector<JobStatus> jobs = engine().jobs().List();
    const auto warm = std::find_if(jobs.begin(), jobs.end(), [](const JobStatus& job) { return job.kind == JobKind::kWarmup; });
    return warm == jobs.end() ? JobStatus{} : *warm;
  }
  std::uint64_t opens() const { return source_io_.count(io::Step::kOpen); }
};

// What a job reads, a read each millisecond but for pauses; the directories that are to be walked for it.
class WarmupTriggerTest : public testing::Test {
 protected:
  void Read(const std::string& directory, int files) {
    for (int i = 0; i < files; ++i) {
      now_ns_ += 1'000'000;
      const auto walk = trigger_.OnFirstRead((directory.empty() ? "" : directory + "/") + std::to_string(next_++), now_ns_);
      if (walk) walks_.push_back(*walk);
    }
  }
  using Walks = std::vector<std::string>;
  WarmupTrigger trigger_;
  Walks walks_;
  std::int64_t now_ns_ = 0;
  int next_ = 0;
};

TEST_F(WarmupTriggerTest, ATableOfLabelsBesideTheDataWidensNothing) {
  Read("", 1);
  Read("img/train/a", 15);
  Read("img/train/b", 15);
  EXPECT_EQ(walks_, Walks{});
  Read("img/train/c", 1);
  EXPECT_EQ(walks_, Walks{"img/train"});
  Read("img/train/d", 1000);
  Read("", 10);
  EXPECT_EQ(walks_, Walks{"img/train"});
  EXPECT_EQ(trigger_.common_directory(), "img/train");
}

// Nobody has read what lies beside the two.
TEST_F(WarmupTriggerTest, TwoDirectoriesAreNotAllThatLiesBesideThem) {
  for (int i = 0; i < 16; ++i) {
    Read("data/a", 1);
    Read("data/b", 1);
  }
  EXPECT_EQ(walks_, Walks{"data/a"});
  for (int i = 0; i < 16; ++i) {
    Read("data/a", 1);
    Read("data/b", 1);
  }
  EXPECT_EQ(walks_, (Walks{"data/a", "data/b"}));
  EXPECT_EQ(trigger_.common_directory(), "data");
  Read("data/c", 32);
  EXPECT_EQ(walks_, (Walks{"data/a", "data/b", "data"}));
}

TEST_F(WarmupTriggerTest, AnotherSetIsWalkedBesideTheFirst) {
  Read("img/train", 100);
  Read("img/val", 31);
  EXPECT_EQ(walks_, Walks{"img/train"});
  Read("img/val", 100);
  EXPECT_EQ(walks_, (Walks{"img/train", "img/val"}));
  EXPECT_EQ(trigger_.common_directory(), "img");
}

TEST_F(WarmupTriggerTest, ClassesOneAfterTheOtherAreOneSet) {
  for (const char* large : {"a", "b", "c", "d"}) Read(large, 400);
  EXPECT_EQ(walks_, (Walks{"a", "b", ""})) << "with the third it is all";
  trigger_.Reset();
  walks_.clear();
  for (char name = 'a'; name <= 'z'; ++name) Read(std::string("train/") + name, 5);  // and small ones
  EXPECT_EQ(walks_, Walks{"train"});
}

// Each save in a folder of its own, and a look at something else in between.
TEST_F(WarmupTriggerTest, ALongJobsCheckpointsAreNoEpoch) {
  Read("data/train", 5000);
  for (int save = 0; save < 200; ++save) {
    now_ns_ += 600'000'000'000;
    Read("runs/" + std::to_string(save), 3);
    Read("", 1);
  }
  for (const std::string& walk : walks_) EXPECT_NE(walk, "");
}

TEST_F(WarmTest, ADatasetThatFitsIsBroughtUpWhole) {
  const auto names = MakeFiles(2000, kBytes);
  StartEngine();
  Read(names, WarmupTrigger::kThreshold - 1);
  EXPECT_EQ(WarmJob().id, 0u) << "not yet like an epoch";
  Read({names[WarmupTrigger::kThreshold]}, 1);
  ASSERT_TRUE(RunUntil([&] { return WarmJob().ended_ns != 0; }));
  EXPECT_EQ(WarmJob().state, JobState::kDone);
  EXPECT_EQ(std::count_if(names.begin(), names.end(), [&](const std::string& name) { return InRam(name); }), 2000);
  EXPECT_EQ(opens(), 2000u);
}

// The source's answers wait until all names are known: what comes after that is what the job had begun.
TEST_F(WarmTest, OfADatasetThatDoesNotFitNoMoreIsReadThanWasUnderWay) {
  const auto names = MakeFiles(8000, kBytes);
  StartEngine();
  Read(names, WarmupTrigger::kThreshold - 1);
  ASSERT_EQ(Fetch(names[WarmupTrigger::kThreshold], abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
  source_io_.Hold(io::Step::kOpen);
  const std::uint64_t last = Ask(names[WarmupTrigger::kThreshold]);  // of a known file: the trigger is before the read
  ASSERT_TRUE(RunUntil([&] { return WarmJob().id != 0 && !WarmJob().walking; }));
  EXPECT_EQ(WarmJob().files_total, 8000u);
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return answers().contains(last) && WarmJob().ended_ns != 0; }));
  ASSERT_TRUE(RunUntil([&] { return engine().fetcher().idle(); }));
  EXPECT_LE(opens(), WarmupTrigger::kThreshold + 1 + kUnderWay);
  EXPECT_LT(engine().placement().ram_resident_bytes(), options_.ram.capacity_bytes / 2);
  // Nor later: readers bring up what they read.
  const std::uint64_t before = opens();
  for (std::size_t i = 7000; i < 7100; ++i) ASSERT_EQ(Fetch(names[i]).status(), abi::FetchStatus::kFrame);
  EXPECT_LE(opens(), before + 100);
}

// Once that is known, a tree of millions is not listed to its end.
TEST_F(WarmTest, NorIsItListedToItsEnd) {
  constexpr int kDirectories = 400, kFiles = 25;  // the tier is full with 164 of them
  std::vector<std::string> names;
  for (int i = 0; i < kDirectories * kFiles; ++i) names.push_back("d" + std::to_string(i % kDirectories) + "/f" + std::to_string(i));
  for (const std::string& name : names) Write(name, "");
  for (const std::string& name : names) ASSERT_EQ(::truncate((tree_.path() + "/" + name).c_str(), kBytes), 0);
  std::string why;
  const auto rig = pfs_sim::Rig::Start({.backing = tree_.path()}, &why);
  if (rig == nullptr && why.starts_with("unavailable")) GTEST_SKIP() << why;
  ASSERT_NE(rig, nullptr) << why;
  source_options().path = rig->mount();
  StartEngine();
  ASSERT_EQ(rig->Control("latency readdir 20000").find("error"), std::string::npos);
  Read(names, WarmupTrigger::kThreshold + 1);
  ASSERT_TRUE(RunUntil([&] { return WarmJob().ended_ns != 0; }));
  ASSERT_TRUE(RunUntil([&] { return unit().job_walker->active() == 0; }));
  EXPECT_LT(rig->Counters().readdirs, static_cast<std::uint64_t>(kDirectories));
  StopEngine();
}

TEST_F(WarmTest, RestsWhileItIsMeasured) {
  const std::vector<std::string> names = MakeFiles(300, kBytes);
  StartEngine();
  engine().jobs().RestWarmUps(clock_.MonotonicNs() + 3'600'000'000'000);
  Read(names, 100);
  ASSERT_EQ(WarmJob().kind, JobKind::kWarmup);
  EXPECT_EQ(opens(), 100u);
  engine().jobs().RestWarmUps(0);
  ASSERT_TRUE(RunUntil([&] { return WarmJob().state == JobState::kDone; }));
  EXPECT_EQ(opens(), 300u);
}

}  // namespace
}  // namespace tierd::engine
