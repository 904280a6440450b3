// Files of sizes that hold no data: sparse ones of terabytes and more. What the catalogue does not take is read from the source.
#include <sys/stat.h>
#include <unistd.h>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class SizeTest : public EngineTest {
 protected:
  static constexpr std::uint64_t kChunk = 64 << 10;
  static constexpr std::uint64_t kLargest = Catalogue::kMostChunks * kChunk;

  SizeTest() { source_options().chunk_bytes = kChunk; }
  std::string MakeSparse(const std::string& name, std::uint64_t bytes) {
    Write(name, "");
    Resize(name, bytes);
    return name;
  }
  void Resize(const std::string& name, std::uint64_t bytes) const { ASSERT_EQ(::truncate((tree_ / name).c_str(), static_cast<off_t>(bytes)), 0); }
  void ExpectTooLarge(const Answer& answer) {
    EXPECT_EQ(answer.status(), abi::FetchStatus::kBypass);
    EXPECT_EQ(answer.reply.reason, static_cast<std::uint8_t>(abi::Fallback::kTooLarge));
    EXPECT_EQ(answer.reply.kind, 0) << "what is not kept is not told";
  }
  static io::FileStat StatOf(std::uint64_t bytes) {
    io::FileStat stat;
    stat.mode = S_IFREG | 0644;
    stat.nlink = 1;
    stat.ino = 4711;
    stat.size = bytes;
    return stat;
  }
  Fetcher::Observed Observe(const std::string& path, std::uint64_t bytes) { return engine().fetcher().Observe(unit(), path, StatOf(bytes), SystemClock().PreciseNs()); }
};

TEST_F(SizeTest, MoreChunksThanTheCatalogueTakesAreTheSources) {
  const std::string name = MakeSparse("sparse", kLargest);
  StartEngine();
  ExpectTooLarge(Fetch(name, abi::FetchOp::kStat));
  ExpectTooLarge(Fetch(name));
  ExpectTooLarge(Fetch(name, abi::FetchOp::kChunk, 17));
  EXPECT_EQ(FileOf(name), kNoFile);
  EXPECT_EQ(engine().catalogue().object_slots(), 0u);
}

TEST_F(SizeTest, ASizeThatASlotCannotSayIsNotKept) {
  source_options().chunk_bytes = 64 << 20;
  options_.ram.segment_bytes = 64 << 20;
  StartEngine();
  EXPECT_EQ(Observe("file", (std::uint64_t{1} << 48) + 5), Fetcher::Observed::kKnown);
  EXPECT_EQ(FileOf("file"), kNoFile) << "its size would be said to be 5";
  EXPECT_EQ(Observe("other", std::uint64_t{1} << 45), Fetcher::Observed::kKnown);
  EXPECT_EQ(engine().catalogue().SizeOf(FileOf("other")), std::uint64_t{1} << 45);
}

TEST_F(SizeTest, AFileThatGrowsBeyondWhatIsTakenIsTheSourcesUntilItShrinks) {
  source_options().ttl_ms = 60;
  const std::string name = Write("file", Bytes("file", 1000));
  StartEngine();
  ASSERT_EQ(Fetch(name).bytes, Bytes(name, 1000));
  const auto later = [&](abi::FetchOp op) {
    std::this_thread::sleep_for(std::chrono::milliseconds(80));
    return Fetch(name, op);
  };
  Resize(name, kLargest);
  ExpectTooLarge(later(abi::FetchOp::kChunk));
  ExpectTooLarge(Fetch(name, abi::FetchOp::kStat));
  EXPECT_EQ(engine().placement().ram_resident_objects(), 0u);
  EXPECT_EQ(engine().catalogue().ChunkCount(FileOf(name)), 0u);
  EXPECT_EQ(engine().catalogue().DeadlineOf(FileOf(name)), abi::kDeadlineExpired);
  const std::uint64_t changes = engine().counters().invalidated_changed;
  ExpectTooLarge(Fetch(name));
  EXPECT_EQ(engine().counters().invalidated_changed, changes) << "the same still";
  Resize(name, 1000);
  EXPECT_EQ(later(abi::FetchOp::kStat).reply.size, 1000u);
  EXPECT_EQ(Fetch(name).bytes, Bytes(name, 1000));
}

TEST_F(SizeTest, AChunkLargerThanTheUsualSegmentHasItsPlaceInALargerOne) {
  source_options().chunk_bytes = 32 << 20;
  options_.ram.segment_bytes = 0;  // auto
  StartEngine();
  const std::string name = MakeSparse("file", 32 << 20);
  ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  EXPECT_TRUE(InRam(name));
}

TEST_F(SizeTest, AChunkThatFitsInNoSegmentMakesNobodyLeave) {
  source_options().chunk_bytes = 32 << 20;
  source_options().policy = "lru";
  options_.ram.capacity_bytes = 16 << 20;
  const auto names = MakeFiles(10, 1 << 20);
  StartEngine();
  for (const std::string& name : names) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  const std::string large = MakeSparse("large", 15'900'000);
  for (int i = 0; i < 2; ++i) {
    const Answer answer = Fetch(large);
    EXPECT_EQ(answer.status(), abi::FetchStatus::kBypass);
    EXPECT_EQ(answer.reply.reason, static_cast<std::uint8_t>(abi::Fallback::kNoFrame));
  }
  for (const std::string& name : names) EXPECT_TRUE(InRam(name)) << name;
}

}  // namespace
}  // namespace tierd::engine
