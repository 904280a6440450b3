// A source that fails, is odd or must be spared, with the real daemon, the real client and the rig: what the application gets is what a direct
// read gives, and what the source is asked for is counted there (F40, F41, F42, F45, F47, F48).
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "client_lib/abi/layout.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"
#include "tests/pfs_sim/rig.h"

namespace tierd::e2e {
namespace {

class SourceFaultTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    rig = pfs_sim::Rig::Start({}, &why);
    if (rig == nullptr) GTEST_SKIP() << why;
    source = rig->mount();
  }
  std::string Path(int i) const { return source + "/f" + std::to_string(i); }
  std::string Backing(int i) const { return rig->backing() + "/f" + std::to_string(i); }
  void MakeBacking(int count, std::size_t bytes) {
    for (int i = 0; i < count; ++i) Write(Backing(i), Content(Path(i), bytes));
  }
  bool StartDaemon(const std::vector<std::string>& more = {}) {
    DaemonProcess::Options options;
    options.source = source;
    options.more = kTrustStamps;
    options.more.insert(options.more.end(), {"--set", "source.warm=off"});
    options.more.insert(options.more.end(), more.begin(), more.end());
    return daemon.Start(options);
  }
  ScratchDir scratch;
  DaemonProcess daemon{scratch.path()};
  std::unique_ptr<pfs_sim::Rig> rig;
  std::string source;
};

TEST_F(SourceFaultTest, ErrorsAreThoseOfADirectReadAndAreNeverCached) {  // F40
  MakeBacking(12, 5000);
  ASSERT_TRUE(StartDaemon()) << daemon.output();
  Client client(daemon.socket());
  int i = 0;
  for (const char* op : {"open", "read", "lookup"}) {
    for (const char* error : {"EIO", "EACCES", "EAGAIN", "ENOMEM"}) {
      const std::string rule = std::string("fault add op=") + op + " path=f" + std::to_string(i) + " errno=" + error + " every=1";
      rig->Control(rule);
      const Got direct = Plain(Path(i));
      const Got ours = Get(client.get(), Path(i));
      EXPECT_EQ(ours.error, direct.error) << rule;
      EXPECT_EQ(ours.bytes, direct.bytes) << rule;
      rig->Control("fault clear");
      EXPECT_EQ(Get(client.get(), Path(i)).bytes, Content(Path(i), 5000)) << rule;
      EXPECT_EQ(Get(client.get(), Path(i)).origin, static_cast<std::uint32_t>(TIER_FROM_RAM)) << rule;
      ++i;
    }
  }
}

TEST_F(SourceFaultTest, WhatTheDaemonAloneMeetsIsCountedByItsError) {  // C4
  const std::pair<const char*, abi::Fallback> cases[] = {{"EIO", abi::Fallback::kDegraded}, {"EAGAIN", abi::Fallback::kDegraded}, {"EACCES", abi::Fallback::kPermission},
                                                         {"ENOENT", abi::Fallback::kChanged}, {"ETIMEDOUT", abi::Fallback::kSourceSlow}};
  MakeBacking(std::size(cases), 5000);
  ASSERT_TRUE(StartDaemon()) << daemon.output();
  Client client(daemon.socket());
  tier_statistics expected{};
  for (int i = 0; const auto& [error, reason] : cases) {
    // The engine opens again after EAGAIN, 64 times.
    const int times = std::string(error) == "EAGAIN" ? 65 : 1;
    rig->Control("fault add op=open path=f" + std::to_string(i) + " errno=" + error + " count=" + std::to_string(times));
    const Got got = Get(client.get(), Path(i));
    EXPECT_EQ(got.bytes, Content(Path(i), 5000)) << error;
    rig->Control("fault clear");
    ++expected.fallback[static_cast<std::size_t>(reason)];
    tier_statistics stats{};
    stats.size = sizeof stats;
    ASSERT_EQ(tier_stats(client.get(), &stats), 0);
    for (const auto at : {abi::Fallback::kDegraded, abi::Fallback::kPermission, abi::Fallback::kChanged, abi::Fallback::kSourceSlow})
      EXPECT_EQ(stats.fallback[static_cast<std::size_t>(at)], expected.fallback[static_cast<std::size_t>(at)]) << error << " " << tier_fallback_name(static_cast<std::uint32_t>(at));
    ++i;
  }
}

