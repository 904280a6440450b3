// A job that asks for the SSD tier alone: what it counts as brought is there, wherever else the bytes are.
#include <filesystem>
#include <optional>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

constexpr std::size_t kBytes = 3000;

class SsdAloneTest : public EngineTest {
 protected:
  SsdAloneTest() {
    UseSsd();
    source_options().ahead = false;
  }
  ~SsdAloneTest() override { StopEngine(); }
  JobStatus PrefetchToSsd(const std::string& path = "") { return WaitForJob(engine().jobs().Prefetch({{&unit(), path}}, {.ssd_only = true})); }
  void ReadAll(const std::vector<std::string>& names) {
    for (const std::string& name : names) ASSERT_TRUE(Fetch(name).bytes == Bytes(name, kBytes)) << name;
  }
};

TEST_F(SsdAloneTest, WhatRamHasIsCopied) {
  const auto names = MakeFiles(20, kBytes);
  StartEngine();
  ReadAll(names);
  const JobStatus job = PrefetchToSsd();
  EXPECT_EQ(job.state, JobState::kDone) << job.error;
  EXPECT_EQ(job.verified_files, names.size());
  for (const std::string& name : names) EXPECT_TRUE(OnSsd(name)) << name;
  EXPECT_EQ(source_io_.count(io::Step::kOpen), names.size());
}

// They may still be in the making (HAZARDS 2.12).
TEST_F(SsdAloneTest, FilesWrittenAMomentAgoAreNotThere) {
  source_options().racy_window_ms = 60'000;
  const auto names = MakeFiles(20, kBytes);
  std::filesystem::create_directory(tree_.path() + "/links");
  std::filesystem::create_symlink("../" + names.front(), tree_.path() + "/links/one");
  StartEngine();
  ReadAll(names);
  ASSERT_TRUE(InRam(names.front()));
  const JobStatus linked = PrefetchToSsd("links");
  EXPECT_EQ(linked.state, JobState::kPartial);
  EXPECT_EQ(linked.verified_files, 0u);
  EXPECT_EQ(linked.expected_files, 1u);
  const JobStatus job = PrefetchToSsd();
  EXPECT_EQ(job.state, JobState::kPartial);
  EXPECT_EQ(job.verified_files, 0u);
  EXPECT_EQ(job.files_no_room, names.size());
  EXPECT_NE(job.error.find("written just before it was read: " + tree_.path() + "/d"), std::string::npos) << job.error;
  EXPECT_EQ(engine().placement().ssd_resident_objects(), 0u);
  EXPECT_EQ(WaitForJob(engine().jobs().Prefetch({{&unit(), ""}}, {})).state, JobState::kDone) << "in RAM they are";
}

TEST_F(SsdAloneTest, WhatItRefusesIsReadOnce) {
  source_options().racy_window_ms = 60'000;
  const auto names = MakeFiles(20, kBytes);
  StartEngine();
  const JobStatus job = PrefetchToSsd();
  EXPECT_EQ(job.state, JobState::kPartial);
  EXPECT_EQ(job.files_no_room, names.size());
  EXPECT_EQ(source_io_.count(io::Step::kOpen), names.size());
}

TEST_F(SsdAloneTest, ATierThatTakesNothingHasNothing) {
  const auto names = MakeFiles(20, kBytes);
  StartEngine();
  std::filesystem::rename(options_.ssd.directory, options_.ssd.directory + ".away");
  ASSERT_TRUE(RunUntil([&] { return engine().ssd()->ailing(); }));
  ReadAll(names);
  const JobStatus job = PrefetchToSsd();
  EXPECT_EQ(job.state, JobState::kPartial);
  EXPECT_EQ(job.verified_files, 0u);
  EXPECT_EQ(job.files_no_room, names.size());
}

// One read for a reader and for the SSD: each hears what became of its own wish.
TEST_F(SsdAloneTest, WhoJoinsAReaderHearsOfTheSsd) {
  source_options().racy_window_ms = 60'000;
  const std::string name = Write("file", Bytes("file", kBytes));
  StartEngine();
  source_io_.Hold(io::Step::kRead);
  const std::uint64_t reader = Ask(name);
  std::optional<BringOutcome> ram, ssd;
  engine().fetcher().Bring(unit(), {.path = name, .done = [&](const BringResult& result) { ram = result.outcome; }});
  engine().fetcher().Bring(unit(), {.path = name, .ssd_only = true, .done = [&](const BringResult& result) { ssd = result.outcome; }});
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return answers().contains(reader) && ram && ssd; }));
  EXPECT_EQ(answers()[reader].status(), abi::FetchStatus::kFrame);
  EXPECT_EQ(ram, BringOutcome::kCached);
  EXPECT_EQ(ssd, BringOutcome::kNoRoom);
}

}  // namespace
}  // namespace tierd::engine
