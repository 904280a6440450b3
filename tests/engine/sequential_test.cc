// A large file that is read from its beginning to its end: what its reader has to ask for, and wait for.
#include <vector>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

constexpr std::size_t kChunk = 64 << 10;
constexpr std::uint32_t kChunks = 32;

class SequentialTest : public EngineTest {
 protected:
  SequentialTest() {
    source_options().chunk_bytes = kChunk;
    source_options().staleness = abi::Staleness::kImmutable;
    source_options().ahead = false;
    Write(name_, Bytes(name_, kChunks * kChunk));
  }
  ~SequentialTest() override { StopEngine(); }

  bool ChunkInRam(std::uint32_t chunk) { return ObjectOf(name_, chunk) != kNoObject && engine().placement().InRam(ObjectOf(name_, chunk)); }
  // As the ring tells of a chunk that its reader found in RAM.
  void NoteHit(std::uint32_t chunk) {
    Answer hit;
    hit.reply.ordinal = engine().catalogue().OrdinalOf(ObjectOf(name_, chunk));
    hit.reply.generation = engine().catalogue().generation();
    hit.reply.tier = static_cast<std::uint8_t>(abi::Tier::kRam);
    NoteRead(hit);
  }
  // Reads on when what was asked for ahead has come, and asks for nothing that is in RAM.
  std::vector<std::uint32_t> Misses(bool ring_is_read) {
    std::vector<std::uint32_t> misses;
    for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
      if (!ChunkInRam(chunk)) {
        misses.push_back(chunk);
        EXPECT_EQ(Fetch(name_, abi::FetchOp::kChunk, chunk).status(), abi::FetchStatus::kFrame) << chunk;
      }
      if (ring_is_read) NoteHit(chunk);
      EXPECT_TRUE(RunUntil([&] { return engine().fetcher().idle(); }));
    }
    return misses;
  }

  const std::string name_ = "large";
};

TEST_F(SequentialTest, AReaderWhoseHitsNobodyHearsOfWaitsForEverFewerChunks) {
  StartEngine();
  EXPECT_EQ(Misses(false), (std::vector<std::uint32_t>{0, 2, 5, 10, 19, 28}));
  EXPECT_EQ(unit().reader->counters().bytes_read, std::uint64_t{kChunks} * kChunk) << "nothing twice";
}

TEST_F(SequentialTest, AReaderWhoseHitsAreHeardOfWaitsForTheFirstChunkAlone) {
  StartEngine();
  EXPECT_EQ(Misses(true), (std::vector<std::uint32_t>{0}));
  EXPECT_EQ(unit().reader->counters().bytes_read, std::uint64_t{kChunks} * kChunk) << "nothing twice";
}

// What is read ahead for one takes the place of what was read ahead for another.
TEST_F(SequentialTest, ReadersForWhomThereIsNoRoomDoNotReadEverythingTwice) {
  constexpr std::uint32_t kReaders = 4, kOfEach = 24;
  constexpr std::size_t kMiB = 1 << 20;
  source_options().chunk_bytes = kMiB;
  source_options().policy = "lru";
  options_.ram.capacity_bytes = 16 * kMiB;
  const auto name = [](std::uint32_t reader) { return "of" + std::to_string(reader); };
  for (std::uint32_t reader = 1; reader <= kReaders; ++reader) Write(name(reader), Bytes(name(reader), kOfEach * kMiB));
  StartEngine();
  for (std::uint32_t chunk = 0; chunk < kOfEach; ++chunk) {
    for (std::uint32_t reader = 1; reader <= kReaders; ++reader) {
      if (const ObjectId object = ObjectOf(name(reader), chunk); object != kNoObject && engine().placement().InRam(object)) continue;
      const std::uint64_t id = Ask(name(reader), abi::FetchOp::kChunk, chunk, SessionId{reader});
      ASSERT_TRUE(RunUntil([&] { return answers().contains(id) && engine().fetcher().idle(); }));
    }
  }
  EXPECT_LT(unit().reader->counters().bytes_read, 3 * kReaders * kOfEach * kMiB / 2);
}

TEST_F(SequentialTest, AReaderWhoSaysThatItReadsOnNeedNotShowIt) {
  StartEngine();
  ASSERT_EQ(Fetch(name_, abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
  const std::uint64_t silent = Ask(name_, abi::FetchOp::kChunk, 8);
  const std::uint64_t says = Ask(name_, abi::FetchOp::kChunk, 16, SessionId{2}, abi::kFetchSequential);
  ASSERT_TRUE(RunUntil([&] { return answers().contains(silent) && answers().contains(says) && engine().fetcher().idle(); }));
  EXPECT_FALSE(ChunkInRam(9));
  EXPECT_TRUE(ChunkInRam(17));
  EXPECT_FALSE(ChunkInRam(18));
}

}  // namespace
}  // namespace tierd::engine
