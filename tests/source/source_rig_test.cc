// The reader with real engines on the rig: what reaches the source, counted there.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "tests/pfs_sim/rig_test_base.h"
#include "tests/source/temp_tree.h"
#include "tierd/source/source_reader.h"
#include "tierd/source/tree_walker.h"

namespace tierd::source {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::int64_t kMs = 1'000'000;
constexpr std::size_t kCapacity = 256 << 10;

class SourceRig : public pfs_sim::RigTest, public testing::WithParamInterface<io::EngineKind> {
 protected:
  struct Heard {
    int done = 0;
    int freed = 0;
    ReadResult result;
    ReadResult late;
    std::vector<std::byte> buffer;
    steady_clock::time_point at;
    std::string Text() const { return std::string(reinterpret_cast<const char*>(buffer.data()), result.bytes); }
  };

  void SetUp() override {
    RigTest::SetUp();
    if (GetParam() != io::EngineKind::kUring || IsSkipped()) return;
    const auto uring = io::MakeEngine(io::EngineKind::kUring, {});
    if (!uring.ok()) GTEST_SKIP() << uring.status().ToString();  // here: a skip in a helper would not end the test
  }

  void TearDown() override {
    // Whatever hangs must end before its buffers go.
    if (rig_ != nullptr) rig_->Control("release");
    if (reader_ != nullptr) {
      EXPECT_EQ(reader_->Stop(10'000), 0u);
    }
    reader_.reset();
    source_.reset();
    RigTest::TearDown();
  }

  void Open(const std::string& root, SourceOptions options = {}) {
    options.engine = GetParam();
    source_ = OpenSource(root);
    ASSERT_NE(source_, nullptr);
    Result<std::unique_ptr<SourceReader>> reader = SourceReader::Create(source_, io::MakeEngine, clock_, options);
    ASSERT_TRUE(reader.ok()) << reader.status().ToString();
    reader_ = std::move(reader).value();
  }
  // `key` names the answer in heard_.
  RequestId Read(const std::string& path, const std::string& key, Priority priority = Priority::kDemand,
                 std::int64_t deadline_ns = 0) {
    Heard& heard = heard_[key];
    heard.done = 0;
    heard.buffer.assign(kCapacity, std::byte{0x5A});
    ReadRequest request;
    request.path = path;
    request.capacity = kCapacity;
    request.buffer = heard.buffer.data();
    request.priority = priority;
    request.deadline_ns = deadline_ns;
    request.done = [this, &heard](const ReadResult& result) {
      ++heard.done;
      ++done_;
      heard.result = result;
      heard.at = steady_clock::now();
    };
    request.on_buffer_free = [&heard](const ReadResult& result) {
      ++heard.freed;
      heard.late = result;
    };
    return reader_->Read(std::move(request));
  }
  // Turns of the loop until `until` holds. False after 30 s.
  template <typename Condition>
  bool Drive(Condition until) {
    const auto limit = steady_clock::now() + std::chrono::seconds(30);
    reader_->Flush();
    while (!until()) {
      if (steady_clock::now() > limit) return false;
      pollfd fd{reader_->event_fd(), POLLIN, 0};
      ::poll(&fd, 1, 2);
      reader_->Poll(256);
      if (clock_.MonotonicNs() >= reader_->next_tick_ns()) reader_->Tick(clock_.MonotonicNs());
    }
    return true;
  }
  const Heard& ReadNow(const std::string& path) {
    Read(path, path);
    EXPECT_TRUE(Drive([&] { return heard_[path].done == 1; })) << path;
    return heard_[path];
  }
  std::int64_t In(milliseconds time) const { return clock_.MonotonicNs() + time.count() * kMs; }

  SystemClock clock_;
  std::shared_ptr<const Source> source_;
  std::unique_ptr<SourceReader> reader_;
  std::map<std::string, Heard> heard_;
  std::size_t done_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Engines, SourceRig, testing::Values(io::EngineKind::kThreads, io::EngineKind::kUring),
                         [](const auto& tested) { return tested.param == io::EngineKind::kUring ? "Uring" : "Threads"; });

TEST_P(SourceRig, EachByteIsReadOnceAndRight) {
  StartRig({.timeout_ms = 60'000});
  const pfs_sim::TreeOptions tree{.files = 1000, .dirs = 5, .size = {.mean = 9000, .sigma = 0.5}};
  std::string why;
  ASSERT_TRUE(pfs_sim::MakeTree(rig_->backing(), tree, &why)) << why;
  Open(rig_->mount());
  for (std::uint64_t i = 0; i < tree.files; ++i) {
    Read(pfs_sim::TreePath(tree, i), pfs_sim::TreePath(tree, i), Priority::kPrefetch);
  }
  ASSERT_TRUE(Drive([&] { return done_ == tree.files; }));
  for (std::uint64_t i = 0; i < tree.files; ++i) {
    const std::string path = pfs_sim::TreePath(tree, i);
    const Heard& heard = heard_[path];
    ASSERT_EQ(heard.result.error, ReadError::kNone) << path << ": " << heard.result.sys_errno;
    ASSERT_EQ(heard.result.bytes, pfs_sim::TreeSize(tree, i));
    EXPECT_FALSE(pfs_sim::CheckContent({0, path, 1}, 0, heard.buffer.data(), heard.result.bytes)) << path;
  }
  const pfs_sim::RigCounters counters = rig_->Counters();
  EXPECT_EQ(counters.opens, tree.files);
  EXPECT_EQ(counters.bytes_read, pfs_sim::TreeBytes(tree));
  EXPECT_EQ(counters.open_handles, 0u);
  EXPECT_EQ(reader_->counters().bytes_read, pfs_sim::TreeBytes(tree));
}

TEST_P(SourceRig, OneSlowOperationDelaysNobodyElse) {
  StartRig({});
  for (int i = 0; i < 100; ++i) WriteBacking("f" + std::to_string(i), Sample("f", 1000));
  Control("fault add op=open path=f0 errno=delay usec=1500000");
  Open(rig_->mount());
  for (int i = 0; i < 100; ++i) Read("f" + std::to_string(i), "f" + std::to_string(i));
  ASSERT_TRUE(Drive([&] { return done_ == 99; }));
  EXPECT_EQ(heard_["f0"].done, 0);
  ASSERT_TRUE(Drive([&] { return done_ == 100; }));
  EXPECT_EQ(heard_["f0"].result.error, ReadError::kNone);
}

TEST_P(SourceRig, HangingReadsAreAnsweredInTimeAndGiveTheirBuffersBackLater) {
  StartRig({.timeout_ms = 0});
  for (int i = 0; i < 40; ++i) WriteBacking("f" + std::to_string(i), Sample("f", 1000));
  SourceOptions options;
  options.window_start = options.window_max = 8;
  options.demand_reserve = 1;
  Open(rig_->mount(), options);
  Control("fault add op=read path=f?? errno=hang");
  for (int i = 10; i < 20; ++i) {
    const std::string path = "f" + std::to_string(i);
    Read(path, path, Priority::kDemand, In(milliseconds(300)));
  }
  ASSERT_TRUE(Drive([&] { return done_ == 10; }));
  int held = 0;
  for (int i = 10; i < 20; ++i) {
    const Heard& heard = heard_["f" + std::to_string(i)];
    EXPECT_EQ(heard.result.error, ReadError::kTimeout);
    held += heard.result.buffer_held;
  }
  EXPECT_GE(held, 9);
  EXPECT_EQ(reader_->counters().hung, static_cast<std::uint64_t>(held));
  // Nine workers and slots are gone; others are served all the same.
  for (int i = 0; i < 10; ++i) EXPECT_EQ(ReadNow("f" + std::to_string(i)).result.error, ReadError::kNone);
  Control("fault clear");
  Control("release");
  ASSERT_TRUE(Drive([&] { return reader_->counters().hung == 0; }));
  int freed = 0;
  for (int i = 10; i < 20; ++i) freed += heard_["f" + std::to_string(i)].freed;
  EXPECT_EQ(freed, held);
  EXPECT_EQ(reader_->state(), SourceState::kUp);
}

TEST_P(SourceRig, PastTheCapDemandIsRefusedAndComesBackAfterRelease) {
  StartRig({.timeout_ms = 0});
  for (int i = 0; i < 40; ++i) WriteBacking("f" + std::to_string(i), Sample("f", 1000));
  SourceOptions options;
  options.hung_cap = 8;
  options.probe_interval_ns = 50 * kMs;
  Open(rig_->mount(), options);
  Control("fault add op=open path=* errno=hang");
  for (int i = 0; i < 8; ++i) Read("f" + std::to_string(i), std::to_string(i), Priority::kDemand, In(milliseconds(100)));
  ASSERT_TRUE(Drive([&] { return reader_->state() == SourceState::kHung; }));
  for (int i = 8; i < 12; ++i) Read("f" + std::to_string(i), std::to_string(i), Priority::kDemand, In(milliseconds(100)));
  ASSERT_TRUE(Drive([&] { return done_ == 12; }));
  EXPECT_GE(reader_->counters().refused_hung, 3u);
  Control("fault clear");
  Control("release");
  ASSERT_TRUE(Drive([&] { return reader_->state() == SourceState::kUp; }));
  EXPECT_EQ(ReadNow("f20").result.error, ReadError::kNone);
}

TEST_P(SourceRig, ErrorsAreThoseOfADirectRead) {
  StartRig({.timeout_ms = 0});
  for (const char* path : {"io", "stale", "stale_once", "access"}) WriteBacking(path, Sample(path, 5000));
  Control("fault add op=read path=io errno=EIO");
  Control("fault add op=open path=stale errno=ESTALE");
  Control("fault add op=open path=stale_once errno=ESTALE count=2");
  Control("fault add op=open path=access errno=EACCES");
  Open(rig_->mount());
  for (const auto& [path, error] : std::map<std::string, int>{{"io", EIO}, {"stale", ESTALE}, {"access", EACCES}, {"missing", ENOENT}}) {
    const Heard& heard = ReadNow(path);
    EXPECT_EQ(heard.result.error, ReadError::kErrno) << path;
    EXPECT_EQ(heard.result.sys_errno, error) << path;
  }
  // The kernel itself repeats an open that met ESTALE once; the second time it is our turn.
  const Heard& once = ReadNow("stale_once");
  EXPECT_EQ(once.result.error, ReadError::kNone) << once.result.sys_errno;
  EXPECT_EQ(once.Text(), Sample("stale_once", 5000));
}

TEST_P(SourceRig, AShortReadIsNeverTakenForTheFile) {
  StartRig({.timeout_ms = 0});
  WriteBacking("a", Sample("a", 50'000));
  Control("fault add op=read path=a errno=short bytes=1234 count=1");
  Open(rig_->mount());
  const Heard& heard = ReadNow("a");
  if (heard.result.error == ReadError::kNone) {
    EXPECT_EQ(heard.Text(), Sample("a", 50'000));
  }
}

TEST_P(SourceRig, AFileRewrittenAllTheTimeIsOneVersionOrNone) {
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

TEST_P(SourceRig, ReplacedBetweenTheTwoStatsIsReadAgain) {
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

TEST_P(SourceRig, CoarseStampsAreFlaggedRacy) {
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

TEST_P(SourceRig, UnstableCtimeFallsBackToSizeAndMtime) {
  StartRig({.timeout_ms = 0});
  WriteBacking("a", Sample("a", 5000));
  Control("attr_shift path=a ctime+=1 each=1");
  Open(rig_->mount());
  const Heard& heard = ReadNow("a");
  EXPECT_EQ(heard.result.error, ReadError::kNone);
  EXPECT_TRUE(heard.result.weak_version);
  EXPECT_EQ(heard.Text(), Sample("a", 5000));
}

TEST_P(SourceRig, RequestBudgetIsHeldAtTheSource) {
  StartRig({.timeout_ms = 60'000});
  for (int i = 0; i < 400; ++i) WriteBacking("f" + std::to_string(i), "x");
  SourceOptions options;
  options.requests_per_second = 200;
  Open(rig_->mount(), options);
  for (int i = 0; i < 400; ++i) Read("f" + std::to_string(i), "f" + std::to_string(i), Priority::kPrefetch);
  const auto started = steady_clock::now();
  ASSERT_TRUE(Drive([&] { return done_ >= 200; }));
  const double seconds = std::chrono::duration<double>(steady_clock::now() - started).count();
  EXPECT_LE(static_cast<double>(rig_->Counters().opens), 200 * seconds + 21);  // rate and one burst
  EXPECT_GE(seconds, 0.85);
}

TEST_P(SourceRig, WindowFindsTheConcurrencyOfTheSource) {
  StartRig({.latency_us = 2000, .concurrency = 8, .timeout_ms = 60'000});
  const pfs_sim::TreeOptions tree{.files = 3000, .dirs = 3, .size = {.mean = 500}};
  std::string why;
  ASSERT_TRUE(pfs_sim::MakeTree(rig_->backing(), tree, &why)) << why;
  SourceOptions options;
  options.window_max = 448;
  Open(rig_->mount(), options);
  std::byte buffer[4096];
  std::size_t done = 0;
  for (std::uint64_t i = 0; i < tree.files; ++i) {
    ReadRequest request;
    request.path = pfs_sim::TreePath(tree, i);
    request.capacity = sizeof buffer;
    request.buffer = buffer;  // nobody looks at the bytes
    request.priority = Priority::kPrefetch;
    request.done = [&done](const ReadResult& result) {
      EXPECT_EQ(result.error, ReadError::kNone);
      ++done;
    };
    reader_->Read(std::move(request));
  }
  ASSERT_TRUE(Drive([&] { return done == tree.files; }));
  EXPECT_LE(reader_->counters().window, 128u);
  EXPECT_GE(reader_->counters().window, 4u);
}

TEST_P(SourceRig, DemandOvertakesQueuedPrefetchesAtTheSource) {  // F38
  StartRig({.latency_us = 1000, .timeout_ms = 60'000});
  for (int i = 0; i < 1500; ++i) WriteBacking("f" + std::to_string(i), "x");
  WriteBacking("demand", "y");
  SourceOptions options;
  options.window_start = options.window_max = 32;
  Open(rig_->mount(), options);
  for (int i = 0; i < 1500; ++i) Read("f" + std::to_string(i), "f" + std::to_string(i), Priority::kPrefetch);
  reader_->Flush();
  Read("demand", "demand");
  ASSERT_TRUE(Drive([&] { return heard_["demand"].done == 1; }));
  EXPECT_LT(done_, 300u);  // far from the end of the queue
}

TEST_P(SourceRig, OnlyRegularFilesAndOnlyThisMount) {
  const TempTree tree;
  tree.Write("file", "text");
  tree.MakeDirectory("directory");
  tree.Link("file", "link");
  ASSERT_EQ(::mkfifo((tree / "fifo").c_str(), 0600), 0);
  Open(tree.path());
  EXPECT_EQ(ReadNow("file").Text(), "text");
  EXPECT_EQ(ReadNow("fifo").result.error, ReadError::kNotRegular);
  EXPECT_NE(ReadNow("directory").result.error, ReadError::kNone);
  EXPECT_EQ(ReadNow("link").result.sys_errno, ELOOP);
  EXPECT_NE(ReadNow("../" + tree.path().substr(tree.path().rfind('/') + 1) + "/file").result.error, ReadError::kNone);
}

TEST_P(SourceRig, AMountBelowTheRootIsOutside) {
  StartRig({});
  WriteBacking("a", "x");
  const std::string mount = rig_->mount();
  const std::size_t slash = mount.rfind('/');
  Open(mount.substr(0, slash));
  EXPECT_EQ(ReadNow(mount.substr(slash + 1) + "/a").result.error, ReadError::kOutside);
}

TEST_P(SourceRig, FilesOfEverySizeWithDirectIo) {
  const TempTree tree;
  for (const std::size_t size : {0, 1, 4095, 4096, 4097, 70'001, 262'144, 300'000}) {
    tree.Write("s" + std::to_string(size), Sample("s", size));
  }
  SourceOptions options;
  options.direct_min_bytes = 4096;
  Open(tree.path(), options);
  void* aligned = ::aligned_alloc(4096, kCapacity);
  for (const std::size_t size : {0, 1, 4095, 4096, 4097, 70'001, 262'144, 300'000}) {
    ReadResult result;
    bool done = false;
    ReadRequest request;
    request.path = "s" + std::to_string(size);
    request.capacity = kCapacity;
    request.buffer = static_cast<std::byte*>(aligned);
    request.done = [&](const ReadResult& r) {
      result = r;
      done = true;
    };
    reader_->Read(std::move(request));
    ASSERT_TRUE(Drive([&] { return done; }));
    EXPECT_EQ(result.error, ReadError::kNone) << size << ": " << result.sys_errno;
    EXPECT_EQ(std::string(static_cast<char*>(aligned), result.bytes), Sample("s", std::min(size, kCapacity))) << size;
  }
  std::free(aligned);
}

// The walker on the rig: what a slow, a failing and a hanging directory do to it.
class WalkerRig : public pfs_sim::RigTest {
 protected:
  void MakeTree() {
    const pfs_sim::TreeOptions tree{.files = 600, .dirs = 6, .size = {.mean = 100}};
    std::string why;
    ASSERT_TRUE(pfs_sim::MakeTree(rig_->backing(), tree, &why)) << why;
  }
  void Walk(TreeWalker* walker, bool with_stat) {
    WalkRequest request;
    request.with_stat = with_stat;
    request.on_batch = [this](const WalkBatch& batch) { entries_ += batch.entries.size(); };
    request.on_done = [this](const WalkTotals& totals) {
      totals_ = totals;
      done_ = true;
    };
    walker->Start(std::move(request));
    const auto limit = steady_clock::now() + std::chrono::seconds(30);
    while (!done_ && steady_clock::now() < limit) {
      pollfd fd{walker->event_fd(), POLLIN, 0};
      ::poll(&fd, 1, 5);
      walker->Poll(64);
      walker->Tick(clock_.MonotonicNs());
    }
    EXPECT_TRUE(done_);
  }

  SystemClock clock_;
  std::size_t entries_ = 0;
  WalkTotals totals_;
  bool done_ = false;
};

TEST_F(WalkerRig, StatsInParallel) {
  StartRig({.latency_us = 2000, .timeout_ms = 0});
  MakeTree();
  TreeWalker walker(OpenSource(rig_->mount()), clock_, WalkerOptions{});
  Walk(&walker, true);
  EXPECT_EQ(totals_.files, 600u);
  EXPECT_EQ(totals_.bytes, 60'000u);
  EXPECT_GE(rig_->Counters().max_concurrency, 6u);
}

TEST_F(WalkerRig, AFailingDirectoryIsCountedAndHiddenNamesAreMissing) {
  StartRig({.timeout_ms = 0});
  MakeTree();
  Control("fault add op=readdir path=d0002 errno=EIO");
  Control("hide path=d0003/*");
  TreeWalker walker(OpenSource(rig_->mount()), clock_, WalkerOptions{});
  Walk(&walker, false);
  EXPECT_EQ(totals_.errors, 1u);
  EXPECT_EQ(totals_.first_error, EIO);
  EXPECT_EQ(totals_.files, 400u);
  EXPECT_FALSE(totals_.complete());
}

TEST_F(WalkerRig, AHangingDirectoryIsGivenUpAndTheRestIsWalked) {
  StartRig({.timeout_ms = 0});
  MakeTree();
  Control("fault add op=readdir path=d0002 errno=hang");
  {
    TreeWalker walker(OpenSource(rig_->mount()), clock_, WalkerOptions{.threads = 2, .hung_after_ns = 200 * kMs});
    Walk(&walker, true);
    EXPECT_EQ(totals_.hung, 1u);
    EXPECT_EQ(totals_.files, 500u);
    EXPECT_FALSE(totals_.complete());
    EXPECT_EQ(walker.hung_workers(), 1u);
    Control("fault clear");
    Control("release");
    // The one that hung serves again.
    done_ = false;
    Walk(&walker, false);
    EXPECT_EQ(totals_.files, 600u);
  }
}

}  // namespace
}  // namespace tierd::source
