// Why a file is where it is, as GET /v1/file says it (`tierctl explain`): each sentence.
#include <gmock/gmock.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>

#include "tests/server/control_api_fixture.h"

namespace tierd::server {
namespace {

class ExplainTest : public ControlApiTest {
 protected:
  explicit ExplainTest(fuzz::SsdTier ssd = fuzz::SsdTier::kOn) : ControlApiTest(ssd) {}
  // The sentence about the SSD.
  std::string Why(const std::string& relative) {
    const Said said = Ask("GET", "/v1/file?path=" + Path(relative));
    EXPECT_EQ(said.status, 200u);
    for (const auto& sentence : said.body["why"]) {
      if (sentence.get<std::string>().starts_with("On SSD: ")) return sentence;
    }
    return said.body.dump();
  }
};

TEST_F(ExplainTest, NobodyHasReadIt) {
  Insert("new");
  EXPECT_EQ(Why("new"), "On SSD: no; it is written there when it is read from the source, or when it leaves RAM.");
}

TEST_F(ExplainTest, WrittenAMomentAgo) {
  EXPECT_TRUE(JobEnds(Ask("POST", "/v1/prefetch", "{\"paths\": [\"" + Path("b/c") + "\"]}")));
  EXPECT_EQ(Why("b/c"), "On SSD: no; the tier takes no file that was written just before it was read.");
}

TEST_F(ExplainTest, NoRoom) {
  Insert("huge", std::uint64_t{1} << 30);
  EXPECT_EQ(Why("huge"), "On SSD: no; the tier is full.");
}

TEST_F(ExplainTest, ATierThatTakesNothing) {
  Insert("new");
  std::filesystem::rename(daemon.directory() + "/ssd", daemon.directory() + "/away");
  ASSERT_TRUE(daemon.Await([this] { return daemon.engine().ssd()->ailing(); }));
  EXPECT_EQ(Why("new"), "On SSD: no; the tier is not well and takes nothing just now (tierctl doctor).");
}

class RecoveringExplainTest : public ExplainTest {
 protected:
  RecoveringExplainTest() : ExplainTest(fuzz::SsdTier::kRecovering) {}
};

TEST_F(RecoveringExplainTest, NotKnownYet) {
  Insert("new");
  EXPECT_EQ(Why("new"), "On SSD: not known yet; the tier's index is still being read.");
}

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::MatchesRegex;

// The source as one wants it.
class Faults final : public io::EngineFaults {
 public:
  long Outcome(io::Step step, long result) override {
    if (step == io::Step::kOpen && open_error != 0) return -open_error;
    if (step != io::Step::kRead) return result;
    std::unique_lock lock(mutex_);
    released_.wait(lock, [this] { return !hangs_; });
    return reads_well-- > 0 ? result : -EIO;
  }
  unsigned SubmitLimit(unsigned pending) override { return pending; }
  unsigned CompletionEntries() override { return 0; }
  void Hang(bool hangs) {
    const std::scoped_lock lock(mutex_);
    hangs_ = hangs;
    released_.notify_all();
  }
  std::atomic<int> open_error{0};
  std::atomic<int> reads_well{1'000'000};

 private:
  std::mutex mutex_;
  std::condition_variable released_;
  bool hangs_ = false;  // guarded by mutex_
};

// Goes after the daemon.
struct WithFaults {
  Faults faults;
};

class AskedExplainTest : protected WithFaults, public ControlApiTest {
 protected:
  AskedExplainTest() : ControlApiTest(fuzz::SsdTier::kOff, &faults) {}
  ~AskedExplainTest() override { faults.Hang(false); }
  nlohmann::json File(const std::string& relative, bool ask = true) { return Ask("GET", "/v1/file?path=" + Path(relative) + (ask ? "&ask=1" : "")).body; }
  std::vector<std::string> Why(const std::string& relative, bool ask = true) { return File(relative, ask)["why"].get<std::vector<std::string>>(); }
  void Link(const std::string& target, const std::string& relative) { std::filesystem::create_symlink(target, Path(relative)); }
  void Prefetch(const std::string& relative) { EXPECT_TRUE(JobEnds(Ask("POST", "/v1/prefetch", "{\"paths\": [\"" + Path(relative) + "\"]}"))); }