TEST_F(SourceFaultTest, AStaleHandleIsOpenedOnceAgain) {  // F40
  MakeBacking(2, 5000);
  ASSERT_TRUE(StartDaemon()) << daemon.output();
  Client client(daemon.socket());
  rig->Control("counters reset");
  rig->Control("fault add op=read path=f0 errno=ESTALE count=1");
  const Got got = Get(client.get(), Path(0));
  EXPECT_EQ(got.bytes, Content(Path(0), 5000));
  EXPECT_EQ(got.origin, static_cast<std::uint32_t>(TIER_FROM_SOURCE));
  EXPECT_LE(rig->Counters().opens, 2u);
}

// Every word of the file is the number of the version that wrote it; versions overwrite one another from the front.
std::string Words(std::uint64_t version, std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t at = 0; at + sizeof version <= bytes; at += sizeof version) std::memcpy(text.data() + at, &version, sizeof version);
  return text;
}

// Whether the file was like that at one moment: some version, and behind it nothing or the one before.
bool OneMoment(const std::string& text) {
  std::uint64_t first = 0;
  std::uint64_t previous = 0;
  for (std::size_t at = 0; at + 8 <= text.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + at, sizeof word);
    if (at == 0) first = previous = word;
    if (word > previous || first - word > 1) return false;
    previous = word;
  }
  return true;
}

