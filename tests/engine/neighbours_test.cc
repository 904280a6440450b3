// Neighbouring chunks of a file that the daemon brings for itself are one request to the source: counted there.
#include <algorithm>
#include <fstream>
#include <optional>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

constexpr std::size_t kChunk = 64 << 10;
constexpr std::uint32_t kChunks = 16;

class NeighboursTest : public EngineTest {
 protected:
  NeighboursTest() {
    source_options().chunk_bytes = kChunk;
    source_options().staleness = abi::Staleness::kImmutable;
    source_options().ahead = false;
    source_options().max_inflight = 4;  // the least there is
  }
  ~NeighboursTest() override { StopEngine(); }

  // A file of kChunks, the last of them not whole.
  std::string WriteLarge(const std::string& name, int version = 1) { return Write(name, Content(name, version)); }
  static std::string Content(const std::string& name, int version = 1) { return Bytes(name, kChunks * kChunk - 100, version); }
  static std::string ChunkOf(const std::string& content, std::uint32_t chunk) { return content.substr(chunk * kChunk, kChunk); }
  JobStatus Prefetch(const std::string& path, Jobs::PrefetchOptions options = {}) { return WaitForJob(engine().jobs().Prefetch({{&unit(), path}}, options)); }
  // Every chunk is in RAM, and right.
  void ExpectInRam(const std::string& name, const std::string& content) {
    for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
      const Answer answer = Fetch(name, abi::FetchOp::kChunk, chunk);
      EXPECT_EQ(answer.tier(), abi::Tier::kRam) << chunk;
      EXPECT_TRUE(answer.bytes == ChunkOf(content, chunk)) << chunk;
    }
  }
  std::uint64_t opens() const { return source_io_.count(io::Step::kOpen); }

  // All that the source may be asked for at a time is taken, by files of no interest.
  void FillTheLine() {
    for (int i = 0; i < 4; ++i) Write("busy" + std::to_string(i), "busy");
    source_io_.Hold(io::Step::kOpen);
    for (int i = 0; i < 4; ++i) Bring("busy" + std::to_string(i), {0});
    ASSERT_TRUE(RunUntil([&] { return source_io_.waiting == 4; }));
  }
  // In one turn of the loop.
  void Bring(const std::string& path, const std::vector<std::uint32_t>& chunks) {
    for (const std::uint32_t chunk : chunks)
      engine().fetcher().Bring(unit(), {.path = path, .chunk = chunk, .done = [this](const BringResult& result) { brought_.push_back(result.outcome); }});
    engine().EndTurn();
  }
  std::vector<BringOutcome> brought_;
};

TEST_F(NeighboursTest, APrefetchOpensALargeFileForEightChunksAtATime) {
  const std::string name = WriteLarge("large");
  StartEngine();
  const JobStatus job = Prefetch(name);
  EXPECT_EQ(job.state, JobState::kDone);
  EXPECT_EQ(opens(), 1u + 2) << "the first chunk, which tells the size, and 15 more";
  EXPECT_EQ(unit().reader->counters().bytes_read, Content(name).size()) << "nothing twice";
  EXPECT_EQ(engine().counters().source_joined, kChunks - 1 - 2);
  EXPECT_EQ(engine().counters().promotions_source_ram, kChunks);
  ExpectInRam(name, Content(name));
  EXPECT_EQ(opens(), 3u);
}

TEST_F(NeighboursTest, TheSsdAloneIsFilledTheSameWay) {
  UseSsd();
  const std::string name = WriteLarge("large");
  StartEngine();
  EXPECT_EQ(Prefetch(name, {.ssd_only = true}).state, JobState::kDone);
  EXPECT_EQ(opens(), 3u);
  for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
    EXPECT_TRUE(engine().placement().OnSsd(ObjectOf(name, chunk))) << chunk;
    EXPECT_TRUE(Fetch(name, abi::FetchOp::kChunk, chunk).bytes == ChunkOf(Content(name), chunk)) << chunk;
  }
  EXPECT_EQ(opens(), 3u);
}

// Four files of 16 chunks in a known order, none of them known before.
TEST_F(NeighboursTest, APlanBringsEachFileWithTwoRequests) {
  source_options().ahead = true;
  std::vector<std::string> names;
  for (const char* name : {"a", "b", "c", "d"}) names.push_back(WriteLarge(name));
  StartEngine();
  Engine::ToldPlan told;
  told.plan.kind = orders::Kind::kTorchSequential;
  told.plan.samples = names.size();
  told.plan.epochs = 3;
  told.list_file = cache_.path() + "/told.list";
  {
    std::ofstream list(told.list_file);
    for (const std::string& name : names) list << tree_.path() << "/" << name << "\n";
  }
  std::optional<Result<std::uint64_t>> answer;
  engine().TellPlan(unit(), std::move(told), [&](Result<std::uint64_t> result) { answer = std::move(result); });
  ASSERT_TRUE(RunUntil([&] { return answer.has_value() && engine().placement().ram_resident_objects() == names.size() * kChunks; }));
  ASSERT_TRUE(answer->ok()) << answer->status().ToString();
  // One for the first chunk, one for the others; a few more where the turn was over before the policy had named all of them.
  EXPECT_LE(opens(), 3 * names.size());
  EXPECT_EQ(opens() + engine().counters().source_joined, names.size() * kChunks);
  for (const std::string& name : names) ExpectInRam(name, Content(name));
}

