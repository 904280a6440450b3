// Readers wait for room that is on its way (a segment being made, a larger index, a staging buffer) instead of being sent to the source.
#include <sys/resource.h>
#include <sys/stat.h>

#include "policies/policy_instance.h"
#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class GrowthTest : public EngineTest {
 protected:
  // Entries as a walk finds them, until the index takes no more; the loop does not turn meanwhile.
  int FillIndex() {
    io::FileStat stat;
    stat.mode = S_IFREG | 0644;
    stat.size = 100;
    for (int added = 0;; ++added) {
      stat.ino = 1'000'000u + static_cast<std::uint64_t>(added);
      if (engine().fetcher().Observe(unit(), "walked/" + std::to_string(added), stat, 1) != Fetcher::Observed::kKnown) return added;
    }
  }
  void ExpectFrames(const std::vector<std::uint64_t>& asked, const std::vector<std::string>& names, std::size_t bytes) {
    for (std::size_t i = 0; i < asked.size(); ++i) {
      ASSERT_TRUE(RunUntil([&] { return answers().contains(asked[i]); })) << names[i];
      EXPECT_EQ(answers()[asked[i]].status(), abi::FetchStatus::kFrame) << names[i] << " reason " << int{answers()[asked[i]].reply.reason};
      EXPECT_TRUE(answers()[asked[i]].bytes == Bytes(names[i], bytes)) << names[i];
    }
    EXPECT_EQ(engine().counters().fetch_bypassed, 0u);
  }
};

TEST_F(GrowthTest, ReadersWaitForALargerIndex) {
  const auto names = MakeFiles(8, 3000);
  StartEngine();
  source_io_.Hold(io::Step::kRead);
  std::vector<std::uint64_t> asked;
  for (const std::string& name : names) asked.push_back(Ask(name));
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting == 8; }));
  EXPECT_GT(FillIndex(), 1000);
  source_io_.Release();
  ExpectFrames(asked, names, 3000);
  EXPECT_GT(engine().catalogue().generation(), 1u);
}

TEST_F(GrowthTest, WhoStatsAndWhoListsWaitsForALargerIndex) {
  const std::string name = Write("a/file", Bytes("a/file", 10));
  StartEngine();
  FillIndex();
  const std::uint64_t stat = Ask(name, abi::FetchOp::kStat);
  const std::uint64_t list = Ask("a", abi::FetchOp::kList);
  ASSERT_TRUE(RunUntil([&] { return answers().contains(stat) && answers().contains(list); }));
  EXPECT_EQ(answers()[stat].status(), abi::FetchStatus::kMeta);
  EXPECT_EQ(answers()[list].status(), abi::FetchStatus::kFrame);
}

TEST_F(GrowthTest, AWalkLosesNoNameWhileTheIndexGrows) {
  const auto names = MakeFiles(6000, 1);
  StartEngine();
  const JobStatus job = WaitForJob(engine().jobs().Walk({{&unit(), ""}}));
  EXPECT_EQ(job.state, JobState::kDone);
  EXPECT_EQ(job.files_done, names.size());
  for (const std::string& name : names) ASSERT_NE(FileOf(name), kNoFile) << name;
  EXPECT_TRUE(unit().Walked("", 1));
}

TEST_F(GrowthTest, ReadersOfWhatIsNotAdmittedWaitForASegmentToo) {
  constexpr std::size_t kBytes = 1'500'000;
  tierd_policy_ops refuses_all = **registry().Find("lru");
  refuses_all.admit = [](void*, std::uint32_t, std::uint32_t, std::uint64_t) { return 0; };
  std::vector<std::string> names;
  for (int i = 0; i < 14; ++i) names.push_back(Write("f" + std::to_string(i), Bytes("f" + std::to_string(i), kBytes)));
  StartEngine();
  auto policy = policies::PolicyInstance::Create(refuses_all, {});
  ASSERT_TRUE(policy.ok());
  unit().policy.Set(std::move(policy).value());
  for (const std::string& name : names) ASSERT_EQ(Fetch(name, abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
  // More on their way at a time than the first segment has room for.
  source_io_.Hold(io::Step::kRead);
  std::vector<std::uint64_t> asked;
  for (const std::string& name : names) asked.push_back(Ask(name));
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting >= 8; }));
  source_io_.Release();
  ExpectFrames(asked, names, kBytes);
  EXPECT_EQ(engine().counters().transit_frames, names.size());
}

