// What must be survived (FAULTS.md), with the real daemon: a stopped, killed or missing daemon, a hung or failing source, damaged SSD files.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <set>
#include <thread>

#include "client_lib/abi/layout.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/exposition.h"
#include "tests/e2e/reading.h"
#include "tests/e2e/region_walk.h"
#include "tests/pfs_sim/rig.h"

namespace tierd::e2e {
namespace {

double SecondsOf(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class FaultTest : public testing::Test {
 protected:
  std::string Path(int i) const { return source + "/f" + std::to_string(i); }
  void MakeFiles(int count, std::size_t bytes) {
    for (int i = 0; i < count; ++i) Write(Path(i), Content(Path(i), bytes));
  }
  DaemonProcess::Options Options() const {
    DaemonProcess::Options options;
    options.source = source;
    options.more = kTrustStamps;
    options.more.insert(options.more.end(), {"--set", "source.warm=off"});
    return options;
  }
  void ExpectAll(const Client& client, int count) {
    for (int i = 0; i < count; ++i) {
      const Got got = Get(client.get(), Path(i));
      ASSERT_EQ(got.error, 0) << Path(i);
      ASSERT_TRUE(got.bytes == Plain(Path(i)).bytes) << Path(i);
    }
  }
  // Once through tierd after a restart on damaged region files: right everywhere, none of the damaged ones from the SSD, each of them counted.
  void ExpectFromTheSource(const std::set<int>& damaged, int count) {
    ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
    Client client(daemon.socket());
    ASSERT_TRUE(Eventually(5000, [&] { return daemon.Status()["tiers"]["ssd"]["state"] != "recovering"; }));
    std::uint64_t unread = 0;  // read from the source without a look at the record: the SSD was slow just then
    for (int i = 0; i < count; ++i) {
      const std::uint64_t slow = daemon.SlowSsdReads();
      const Got got = Get(client.get(), Path(i));
      ASSERT_EQ(got.error, 0) << Path(i);
      ASSERT_TRUE(got.bytes == Plain(Path(i)).bytes) << Path(i);
      if (!damaged.contains(i)) continue;
      EXPECT_EQ(got.origin, static_cast<std::uint32_t>(TIER_FROM_SOURCE)) << Path(i);
      unread += daemon.SlowSsdReads() - slow;
    }
    const double counted = ParseExposition(daemon.Metrics()).Value("tierd_integrity_failures_total{kind=\"ssd\"}");
    EXPECT_EQ(counted + static_cast<double>(unread), static_cast<double>(damaged.size()));
    ExpectAll(client, count);
  }
  ScratchDir scratch;
  std::string source = scratch.path() + "/data";
  DaemonProcess daemon{scratch.path()};
};

TEST_F(FaultTest, ReadersGoOnWithinASecondWhenTheDaemonStops) {  // F24
  MakeFiles(30, 20'000);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  Client client(daemon.socket());
  double took = 10;
  for (int files = 10; files < 30 && took >= 1; files += 10) {  // a busy machine gets a second try
    for (int i = 0; i < files; ++i) ASSERT_EQ(Get(client.get(), Path(i)).error, 0);
    daemon.Kill(SIGSTOP);
    took = SecondsOf([&] { ExpectAll(client, files + 10); });
    daemon.Kill(SIGCONT);
    EXPECT_TRUE(Eventually(8000, [&] { return Get(client.get(), Path(files + 5)).origin != TIER_FROM_BYPASS; }));
  }
  EXPECT_LT(took, 1) << "one wait for the process, not one per file, and no longer than the heart takes to be missed";
}

// It has said ahead that it would be quiet (LAYOUT, heartbeat): no reader waits longer for that.
TEST_F(FaultTest, ReadersGoOnWithinASecondWhenAnIdleDaemonStops) {  // F24
  MakeFiles(60, 20'000);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  Client client(daemon.socket());
  double took = 10;
  for (int files = 10; files < 60 && took >= 1; files += 10) {  // a busy machine gets further tries
    for (int i = 0; i < files; ++i) ASSERT_EQ(Get(client.get(), Path(i)).error, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    daemon.Kill(SIGSTOP);
    took = SecondsOf([&] { ExpectAll(client, files + 10); });
    daemon.Kill(SIGCONT);
    EXPECT_TRUE(Eventually(8000, [&] { return Get(client.get(), Path(files + 5)).origin != TIER_FROM_BYPASS; }));
  }
  EXPECT_LT(took, 1);
}

// HAZARDS 2.11: a program changes a file, finds nobody to tell within its second, and ends. Its session's page, or a word
// in the daemon's queue, says so.
TEST_F(FaultTest, WhatNobodyHeardOfWhileTheDaemonStoodIsSeenByOthers) {  // F24
  MakeFiles(20, 20'000);
  DaemonProcess::Options options = Options();
  options.more.insert(options.more.end(), {"--set", "source.staleness=immutable"});
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  for (const bool has_session : {true, false}) {
    SCOPED_TRACE(has_session ? "has a session" : "comes meanwhile");
    Client client(daemon.socket());
    for (int i = 0; i < 20; ++i) ASSERT_EQ(Get(client.get(), Path(i)).error, 0);
    const std::string file = Path(has_session ? 0 : 1), bytes = Content(has_session ? "another" : "a third", 20'000);
    int ready[2], go[2];
    ASSERT_TRUE(::pipe(ready) == 0 && ::pipe(go) == 0);
    const pid_t writer = ::fork();
    if (writer == 0) {
      char byte = 0;
      const auto wait = [&] { return ::write(ready[1], "r", 1) == 1 && ::read(go[0], &byte, 1) == 1; };
      if (!has_session && !wait()) ::_exit(1);
      Client own(daemon.socket(), 0);
      if (has_session && (Get(own.get(), Path(5)).origin != TIER_FROM_RAM || !wait())) ::_exit(2);
      Write(file + ".new", bytes);
      // It asks first, in vain: from then on it sends the daemon nothing.
      if (has_session && Get(own.get(), file + ".new").origin != TIER_FROM_BYPASS) ::_exit(3);
      if (std::rename((file + ".new").c_str(), file.c_str()) != 0) ::_exit(4);
      const char* const path = file.c_str();
      (void)tier_invalidate(own.get(), &path, 1, 0);
      ::_exit(0);
    }
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    daemon.Kill(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    ASSERT_EQ(::write(go[1], "g", 1), 1);
    int status = 0;
    ASSERT_EQ(::waitpid(writer, &status, 0), writer);
    EXPECT_EQ(status, 0);
    daemon.Kill(SIGCONT);
    EXPECT_TRUE(Eventually(8000, [&] { return Get(client.get(), file).bytes == bytes; })) << "an immutable source's file is asked about at no other time";
    for (const int fd : {ready[0], ready[1], go[0], go[1]}) ::close(fd);
  }
}

TEST_F(FaultTest, ReadersGoOnWhenTheDaemonIsKilledAndMeetTheNextOne) {  // F22, F35
  MakeFiles(30, 20'000);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  Client client(daemon.socket());
  ExpectAll(client, 30);
  daemon.Kill(SIGKILL);
  EXPECT_LT(SecondsOf([&] { ExpectAll(client, 30); }), 0.5);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  EXPECT_TRUE(Eventually(8000, [&] { return Get(client.get(), Path(0)).origin != TIER_FROM_BYPASS || daemon.Status()["sessions"] == 1; }));
  ExpectAll(client, 30);
}

// Of the memory of daemons' segments, what this process maps; with pages of 4 KiB these are memfds.
std::uint64_t MappedSegmentBytes() {
  std::ifstream maps("/proc/self/maps");
  std::uint64_t sum = 0;
  for (std::string line; std::getline(maps, line);) {
    unsigned long from = 0, to = 0;
    if (line.find("tierd-segment") != std::string::npos && std::sscanf(line.c_str(), "%lx-%lx", &from, &to) == 2) sum += to - from;
  }
  return sum;
}

// HAZARDS 2.8; LAYOUT 3, "a daemon that dies": nobody takes its memory from who has a view of it, and all but that is given up at the next calls.
TEST_F(FaultTest, AViewHeldOverAKillAndARestartShowsItsBytes) {
  constexpr int kFiles = 40;
  MakeFiles(kFiles, 20'000);
  auto options = Options();
  options.more.insert(options.more.end(), {"--set", "ram.pages=4k"});
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  Client client(daemon.socket());
  ExpectAll(client, kFiles);
  tier_view held{};
  ASSERT_EQ(tier_get(client.get(), Path(3).c_str(), &held, 0), 0);
  ASSERT_EQ(held.origin, static_cast<std::uint32_t>(TIER_FROM_RAM));
  const auto shows_its_bytes = [&] { return std::string(static_cast<const char*>(held.data), held.size) == Content(Path(3), 20'000); };
  const auto meets_the_next_one = [&] {
    daemon.Kill(SIGKILL);
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
    EXPECT_TRUE(Eventually(10'000, [&] { return Get(client.get(), Path(0)).origin != TIER_FROM_BYPASS && daemon.Status()["sessions"] == 1; }));
    for (int round = 0; round < 2; ++round) ExpectAll(client, kFiles);
  };
  const auto mapped_by_the_session = [&] {
    tier_statistics statistics{};
    statistics.size = sizeof statistics;
    EXPECT_EQ(tier_stats(client.get(), &statistics), 0);
    return statistics.mapped_bytes;
  };
  ASSERT_NO_FATAL_FAILURE(meets_the_next_one());  // which it starts by fork: the view's lease is frozen
  EXPECT_TRUE(shows_its_bytes());
  EXPECT_GT(MappedSegmentBytes(), mapped_by_the_session()) << "the dead one's is kept for the view";
  tier_release(&held);
  EXPECT_EQ(MappedSegmentBytes(), mapped_by_the_session()) << "and no longer";
  ASSERT_NO_FATAL_FAILURE(meets_the_next_one());
  EXPECT_EQ(MappedSegmentBytes(), mapped_by_the_session()) << "nor where there is no view";
}

TEST_F(FaultTest, WithoutADaemonEverythingIsPlain) {  // F56
  MakeFiles(5, 1000);
  Client client(scratch.path() + "/run/tierd.sock", 0);
  ASSERT_EQ(client.error(), 0);
  ExpectAll(client, 5);
  EXPECT_EQ(Get(client.get(), source + "/missing").error, -ENOENT);
}

TEST_F(FaultTest, DamagedRecordsAreReadFromTheSource) {  // F12: a bit of every 12 KiB of the region files
  MakeFiles(60, 50'000);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  ASSERT_EQ(daemon.Prefetch(source)["files_verified"], 60);
  EXPECT_EQ(daemon.Stop(), 0);
  int flipped = 0;
  for (const auto& entry : std::filesystem::directory_iterator(daemon.ssd_directory())) {
    const std::string name = entry.path().filename();
    if (name.find("region") == std::string::npos) continue;
    const int fd = ::open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
    for (off_t at = 2000; at < 4'000'000; at += 4096 * 3) {
      char byte = 0;
      if (::pread(fd, &byte, 1, at) != 1) break;
      byte = static_cast<char>(byte ^ 4);
      ASSERT_EQ(::pwrite(fd, &byte, 1, at), 1);
      ++flipped;
    }
    ::close(fd);
  }
  ASSERT_GT(flipped, 0);
  std::set<int> all;
  for (int i = 0; i < 60; ++i) all.insert(i);
  ExpectFromTheSource(all, 60);
}

TEST_F(FaultTest, SwappedRecordsAreReadFromTheSource) {  // F13: sound records, each in the other's place
  MakeFiles(10, 50'000);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  ASSERT_EQ(daemon.Prefetch(source)["files_verified"], 10);
  EXPECT_EQ(daemon.Stop(), 0);
  const auto records = RegionRecords(daemon.ssd_directory());
  ASSERT_EQ(records.size(), 10u);
  const RecordPlace three = records.find("f3")->second, seven = records.find("f7")->second;
  ASSERT_EQ(three.bytes, seven.bytes);
  ASSERT_EQ(three.file, seven.file);
  const std::string regions = Plain(three.file).bytes;
  std::fstream file(three.file, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(three.at)).write(regions.data() + seven.at, static_cast<std::streamsize>(seven.bytes));
  file.seekp(static_cast<std::streamoff>(seven.at)).write(regions.data() + three.at, static_cast<std::streamsize>(three.bytes));
  file.close();
  ExpectFromTheSource({3, 7}, 10);
}

TEST_F(FaultTest, AnIndexThatIsGoneIsRebuiltFromTheRegions) {  // F25
  MakeFiles(80, 20'000);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  ASSERT_EQ(daemon.Prefetch(source)["files_verified"], 80);
  daemon.Kill(SIGKILL);
  std::filesystem::remove_all(daemon.ssd_directory() + "/index");
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  ASSERT_TRUE(Eventually(10'000, [&] { return daemon.Status()["tiers"]["ssd"]["state"] == "ok"; }));
  Client client(daemon.socket());
  int from_ssd = 0;
  for (int i = 0; i < 80; ++i) {
    const Got got = Get(client.get(), Path(i));
    ASSERT_TRUE(got.bytes == Plain(Path(i)).bytes);
    from_ssd += got.origin == TIER_FROM_SSD ? 1 : 0;
  }
  EXPECT_EQ(from_ssd + static_cast<int>(daemon.SlowSsdReads()), 80);
}

// Flips a byte in the middle, cuts off the second half, or removes.
void Damage(const std::string& path, int how) {
  const std::uint64_t bytes = std::filesystem::file_size(path);
  if (how == 2) {
    std::filesystem::remove(path);
  } else if (how == 1) {
    std::filesystem::resize_file(path, bytes / 2);
  } else if (bytes > 0) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(bytes / 2));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(bytes / 2));
    file.put(static_cast<char>(byte ^ 0x20));
  }
}

TEST_F(FaultTest, DamageToAnyFileOfTheIndexCostsNoReadAndNoStart) {  // F25
  MakeFiles(40, 20'000);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  ASSERT_EQ(daemon.Prefetch(source)["files_verified"], 40);
  EXPECT_EQ(daemon.Stop(), 0);
  std::set<std::string> names;
  const std::string index = daemon.ssd_directory() + "/index";
  for (const auto& entry : std::filesystem::directory_iterator(index)) names.insert(entry.path().filename());
  names.erase("LOCK");
  ASSERT_GE(names.size(), 3u);
  // Names change as the index lives on: kinds of files are gone through instead, as "MANIFEST" in MANIFEST-000002.
  std::set<std::string> kinds;
  for (const std::string& name : names) kinds.insert(name.substr(name.find('.') == std::string::npos ? 0 : name.find('.'), name.find('-')));
  for (const std::string& kind : kinds) {
    for (int how = 0; how < 3; ++how) {
      for (const auto& entry : std::filesystem::directory_iterator(index))
        if (entry.path().filename().string().find(kind) != std::string::npos) Damage(entry.path(), how);
      ASSERT_TRUE(daemon.Start(Options())) << kind << " " << how << ": " << daemon.output();
      ASSERT_TRUE(Eventually(10'000, [&] { return daemon.Status()["tiers"]["ssd"]["state"] == "ok"; })) << daemon.output();
      Client client(daemon.socket());
      ExpectAll(client, 40);
      EXPECT_EQ(daemon.Status()["sources"][0]["read_bytes"], 20'000 * daemon.SlowSsdReads()) << kind << " " << how << ": the regions have it all " << daemon.output();
      ASSERT_EQ(daemon.Stop(), 0) << daemon.output();
    }
  }
}

class SlowSourceTest : public FaultTest {
 protected:
  void SetUp() override {
    std::string reason;
    rig = pfs_sim::Rig::Start({}, &reason);
    if (rig == nullptr) GTEST_SKIP() << reason;
    source = rig->mount();
    backing = rig->backing();
  }
  void MakeBacking(int count, std::size_t bytes) {
    for (int i = 0; i < count; ++i) Write(backing + "/f" + std::to_string(i), Content(Path(i), bytes));
  }
  std::unique_ptr<pfs_sim::Rig> rig;
  std::string backing;
};

TEST_F(SlowSourceTest, AHungSourceHoldsNobodyUpButItsOwnReader) {  // F39
  MakeBacking(40, 8000);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  Client client(daemon.socket());
  for (int i = 0; i < 20; ++i) ASSERT_EQ(Get(client.get(), Path(i)).bytes, Content(Path(i), 8000));
  rig->Control("fault add op=read path=*f30* errno=hang");
  const pid_t stuck = ::fork();
  if (stuck == 0) {
    Client own(daemon.socket());
    ::_exit(Get(own.get(), Path(30)).bytes == Content(Path(30), 8000) ? 0 : 1);  // bypasses into the same hang, then is released
  }
  SleepMs(100);
  EXPECT_LT(SecondsOf([&] {
              for (int i = 0; i < 20; ++i) EXPECT_EQ(Get(client.get(), Path(i)).origin, static_cast<std::uint32_t>(TIER_FROM_RAM));
              for (int i = 20; i < 30; ++i) EXPECT_EQ(Get(client.get(), Path(i)).bytes, Content(Path(i), 8000));
            }),
            1.0);
  EXPECT_TRUE(daemon.Status().is_object()) << "the control plane answers";
  rig->Control("fault clear");
  rig->Control("release");
  int status = 0;
  ::waitpid(stuck, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(SlowSourceTest, ErrorsOfTheSourceReachTheApplicationAndAreNotCached) {  // F40
  MakeBacking(4, 5000);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  Client client(daemon.socket());
  rig->Control("fault add op=read path=*f1* errno=EIO");
  EXPECT_EQ(Get(client.get(), Path(1)).error, -EIO);
  EXPECT_EQ(Get(client.get(), Path(0)).bytes, Content(Path(0), 5000));
  rig->Control("fault clear");
  EXPECT_EQ(Get(client.get(), Path(1)).bytes, Content(Path(1), 5000));
}

TEST_F(SlowSourceTest, EachFileIsOpenedOnceHoweverManyAsk) {
  MakeBacking(300, 2000);
  rig->Control("latency all 1000");
  rig->Control("counters reset");
  auto options = Options();
  options.more.insert(options.more.end(), {"--set", "source.warm=auto"});
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  std::vector<pid_t> readers;
  for (int r = 0; r < 3; ++r) {
    readers.push_back(::fork());
    if (readers.back() != 0) continue;
    Client own(daemon.socket());
    int bad = 0;
    for (int i = 0; i < 300; ++i) {
      const int n = (i * (2 * r + 7) + 13 * r) % 300;
      bad += Get(own.get(), Path(n)).bytes != Content(Path(n), 2000);
    }
    ::_exit(bad != 0);
  }
  for (const pid_t reader : readers) {
    int status = 0;
    ::waitpid(reader, &status, 0);
    EXPECT_EQ(status, 0);
  }
  const auto counters = rig->Counters();
  EXPECT_EQ(counters.opens, 300u);
  EXPECT_EQ(counters.bytes_read, 300u * 2000u);
}

// Three seconds of answers in time are no daemon that does not answer, and every byte is asked of the source once.
TEST_F(FaultTest, ALongReadIsNoHungDaemon) {
  constexpr std::size_t kBytes = std::size_t{72} << 20;
  std::string why;
  const auto rig = pfs_sim::Rig::Start({.bandwidth = 25'000'000}, &why);
  ASSERT_NE(rig, nullptr) << why;
  source = rig->mount();
  for (const char* name : {"/large", "/other"}) Write(rig->backing() + name, Content(name, kBytes));
  auto options = Options();
  options.ssd = "off";
  options.ram = "256 MiB";
  options.more.insert(options.more.end(), {"--set", "source.chunk_size=1 MiB"});  // what is read ahead shares the bandwidth: each takes far less than a second
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  Client client(daemon.socket());
  std::string buffer(kBytes, '\0');
  const double took = SecondsOf([&] {
    EXPECT_EQ(tier_read_file(client.get(), (source + "/large").c_str(), buffer.data(), buffer.size(), nullptr, 0), static_cast<ssize_t>(kBytes));
  });
  EXPECT_GT(took, 1.5) << "too fast to show anything";
  EXPECT_TRUE(buffer == Content("/large", kBytes));
  EXPECT_TRUE(Get(client.get(), source + "/other").bytes == Content("/other", kBytes));
  tier_statistics stats{};
  stats.size = sizeof stats;
  ASSERT_EQ(tier_stats(client.get(), &stats), 0);
  EXPECT_EQ(stats.fallback[static_cast<std::size_t>(abi::Fallback::kTimeout)], 0u);
  EXPECT_EQ(stats.reads[TIER_FROM_BYPASS], 0u);
  EXPECT_LT(rig->Counters().bytes_read, 2 * kBytes + (std::size_t{1} << 20));
}

}  // namespace
}  // namespace tierd::e2e
