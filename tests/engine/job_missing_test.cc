// What was there and is not listed at a prefetch's second look: a part of the source may be down (HAZARDS 2.15), or it was deleted.
#include <filesystem>
#include <optional>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class JobMissingTest : public EngineTest {
 protected:
  static constexpr std::int64_t kHourNs = 3'600'000'000'000;
  JobStatus PrefetchAll() {
    const std::uint64_t job = engine().jobs().Prefetch({{&unit(), ""}}, {});
    engine().EndTurn();
    return WaitForJob(job);
  }
  void ExpectShort(const JobStatus& status, std::uint64_t verified, std::uint64_t expected) {
    EXPECT_EQ(status.state, verified == expected ? JobState::kDone : JobState::kPartial) << status.error;
    EXPECT_EQ(status.verified_files, verified);
    EXPECT_EQ(status.expected_files, expected);
  }
  void Remove(const std::string& name) { ASSERT_TRUE(std::filesystem::remove(tree_ / name)); }
};

TEST_F(JobMissingTest, CountsUntilItHasBeenMissingForAnHour) {
  source_options().ttl_ms = 24 * 3600 * 1000;  // the others need no new look
  const auto names = MakeFiles(20, 3000);
  StartEngine();
  ExpectShort(PrefetchAll(), 20, 20);
  Remove(names[0]);
  const JobStatus status = PrefetchAll();
  ExpectShort(status, 19, 20);
  EXPECT_NE(status.error.find(names[0] + " was there and is not listed now"), std::string::npos) << status.error;
  clock_.ahead_ns += kHourNs / 2;
  ExpectShort(PrefetchAll(), 19, 20);
  clock_.ahead_ns += kHourNs / 2;
  ExpectShort(PrefetchAll(), 19, 19);
  // It is back, and missing anew.
  Write(names[0], Bytes(names[0], 3000));
  ExpectShort(PrefetchAll(), 20, 20);
  Remove(names[0]);
  ExpectShort(PrefetchAll(), 19, 20);
}

TEST_F(JobMissingTest, CountsUntilSomebodyInvalidatesIt) {
  const auto names = MakeFiles(20, 3000);
  StartEngine();
  ExpectShort(PrefetchAll(), 20, 20);
  Remove(names[0]);
  std::filesystem::remove_all(tree_ / "d1");  // three of them
  ExpectShort(PrefetchAll(), 16, 20);
  for (const std::string& path : {names[0], std::string("d1")}) {
    std::optional<int> told;
    engine().Advise(unit(), abi::AdviseOp::kInvalidate, path, true, [&](int error, std::uint64_t) { told = error; });
    engine().EndTurn();
    ASSERT_TRUE(RunUntil([&] { return told.has_value(); }));
    EXPECT_EQ(*told, 0);
  }
  ExpectShort(PrefetchAll(), 16, 16);
}

// Only what the job was asked for.
TEST_F(JobMissingTest, IsLookedForBelowTheItemsAlone) {
  const auto names = MakeFiles(16, 3000);
  StartEngine();
  ExpectShort(PrefetchAll(), 16, 16);
  Remove(names[0]);
  const std::uint64_t job = engine().jobs().Prefetch({{&unit(), "d1"}, {&unit(), "d2"}, {&unit(), names[1]}, {&unit(), "d2"}}, {});
  engine().EndTurn();
  ExpectShort(WaitForJob(job), 4, 4);
}

}  // namespace
}  // namespace tierd::engine
