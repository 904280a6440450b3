// Symbolic links: asked for themselves and followed at a time, while their records come and go.
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class LinkTest : public EngineTest {
 protected:
  static constexpr std::uint32_t kTtlMs = 200;
  LinkTest() { source_options().ttl_ms = kTtlMs; }
  void Link(const std::string& name, const std::string& target) const { ASSERT_EQ(::symlink(target.c_str(), (tree_ / name).c_str()), 0); }
  std::uint64_t AskForItself(const std::string& name) { return Ask(name, abi::FetchOp::kStat, 0, kReader, abi::kFetchNoFollow); }
  bool Answered(std::uint64_t id) { return answers().contains(id); }
  // A link whose target is there, known as a link, and to be compared with the source at its next use.
  void KnowLink() {
    Write("file", Bytes("file", 1000));
    Link("link", "file");
    StartEngine();
    const std::uint64_t id = AskForItself("link");
    ASSERT_TRUE(RunUntil([&] { return Answered(id); }));
    ASSERT_EQ(engine().catalogue().KindOf(FileOf("link")), abi::SlotKind::kSymlink);
    std::this_thread::sleep_for(std::chrono::milliseconds(kTtlMs + 40));
  }
};

TEST_F(LinkTest, AskedForItselfAndFollowedAtATime) {
  ASSERT_NO_FATAL_FAILURE(KnowLink());
  source_io_.Hold(io::Step::kStatBefore);
  const std::uint64_t itself = AskForItself("link");
  const std::uint64_t followed = Ask("link");
  source_io_.Release();
  EXPECT_TRUE(RunUntil([&] { return Answered(itself) && Answered(followed); }));
  EXPECT_EQ(Fetch("file").bytes, Bytes("file", 1000));
}

// The id of the link's record is another file's by the time that the source has answered.
TEST_F(LinkTest, FollowedItTakesNobodyElsesRecord) {
  ASSERT_NO_FATAL_FAILURE(KnowLink());
  source_io_.Hold(io::Step::kStatBefore);
  const FileId link = FileOf("link");
  const std::uint64_t itself = AskForItself("link");
  const std::uint64_t followed = Ask("link");
  struct stat now{};
  ASSERT_EQ(::stat((tree_ / Write("other", Bytes("other", 500))).c_str(), &now), 0);
  io::FileStat seen;
  seen.dev = now.st_dev;
  seen.ino = now.st_ino;
  seen.size = 500;
  seen.mtime_ns = now.st_mtim.tv_sec * 1'000'000'000 + now.st_mtim.tv_nsec;
  seen.ctime_ns = now.st_ctim.tv_sec * 1'000'000'000 + now.st_ctim.tv_nsec;
  seen.mode = now.st_mode;
  ASSERT_EQ(engine().fetcher().Observe(unit(), "other", seen, SystemClock().PreciseNs()), Fetcher::Observed::kKnown);
  ASSERT_EQ(FileOf("other"), link) << "the id is not given anew: this test shows nothing";
  source_io_.Release();
  EXPECT_TRUE(RunUntil([&] { return Answered(itself) && Answered(followed); }));
  ASSERT_EQ(FileOf("other"), link);
  EXPECT_EQ(engine().catalogue().StatOf(link).ino, seen.ino);
  EXPECT_EQ(engine().catalogue().KindOf(link), abi::SlotKind::kFile);
}

// Several wait for what the source says of a file, which has become a link: the first of them takes its record away.
TEST_F(LinkTest, AFileThatBecomesALinkAnswersAllWhoWait) {
  const std::string name = Write("name", Bytes("name", 1000));
  Write("file", Bytes("file", 3000));
  StartEngine();
  ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  std::this_thread::sleep_for(std::chrono::milliseconds(kTtlMs + 40));
  ASSERT_EQ(::unlink((tree_ / name).c_str()), 0);
  Link(name, "file");
  std::vector<std::uint64_t> asked;
  for (int i = 0; i < 3; ++i) asked.push_back(Ask(name));
  asked.push_back(AskForItself(name));
  bool refreshed = false;
  engine().fetcher().RefreshAhead(unit(), FileOf(name), [&](const BringResult&) { refreshed = true; });
  engine().EndTurn();
  EXPECT_TRUE(RunUntil([&] { return refreshed && std::all_of(asked.begin(), asked.end(), [&](std::uint64_t id) { return Answered(id); }); }));
  EXPECT_EQ(Fetch("file").bytes, Bytes("file", 3000));
}

