// The miss path: one read however many wait, and those who wait before those who do not.
#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

using FlightTest = EngineTest;

TEST_F(FlightTest, OneReadOfTheSourceHoweverManyAsk) {
  constexpr int kAsking = 64;
  const std::string name = Write("a/file", Bytes("a/file", 50'000));
  StartEngine();
  source_io_.Hold(io::Step::kRead);
  std::vector<std::uint64_t> asked;
  for (int i = 0; i < kAsking; ++i) asked.push_back(Ask(name, abi::FetchOp::kChunk, 0, static_cast<SessionId>(1 + i % 7)));
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting == 1; }));
  asked.push_back(Ask(name));
  source_io_.Release();
  for (const std::uint64_t id : asked) {
    ASSERT_TRUE(RunUntil([&] { return answers().contains(id); }));
    EXPECT_EQ(answers()[id].status(), abi::FetchStatus::kFrame);
    EXPECT_EQ(answers()[id].reply.location, answers()[asked.front()].reply.location);
    EXPECT_EQ(answers()[id].bytes, Bytes(name, 50'000));
  }
  EXPECT_EQ(source_io_.count(io::Step::kOpen), 1u);
  EXPECT_EQ(engine().counters().fetch_joined, static_cast<std::uint64_t>(kAsking));
  // The next one is answered from RAM.
  EXPECT_EQ(Fetch(name).tier(), abi::Tier::kRam);
  EXPECT_EQ(source_io_.count(io::Step::kOpen), 1u);
}

TEST_F(FlightTest, OneReadOfEachChunkOfALargeFile) {
  source_options().chunk_bytes = 64 << 10;
  const std::string name = Write("large", Bytes("large", 5 * (64 << 10) + 77));
  StartEngine();
  std::string bytes;
  for (std::uint32_t round = 0; round < 2; ++round) {
    bytes.clear();
    for (std::uint32_t chunk = 0; chunk < 6; ++chunk) bytes += Fetch(name, abi::FetchOp::kChunk, chunk).bytes;
    EXPECT_TRUE(bytes == Bytes(name, 5 * (64 << 10) + 77));
  }
  EXPECT_EQ(Fetch(name, abi::FetchOp::kChunk, 6).status(), abi::FetchStatus::kBypass) << "no such chunk";
  EXPECT_EQ(unit().reader->counters().bytes_read, bytes.size());
}

TEST_F(FlightTest, TheBeginningOfALargeFileWaitsForNoOtherPartOfIt) {
  source_options().chunk_bytes = 64 << 10;
  constexpr std::size_t kChunks = 200;
  const std::string name = Write("large", Bytes("large", kChunks * (64 << 10)));
  StartEngine();
  EXPECT_TRUE(Fetch(name).bytes == Bytes(name, kChunks * (64 << 10)).substr(0, 64 << 10));
  EXPECT_LE(unit().reader->counters().bytes_read, std::uint64_t{8} * (64 << 10)) << "and little has been read when it comes";
}

TEST_F(FlightTest, AReaderOvertakesWarmUp) {
  constexpr int kFiles = 1500;
  source_options().warm = true;
  source_options().max_inflight = 32;
  const auto names = MakeFiles(kFiles, 1000);
  StartEngine();
  for (int i = 0; i < 31; ++i) ASSERT_EQ(Fetch(names[static_cast<std::size_t>(i)]).status(), abi::FetchStatus::kFrame);
  source_io_.delay_us[static_cast<std::size_t>(io::Step::kOpen)] = 20'000;
  ASSERT_EQ(Fetch(names[31]).status(), abi::FetchStatus::kFrame);
  ASSERT_TRUE(RunUntil([&] { return source_io_.count(io::Step::kOpen) > 100; })) << "warm-up has begun";
  // What the warm-up comes to last.
  int asked = 0;
  for (int i = kFiles - 1; i > 0 && asked < 10; --i) {
    const std::string& name = names[static_cast<std::size_t>(i)];
    if (FileOf(name) != kNoFile) continue;
    ++asked;
    const std::uint64_t before = source_io_.count(io::Step::kOpen);
    ASSERT_EQ(Fetch(name).bytes, Bytes(name, 1000));
    // It waits for requests that are with the source already, not for those in the queue.
    EXPECT_LE(source_io_.count(io::Step::kOpen) - before, 2u * unit().reader->counters().window + 32u);
  }
  EXPECT_GT(asked, 0);
  source_io_.delay_us[static_cast<std::size_t>(io::Step::kOpen)] = 0;
  EXPECT_TRUE(RunUntil([&] { return engine().placement().ram_resident_objects() == kFiles; }));
  EXPECT_EQ(source_io_.count(io::Step::kOpen), static_cast<std::uint64_t>(kFiles)) << "each file was opened once";
}

TEST_F(FlightTest, AWaiterIsToldToReadTheSourceWhenItIsSlowAndTheLateBytesServeTheNext) {
  source_options().demand_timeout_ms = 100;
  const std::string name = Write("slow", Bytes("slow", 3000));
  StartEngine();
  source_io_.Hold(io::Step::kRead);
  const Answer answer = Fetch(name);
  EXPECT_EQ(answer.status(), abi::FetchStatus::kBypass);
  EXPECT_EQ(answer.reply.reason, static_cast<std::uint8_t>(abi::Fallback::kSourceSlow));
  source_io_.Release();
  EXPECT_TRUE(RunUntil([&] { return FileOf(name) != kNoFile && InRam(name); }));
  EXPECT_EQ(Fetch(name).tier(), abi::Tier::kRam);
}

}  // namespace
}  // namespace tierd::engine
