// An SSD that writes more slowly than the source is read: what was read waits for it, and is read once.
#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class WriteBehindTest : public EngineTest {
 protected:
  static constexpr int kFiles = 90;
  static constexpr std::size_t kBytes = 1 << 20;  // together almost twice what the tier buffers

  WriteBehindTest() {
    UseSsd();
    ssd_io_.delay_us[static_cast<std::size_t>(io::Step::kWritev)] = 300'000;  // of each write unit; a buffer's units are written side by side
    for (int i = 0; i < kFiles; ++i) names_.push_back(Write("f" + std::to_string(i), Bytes("f" + std::to_string(i), kBytes)));
  }
  ~WriteBehindTest() override { StopEngine(); }
  JobStatus PrefetchAll(Jobs::PrefetchOptions options) {
    const std::uint64_t job = engine().jobs().Prefetch({{&unit(), ""}}, options);
    engine().EndTurn();
    return WaitForJob(job);
  }
  void ExpectAllReadOnce(const JobStatus& status) {
    EXPECT_EQ(status.state, JobState::kDone) << status.error;
    EXPECT_EQ(status.verified_files, static_cast<std::uint64_t>(kFiles));
    EXPECT_EQ(status.files_no_room, 0u);
    EXPECT_EQ(source_io_.count(io::Step::kOpen), static_cast<std::uint64_t>(kFiles));
  }
  std::vector<std::string> names_;
};

TEST_F(WriteBehindTest, APrefetchToTheSsdKeepsItsPace) {
  StartEngine();
  ExpectAllReadOnce(PrefetchAll({.ssd_only = true}));
}

TEST_F(WriteBehindTest, APrefetchOfMoreThanRamToo) {
  options_.ram.capacity_bytes = 16 << 20;
  options_.ram.segment_bytes = 4 << 20;
  StartEngine();
  ExpectAllReadOnce(PrefetchAll({}));
}

TEST_F(WriteBehindTest, AReaderDoesNotWaitForTheSsd) {
  StartEngine();
  ssd_io_.Hold(io::Step::kWritev);
  engine().jobs().Prefetch({{&unit(), ""}}, {.ssd_only = true});
  engine().EndTurn();
  ASSERT_TRUE(RunUntil([&] { return engine().ssd()->counters().appends_refused_busy > 0; })) << "bytes wait for the SSD";
  for (const std::string& name : names_) {
    const Answer answer = Fetch(name);
    EXPECT_EQ(answer.status(), abi::FetchStatus::kFrame) << name;
    EXPECT_TRUE(answer.bytes == Bytes(name, kBytes)) << name;
  }
}

// However long they waited: a ttl is how old a byte may be that is read (HAZARDS 2.11).
TEST_F(WriteBehindTest, WhatWaitsForTheSsdIsAskedAboutAtItsDeadline) {
  source_options().ttl_ms = 300;
  StartEngine();
  ssd_io_.Hold(io::Step::kWritev);
  engine().jobs().Prefetch({{&unit(), ""}}, {.ssd_only = true});
  engine().EndTurn();
  ASSERT_TRUE(RunUntil([&] { return engine().ssd()->counters().appends_refused_busy > 0; })) << "bytes wait for the SSD";
  for (const std::string& name : names_) Write(name, Bytes(name, kBytes, 2));
  (void)HandlersIn(400);
  for (const std::string& name : names_) {
    const Answer answer = Fetch(name);
    EXPECT_TRUE(answer.status() != abi::FetchStatus::kFrame || answer.bytes == Bytes(name, kBytes, 2)) << name;
  }
}

}  // namespace
}  // namespace tierd::engine