TEST_F(NeighboursTest, TheyJoinInAnyOrderAndFromBothSides) {
  const std::string name = WriteLarge("large");
  StartEngine();
  ASSERT_EQ(Fetch(name, abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
  const std::uint64_t before = opens();
  FillTheLine();
  Bring(name, {9, 8, 10, 15});
  Bring(name, {7, 14, 3});
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return brought_.size() == 4 + 7; }));
  EXPECT_EQ(opens() - before, 4u + 3) << "7..10, 14..15, 3";
  for (const std::uint32_t chunk : {3u, 7u, 8u, 9u, 10u, 14u, 15u}) {
    EXPECT_TRUE(Fetch(name, abi::FetchOp::kChunk, chunk).bytes == ChunkOf(Content(name), chunk)) << chunk;
  }
}

// Demand goes before what nobody waits for: also out of the middle of a request.
TEST_F(NeighboursTest, AReaderWaitsForItsChunkAlone) {
  const std::string name = WriteLarge("large");
  StartEngine();
  ASSERT_EQ(Fetch(name, abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
  FillTheLine();
  Bring(name, {8, 9, 10, 11, 12, 13, 14, 15});
  const std::uint64_t sent = unit().reader->counters().sent[0];
  const std::uint64_t asked = Ask(name, abi::FetchOp::kChunk, 11);
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting == 5; })) << "it does not wait for the others";
  EXPECT_EQ(unit().reader->counters().sent[0], sent + 1);
  EXPECT_EQ(unit().reader->counters().queued[2], 2u) << "8..10 and 12..15 wait for their turn";
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return answers().contains(asked) && brought_.size() == 4 + 8; }));
  EXPECT_TRUE(answers()[asked].bytes == ChunkOf(Content(name), 11));
  for (std::uint32_t chunk = 8; chunk < 16; ++chunk) EXPECT_TRUE(Fetch(name, abi::FetchOp::kChunk, chunk).bytes == ChunkOf(Content(name), chunk)) << chunk;
  EXPECT_EQ(unit().reader->counters().bytes_read, 8 * kChunk - 100 + 4 * 4) << "nothing twice";
}

TEST_F(NeighboursTest, WhatFindsNoRoomDoesNotHoldUpTheOthers) {
  options_.ram.capacity_bytes = 16 << 20;
  options_.ram.segment_bytes = 1 << 20;
  std::string name = "larger";
  const std::size_t chunks = 2 * options_.ram.capacity_bytes / kChunk;
  const std::string content = Bytes(name, chunks * kChunk);
  Write(name, content);
  StartEngine();
  const JobStatus job = Prefetch(name);
  EXPECT_EQ(job.state, JobState::kPartial);
  const std::uint64_t resident = engine().placement().ram_resident_objects();
  EXPECT_GT(resident, chunks / 4);
  EXPECT_LT(resident, chunks);
  EXPECT_EQ(unit().reader->counters().bytes_read, resident * kChunk) << "only what found room was read";
  EXPECT_LT(opens(), resident / 4);
  for (std::uint32_t chunk = 0; chunk < resident; ++chunk) {
    ASSERT_TRUE(engine().placement().InRam(ObjectOf(name, chunk))) << chunk;
    EXPECT_TRUE(Fetch(name, abi::FetchOp::kChunk, chunk).bytes == content.substr(chunk * kChunk, kChunk)) << chunk;
  }
}

TEST_F(NeighboursTest, AnotherVersionSpoilsThemAll) {
  const std::string name = WriteLarge("large");
  StartEngine();
  ASSERT_EQ(Fetch(name, abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
  FillTheLine();
  Bring(name, {1, 2, 3, 4, 5, 6, 7});
  WriteLarge(name, 2);
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return brought_.size() == 4 + 7; }));
  EXPECT_EQ(Prefetch(name).state, JobState::kDone);
  ExpectInRam(name, Content(name, 2));
}

TEST_F(NeighboursTest, ASourceThatHangsHoldsNoReaderAndTheLateBytesServeAll) {
  source_options().demand_timeout_ms = 100;
  const std::string name = WriteLarge("large");
  StartEngine();
  ASSERT_EQ(Fetch(name, abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
  source_io_.Hold(io::Step::kRead);
  Bring(name, {4, 5, 6, 7});
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting == 1; }));
  const Answer answer = Fetch(name, abi::FetchOp::kChunk, 5);  // joins what is under way
  EXPECT_EQ(answer.status(), abi::FetchStatus::kBypass);
  EXPECT_TRUE(brought_.empty()) << "what the daemon brings for itself takes as long as it takes";
  EXPECT_EQ(engine().fetcher().hung_frames(), 4u);
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return brought_.size() == 4; }));
  EXPECT_EQ(std::count(brought_.begin(), brought_.end(), BringOutcome::kCached), 4);
  EXPECT_EQ(engine().placement().ram_resident_objects(), 4u);
  EXPECT_EQ(engine().fetcher().hung_frames(), 0u);
  for (std::uint32_t chunk = 4; chunk < 8; ++chunk) {
    const Answer late = Fetch(name, abi::FetchOp::kChunk, chunk);
    EXPECT_EQ(late.tier(), abi::Tier::kRam) << chunk;
    EXPECT_TRUE(late.bytes == ChunkOf(Content(name), chunk)) << chunk;
  }
}

}  // namespace
}  // namespace tierd::engine
