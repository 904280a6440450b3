// However much comes from the source at once, a turn of the loop looks at some megabytes of it: each is copied and summed for the SSD tier (HAZARDS 5).
#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class LandedTest : public EngineTest {
 protected:
  static constexpr std::uint64_t kChunk = 4 << 20;
  LandedTest() {
    UseSsd();
    source_options().chunk_bytes = kChunk;
    options_.ram.capacity_bytes = 256 << 20;
    options_.ssd.capacity_bytes = 256 << 20;
  }
  ~LandedTest() override { StopEngine(); }
  void Start() {
    StartEngine();
    engine().on_turn = [this] {
      const std::uint64_t bytes = engine().counters().promotion_bytes_source_ram;
      most_ = std::max(most_, bytes - bytes_);
      bytes_ = bytes;
    };
  }
  std::uint64_t bytes_ = 0;  // that came, by the last turn
  std::uint64_t most_ = 0;   // in one
};

TEST_F(LandedTest, OfManyChunksATurnTakesTwoAtMost) {
  constexpr int kFiles = 12;
  const auto names = MakeFiles(kFiles, kChunk);
  Start();
  for (const std::string& name : names) ASSERT_EQ(Fetch(name, abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
  source_io_.Hold(io::Step::kStatAfter);
  std::vector<std::uint64_t> asked;
  for (const std::string& name : names) asked.push_back(Ask(name));
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting >= 4; }));
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return std::all_of(asked.begin(), asked.end(), [&](std::uint64_t id) { return answers().contains(id); }); }));
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_TRUE(answers()[asked[i]].bytes == Bytes(names[i], kChunk)) << names[i];
  EXPECT_EQ(bytes_, kFiles * kChunk);
  EXPECT_LT(most_, 2 * kChunk);
}

TEST_F(LandedTest, ALongReadOfNeighboursIsManyTurns) {
  const std::string name = Write("file", Bytes("file", 16 * kChunk));
  Start();
  const JobStatus job = WaitForJob(engine().jobs().Prefetch({{&unit(), name}}, {}));
  EXPECT_EQ(job.verified_files, 1u);
  EXPECT_GT(engine().counters().source_joined, 0u);
  EXPECT_EQ(bytes_, 16 * kChunk);
  EXPECT_LT(most_, 2 * kChunk);
}

}  // namespace
}  // namespace tierd::engine