// Segments cannot be made for a while: the tier makes do, says so, and grows when it can.
TEST_F(GrowthTest, ASegmentThatCannotBeMadeIsTriedAgain) {
  constexpr std::size_t kBytes = 4'000'000;
  source_options().policy = "freeze";
  std::vector<std::string> names;
  for (int i = 0; i < 8; ++i) names.push_back(Write("f" + std::to_string(i), Bytes("f" + std::to_string(i), kBytes)));
  StartEngine();
  for (const std::string& name : names) ASSERT_EQ(Fetch(name, abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(Fetch(names[static_cast<std::size_t>(i)]).status(), abi::FetchStatus::kFrame);
  ASSERT_TRUE(RunUntil([&] { return engine().ram().stats().reserved_bytes == 0; }));  // no segment is in the making
  const std::uint64_t segments = engine().ram().segment_bytes();
  rlimit none = before;
  none.rlim_cur = 3;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  std::vector<std::uint64_t> asked;
  for (std::size_t i = 2; i < names.size(); ++i) asked.push_back(Ask(names[i]));
  const bool failed = RunUntil([&] { return !engine().placement().segment_failure().empty(); });
  const bool answered = RunUntil([&] { return std::all_of(asked.begin(), asked.end(), [&](std::uint64_t id) { return answers().contains(id); }); });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(failed);
  ASSERT_TRUE(answered) << "nobody waits for what does not come";
  EXPECT_EQ(engine().ram().segment_bytes(), segments);
  ASSERT_TRUE(RunUntil([&] { return engine().placement().segment_failure().empty(); }));
  EXPECT_GT(engine().ram().segment_bytes(), segments);
  for (std::size_t i = 2; i < names.size(); ++i) EXPECT_EQ(Fetch(names[i]).status(), abi::FetchStatus::kFrame) << names[i];
}

// HAZARDS 2.8: what is sealed against writing cannot be punched; as long as a client may map it, nothing takes its place.
TEST_F(GrowthTest, WithSealedSegmentsTheTierGrowsAgainWhenClientsHaveGone) {
  options_.ram.seal = ram::SegmentSeal::kWrite;
  options_.ram.capacity_bytes = 48 << 20;
  source_options().policy = "lru";
  const auto names = MakeFiles(450, 100'000);
  StartEngine();
  for (const std::string& name : names) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  ASSERT_TRUE(RunUntil([&] { return engine().ram().segment_bytes() == 48u << 20; }));
  auto page = std::make_unique<abi::SessionPage>();
  AddSession(page.get());
  engine().placement().SetRamCapacity(16 << 20);
  ASSERT_TRUE(RunUntil([&] { return engine().ram().lingering_bytes() == 32u << 20; })) << engine().ram().lingering_bytes();
  engine().placement().SetRamCapacity(48 << 20);
  for (const std::string& name : names) Fetch(name);
  EXPECT_EQ(engine().ram().segment_bytes(), 16u << 20) << "the client may map the other 32 MiB still";
  RemoveSession(page.get());
  ASSERT_TRUE(RunUntil([&] { return engine().ram().lingering_bytes() == 0; }));
  for (const std::string& name : names) Fetch(name);
  ASSERT_TRUE(RunUntil([&] { return engine().ram().segment_bytes() == 48u << 20; }));
}

// The same with a client that stays: it unmaps what it is told has left, and says so.
TEST_F(GrowthTest, WithSealedSegmentsTheTierGrowsAgainWhenClientsHaveUnmappedThem) {
  options_.ram.seal = ram::SegmentSeal::kWrite;
  options_.ram.capacity_bytes = 48 << 20;
  source_options().policy = "lru";
  const auto names = MakeFiles(450, 100'000);
  StartEngine();
  for (const std::string& name : names) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  ASSERT_TRUE(RunUntil([&] { return engine().ram().segment_bytes() == 48u << 20; }));
  auto page = std::make_unique<abi::SessionPage>();
  AddSession(page.get());
  engine().placement().SetRamCapacity(16 << 20);
  ASSERT_TRUE(RunUntil([&] { return engine().ram().lingering_bytes() == 32u << 20; }));
  const abi::IndexHeader& header = *engine().index().header();
  ASSERT_EQ(header.segments_gone.load(), 2u);
  EXPECT_NE(header.gone_segments[0].load(), header.gone_segments[1].load());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(engine().ram().FindSegment(header.gone_segments[i].load()), nullptr);
  page->gone_seen.store(1);
  EXPECT_TRUE(RunUntil([&] { return engine().ram().lingering_bytes() == 16u << 20; }));
  page->gone_seen.store(2);
  EXPECT_TRUE(RunUntil([&] { return engine().ram().lingering_bytes() == 0; }));
  engine().placement().SetRamCapacity(48 << 20);
  // Each pass asks for what did not fit before: a segment comes while others are read.
  for (int pass = 0; pass < 10 && engine().ram().segment_bytes() != 48u << 20; ++pass) {
    for (const std::string& name : names) Fetch(name);
  }
  EXPECT_EQ(engine().ram().segment_bytes(), 48u << 20);
  RemoveSession(page.get());
}

TEST_F(GrowthTest, ReadersWithoutAStagingBufferReadIntoAFrame) {
  constexpr std::size_t kBytes = 3'000'000;
  options_.ram.capacity_bytes = std::uint64_t{192} << 20;
  const auto large = MakeFiles(16, kBytes);  // files are thought to be large from here on
  std::vector<std::string> names;
  for (int i = 0; i < 40; ++i) names.push_back(Write("small" + std::to_string(i), Bytes("small" + std::to_string(i), 5000)));
  StartEngine();
  for (const std::string& name : large) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  source_io_.Hold(io::Step::kRead);
  std::vector<std::uint64_t> asked;
  for (const std::string& name : names) asked.push_back(Ask(name));
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting >= 32; }));
  EXPECT_GE(engine().fetcher().staging().held_bytes(), StagingPool::kLimitBytes);
  source_io_.Release();
  ExpectFrames(asked, names, 5000);
}

// A table that tombstones are the reason for is smaller. Where more is added meanwhile than it takes, an insertion finds that out, and not the copying.
TEST_F(GrowthTest, AnIndexWhoseGrowthAnInsertionEndedGrowsAgain) {
  StartEngine();
  Catalogue& catalogue = engine().catalogue();
  const ram::SharedIndex& index = engine().index();
  std::uint64_t added = 0;
  const auto add = [&](std::uint64_t home) {
    io::FileStat stat;
    stat.mode = S_IFREG | 0644;
    stat.ino = ++added;
    return catalogue.Add(0, std::to_string(added), {home, added}, stat, 4 << 20);
  };
  std::vector<FileId> files;
  const auto fill = [&] {
    while (index.live() < index.slot_count() / 8 * 7) files.push_back(*add(abi::Mix64(added + 1)));
  };
  for (fill(); index.slot_count() < 65'536; fill()) {
    const std::uint32_t generation = index.generation();
    ASSERT_TRUE(RunUntil([&] { return index.generation() != generation; }));
  }
  // All but those that a free slot follows: such a one would end with the tombstones before it.
  std::erase_if(files, [&](FileId file) { return index.Owner(catalogue.OrdinalOf(file) + 1) == ram::kNoOwner; });
  for (const FileId file : files) catalogue.Remove(file);
  const std::uint32_t generation = index.generation();
  while (!index.growing()) RunReady(1);
  RunReady(7);  // slices, of some more
  ASSERT_TRUE(index.growing());
  for (int i = 0; i < 6000; ++i) (void)add(~std::uint64_t{0} / index.slot_count() * static_cast<std::uint64_t>(i));
  ASSERT_FALSE(index.growing());
  EXPECT_EQ(index.generation(), generation);
  EXPECT_TRUE(RunUntil([&] { return index.generation() != generation; }, 10'000));
}

}  // namespace
}  // namespace tierd::engine
