// A disk that fills up, fails, turns read-only or loses the cache directory under the real daemon: readers get right bytes, nothing ends, it
// is counted and shown. The disk is an ext4 or xfs image on a loop device, mounted in a mount namespace of this process where there
// may be one: whichever way the test ends, the kernel then takes mount and device back.
#include <gtest/gtest.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include <csignal>
#include <random>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/exposition.h"
#include "tests/e2e/own_mounts.h"
#include "tests/e2e/reading.h"
#include "tests/tierctl/run_tierctl.h"

namespace tierd::e2e {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr int kFiles = 400;
constexpr std::size_t kBytes = 110'000;

int Shell(const std::string& command) { return std::system(("PATH=$PATH:/sbin:/usr/sbin; exec >/dev/null 2>&1; " + command).c_str()); }

class SsdDiskTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to mount a disk image";
    KeepMountsToOneself();
    std::filesystem::create_directories(disk);
    if (Shell(MakeImage() + " && mount -o loop " + image + " " + disk) != 0) GTEST_SKIP() << "not installed, or loop mounts are not possible here: " << MakeImage();
    for (int i = 0; i < kFiles; ++i) Write(Path(i), Content(Path(i), kBytes));
  }
  void TearDown() override {
    if (daemon.running()) daemon.Kill(SIGKILL);
    Shell("umount " + disk);
  }
  virtual std::string MakeImage() const { return "truncate -s 320M " + image + " && mkfs.ext4 -q -F -m 0 -N 400 " + image; }
  std::string Path(int i) const { return source + "/c" + std::to_string(i % 8) + "/f" + std::to_string(i); }
  // A RAM tier that holds a third of the files, a disk that has room for all.
  void Start(const std::string& min_free = "8 MiB", const std::vector<std::string>& more = {}) {
    DaemonProcess::Options options;
    options.source = source;
    options.ram = "16 MiB";
    options.ssd = disk + "/cache";
    options.ssd_capacity = "256 MiB";
    options.more = kTrustStamps;
    options.more.insert(options.more.end(), {"--set", "source.warm=off", "--set", "ssd.min_free=" + min_free, "--set", "ssd.min_free_inodes=20", "--set", "ssd.region_size=8 MiB"});
    options.more.insert(options.more.end(), more.begin(), more.end());
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
    ASSERT_TRUE(!await_recovery || Eventually(5000, [&] { return SsdState() != "recovering"; }));
  }
  // Reads `rounds` times all files in an order of its own; the number of wrong answers, and of answers by origin.
  std::map<std::uint32_t, int> ReadAll(int rounds = 1) {
    Client client(daemon.socket(), 0);
    std::map<std::uint32_t, int> origins;
    std::mt19937 random(static_cast<unsigned>(++passes));
    for (int n = 0; n < rounds * kFiles; ++n) {
      const int i = static_cast<int>(random() % kFiles);
      const Got got = Get(client.get(), Path(i));
      EXPECT_EQ(got.error, 0) << Path(i);
      EXPECT_TRUE(got.bytes == Content(Path(i), kBytes)) << Path(i) << " from " << got.origin;
      ++origins[got.origin];
    }
    EXPECT_FALSE(daemon.Ended()) << daemon.output();
    return origins;
  }
  // Brings it to the SSD tier; how many files were found there afterwards. What the job said goes to the log of a test that fails.
  int PrefetchSsd(const std::string& path) {
    const auto job = daemon.Prefetch(path, "ssd");
    last_job = job.dump();
    return job.is_object() && job.contains("files_verified") ? job["files_verified"].get<int>() : -1;
  }
  // Objects that did not get onto the SSD, for whatever reason.
  double Refused() const {
    const Exposition page = ParseExposition(daemon.Metrics());
    double sum = 0;
    for (const char* reason : {"no_space", "busy", "health", "policy"}) sum += page.Value("tierd_ssd_appends_refused_total{reason=\"" + std::string(reason) + "\"}");
    return sum;
  }
  // One pass: reads that were from the SSD, or left to the source because a busy SSD answers later (F08).
  int ReadFromSsd() {
    const int from_ssd = ReadAll()[TIER_FROM_SSD];
    return from_ssd + static_cast<int>(daemon.SlowSsdReads());
  }
  double Metric(const std::string& sample) const { return ParseExposition(daemon.Metrics()).Value(sample); }
  std::string SsdState() const { return daemon.Status()["tiers"]["ssd"]["state"]; }
  std::uint64_t FreeBytes() const {
    struct statvfs st {};
    return ::statvfs(disk.c_str(), &st) == 0 ? st.f_bavail * st.f_frsize : 0;
  }
  // Somebody else's file, so that `left` bytes are free.
  void OthersTakeAllBut(std::uint64_t left) {
    const std::uint64_t free = FreeBytes();
    if (free > left) Shell("fallocate -l " + std::to_string(free - left) + " " + disk + "/others");
  }

  ScratchDir scratch;
  std::string source = scratch.path() + "/data";
  std::string disk = scratch.path() + "/disk";
  std::string image = scratch.path() + "/image";
  DaemonProcess daemon{scratch.path()};
  int passes = 0;
  bool await_recovery = true;
  std::string last_job;
};

