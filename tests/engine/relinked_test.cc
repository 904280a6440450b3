// Names with a link on the way: known by them is what their files are called themselves.
#include <unistd.h>

#include <fstream>
#include <optional>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class RelinkedTest : public EngineTest {
 protected:
  static constexpr std::uint32_t kTtlMs = 200;
  static constexpr std::size_t kBytes = 3000;
  RelinkedTest() { source_options().ttl_ms = kTtlMs; }
  // The directory goes on under another name, and a link stands where it was.
  void MoveAway(const std::string& directory, const std::string& to) {
    ASSERT_EQ(::rename((tree_ / directory).c_str(), (tree_ / to).c_str()), 0);
    ASSERT_EQ(::symlink(to.c_str(), (tree_ / directory).c_str()), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(kTtlMs + 40));
  }
  bool IsAlias(const std::string& name) { return FileOf(name) != kNoFile && (engine().catalogue().file(FileOf(name)).flags & kFileAlias) != 0; }
};

TEST_F(RelinkedTest, ADirectoryThatBecomesALink) {
  Write("dir/file", Bytes("file", kBytes));
  StartEngine();
  ASSERT_EQ(Fetch("dir/file").status(), abi::FetchStatus::kFrame);
  ASSERT_NO_FATAL_FAILURE(MoveAway("dir", "moved"));
  EXPECT_EQ(Fetch("dir/file").status(), abi::FetchStatus::kRetry) << "the client finds the alias";
  EXPECT_TRUE(IsAlias("dir/file"));
  EXPECT_EQ(Fetch("moved/file").bytes, Bytes("file", kBytes));
  EXPECT_EQ(engine().BehindAlias(FileOf("dir/file")), FileOf("moved/file"));
}

TEST_F(RelinkedTest, AllWhoWaitAreAnswered) {
  Write("dir/file", Bytes("file", kBytes));
  StartEngine();
  ASSERT_EQ(Fetch("dir/file").status(), abi::FetchStatus::kFrame);
  ASSERT_NO_FATAL_FAILURE(MoveAway("dir", "moved"));
  source_io_.Hold(io::Step::kStat);
  std::vector<std::uint64_t> asked;
  asked.push_back(Ask("dir/file", abi::FetchOp::kStat, 0, kReader, abi::kFetchNoFollow));
  asked.push_back(Ask("dir/file"));
  asked.push_back(Ask("dir/file", abi::FetchOp::kStat));
  bool refreshed = false;
  engine().fetcher().RefreshAhead(unit(), FileOf("dir/file"), [&](const BringResult&) { refreshed = true; });
  source_io_.Release();
  engine().EndTurn();
  EXPECT_TRUE(RunUntil([&] { return refreshed && std::all_of(asked.begin(), asked.end(), [&](std::uint64_t id) { return answers().contains(id); }); }));
  EXPECT_TRUE(IsAlias("dir/file"));
}

// Nobody has read them by any name.
TEST_F(RelinkedTest, APlanOfNamesThroughLinksKnowsTheirFiles) {
  Write("v1/a", Bytes("a", kBytes));
  Write("v1/b", Bytes("b", kBytes));
  ASSERT_EQ(::symlink("v1", (tree_ / "current").c_str()), 0);
  ASSERT_EQ(::symlink("v1/b", (tree_ / "b").c_str()), 0);
  StartEngine();
  Engine::ToldPlan told;
  told.plan.kind = orders::Kind::kTorchSequential;
  told.plan.samples = 2;
  told.plan.epochs = 3;
  told.list_file = cache_.path() + "/told.list";
  std::ofstream(told.list_file) << tree_.path() << "/current/a\n" << tree_.path() << "/b\n";
  std::optional<Result<std::uint64_t>> answer;
  engine().TellPlan(unit(), std::move(told), [&](Result<std::uint64_t> result) { answer = std::move(result); });
  const auto plans = [&] { return engine().foresight(unit()).List(); };
  ASSERT_TRUE(RunUntil([&] { return answer.has_value() && !plans().empty() && plans()[0].state != PlanState::kMapping; }));
  EXPECT_EQ(plans()[0].known, 2u);
  EXPECT_NE(FileOf("v1/a"), kNoFile);
  EXPECT_NE(FileOf("v1/b"), kNoFile);
}

}  // namespace
}  // namespace tierd::engine
