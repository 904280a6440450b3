// The cache end to end: real daemon, real libtier. Bytes are compared with the files, counts with what the clients did.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"

namespace tierd::e2e {
namespace {

class CacheTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string("io_uring") && !IoUringIsAllowed()) GTEST_SKIP() << "io_uring is refused here";
  }
  std::string Path(int i) const { return source + "/class" + std::to_string(i % 4) + "/f" + std::to_string(i); }
  void MakeFiles(int count, std::size_t bytes) {
    for (int i = 0; i < count; ++i) Write(Path(i), Content(Path(i), bytes + static_cast<std::size_t>(i) * 7));
  }
  DaemonProcess::Options Options() const {
    DaemonProcess::Options options;
    options.source = source;
    options.more = kTrustStamps;
    options.more.insert(options.more.end(), {"--set", std::string("source.engine=") + GetParam(), "--set", std::string("ssd.engine=") + GetParam()});
    return options;
  }
  // Every file through the client; mismatches are failures. Counts by origin.
  std::map<std::uint32_t, int> ReadAll(const Client& client, int count) {
    std::map<std::uint32_t, int> origins;
    for (int i = 0; i < count; ++i) {
      const Got got = Get(client.get(), Path(i));
      EXPECT_EQ(got.error, 0) << Path(i);
      EXPECT_TRUE(got.bytes == Plain(Path(i)).bytes) << Path(i);
      ++origins[got.origin];
    }
    return origins;
  }
  static std::uint64_t SourceReads(const DaemonProcess& daemon) { return daemon.Status()["sources"][0]["read_bytes"]; }

  ScratchDir scratch;
  std::string source = scratch.path() + "/data";
  DaemonProcess daemon{scratch.path()};
};

TEST_P(CacheTest, ReadsEachByteFromTheSourceOnceAndThenFromRam) {
  constexpr int kFiles = 200;
  MakeFiles(kFiles, 5000);
  auto options = Options();
  options.more.insert(options.more.end(), {"--set", "source.warm=off"});
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  Client client(daemon.socket());
  ASSERT_EQ(client.error(), 0);
  auto first = ReadAll(client, kFiles);
  EXPECT_EQ(first[TIER_FROM_SOURCE], kFiles);
  std::uint64_t bytes = 0;
  for (int i = 0; i < kFiles; ++i) bytes += 5000 + static_cast<std::uint64_t>(i) * 7;
  EXPECT_EQ(SourceReads(daemon), bytes);
  auto second = ReadAll(client, kFiles);
  EXPECT_EQ(second[TIER_FROM_RAM], kFiles);
  EXPECT_EQ(SourceReads(daemon), bytes);
  // Application-level counters are exact.
  const auto reads = daemon.Status()["reads"];
  EXPECT_EQ(reads["source"]["count"], kFiles);
  EXPECT_EQ(reads["ram"]["count"], kFiles);
  EXPECT_EQ(reads["ram"]["bytes"], bytes);
  const std::string metrics = daemon.Metrics();
  EXPECT_NE(metrics.find("tierd_reads_total{tier=\"ram\",result=\"hit\"} 200"), std::string::npos);
  EXPECT_NE(metrics.find("tierd_source_read_bytes_total " + std::to_string(bytes)), std::string::npos);
  EXPECT_EQ(metrics.find(source), std::string::npos) << "no paths in metrics";
}

