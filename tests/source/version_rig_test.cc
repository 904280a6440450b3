// The reader with real engines on files that change while they are read: one version or none.
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
  const Heard& heard = ReadNow("a");
  if (heard.result.error == ReadError::kNone) {
    EXPECT_EQ(heard.Text(), Sample("a", 50'000));
  }
}

TEST_P(VersionRig, AFileRewrittenAllTheTimeIsOneVersionOrNone) {
  StartRig({.latency_us = 300, .timeout_ms = 0});
  constexpr std::size_t kSize = 100'000;
  WriteBacking("a", Sample("a", kSize, 1));
  Open(rig_->mount());
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (std::uint64_t version = 2; !stop; ++version) {
      const std::string text = Sample("a", kSize - version % 7 * 100, version);
      std::ofstream out(Backing("a"), std::ios::binary | std::ios::in);  // in place, without truncation
      out << text;
      out.close();
      ::truncate(Backing("a").c_str(), static_cast<off_t>(text.size()));
      std::this_thread::sleep_for(milliseconds(version % 16));
    }
  });
  int good = 0;
  for (int i = 0; i < 150; ++i) {
    const Heard& heard = ReadNow("a");
    if (heard.result.error != ReadError::kNone) {
      EXPECT_EQ(heard.result.error, ReadError::kChanged) << heard.result.sys_errno;
      continue;
    }
    ++good;
    // The racy flag says that stamps are young, so mixed bytes between two rewrites of one stamp tick are announced.
    EXPECT_TRUE(heard.result.racy);
  }
  stop = true;
  writer.join();
  EXPECT_GT(good, 0);
  const Heard& settled = ReadNow("a");
  EXPECT_EQ(settled.result.error, ReadError::kNone);
  EXPECT_EQ(settled.Text(), ReadFile(Backing("a")));
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