  const std::string unknown_ = "Not known: nothing has brought it since the daemon started or it was last invalidated, and it is not on the SSD tier.";
  const std::string not_in_ram_ = "In RAM: no; no read and no prefetch has brought it since it was last there.";
  const std::string no_ssd_ = "On SSD: no; there is no SSD tier.";
};

TEST_F(AskedExplainTest, WhatIsNotAskedOfTheSourceIsNotClaimed) {
  EXPECT_THAT(Why("a", false), ElementsAre(unknown_, "A read or a prefetch makes it known, if its source gives it."));
}

TEST_F(AskedExplainTest, UnknownAndTheSourceGivesIt) { EXPECT_THAT(Why("a"), ElementsAre(unknown_, "The source gives it: a read or a prefetch makes it known.")); }

TEST_F(AskedExplainTest, TheSourceRefusesIt) {
  EXPECT_THAT(Why("none"), ElementsAre(unknown_, "The source refuses it: No such file or directory."));
  faults.open_error = EACCES;
  EXPECT_THAT(Why("a"), ElementsAre(unknown_, "The source refuses it: Permission denied."));
  faults.open_error = 0;
  faults.reads_well = 0;
  Insert("b/c", 3000);
  EXPECT_THAT(Why("b/c"), ElementsAre(not_in_ram_, no_ssd_, "The source refuses it: Input/output error."));
}

// As a client's miss comes, whatever became of it.
TEST_F(AskedExplainTest, AskedForAndNotThere) {
  Insert("b/c", 3000);
  EXPECT_THAT(Why("b/c", false), ElementsAre(not_in_ram_, no_ssd_));
  engine::Catalogue& catalogue = daemon.engine().catalogue();
  catalogue.file(catalogue.Find(catalogue.KeyOf(unit().wire_id, "b/c"))).flags |= engine::kFileDemanded;
  EXPECT_THAT(Why("b/c", false), ElementsAre(MatchesRegex("In RAM: no; a reader has asked for it, and it found no room or has left since: the policy [a-z]+ decides who may enter and leave."), no_ssd_));
  Insert("huge", std::uint64_t{1} << 30);
  EXPECT_THAT(Why("huge", false), Contains(MatchesRegex("In RAM: no; the tier is full and the policy [a-z]+ decides who may enter and leave.")));
  catalogue.file(catalogue.Find(catalogue.KeyOf(unit().wire_id, "huge"))).flags |= engine::kFileDemanded;
  EXPECT_THAT(Why("huge", false), Contains(MatchesRegex("In RAM: no; a reader has asked for it, but the tier is full and the policy [a-z]+ decides who may enter and leave.")));
}

TEST_F(AskedExplainTest, OnAnotherFileSystem) {
  faults.open_error = EXDEV;
  EXPECT_THAT(Why("b/c"), ElementsAre(unknown_, "It lies on another file system, mounted below the source: reads of it bypass the cache."));
}

TEST_F(AskedExplainTest, NoFile) {
  EXPECT_THAT(Why("b"), ElementsAre(unknown_, "Not a regular file: there are no bytes to cache."));
  EXPECT_THAT(Why(""), ElementsAre(unknown_, "Not a regular file: there are no bytes to cache."));
}

TEST_F(AskedExplainTest, LinksThatLeadElsewhere) {
  Link("/etc/passwd", "out");
  Link("nowhere", "dangling");
  Link("circle", "circle");
  EXPECT_THAT(Why("out"), ElementsAre(unknown_, "It leads out of the source, or to another file system: reads of it bypass the cache."));
  EXPECT_THAT(Why("dangling"), ElementsAre(unknown_, "It leads nowhere: No such file or directory."));
  EXPECT_THAT(Why("circle"), ElementsAre(unknown_, "It leads nowhere: Too many levels of symbolic links."));
}

TEST_F(AskedExplainTest, ALinkIsExplainedByWhatItLeadsTo) {
  Link("b/c", "link");
  Link("b", "dir");
  const std::string to = "A link to " + Path("b/c") + ".";
  EXPECT_THAT(Why("link"), ElementsAre(to, unknown_, "The source gives it: a read or a prefetch makes it known."));
  Prefetch("b/c");
  EXPECT_THAT(Why("dir/c"), Contains("In RAM: yes, reads are served without the daemon while the version is confirmed."));
  Prefetch("link");
  const nlohmann::json link = File("link", false), file = File("b/c", false);
  EXPECT_EQ(link["why"][0], to);
  EXPECT_EQ(link["target"]["path"], Path("b/c"));
  EXPECT_EQ(link["kind"], "symlink");
  for (const char* fact : {"size_bytes", "ram_bytes", "mtime_ns", "ctime_ns", "inode", "mode"}) EXPECT_EQ(link[fact], file[fact]) << fact;
  EXPECT_EQ(Ask("POST", "/v1/evict", "{\"paths\": [\"" + Path("b/c") + "\"]}").status, 200u);
  Remove("b/c");
  EXPECT_EQ(File("link", false)["known"], false) << "the slot says where it leads and nothing else";
}

TEST_F(AskedExplainTest, PartOfALargeFile) {
  std::ofstream(Path("large"));
  std::filesystem::resize_file(Path("large"), 40 << 20);
  Prefetch("large");
  EXPECT_THAT(Why("large"), Contains(MatchesRegex("In RAM: [0-9]+ of 10 chunks; the tier is full and the policy [a-z]+ decides who may enter and leave.")));
}

TEST_F(AskedExplainTest, PartOfALargeFileThatCannotBeReadFurther) {
  std::ofstream(Path("large"));
  std::filesystem::resize_file(Path("large"), 12 << 20);
  faults.reads_well = 1;
  Prefetch("large");
  EXPECT_THAT(Why("large"), ElementsAre(MatchesRegex("In RAM: [12] of 3 chunks; no read and no prefetch has brought the others since they were last there."), no_ssd_, testing::_,
                                        "The source refuses it: Input/output error."));
}

TEST_F(AskedExplainTest, AHungSourceDoesNotHangTheAnswer) {
  faults.Hang(true);
  EXPECT_THAT(Why("a"), ElementsAre(unknown_, "The source did not answer when it was asked just now: it is slow, hung or unreachable.", "The source is slow: 1 of the requests to it hang (tierctl status)."));
}

TEST_F(AskedExplainTest, TheSourceHangs) {
  faults.Hang(true);
  for (int round = 0; round < 10 && unit().reader->state() != source::SourceState::kHung; ++round) {
    int left = 64;
    for (int i = 0; i < 64; ++i) daemon.api().Handle("GET", "/v1/file?path=" + Path("a") + "&ask=1", "", [&left](const ControlApi::Response&) { --left; });
    ASSERT_TRUE(daemon.Await([&left] { return left == 0; }));
  }
  EXPECT_THAT(Why("a"), ElementsAre(unknown_, "The source did not answer when it was asked just now: it is slow, hung or unreachable.",
                                    "The source hangs: reads bypass the cache until it answers again (tierctl status)."));
}

TEST_F(AskedExplainTest, TheSourceCouldNotBeReached) {
  Prefetch("a");
  unit().unreachable_until_ns = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(Why("a"), Contains("The source could not be reached a moment ago: what is cached is served meanwhile."));
}

}  // namespace
}  // namespace tierd::server
