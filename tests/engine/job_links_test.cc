// Prefetch through symbolic links: each file once, nothing twice, no circles; links that lead nowhere are passed over.
#include <unistd.h>

#include <cstdint>
#include <string>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class JobLinksTest : public EngineTest {
 protected:
  void Link(const std::string& name, const std::string& target) const { ASSERT_EQ(::symlink(target.c_str(), (tree_ / name).c_str()), 0); }
  JobStatus Prefetch(const std::string& path, Jobs::PrefetchOptions options = {}) {
    const std::uint64_t job = engine().jobs().Prefetch({{&unit(), path}}, options);
    engine().EndTurn();
    return WaitForJob(job);
  }
  JobStatus Walk(const std::string& path) {
    const std::uint64_t job = engine().jobs().Walk({{&unit(), path}});
    engine().EndTurn();
    return WaitForJob(job);
  }
  static void ExpectDone(const JobStatus& job, std::uint64_t files, std::uint64_t bytes) {
    EXPECT_EQ(job.state, JobState::kDone) << job.error;
    EXPECT_EQ(job.error, "");
    EXPECT_EQ(job.files_failed, 0u);
    EXPECT_EQ(job.files_total, files);
    EXPECT_EQ(job.files_done, files);
    EXPECT_EQ(job.bytes_done, bytes);
    EXPECT_EQ(job.expected_files, files);
    EXPECT_EQ(job.verified_files, files);
    EXPECT_EQ(job.verified_bytes, bytes);
  }
};

TEST_F(JobLinksTest, ATreeOfLinksToFiles) {
  Write("real/a", Bytes("a", 1000));
  Write("real/b", Bytes("b", 3000));
  Write("real/not-asked-for", Bytes("c", 500));
  Write("farm/own", Bytes("own", 100));
  Link("farm/a", "../real/a");
  Link("farm/a-again", "a");
  Link("farm/b", tree_.path() + "/real/b");
  Link("farm/own-too", "own");
  StartEngine();
  ExpectDone(Prefetch("farm"), 3, 4100);
  EXPECT_TRUE(InRam("real/a"));
  EXPECT_TRUE(InRam("real/b"));
  EXPECT_TRUE(InRam("farm/own"));
  EXPECT_FALSE(InRam("real/not-asked-for"));
  // Who reads by the link finds it: neither the link nor the file is asked for again.
  const std::uint64_t reads = source_io_.count(io::Step::kRead);
  EXPECT_EQ(Fetch("farm/b").status(), abi::FetchStatus::kRetry) << "an alias, as known";
  EXPECT_EQ(source_io_.count(io::Step::kRead), reads);
  ExpectDone(Prefetch("farm"), 3, 4100);
  EXPECT_EQ(source_io_.count(io::Step::kRead), reads);
}

TEST_F(JobLinksTest, LinksToDirectoriesAndInCircles) {
  Write("real/one/a", Bytes("a", 1000));
  Write("real/two/b", Bytes("b", 2000));
  Write("farm/c", Bytes("c", 300));
  Link("farm/one", "../real/one");
  Link("farm/two", "../real/two");
  Link("farm/two-again", "two");
  Link("real/one/back", "../../farm");    // comes by what is walked already
  Link("real/two/sister", "../one");
  Link("farm/up", "..");                  // all of the source: nobody asked for that
  Link("farm/itself", ".");
  Link("farm/file-there", "one/a");
  Write("elsewhere", Bytes("elsewhere", 700));
  StartEngine();
  ExpectDone(Prefetch("farm"), 3, 3300);
  EXPECT_TRUE(InRam("real/one/a"));
  EXPECT_TRUE(InRam("real/two/b"));
  EXPECT_FALSE(InRam("elsewhere"));
}

// Above what another link has led to, before or after it: all of it was meant.
TEST_F(JobLinksTest, ToADirectoryAboveAnother) {
  Write("data/real/a", Bytes("a", 1000));
  Write("data/b", Bytes("b", 2000));
  Write("one/x", Bytes("x", 10));
  Write("two/y", Bytes("y", 10));
  Link("one/1", "../data/real");
  Link("data/real/up", "..");
  Link("two/1", "../data");
  Link("two/2", "../data/real");
  StartEngine();
  EXPECT_EQ(Prefetch("one").state, JobState::kDone);
  EXPECT_TRUE(InRam("data/b"));
  EXPECT_EQ(Prefetch("two").state, JobState::kDone);
  EXPECT_TRUE(InRam("data/real/a"));
}

TEST_F(JobLinksTest, ThatLeadNowhereArePassedOver) {
  Write("farm/a", Bytes("a", 1000));
  Link("farm/dangling", "nothing");
  Link("farm/outside", "/etc/passwd");
  Link("farm/circle", "circle");
  Link("farm/through-a-file", "a/b");
  Link("farm/device", "fifo");
  ASSERT_EQ(::mkfifo((tree_ / "farm/fifo").c_str(), 0600), 0);
  StartEngine();
  ExpectDone(Prefetch("farm"), 1, 1000);
}