// `cd /pfs/link; tierctl stat file` names the file as the kernel does.
TEST_F(LinkTest, ASourceGivenThroughALinkIsFoundByItsOwnNameToo) {
  Write("real/file", Bytes("file", 1000));
  Link("link", "real");
  source_options().path = tree_.path() + "/link";
  StartEngine();
  std::string relative;
  EXPECT_EQ(engine().Locate(tree_.path() + "/link/file", &relative), &unit());
  EXPECT_EQ(relative, "file");
  EXPECT_EQ(engine().Locate(tree_.path() + "/real/sub/file", &relative), &unit());
  EXPECT_EQ(relative, "sub/file");
  EXPECT_EQ(engine().Locate(tree_.path() + "/other", &relative), nullptr);
}

class ALinkThatChangesTest : public LinkTest {
 protected:
  void SetUp() override { source_options().ttl_ms = 60'000; }
  // A worker has found where the name leads, and the loop has not heard of it.
  std::uint64_t AskUntilResolved(const std::string& name) {
    source_io_.Hold(io::Step::kOpen);
    const std::uint64_t id = Ask(name);
    EXPECT_TRUE(RunUntil([&] { return source_io_.waiting == 1; }));
    source_io_.Release();
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (unit().resolver->pending() == 0 && std::chrono::steady_clock::now() < until) unit().reader->Poll(1);
    pollfd resolved{unit().resolver->event_fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&resolved, 1, 60'000), 1);
    EXPECT_FALSE(Answered(id));
    return id;
  }
  void Relink(const std::string& name, const std::string& target) {
    Link(name + ".new", target);
    ASSERT_EQ(::rename((tree_ / (name + ".new")).c_str(), (tree_ / name).c_str()), 0);
  }
  // By the name as clients know it from now on.
  std::string LeadsTo(const std::string& name) {
    const FileId behind = engine().BehindAlias(FileOf(name));
    return behind == kNoFile ? "" : engine().catalogue().PathOf(behind);
  }
};

// Read-your-writes: what was found before the change says nothing any more when the change has been told.
TEST_F(ALinkThatChangesTest, IsNotBelievedToLeadWhereItDid) {
  Write("old", Bytes("old", 1000));
  Write("new", Bytes("new", 1000));
  Link("link", "old");
  StartEngine();
  const std::uint64_t id = AskUntilResolved("link");
  Relink("link", "new");
  Advise(abi::AdviseOp::kInvalidate, "link");
  ASSERT_TRUE(RunUntil([&] { return Answered(id); }));
  EXPECT_EQ(answers()[id].status(), abi::FetchStatus::kRetry);
  EXPECT_EQ(LeadsTo("link"), "new");
}

// Whoever changes a link on the way tells of that one alone.
TEST_F(ALinkThatChangesTest, NorWhatLiesBehindIt) {
  Write("old/file", Bytes("old", 1000));
  Write("new/file", Bytes("new", 1000));
  Link("link", "old");
  StartEngine();
  const std::uint64_t id = AskUntilResolved("link/file");
  Relink("link", "new");
  Advise(abi::AdviseOp::kInvalidate, "link");
  ASSERT_TRUE(RunUntil([&] { return Answered(id); }));
  EXPECT_EQ(LeadsTo("link/file"), "new/file");
}

// Nobody knows what a chain of links goes through. A client that changes a link tells of everything below it.
TEST_F(ALinkThatChangesTest, IsNotFollowedByAChainEither) {
  for (const char* name : {"old/file", "new/file"}) Write(name, Bytes(name, 1000));
  Link("middle", "old");
  Link("first", "middle");
  StartEngine();
  ASSERT_EQ(Fetch("first/file").status(), abi::FetchStatus::kRetry);
  ASSERT_EQ(LeadsTo("first/file"), "old/file");
  const std::uint64_t id = AskUntilResolved("first/other");  // leads nowhere
  Relink("middle", "new");
  Write("new/other", Bytes("new/other", 1000));
  bool told = false;
  engine().Advise(unit(), abi::AdviseOp::kInvalidate, "middle", true, [&](int error, std::uint64_t) {
    EXPECT_EQ(error, 0);
    told = true;
  });
  ASSERT_TRUE(RunUntil([&] { return told; }));
  // An alias whose time is over may be forgotten by then.
  const FileId first = FileOf("first/file");
  EXPECT_TRUE(first == kNoFile || engine().catalogue().DeadlineOf(first) == abi::kDeadlineExpired);
  EXPECT_TRUE(RunUntil([&] { return Answered(id); }));
  ASSERT_EQ(Fetch("first/file").status(), abi::FetchStatus::kRetry);
  EXPECT_EQ(LeadsTo("first/file"), "new/file");
}

class ThroughALinkTest : public LinkTest {
 protected:
  void SetUp() override {
    source_options().ttl_ms = 60'000;
    Write("real/file", Bytes("file", 1000));
    Link("link", "real");
    StartEngine();
  }
  // As clients do: an alias sends them on.
  Answer FetchThrough() {
    const Answer answer = Fetch("link/file");
    return answer.status() == abi::FetchStatus::kRetry ? Fetch("real/file") : answer;
  }
  void Rewrite(const std::string& bytes) {
    const int fd = ::open((tree_ / "link/file").c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(::pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    ::close(fd);
  }
  std::uint64_t AdviseTree(abi::AdviseOp op, const std::string& path) {
    Engine::AdviceReach reach(true);
    reach.resolve = true;
    std::optional<std::uint64_t> concerned;
    engine().Advise(unit(), op, path, reach, [&](int error, std::uint64_t files) {
      EXPECT_EQ(error, 0);
      concerned = files;
    });
    engine().EndTurn();
    EXPECT_TRUE(RunUntil([&] { return concerned.has_value(); }));
    return concerned.value_or(0);
  }
};

class HungBehindALinkTest : public LinkTest {
 protected:
  // Both files are known, and neither is cached; the source does not give its bytes.
  void SetUp() override {
    source_options().ttl_ms = 60'000;
    source_options().demand_timeout_ms = 100;
    Write("real/file", Bytes("file", 1000));
    Write("other", Bytes("other", 1000));
    Link("link", "real");
    StartEngine();
    ASSERT_EQ(Fetch("real/file", abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
    ASSERT_EQ(Fetch("other", abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
    source_io_.Hold(io::Step::kRead);
  }
  void ExpectSentToTheSource(std::uint64_t id) {
    ASSERT_TRUE(RunUntil([&] { return Answered(id); }, 10'000));
    EXPECT_EQ(answers()[id].status(), abi::FetchStatus::kBypass);
    EXPECT_EQ(answers()[id].reply.reason, static_cast<std::uint8_t>(abi::Fallback::kSourceSlow));
  }
};

TEST_F(HungBehindALinkTest, WhoReadsThroughItIsAnsweredInTimeAsWell) {
  const std::uint64_t direct = Ask("other");
  const std::uint64_t through = Ask("link/file");
  ExpectSentToTheSource(direct);
  ExpectSentToTheSource(through);
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return engine().fetcher().idle(); }));
  EXPECT_EQ(Fetch("link/file").status(), abi::FetchStatus::kRetry);
  EXPECT_EQ(Fetch("real/file").bytes, Bytes("file", 1000));
}

TEST_F(HungBehindALinkTest, AlsoWhenThatWasUnderWayAlready) {
  engine().jobs().Prefetch({{&unit(), "real"}}, {});
  engine().EndTurn();
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting == 1; }));
  ExpectSentToTheSource(Ask("link/file"));
  EXPECT_EQ(engine().counters().prefetch_late, 1u);
}

TEST_F(ThroughALinkTest, AnInvalidationConcernsTheFileBehindIt) {
  ASSERT_EQ(FetchThrough().bytes, Bytes("file", 1000));
  Rewrite(Bytes("file", 1000, 2));
  EXPECT_EQ(Advise(abi::AdviseOp::kInvalidate, "link/file"), 1u);
  std::string served;
  EXPECT_TRUE(RunUntil([&] { return !(served = Fetch("real/file").bytes).empty(); }));  // the clock of stats stands still for milliseconds
  EXPECT_EQ(served, Bytes("file", 1000, 2));
}

TEST_F(ThroughALinkTest, EvictionAndUnpinningToo) {
  ASSERT_EQ(FetchThrough().bytes, Bytes("file", 1000));
  engine().placement().SetPinned(FileOf("real/file"), true);
  EXPECT_EQ(Advise(abi::AdviseOp::kUnpin, "link/file"), 1u);
  EXPECT_EQ(engine().catalogue().file(FileOf("real/file")).flags & kFilePinned, 0);
  ASSERT_TRUE(InRam("real/file"));
  EXPECT_EQ(Advise(abi::AdviseOp::kEvict, "link/file"), 1u);
  EXPECT_FALSE(InRam("real/file"));
}

// Nobody has read it by that name.
TEST_F(ThroughALinkTest, ATreeIsFoundByANameThatNobodyHasUsed) {
  ASSERT_EQ(Fetch("real/file").bytes, Bytes("file", 1000));
  EXPECT_GE(AdviseTree(abi::AdviseOp::kEvict, "link"), 1u);
  EXPECT_FALSE(InRam("real/file"));
  ASSERT_EQ(Fetch("real/file").bytes, Bytes("file", 1000));
  Rewrite(Bytes("file", 1000, 2));
  EXPECT_GE(AdviseTree(abi::AdviseOp::kInvalidate, "link/file"), 1u);
  EXPECT_TRUE(RunUntil([&] { return Fetch("real/file").bytes == Bytes("file", 1000, 2); }, 5000));
  EXPECT_EQ(AdviseTree(abi::AdviseOp::kEvict, "link/nothing"), 0u);
}

}  // namespace
}  // namespace tierd::engine