TEST_F(SourceFaultTest, AWriterInALoopNeverMakesAMixture) {  // F41, F42
  constexpr std::size_t kBytes = 2'400'000;  // three requests of the kernel: the source could give a mixture
  Write(Backing(0), Words(1, kBytes));
  rig->Control("latency read 500");
  ASSERT_TRUE(StartDaemon({"--set", "source.ttl=100ms"})) << daemon.output();
  std::atomic<bool> stop = false;
  std::atomic<std::uint64_t> written = 1;
  std::thread writer([&] {
    for (std::uint64_t version = 2; !stop; ++version) {
      if (version % 3 == 0) std::filesystem::resize_file(Backing(0), 240'000);
      const std::string text = Words(version, kBytes);
      const int fd = ::open(Backing(0).c_str(), O_WRONLY | O_CLOEXEC);
      for (std::size_t at = 0; at < kBytes; at += 240'000) {
        (void)!::pwrite(fd, text.data() + at, 240'000, static_cast<off_t>(at));
        std::this_thread::sleep_for(std::chrono::microseconds(300));
      }
      ::close(fd);
      written = version;
      SleepMs(version % 4 == 0 ? 60 : 3);
    }
  });
  Client client(daemon.socket());
  int cached = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  while (std::chrono::steady_clock::now() < end) {
    const Got got = Get(client.get(), Path(0), TIER_CACHED);  // what the cache gives; the client's own reads are any program's
    if (got.error != 0) continue;
    ++cached;
    EXPECT_TRUE(OneMoment(got.bytes));
  }
  stop = true;
  writer.join();
  EXPECT_GT(cached, 0);
  EXPECT_TRUE(Eventually(4000, [&] { return Get(client.get(), Path(0)).bytes == Words(written, kBytes); }));
}

// Each mode after each change: `immutable` serves on what was promised never to change, `ttl` at most so much longer, `open` not once.
TEST_F(SourceFaultTest, DeletedRewrittenAndClosedFilesByStalenessMode) {  // F45
  constexpr int kTtlMs = 300;
  enum File { kDeleted, kRewritten, kClosed, kFiles };
  std::string why;
  rig = pfs_sim::Rig::Start({.timeout_ms = 0}, &why);  // the kernel remembers nothing: what is old is ours
  ASSERT_NE(rig, nullptr) << why;
  source = rig->mount();
  for (const std::string mode : {"immutable", "ttl", "open"}) {
    SCOPED_TRACE(mode);
    MakeBacking(kFiles, 4000);
    ::chmod(Backing(kClosed).c_str(), 0644);
    ASSERT_TRUE(StartDaemon({"--set", "source.staleness=" + mode, "--set", "source.ttl=" + std::to_string(kTtlMs) + "ms"})) << daemon.output();
    Client client(daemon.socket());
    const auto mode_of = [&](int i) {
      tier_attr attr{};
      attr.size = sizeof attr;
      return tier_stat(client.get(), Path(i).c_str(), &attr, 0) == 0 ? attr.mode & 0777 : 0;
    };
    for (int i = 0; i < kFiles; ++i) {
      ASSERT_EQ(Get(client.get(), Path(i)).bytes, Content(Path(i), 4000));
      const Got again = Get(client.get(), Path(i));
      ASSERT_EQ(again.bytes, Content(Path(i), 4000));
      EXPECT_EQ(again.origin, static_cast<std::uint32_t>(TIER_FROM_RAM));
    }
    EXPECT_EQ(mode_of(kClosed), 0644u);
    std::filesystem::remove(Backing(kDeleted));
    Write(Backing(kRewritten), Content(Path(kRewritten), 4500, 2));
    ::chmod(Backing(kClosed).c_str(), 0400);
    if (mode != "open") SleepMs(kTtlMs + 200);
    const Got deleted = Get(client.get(), Path(kDeleted));
    const std::string rewritten = Get(client.get(), Path(kRewritten)).bytes;
    if (mode == "immutable") {
      EXPECT_EQ(deleted.bytes, Content(Path(kDeleted), 4000));
      EXPECT_EQ(rewritten, Content(Path(kRewritten), 4000));
      EXPECT_EQ(mode_of(kClosed), 0644u);
    } else {
      EXPECT_EQ(deleted.error, -ENOENT);
      EXPECT_EQ(rewritten, Content(Path(kRewritten), 4500, 2));
      EXPECT_EQ(mode_of(kClosed), 0400u);
    }
    EXPECT_EQ(Get(client.get(), Path(kClosed)).bytes, Plain(Path(kClosed)).bytes);
    EXPECT_EQ(daemon.Stop(), 0);
    std::filesystem::remove_all(daemon.ssd_directory());
  }
}

TEST_F(SourceFaultTest, APrefetchFitsIntoFewDescriptors) {  // F15
  constexpr int kFiles = 500;
  MakeBacking(kFiles, 1000);
  rig->Control("latency open 5000");  // long enough for the window to grow as far as it may
  const std::string script = scratch.path() + "/tierd-128";
  Write(script, std::string("#!/bin/sh\nulimit -n 128\nexec ") + TIERD_BINARY + " \"$@\"\n");
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  DaemonProcess::Options options;
  options.binary = script;
  options.source = source;
  options.more = kTrustStamps;
  options.more.insert(options.more.end(), {"--set", "source.warm=off"});
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  rig->Control("counters reset");
  const auto job = daemon.Prefetch(source);
  EXPECT_EQ(job["files_failed"], 0) << job;
  EXPECT_EQ(job["files_verified"], kFiles) << job;
  EXPECT_LE(rig->Counters().max_concurrency, 128u / 4 + 4) << "a quarter of the descriptors, and what the walk and the daemon itself ask";
}

TEST_F(SourceFaultTest, PrefetchKeepsItsBudgets) {  // F48
  constexpr int kFiles = 600;
  constexpr std::size_t kBytes = 4000;
  MakeBacking(kFiles, kBytes);
  struct Budget {
    const char* key;
    const char* value;
    double per_second;
    bool bytes;
  };
  for (const Budget& budget : {Budget{"source.request_budget=150", "150/s", 150, false}, Budget{"source.byte_budget=600 kB", "600 kB/s", 600e3, true}}) {
    ASSERT_TRUE(StartDaemon({"--set", budget.key})) << daemon.output();
    rig->Control("counters reset");
    const auto begin = std::chrono::steady_clock::now();
    const auto job = daemon.Control("POST", "/v1/prefetch", nlohmann::json{{"paths", {source}}}.dump());
    ASSERT_TRUE(job.contains("job")) << job;
    double seconds = 0;
    double drawn = 0;
    while (seconds < 2) {
      SleepMs(100);
      const auto counters = rig->Counters();
      drawn = static_cast<double>(budget.bytes ? counters.bytes_read : counters.opens);
      seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      // The rate, a tenth of a second of it at once, and one request.
      EXPECT_LE(drawn, budget.per_second * (seconds + 0.1) + (budget.bytes ? kBytes * 4 : 4)) << budget.value << " after " << seconds << " s";
    }
    EXPECT_GE(drawn, budget.per_second * seconds * 0.5) << budget.value << " is used";
    EXPECT_EQ(daemon.Stop(), 0);
    std::filesystem::remove_all(daemon.ssd_directory());
  }
}

TEST_F(SourceFaultTest, WalksAndLinksKeepTheRequestBudget) {  // F48
  constexpr int kDirectories = 500;
  constexpr double kPerSecond = 20;
  constexpr double kOperations = 8;  // of one request, at most: each part of a path is looked up, then it is opened, read to its end and closed
  for (int i = 0; i < kDirectories; ++i) {
    const std::string directory = rig->backing() + "/d" + std::to_string(i);
    std::filesystem::create_directory(directory);
    Write(directory + "/f", "x");
    std::filesystem::create_symlink("f", directory + "/link");
  }
  ASSERT_TRUE(StartDaemon({"--set", "source.request_budget=20"})) << daemon.output();
  rig->Control("counters reset");
  const auto begin = std::chrono::steady_clock::now();
  const std::string body = nlohmann::json{{"paths", {source}}}.dump();
  std::vector<std::string> jobs;
  for (const char* verb : {"/v1/walk", "/v1/prefetch"}) {
    const auto job = daemon.Control("POST", verb, body);
    ASSERT_TRUE(job.contains("job")) << job;
    jobs.push_back("/v1/jobs/" + std::to_string(job["job"].get<int>()));
  }
  for (double seconds = 0; seconds < 1.5;) {
    SleepMs(100);
    const auto counters = rig->Counters();
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const double drawn = static_cast<double>(counters.lookups + counters.getattrs + counters.opens + counters.reads + counters.readdirs);
    EXPECT_LE(drawn, kOperations * (kPerSecond * (seconds + 0.1) + 4)) << "after " << seconds << " s";
  }
  EXPECT_GT(rig->Counters().readdirs, 0u);
  // A budget that is lifted reaches all: they end, which at the old rate would take minutes.
  const auto config = daemon.Control("GET", "/v1/config");
  for (const auto& value : config["values"]) {
    const std::string key = value["key"];
    if (!key.ends_with(".request_budget")) continue;
    const auto set = daemon.Control("PATCH", "/v1/config", nlohmann::json{{"key", key}, {"value", "0"}}.dump());
    EXPECT_TRUE(set.contains("applied")) << key << set;
  }
  for (const std::string& job : jobs) {
    EXPECT_TRUE(Eventually(20'000, [&] { return daemon.Control("GET", job)["state"] == "done"; })) << daemon.Control("GET", job);
  }
}

TEST_F(SourceFaultTest, ManyFilesInOneDirectory) {  // F47; TIERD_TEST_DIRECTORY_FILES=1000000 for the full size
  const char* wanted = std::getenv("TIERD_TEST_DIRECTORY_FILES");
  const int files = wanted != nullptr ? std::atoi(wanted) : 20'000;
  const std::string directory = rig->backing() + "/many";
  std::filesystem::create_directory(directory);
  for (int i = 0; i < files; ++i) {
    const int fd = ::open((directory + "/name-of-a-file-" + std::to_string(i)).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    const std::string text = std::to_string(i);
    ASSERT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::close(fd);
  }
  ASSERT_TRUE(StartDaemon({"--set", "source.demand_timeout=30s", "--set", "source.chunk_size=64 KiB", "--set", "ram.segment_size=64 MiB"}))
      << daemon.output();  // a listing is one piece of memory: 40 MB of a million names
  Client client(daemon.socket());
  const std::string path = source + "/many";
  for (int round = 0; round < 2; ++round) {  // the second one from the index: larger than a chunk
    auto readdirs = rig->Counters().readdirs;
    // A listing that takes longer than the client waits was its own; the daemon's goes on beside it.
    EXPECT_TRUE(Eventually(60'000, [&] {
      SleepMs(round * 200);
      const auto before = std::exchange(readdirs, rig->Counters().readdirs);
      return before == readdirs;
    }));
    tier_listing* listing = nullptr;
    ASSERT_EQ(tier_list(client.get(), path.c_str(), &listing, 0), 0);
    tier_entry entry{};
    int seen = 0;
    while (tier_list_next(listing, &entry) == 1) ++seen;
    tier_list_close(listing);
    EXPECT_EQ(seen, files);
    if (round == 1 && files <= 1'000'000) {
      EXPECT_EQ(rig->Counters().readdirs, readdirs);
    }
  }
  const auto job = daemon.Prefetch(path, "ram", 120'000 + files);
  EXPECT_EQ(job["files_verified"], files) << job;
  // A listing that takes longer than the client waits closes its breaker for a moment.
  for (int i = 0; i < 100 && Get(client.get(), path + "/name-of-a-file-0").origin == static_cast<std::uint32_t>(TIER_FROM_BYPASS); ++i) ::usleep(100'000);
  rig->Control("counters reset");
  for (int i = 0; i < files; i += files / 200) {
    EXPECT_EQ(Get(client.get(), path + "/name-of-a-file-" + std::to_string(i)).bytes, std::to_string(i));
  }
  EXPECT_EQ(rig->Counters().opens, 0u);
}

TEST_F(SourceFaultTest, LongPathsHolesAndEmptyFiles) {  // F47
  std::string deep;
  while (source.size() + deep.size() + 210 < 4090) deep += "/" + std::string(200, static_cast<char>('a' + deep.size() / 201 % 26));
  const std::string name = deep + "/" + std::string(4090 - source.size() - deep.size() - 1, 'z');
  ASSERT_EQ((source + name).size(), 4090u);
  std::string made = rig->backing();
  // The backing's own path may be longer than the mount's: made step by step below an open directory.
  int at = ::open(made.c_str(), O_DIRECTORY | O_CLOEXEC);
  for (std::size_t from = 1; from < name.size();) {
    const std::size_t to = std::min(name.find('/', from), name.size());
    const std::string part = name.substr(from, to - from);
    if (to == name.size()) {
      const int fd = ::openat(at, part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
      ASSERT_GE(fd, 0);
      ASSERT_EQ(::write(fd, "far away", 8), 8);
      ::close(fd);
      break;
    }
    ASSERT_EQ(::mkdirat(at, part.c_str(), 0755), 0);
    const int next = ::openat(at, part.c_str(), O_DIRECTORY | O_CLOEXEC);
    ::close(at);
    at = next;
    from = to + 1;
  }
  ::close(at);
  Write(rig->backing() + "/empty", "");
  Write(rig->backing() + "/holes", "");
  const int fd = ::open((rig->backing() + "/holes").c_str(), O_WRONLY | O_CLOEXEC);
  for (const off_t offset : {0, 1'000'000, 9'000'000}) ASSERT_EQ(::pwrite(fd, "data", 4, offset), 4);
  ASSERT_EQ(::ftruncate(fd, 10'000'000), 0);  // ends in a hole
  ::close(fd);
  ASSERT_TRUE(StartDaemon()) << daemon.output();
  Client client(daemon.socket());
  for (int round = 0; round < 2; ++round) {
    for (const std::string& path : {source + name, source + "/empty", source + "/holes"}) {
      const Got direct = Plain(path);
      const Got ours = Get(client.get(), path);
      EXPECT_EQ(ours.error, direct.error) << path.size();
      EXPECT_TRUE(ours.bytes == direct.bytes) << path.size();
      if (round == 1 && path != source + "/empty") {
        EXPECT_EQ(ours.origin, static_cast<std::uint32_t>(TIER_FROM_RAM)) << path.size();
      }
    }
  }
  const std::string beyond = source + "/" + std::string(4096, 'x');
  EXPECT_EQ(Get(client.get(), beyond).error, Plain(beyond).error);
  EXPECT_EQ(daemon.Prefetch(source)["state"], "done");
}

}  // namespace
}  // namespace tierd::e2e
