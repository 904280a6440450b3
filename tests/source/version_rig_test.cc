// The reader with real engines on files that change while they are read: one version or none.
#include <algorithm>
#include <functional>
#include <set>
#include <vector>

#include "tests/source/rig_fixture.h"

namespace tierd::source {
namespace {

class VersionRig : public SourceRig {};
INSTANTIATE_TEST_SUITE_P(Engines, VersionRig, testing::Values(io::EngineKind::kThreads, io::EngineKind::kUring), NameOfEngine);

TEST_P(VersionRig, AShortReadIsNeverTakenForTheFile) {
  StartRig({.timeout_ms = 0});
  WriteBacking("a", Sample("a", 50'000));
  Control("fault add op=read path=a errno=short bytes=1234 count=1");
  Open(rig_->mount());
  // Nothing has changed: it is read on, or again.
  const Heard& heard = ReadNow("a");
  EXPECT_EQ(heard.result.error, ReadError::kNone);
  EXPECT_EQ(heard.Text(), Sample("a", 50'000));
  EXPECT_EQ(rig_->Counters().faults, 1u);
}

TEST_P(VersionRig, AFileRewrittenAllTheTimeIsOneVersionOrNone) {
  StartRig({.latency_us = 300, .timeout_ms = 0});
  constexpr std::size_t kSize = 100'000;
  WriteBacking("a", Sample("a", kSize, 1));
  Open(rig_->mount());
  std::atomic<bool> stop = false;
  const auto digest = std::hash<std::string>();
  std::set<std::size_t> written{digest(Sample("a", kSize, 1))};  // the writer's
  std::thread writer([&] {
    for (std::uint64_t version = 2; !stop; ++version) {
      const std::string text = Sample("a", kSize - version % 7 * 100, version);
      written.insert(digest(text));
      std::ofstream out(Backing("a"), std::ios::binary | std::ios::in);  // in place, without truncation
      out << text;
      out.close();
      ::truncate(Backing("a").c_str(), static_cast<off_t>(text.size()));
      std::this_thread::sleep_for(milliseconds(version % 16));
    }
  });
  std::vector<std::size_t> good;
  for (int i = 0; i < 150; ++i) {
    const Heard& heard = ReadNow("a");
    if (heard.result.error != ReadError::kNone) {
      EXPECT_EQ(heard.result.error, ReadError::kChanged) << heard.result.sys_errno;
      continue;
    }
    good.push_back(digest(heard.Text()));
    // The racy flag says that stamps are young, so mixed bytes between two rewrites of one stamp tick are announced.
    EXPECT_TRUE(heard.result.racy);
  }
  stop = true;
  writer.join();
  const auto whole = std::count_if(good.begin(), good.end(), [&](std::size_t text) { return written.contains(text); });
  EXPECT_GT(whole, 0);
  EXPECT_LE(std::ssize(good) - whole, std::ssize(good) / 10) << "what one stamp cannot tell apart is rare";
  const Heard& settled = ReadNow("a");
  EXPECT_EQ(settled.result.error, ReadError::kNone);
  EXPECT_EQ(settled.Text(), ReadFile(Backing("a")));
}

TEST_P(VersionRig, RewrittenBetweenTwoPiecesIsReadAgain) {
  StartRig({.timeout_ms = 0});
  constexpr std::size_t kSize = 100'000;
  WriteBacking("a", Sample("a", kSize, 1));
  Open(rig_->mount());
  Control("fault add op=read path=a errno=short bytes=40960 count=1");
  Control("fault add op=read path=a errno=delay usec=300000 count=1");
  Read("a", "a");
  reader_->Flush();
  ASSERT_TRUE(Drive([&] { return rig_->Counters().reads == 2; }));
  const auto stamp = [&] { return std::filesystem::last_write_time(Backing("a")); };
  for (const auto before = stamp(); stamp() == before;) std::fstream(Backing("a"), std::ios::binary | std::ios::in | std::ios::out) << Sample("a", kSize, 2);
  ASSERT_TRUE(Drive([&] { return done_ == 1; }));
  EXPECT_EQ(heard_["a"].result.error, ReadError::kNone);
  EXPECT_TRUE(heard_["a"].Text() == Sample("a", kSize, 2));
  EXPECT_GT(rig_->Counters().reads, 2u);
}

TEST_P(VersionRig, ReplacedBetweenTheTwoStatsIsReadAgain) {
  StartRig({.timeout_ms = 0});
  WriteBacking("a", Sample("a", 5000, 1));
  Open(rig_->mount());
  Control("fault add op=read path=a errno=delay usec=300000 count=1");
  Read("a", "a");
  reader_->Flush();
  ASSERT_TRUE(Drive([&] { return rig_->Counters().reads == 1; }));
  WriteBacking("a", Sample("a", 4000, 2));  // truncated and rewritten while the read waits
  ASSERT_TRUE(Drive([&] { return done_ == 1; }));
  EXPECT_EQ(heard_["a"].result.error, ReadError::kNone);
  EXPECT_EQ(heard_["a"].Text(), Sample("a", 4000, 2));
  EXPECT_GE(rig_->Counters().reads, 2u);  // by the reader's or, after the short read, by the engine's own repeat
}

TEST_P(VersionRig, CoarseStampsAreFlaggedRacy) {
  StartRig({.timeout_ms = 0});
  Control("stamp_granularity 1000000000");
  Open(rig_->mount());
  // Rewritten with the same size until both fall into one second: the version cannot tell them apart.
  for (int attempt = 0; attempt < 50; ++attempt) {
    WriteBacking("a", Sample("a", 5000, 1));
    const ReadResult first = ReadNow("a").result;
    WriteBacking("a", Sample("a", 5000, 2));
    const ReadResult second = ReadNow("a").result;
    ASSERT_EQ(first.error, ReadError::kNone);
    EXPECT_TRUE(first.racy);
    if (!first.version.SameVersion(second.version)) continue;
    EXPECT_TRUE(second.racy);
    return;
  }
  FAIL() << "stamps always differed";
}

TEST_P(VersionRig, UnstableCtimeFallsBackToSizeAndMtime) {
  StartRig({.timeout_ms = 0});
  WriteBacking("a", Sample("a", 5000));
  Control("attr_shift path=a ctime+=1 each=1");
  Open(rig_->mount());
  const Heard& heard = ReadNow("a");
  EXPECT_EQ(heard.result.error, ReadError::kNone);
  EXPECT_TRUE(heard.result.weak_version);
  EXPECT_EQ(heard.Text(), Sample("a", 5000));
}

}  // namespace
}  // namespace tierd::source