TEST_P(CacheTest, WarmsTheRestOfADatasetAfterThirtyTwoFilesButNotAfterOne) {
  constexpr int kFiles = 400;
  MakeFiles(kFiles, 3000);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  Client client(daemon.socket());
  ASSERT_EQ(Get(client.get(), Path(0)).error, 0);
  SleepMs(300);
  EXPECT_EQ(daemon.Status()["tiers"]["ram"]["objects"], 1);
  for (int i = 0; i < 40; ++i) ASSERT_EQ(Get(client.get(), Path(i)).error, 0);
  EXPECT_TRUE(Eventually(10'000, [&] { return daemon.Status()["tiers"]["ram"]["objects"] == kFiles; }));
  auto origins = ReadAll(client, kFiles);
  EXPECT_EQ(origins[TIER_FROM_RAM], kFiles);
}

TEST_P(CacheTest, ServesTheSsdTierAfterRestartAndAfterKill) {
  constexpr int kFiles = 150;
  MakeFiles(kFiles, 30'000);
  auto options = Options();
  options.more.insert(options.more.end(), {"--set", "source.warm=off"});
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  const auto job = daemon.Prefetch(source);
  EXPECT_EQ(job["state"], "done") << job;
  EXPECT_EQ(job["files_verified"], kFiles);
  for (const bool kill : {false, true}) {
    if (kill) daemon.Kill(SIGKILL);
    else EXPECT_EQ(daemon.Stop(), 0) << daemon.output();
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
    Client client(daemon.socket());
    ASSERT_EQ(client.error(), 0);
    ASSERT_TRUE(Eventually(5000, [&] { return daemon.Status()["tiers"]["ssd"]["state"] == "ok"; }));
    auto origins = ReadAll(client, kFiles);
    const auto slow = static_cast<int>(daemon.SlowSsdReads());
    EXPECT_EQ(origins[TIER_FROM_SSD] + slow, kFiles) << "kill " << kill << " " << daemon.output();
    EXPECT_GT(origins[TIER_FROM_SSD], 0);
    if (slow == 0) {
      EXPECT_EQ(SourceReads(daemon), 0u);
    }
    origins = ReadAll(client, kFiles);
    EXPECT_EQ(origins[TIER_FROM_RAM], kFiles);
  }
}

// Four chunks to a region, with their headers: of 256 MiB a region at most stays empty.
TEST_P(CacheTest, LargeFilesFillTheSsdTier) {
  constexpr std::uint64_t kChunks = 56, kChunk = 4 << 20;
  const std::string large = source + "/large";
  Write(large, "");
  ASSERT_EQ(::truncate(large.c_str(), kChunks * kChunk), 0);
  auto options = Options();
  options.ssd_capacity = "256 MiB";
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  EXPECT_EQ(daemon.Prefetch(source, "ssd")["files_verified"], 1);
  const auto ssd = daemon.Status()["tiers"]["ssd"];
  EXPECT_EQ(ssd["objects"], kChunks) << ssd;
  EXPECT_LE(ssd["capacity_bytes"], 256 << 20) << ssd;
}

TEST_P(CacheTest, StaysRightUnderEvictionForEachPolicy) {
  constexpr int kFiles = 300;  // 90 MB through 16 MiB of RAM, no SSD
  MakeFiles(kFiles, 300'000);
  for (const char* policy : {"lru", "freeze", "belady", "epoch", "s3fifo", "random", "importance"}) {
    auto options = Options();
    options.ram = "16 MiB";
    options.ssd = "off";
    options.more.insert(options.more.end(), {"--policy", policy});
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
    Client client(daemon.socket());
    for (int round = 0; round < 2; ++round) ReadAll(client, kFiles);
    const auto status = daemon.Status();
    EXPECT_LE(status["tiers"]["ram"]["allocated_bytes"], 16u << 20);
    EXPECT_GT(status["tiers"]["ram"]["objects"], 20);
    EXPECT_EQ(daemon.Stop(), 0);
  }
}

TEST_P(CacheTest, SeesChangesByTheStalenessBoundAndOwnOnesAtOnce) {
  const std::string path = Path(0);
  Write(path, Content(path, 9000, 1));
  auto options = Options();
  options.more.insert(options.more.end(), {"--set", "source.ttl=300ms"});
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  Client client(daemon.socket());
  EXPECT_EQ(Get(client.get(), path).bytes, Content(path, 9000, 1));
  EXPECT_EQ(Get(client.get(), path).origin, static_cast<std::uint32_t>(TIER_FROM_RAM));
  // Somebody else's change: by rename, same size. Seen once the bound is over.
  Write(path + ".new", Content(path, 9000, 2));
  std::filesystem::rename(path + ".new", path);
  EXPECT_TRUE(Eventually(3000, [&] { return Get(client.get(), path).bytes == Content(path, 9000, 2); }));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Get(client.get(), path).bytes, Content(path, 9000, 2));
  // Our own: at once.
  Write(path, Content(path, 12'000, 3));
  const char* changed = path.c_str();
  EXPECT_GE(tier_invalidate(client.get(), &changed, 1, 0), 0);
  EXPECT_EQ(Get(client.get(), path).bytes, Content(path, 12'000, 3));
  // Gone: the source's own error, when the bound is over.
  std::filesystem::remove(path);
  EXPECT_TRUE(Eventually(3000, [&] { return Get(client.get(), path).error == -ENOENT; }));
}

TEST_P(CacheTest, ReadsLargeAndSparseFilesInChunks) {
  const std::string big = source + "/big";
  Write(big, Content(big, 20'000'003));
  const std::string sparse = source + "/sparse";
  Write(sparse, "");
  const std::uint64_t far = (std::uint64_t{4} << 30) + 12'345;
  const int fd = ::open(sparse.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_EQ(::pwrite(fd, "end!", 4, static_cast<off_t>(far)), 4);
  ::close(fd);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  Client client(daemon.socket());
  const std::string expected = Content(big, 20'000'003);
  for (int round = 0; round < 2; ++round) EXPECT_TRUE(Get(client.get(), big).bytes == expected);
  std::string piece(100'000, '\0');
  for (const std::uint64_t offset : {0ull, 4'190'000ull, 8'388'600ull, 19'950'000ull}) {
    const ssize_t n = tier_pread(client.get(), big.c_str(), piece.data(), piece.size(), static_cast<std::int64_t>(offset), 0);
    ASSERT_EQ(n, static_cast<ssize_t>(std::min<std::uint64_t>(piece.size(), expected.size() - offset)));
    EXPECT_TRUE(expected.compare(offset, static_cast<std::size_t>(n), piece, 0, static_cast<std::size_t>(n)) == 0) << offset;
  }
  ASSERT_EQ(tier_pread(client.get(), sparse.c_str(), piece.data(), 100, static_cast<std::int64_t>(far - 50), 0), 54);
  EXPECT_EQ(piece.substr(0, 54), std::string(50, '\0') + "end!");
  EXPECT_EQ(tier_pread(client.get(), sparse.c_str(), piece.data(), 100, static_cast<std::int64_t>(far + 100), 0), 0);
}

TEST_P(CacheTest, GivesWhatTheFileSystemGivesForOddFiles) {
  const std::vector<std::string> odd{"empty", "sp ace", "new\nline", "caf\xc3\xa9", "\xff\xfe bytes", std::string(255, 'n'), "-", "a'b\"c"};
  for (const std::string& name : odd) Write(source + "/" + name, name == "empty" ? "" : Content(name, 100));
  Write(source + "/dir/file", Content("file", 5000));
  std::filesystem::create_symlink("dir/file", source + "/inside");
  std::filesystem::create_directory_symlink("dir", source + "/dirlink");
  Write(scratch.path() + "/outside", "secret of somebody else");
  std::filesystem::create_symlink(scratch.path() + "/outside", source + "/leaving");
  ASSERT_EQ(::mkfifo((source + "/fifo").c_str(), 0600), 0);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  Client client(daemon.socket());
  for (int round = 0; round < 3; ++round) {
    for (const std::string& name : odd) EXPECT_EQ(Get(client.get(), source + "/" + name).bytes, Plain(source + "/" + name).bytes) << name;
    for (const char* name : {"inside", "dirlink/file", "dir/file", "leaving", "dir/../dir/file", "./dir//file"})
      EXPECT_EQ(Get(client.get(), source + "/" + name).bytes, Plain(source + "/" + name).bytes) << name;
    for (const char* name : {"missing", "dir", "dir/file/below"}) EXPECT_EQ(Get(client.get(), source + "/" + name).error, Plain(source + "/" + name).error) << name;
  }
  // Through a link inside the source the second read is a hit.
  EXPECT_EQ(Get(client.get(), source + "/inside").origin, static_cast<std::uint32_t>(TIER_FROM_RAM));
}

// A working directory is called by the name behind the link.
TEST_P(CacheTest, ServesBothNamesOfARootThatIsALink) {
  MakeFiles(2, 5000);
  const std::string link = scratch.path() + "/link", own = Path(0), by_link = link + own.substr(source.size());
  std::filesystem::create_directory_symlink(source, link);
  auto options = Options();
  options.source = link;
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  Client client(daemon.socket());
  EXPECT_EQ(Get(client.get(), by_link).origin, static_cast<std::uint32_t>(TIER_FROM_SOURCE));
  EXPECT_EQ(Get(client.get(), own).origin, static_cast<std::uint32_t>(TIER_FROM_RAM));
  EXPECT_EQ(Get(client.get(), own).bytes, Content(own, 5000));
  EXPECT_EQ(SourceReads(daemon), 5000u);
  Write(own, Content(own, 5000, 2));
  const char* const changed = own.c_str();
  EXPECT_GE(tier_invalidate(client.get(), &changed, 1, 0), 0);
  EXPECT_EQ(Get(client.get(), by_link).bytes, Content(own, 5000, 2));
}

// Whoever has looked at them before.
TEST_P(CacheTest, AFifoIsNoEmptyFile) {
  Write(Path(0), Content(Path(0), 100));
  const std::string fifo = source + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  Client client(daemon.socket());
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(Get(client.get(), fifo).error, -EINVAL);
    tier_file* file = nullptr;
    EXPECT_EQ(tier_open(client.get(), fifo.c_str(), &file, 0), -EINVAL);
    tier_attr attr{};
    attr.size = sizeof attr;
    EXPECT_EQ(tier_stat(client.get(), fifo.c_str(), &attr, 0), 0);
    EXPECT_EQ(attr.mode, static_cast<std::uint32_t>(S_IFIFO | 0600));
  }
  EXPECT_EQ(daemon.Control("GET", "/v1/file?path=" + fifo)["kind"], "other");
  EXPECT_EQ(daemon.Control("GET", "/v1/du?path=" + source)["files"], 0) << "it counts among no files";
}

// Written and told of by a name through a link, read by that and by its own.
TEST_P(CacheTest, SeesOwnChangesByNamesThroughLinks) {
  const std::string own = source + "/real/file", through = source + "/link/file";
  Write(own, Content(own, 9000));
  std::filesystem::create_directory_symlink("real", source + "/link");
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  Client client(daemon.socket());
  int version = 1;
  for (const bool met : {false, true}) {
    EXPECT_EQ(Get(client.get(), own).bytes, Content(own, 9000, version));
    if (met) {
      EXPECT_EQ(Get(client.get(), through).bytes, Content(own, 9000, version));
    }
    Write(through, Content(own, 9000, ++version));
    const char* changed = through.c_str();
    EXPECT_GE(tier_invalidate(client.get(), &changed, 1, 0), 1);
    EXPECT_EQ(Get(client.get(), own).bytes, Content(own, 9000, version));
    EXPECT_EQ(Get(client.get(), through).bytes, Content(own, 9000, version));
  }
  const auto evicted = daemon.Control("POST", "/v1/evict", nlohmann::json{{"paths", {source + "/link"}}}.dump());
  EXPECT_GE(evicted["files"], 1);
  EXPECT_EQ(daemon.Control("GET", "/v1/file?path=" + own)["ram_bytes"], 0);
}

// Nobody has read it before: known by that name it would be another file, which is told of no change.
TEST_P(CacheTest, AStatByANameThroughALinkIsOneOfTheFileItself) {
  const std::string own = source + "/real/file", through = source + "/link/file";
  Write(own, Content(own, 9000));
  std::filesystem::create_directory_symlink("real", source + "/link");
  Write(scratch.path() + "/outside/file", "short");
  std::filesystem::create_directory_symlink(scratch.path() + "/outside", source + "/leaving");
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  Client client(daemon.socket());
  const auto bytes = [&](const std::string& path) {
    tier_attr attr{};
    attr.size = sizeof attr;
    EXPECT_EQ(tier_stat(client.get(), path.c_str(), &attr, 0), 0) << path;
    return attr.bytes;
  };
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(bytes(through), 9000u);
    EXPECT_EQ(bytes(source + "/leaving/file"), 5u);
  }
  EXPECT_EQ(Get(client.get(), through).bytes, Content(own, 9000));
  EXPECT_EQ(Get(client.get(), through).origin, static_cast<std::uint32_t>(TIER_FROM_RAM)) << "by the name that was looked at";
  Write(own, Content(own, 5000, 2));
  const char* changed = own.c_str();
  EXPECT_GE(tier_invalidate(client.get(), &changed, 1, 0), 0);
  EXPECT_EQ(bytes(through), 5000u);
  EXPECT_EQ(bytes(own), 5000u);
  EXPECT_EQ(Get(client.get(), through).bytes, Content(own, 5000, 2));
  Write(scratch.path() + "/outside/file", "longer");
  EXPECT_EQ(bytes(source + "/leaving/file"), 6u) << "nobody knows when it changes";
}

TEST_P(CacheTest, EvictsPinsAndExplains) {
  MakeFiles(8, 4000);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  ASSERT_EQ(daemon.Prefetch(source)["state"], "done");
  ASSERT_TRUE(Eventually(5000, [&] { return daemon.Status()["tiers"]["ssd"]["state"] == "ok"; }));
  const auto paths = [](const std::string& path) { return nlohmann::json{{"paths", {path}}}.dump(); };
  EXPECT_EQ(daemon.Control("POST", "/v1/pin", paths(Path(0)))["files"], 1);
  EXPECT_EQ(daemon.Control("GET", "/v1/file?path=" + Path(0))["pinned"], true);
  EXPECT_EQ(daemon.Control("GET", "/v1/du?path=" + source)["missing_bytes"], 0);
  EXPECT_EQ(daemon.Control("POST", "/v1/evict", paths(source))["files"], 8);
  const auto du = daemon.Control("GET", "/v1/du?path=" + source);
  EXPECT_EQ(du["missing_bytes"], du["size_bytes"]);
  EXPECT_EQ(daemon.Control("GET", "/v1/file?path=/not/below")["error"]["code"], "outside");
  const auto verify = daemon.Control("POST", "/v1/verify", "{}");
  EXPECT_EQ(daemon.WaitJob(verify["job"])["state"], "done");
}

TEST_P(CacheTest, ForkedReadersHitAndLeaseNothingWhenTheyAreGone) {
  MakeFiles(20, 10'000);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  Client client(daemon.socket());
  ReadAll(client, 20);
  tier_view held{};
  ASSERT_EQ(tier_get(client.get(), Path(3).c_str(), &held, 0), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    int bad = 0;
    for (int i = 0; i < 20; ++i) {
      const Got got = Get(client.get(), Path(i));
      bad += got.error != 0 || got.origin != TIER_FROM_RAM || got.bytes != Plain(Path(i)).bytes;
    }
    bad += std::string(static_cast<const char*>(held.data), held.size) != Plain(Path(3)).bytes;
    ::_exit(bad);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  tier_release(&held);
  const pid_t holder = ::fork();
  if (holder == 0) {
    tier_view view{};
    ::_exit(tier_get(client.get(), Path(1).c_str(), &view, 0) == 0 && (::pause(), true) ? 0 : 1);
  }
  EXPECT_TRUE(Eventually(2000, [&] { return daemon.Status()["leases"] >= 1; }));
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  EXPECT_TRUE(Eventually(1000, [&] { return daemon.Status()["sessions"] == 1; })) << daemon.Status().dump();
}

INSTANTIATE_TEST_SUITE_P(Engines, CacheTest, testing::Values("io_uring", "threads"));

}  // namespace
}  // namespace tierd::e2e
