// A source that hangs holds frames; how many is bounded, and what is cached is served all the time (F39, HAZARDS 2.7).
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

}  // namespace
}  // namespace tierd::engine