TEST_F(SsdDiskTest, FirstFillWritesLittleMoreThanThePayload) {
  Start();
  ASSERT_EQ(PrefetchSsd(source), kFiles) << last_job;
  const double written = Metric("tierd_ssd_device_write_bytes_total");
  EXPECT_GE(written, 0.9 * kFiles * kBytes);
  EXPECT_GT(Metric("tierd_ssd_write_amplification_ratio"), 0.9);
  EXPECT_LE(Metric("tierd_ssd_write_amplification_ratio"), 1.1);
  EXPECT_EQ(daemon.Stop(), 0);
  Start();
  EXPECT_EQ(SsdState(), "ok");
  EXPECT_EQ(Metric("tierd_tier_objects{tier=\"ssd\"}"), kFiles);
}

TEST_F(SsdDiskTest, APrefetchDuringRecoveryEndsWithEverythingOnTheSsd) {
  Start();
  ASSERT_EQ(PrefetchSsd(source + "/c0"), kFiles / 8) << last_job;
  daemon.Kill(SIGKILL);
  await_recovery = false;
  for (int round = 0; round < 3; ++round) {
    Start();
    ASSERT_EQ(PrefetchSsd(source), kFiles) << last_job;  // sent as soon as the daemon is ready
    EXPECT_EQ(daemon.Status()["tiers"]["ssd"]["objects"], kFiles);
    daemon.Kill(SIGKILL);
  }
}

// It cannot place what it was asked for: it ends, says how much is there, and tierctl ends with 2.
TEST_F(SsdDiskTest, APrefetchThatFindsNoRoomEndsShort) {
  Start("0");
  OthersTakeAllBut(20 * kMiB);
  const int verified = PrefetchSsd(source);
  EXPECT_GT(verified, 0);
  EXPECT_LT(verified, kFiles);
  const tierctl::Ran again = tierctl::RunTierctl({"prefetch", "--wait", "--tier", "ssd", source}, {"TIERD_SOCKET=" + daemon.socket()});
  EXPECT_EQ(again.exit_code, 2) << again.out << again.err;
  ReadAll();
}

TEST_F(SsdDiskTest, AFullDiskIsNoReasonForAnythingButMisses) {  // F01
  Start("0");
  ASSERT_EQ(PrefetchSsd(source + "/c0"), kFiles / 8) << last_job;
  OthersTakeAllBut(0);
  ReadAll(2);
  EXPECT_GT(Refused(), 0);
  EXPECT_GT(daemon.Status()["tiers"]["ssd"]["objects"].get<int>(), 0) << "what was there is kept";
  std::filesystem::remove(disk + "/others");
  EXPECT_TRUE(Eventually(8000, [&] { return PrefetchSsd(source) == kFiles; })) << "there is room again";
}

TEST_F(SsdDiskTest, GivesSpaceBackWhenOthersFillTheDisk) {  // F02
  Start("32 MiB");
  ASSERT_EQ(PrefetchSsd(source), kFiles) << last_job;
  const double before = Metric("tierd_tier_allocated_bytes{tier=\"ssd\"}");
  OthersTakeAllBut(12 * kMiB);
  EXPECT_TRUE(Eventually(8000, [&] { return FreeBytes() >= 32 * kMiB; })) << FreeBytes() / kMiB << " MiB free";
  EXPECT_LT(Metric("tierd_tier_allocated_bytes{tier=\"ssd\"}"), before);
  EXPECT_GT(Metric("tierd_evictions_total{tier=\"ssd\",cause=\"capacity\"}"), 0);
  ReadAll(2);
  EXPECT_GE(FreeBytes(), 32 * kMiB - 2 * kMiB) << "reading does not take it again";
}

TEST_F(SsdDiskTest, StopsGrowingWhenInodesRunOut) {  // F03
  Start("0", {"--set", "ssd.min_free_inodes=100"});
  ASSERT_EQ(PrefetchSsd(source + "/c0"), kFiles / 8) << last_job;
  for (int i = 0; std::ofstream(disk + "/i" + std::to_string(i)).good(); ++i) {
  }
  SleepMs(1500);  // the daemon looks once a second
  const double allocated = Metric("tierd_tier_allocated_bytes{tier=\"ssd\"}");
  ReadAll(2);
  EXPECT_EQ(Metric("tierd_tier_allocated_bytes{tier=\"ssd\"}"), allocated);
  Shell("rm -f " + disk + "/i*");
  EXPECT_TRUE(Eventually(8000, [&] { return PrefetchSsd(source) == kFiles; }));
  // LevelDB may have lost its files; the next start finds out.
  EXPECT_EQ(daemon.Stop(), 0);
  Start("0");
  ASSERT_TRUE(Eventually(5000, [&] { return SsdState() == "ok"; }));
  EXPECT_EQ(daemon.Status()["tiers"]["ssd"]["objects"], kFiles);
  ReadAll();
}

