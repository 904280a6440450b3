// An SSD tier that takes nothing for the time being (its directory has gone): nobody waits for it and nothing is tried again and again; once it is
// well, it gets what it missed. The directory is moved away and back.
#include <filesystem>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class AilingTest : public EngineTest {
 protected:
  AilingTest() {
    UseSsd();
    options_.ram.min_available_bytes = 1 << 20;  // plenty of memory: it is rarely looked at
  }
  void TakeDirectory() {
    std::filesystem::rename(options_.ssd.directory, options_.ssd.directory + ".away");
    ASSERT_TRUE(RunUntil([&] { return engine().ssd()->ailing(); }));
    EXPECT_FALSE(engine().ssd()->status().writable);
  }
  void GiveDirectoryBack() { std::filesystem::rename(options_.ssd.directory + ".away", options_.ssd.directory); }
  void ReadAll(const std::vector<std::string>& names) {
    for (const std::string& name : names) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame) << name;
  }
  std::uint64_t Refused() {
    const ssd::SsdCounters counters = engine().ssd()->counters();
    return counters.appends_refused_busy + counters.appends_refused_health + counters.appends_refused_no_space;
  }
};

TEST_F(AilingTest, IsNotAskedAgainAndAgain) {
  const auto names = MakeFiles(20, 4096);
  StartEngine();
  TakeDirectory();
  ReadAll(names);
  (void)HandlersIn(1500);
  const std::uint64_t refused = Refused();
  EXPECT_GE(refused, names.size());
  EXPECT_LE(HandlersIn(2000), 8u) << "an idle daemon with an SSD tier (idle_test)";
  EXPECT_EQ(Refused(), refused);
}

TEST_F(AilingTest, GetsWhatItMissedOnceItIsWell) {
  const auto names = MakeFiles(20, 4096);
  StartEngine();
  TakeDirectory();
  ReadAll(names);
  for (const std::string& name : names) EXPECT_FALSE(OnSsd(name)) << name;
  GiveDirectoryBack();
  EXPECT_TRUE(RunUntil([&] { return std::all_of(names.begin(), names.end(), [&](const std::string& name) { return OnSsd(name); }); }));
}

TEST_F(AilingTest, APrefetchDoesNotWaitForIt) {
  (void)MakeFiles(20, 4096);
  StartEngine();
  TakeDirectory();
  const JobStatus job = WaitForJob(engine().jobs().Prefetch({{&unit(), ""}}, {}));
  EXPECT_EQ(job.verified_files, 20u) << "in RAM";
}

}  // namespace
}  // namespace tierd::engine
