// The reader with real engines on the rig: what reaches the source, counted there.
#include "tests/source/rig_fixture.h"

namespace tierd::source {
namespace {

INSTANTIATE_TEST_SUITE_P(Engines, SourceRig, testing::Values(io::EngineKind::kThreads, io::EngineKind::kUring), NameOfEngine);

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

}  // namespace
}  // namespace tierd::source