TEST_F(SsdDiskTest, ReadsThatFailAreServedByTheSource) {  // F05: the device ends before the regions do
  Start();
  ASSERT_EQ(PrefetchSsd(source), kFiles) << last_job;
  EXPECT_GT(ReadFromSsd(), kFiles / 4);
  ASSERT_EQ(Shell("truncate -s 24M " + image + " && losetup -c $(losetup -n -O NAME -j " + image + ")"), 0);
  ReadAll(2);
  EXPECT_GT(Metric("tierd_promotions_total{from=\"any\",to=\"any\",result=\"failed\"}"), 0);
  EXPECT_NE(SsdState(), "ok");
  EXPECT_EQ(daemon.Status()["state"], "degraded");
}

TEST_F(SsdDiskTest, AReadOnlyDiskStillServesWhatItHas) {  // F09
  Start();
  ASSERT_EQ(PrefetchSsd(source + "/c1"), kFiles / 8) << last_job;
  ASSERT_EQ(daemon.Stop(), 0) << daemon.output();
  Start();  // nothing of it is in RAM
  ASSERT_EQ(Shell("mount -o remount,abort " + disk), 0);  // what ext4 does to itself after an error
  EXPECT_GT(ReadFromSsd(), kFiles / 8 / 4);
  EXPECT_TRUE(Eventually(5000, [&] { return SsdState() != "ok"; }));
  SleepMs(1500);  // across a look at the disk: it does not become writable by itself
  const double refused = Refused();
  EXPECT_GT(ReadAll()[TIER_FROM_SOURCE], 0);
  EXPECT_GT(Refused(), refused);
  EXPECT_NE(SsdState(), "ok");
  EXPECT_EQ(daemon.Status()["state"], "degraded");
  EXPECT_EQ(daemon.Stop(), 0) << daemon.output();
}

TEST_F(SsdDiskTest, ACacheDirectoryThatIsGoneIsNoticed) {  // F10
  Start();
  ASSERT_EQ(PrefetchSsd(source + "/c2"), kFiles / 8) << last_job;
  std::filesystem::remove_all(disk + "/cache");
  EXPECT_GT(ReadAll()[TIER_FROM_SSD], 0) << "open files still serve";
  EXPECT_TRUE(Eventually(5000, [&] { return SsdState() != "ok"; }));
  EXPECT_EQ(Metric("tierd_tier_state{tier=\"ssd\",state=\"degraded\"}"), 1) << "the metrics say what status says";
  const std::uint64_t objects = daemon.Status()["tiers"]["ssd"]["objects"];
  ReadAll();
  EXPECT_LE(daemon.Status()["tiers"]["ssd"]["objects"].get<std::uint64_t>(), objects) << "nothing more is admitted";
  EXPECT_EQ(daemon.Stop(), 0) << daemon.output();
  Start();
  EXPECT_EQ(PrefetchSsd(source), kFiles);
}

// The parameter: options of mkfs.xfs.
class SsdXfsTest : public SsdDiskTest, public testing::WithParamInterface<const char*> {
 protected:
  std::string MakeImage() const override { return "truncate -s 512M " + image + " && mkfs.xfs -q -f " + GetParam() + " " + image; }
  // Everything is there again, sound, and right.
  void ExpectAllOnTheSsd() {
    Start();
    ASSERT_TRUE(Eventually(10'000, [&] { return SsdState() == "ok"; }));
    EXPECT_EQ(Metric("tierd_tier_objects{tier=\"ssd\"}"), kFiles);
    const tierctl::Ran verified = tierctl::RunTierctl({"verify"}, {"TIERD_SOCKET=" + daemon.socket()});
    EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
    EXPECT_GT(ReadFromSsd(), kFiles / 4);
    EXPECT_EQ(daemon.Status()["sources"][0]["read_bytes"], kBytes * daemon.SlowSsdReads());
  }
};
INSTANTIATE_TEST_SUITE_P(Xfs, SsdXfsTest, testing::Values("-m reflink=0", ""), [](const auto& tested) { return std::string(*tested.param == 0 ? "Default" : "WithoutReflink"); });

TEST_P(SsdXfsTest, IsFilledComesBackAndGivesSpaceBack) {
  Start();
  ASSERT_EQ(PrefetchSsd(source), kFiles) << last_job;
  EXPECT_LE(Metric("tierd_ssd_write_amplification_ratio"), 1.1);
  EXPECT_EQ(daemon.Stop(), 0) << daemon.output();
  ExpectAllOnTheSsd();
  daemon.Kill(SIGKILL);
  ExpectAllOnTheSsd();
  daemon.Kill(SIGKILL);
  std::filesystem::remove_all(disk + "/cache/index");
  ExpectAllOnTheSsd();
  EXPECT_EQ(daemon.Stop(), 0) << daemon.output();
  Start("32 MiB");
  OthersTakeAllBut(12 * kMiB);
  EXPECT_TRUE(Eventually(8000, [&] { return FreeBytes() >= 32 * kMiB; })) << FreeBytes() / kMiB << " MiB free";
  EXPECT_GT(Metric("tierd_tier_objects{tier=\"ssd\"}"), 0);
  ReadAll();
}

}  // namespace
}  // namespace tierd::e2e
