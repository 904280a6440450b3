// Names with a link on the way: known by them is what their files are called themselves, and names that had one.
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

// A client that followed a link holds the lease of the file that it led to, and says so (kFetchAlias): it is given frames of that file alone (HAZARDS 2.3).
class FollowedLinkTest : public RelinkedTest {
 protected:
  void SetUp() override {
    Write("v1", Bytes("v1", kBytes));
    ASSERT_EQ(::symlink("v1", (tree_ / "current").c_str()), 0);
    StartEngine();
    ASSERT_EQ(Fetch("current").status(), abi::FetchStatus::kRetry);
    ASSERT_TRUE(IsAlias("current"));
  }
  std::uint64_t AskUnderItsLease(abi::FetchOp op = abi::FetchOp::kChunk) {
    const abi::FileKey led_to = engine().catalogue().KeyOf(unit().wire_id, "v1");
    FetchRequest request;
    request.session = kReader;
    request.path = "current";
    request.entry.op = static_cast<std::uint8_t>(op);
    request.entry.flags = abi::kFetchAlias;
    request.entry.expected_ino = led_to.lo;
    request.entry.expected_size = led_to.hi;
    request.entry.request_id = ++last_under_lease_;
    engine().Fetch(unit(), request);
    engine().EndTurn();
    return last_under_lease_;
  }
  Answer FetchUnderItsLease(abi::FetchOp op = abi::FetchOp::kChunk) {
    const std::uint64_t id = AskUnderItsLease(op);
    EXPECT_TRUE(RunUntil([&] { return answers().contains(id); }));
    return answers()[id];
  }
  abi::FetchStatus StatusUnderItsLease(abi::FetchOp op = abi::FetchOp::kChunk) { return FetchUnderItsLease(op).status(); }
  // Perhaps not at once: on a busy machine the ttl is over soon.
  bool GivesIt() {
    return RunUntil([&] { return FetchUnderItsLease().bytes == Bytes("v1", kBytes); });
  }
  void PassTtl() { std::this_thread::sleep_for(std::chrono::milliseconds(kTtlMs + 40)); }
  // rm current; mv v1 current
  void PutInThePlaceOfTheLink() {
    ASSERT_EQ(::unlink((tree_ / "current").c_str()), 0);
    ASSERT_EQ(::rename((tree_ / "v1").c_str(), (tree_ / "current").c_str()), 0);
    PassTtl();
  }

 private:
  std::uint64_t last_under_lease_ = 1'000'000;
};

TEST_F(FollowedLinkTest, GivesTheFileThatItLeadsTo) {
  EXPECT_TRUE(GivesIt());
  PassTtl();
  EXPECT_EQ(StatusUnderItsLease(), abi::FetchStatus::kRetry) << "it may lead elsewhere by now";
  EXPECT_TRUE(IsAlias("current"));
  EXPECT_TRUE(GivesIt());
}

TEST_F(FollowedLinkTest, AFileInItsPlaceIsNotGivenUnderThatLease) {
  ASSERT_NO_FATAL_FAILURE(PutInThePlaceOfTheLink());
  EXPECT_EQ(StatusUnderItsLease(), abi::FetchStatus::kRetry);
  EXPECT_FALSE(IsAlias("current"));
  EXPECT_TRUE(Fetch("current").bytes == Bytes("v1", kBytes)) << "under the lease of its own name";
}

TEST_F(FollowedLinkTest, NorWhenItIsKnownAndInRam) {
  ASSERT_NO_FATAL_FAILURE(PutInThePlaceOfTheLink());
  ASSERT_TRUE(Fetch("current").bytes == Bytes("v1", kBytes));
  ASSERT_TRUE(InRam("current"));
  EXPECT_EQ(StatusUnderItsLease(), abi::FetchStatus::kRetry);
  EXPECT_EQ(StatusUnderItsLease(abi::FetchOp::kStat), abi::FetchStatus::kRetry);
  PassTtl();
  EXPECT_EQ(StatusUnderItsLease(), abi::FetchStatus::kRetry);
}

TEST_F(FollowedLinkTest, NorToWhoJoinsOthersThatReadIt) {
  ASSERT_NO_FATAL_FAILURE(PutInThePlaceOfTheLink());
  source_io_.Hold(io::Step::kOpen);
  const std::uint64_t by_name = Ask("current");
  const std::uint64_t under_lease = AskUnderItsLease();
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return answers().contains(by_name) && answers().contains(under_lease); }));
  EXPECT_TRUE(answers()[by_name].bytes == Bytes("v1", kBytes));
  EXPECT_EQ(answers()[under_lease].status(), abi::FetchStatus::kRetry);
}

}  // namespace
}  // namespace tierd::engine