TEST_F(JobLinksTest, AskedForByThemselves) {
  Write("real/sub/a", Bytes("a", 1000));
  Write("real/b", Bytes("b", 200));
  Link("tree", "real");
  Link("file", "real/b");
  Link("dangling", "nothing");
  StartEngine();
  ExpectDone(Prefetch("file"), 1, 200);
  ExpectDone(Prefetch("tree/sub/a"), 1, 1000);
  ExpectDone(Prefetch("tree"), 2, 1200);
  ExpectDone(Prefetch("tree/sub"), 1, 1000);
  const JobStatus dangling = Prefetch("dangling");
  EXPECT_EQ(dangling.state, JobState::kPartial);
  EXPECT_EQ(dangling.files_failed, 1u);
  EXPECT_NE(dangling.error, "");
}

TEST_F(JobLinksTest, PinsWhatTheyLeadTo) {
  Write("real/a", std::string(5 << 20, 'a'));  // two chunks
  Link("a", "real/a");
  Write("farm/x", Bytes("x", 10));
  Link("farm/a", "../a");
  StartEngine();
  ExpectDone(Prefetch("farm", {.ssd_only = false, .pin = true}), 2, (5 << 20) + 10);
  EXPECT_NE(engine().catalogue().file(FileOf("real/a")).flags & kFilePinned, 0);
}

TEST_F(JobLinksTest, VerifiesThemOnTheSsd) {
  UseSsd();
  for (int i = 0; i < 300; ++i) {
    const std::string name = std::to_string(i);
    Write("real/" + name, Bytes(name, 2000));
    if (i == 0) Write("farm/own", Bytes("own", 100));
    Link("farm/" + name, "../real/" + name);
  }
  StartEngine();
  ExpectDone(Prefetch("farm", {.ssd_only = true}), 301, 300 * 2000 + 100);
}

// A job that is cancelled holds nobody up with what links led it to (HAZARDS 5).
TEST_F(JobLinksTest, OfACancelledJobAreForgottenSomeAtATurn) {
  for (int i = 0; i < 6000; ++i) {
    Write("real/" + std::to_string(i), "x");
    if (i == 0) Write("farm/own", "x");
    Link("farm/" + std::to_string(i), "../real/" + std::to_string(i));
  }
  StartEngine();
  const std::uint64_t job = engine().jobs().Prefetch({{&unit(), "farm"}}, {});
  engine().EndTurn();
  ASSERT_TRUE(RunUntil([&] { return engine().jobs().Find(job)->files_done > 5000; }));
  ASSERT_TRUE(engine().jobs().Cancel(job));
  std::size_t left = engine().jobs().names_waiting();
  ASSERT_GT(left, 4096u) << "more than a turn forgets";
  while (left > 0) {
    EXPECT_FALSE(engine().jobs().idle()) << "or nobody would come by";
    (void)engine().jobs().Pump();
    const std::size_t now = engine().jobs().names_waiting();
    ASSERT_LT(now, left);
    EXPECT_LE(left - now, 4096u);
    left = now;
  }
}

TEST_F(JobLinksTest, OfACancelledJobAreNotRememberedWhenTheirFilesComeLater) {
  Write("real/a", Bytes("a", 1000));
  Write("farm/own", Bytes("own", 100));
  Link("farm/a", "../real/a");
  StartEngine();
  Fetch("farm/own");
  source_io_.Hold(io::Step::kRead);
  const std::uint64_t job = engine().jobs().Prefetch({{&unit(), "farm"}}, {});
  engine().EndTurn();
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting == 1; }));
  ASSERT_TRUE(engine().jobs().Cancel(job));
  const JobStatus cancelled = *engine().jobs().Find(job);
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return InRam("real/a") && engine().fetcher().idle(); }));
  EXPECT_EQ(engine().jobs().names_waiting(), 0u);
  EXPECT_EQ(engine().jobs().Find(job)->files_total, cancelled.files_total) << "it is over";
  EXPECT_EQ(engine().jobs().Find(job)->files_done, cancelled.files_done);
  for (std::size_t i = 0; i < Jobs::kRememberedJobs; ++i) Walk("farm");
  EXPECT_EQ(engine().jobs().Find(job), nullptr) << "so many have ended since";
}

// Warm-up takes what it was given.
TEST_F(JobLinksTest, WarmUpPassesOverThem) {
  Write("farm/x", Bytes("x", 10));
  Write("real/a", Bytes("a", 1000));
  Link("farm/a", "../real/a");
  StartEngine();
  engine().jobs().WarmUp(unit(), "farm");
  engine().EndTurn();
  const JobStatus warm = WaitForJob(engine().jobs().List().back().id);
  EXPECT_EQ(warm.files_total, 1u);
  EXPECT_FALSE(InRam("real/a"));
}

TEST_F(JobLinksTest, AWalkOfOneFileKnowsIt) {
  Write("d/file", Bytes("file", 1000));
  Link("link", "d/file");
  StartEngine();
  JobStatus walk = Walk("d/file");
  EXPECT_EQ(walk.state, JobState::kDone) << walk.error;
  EXPECT_EQ(walk.files_done, 1u);
  EXPECT_EQ(walk.bytes_done, 1000u);
  EXPECT_TRUE(unit().Walked("d/file", SystemClock().MonotonicNs()));
  EXPECT_EQ(source_io_.count(io::Step::kRead), 0u);
  walk = Walk("nothing");
  EXPECT_EQ(walk.state, JobState::kPartial);
  EXPECT_NE(walk.error, "");
}

}  // namespace
}  // namespace tierd::engine
