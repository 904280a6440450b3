#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fake_control.h"
#include "tierctl/doctor/check.h"

namespace tierctl::doctor {
namespace {

TEST(DoctorCheck, KernelVersions) {
  EXPECT_EQ(KernelVersion("6.18.0").verdict, Verdict::kOk);
  EXPECT_EQ(KernelVersion("5.15.0-100-generic").verdict, Verdict::kOk);
  EXPECT_EQ(KernelVersion("5.14.21-default").verdict, Verdict::kWarn);
  EXPECT_EQ(KernelVersion("4.18.0-553.el8").verdict, Verdict::kWarn);
  EXPECT_EQ(KernelVersion("plan9").verdict, Verdict::kWarn);
}

TEST(DoctorCheck, TimeNamespaces) {
  const FakeControl directory;
  const std::string file = directory.directory() + "/offsets";
  std::ofstream(file) << "monotonic           0         0\nboottime            0         0\n";
  EXPECT_EQ(TimeNamespace(file).verdict, Verdict::kOk);
  std::ofstream(file) << "monotonic      100000         0\nboottime       100000         0\n";
  EXPECT_EQ(TimeNamespace(file).verdict, Verdict::kWarn);
  EXPECT_EQ(TimeNamespace("/none").verdict, Verdict::kOk);
}

TEST(DoctorCheck, SlurmThatAddsUpResidentMemoryIsAWarning) {
  const FakeControl directory;
  const std::string file = directory.directory() + "/slurm.conf";
  struct Case {
    const char* text;
    Verdict verdict;
    const char* says;
  };
  for (const Case& c : {
           Case{"JobAcctGatherType=jobacct_gather/linux\n", Verdict::kWarn, "once for each process"},
           Case{"jobacctgathertype = jobacct_gather/linux # by ps\nJobAcctGatherParams=OverMemoryKill\n", Verdict::kWarn, "OverMemoryKill ends jobs"},
           Case{"JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherParams=OverMemoryKill,\\\nUsePss\n", Verdict::kOk, "usepss"},
           Case{"JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherParams=NoShared\n", Verdict::kOk, "noshared"},
           Case{"JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherParams=NoSharedThings\n", Verdict::kWarn, "once for each process"},
           Case{"JobAcctGatherType=jobacct_gather/cgroup\n", Verdict::kOk, "jobacct_gather/cgroup"},
           Case{"#JobAcctGatherType=jobacct_gather/linux\n", Verdict::kOk, "(default)"},
           Case{"Include more.conf\n", Verdict::kWarn, "once for each process"},
       }) {
    SCOPED_TRACE(c.text);
    std::ofstream(file) << c.text;
    std::ofstream(directory.directory() + "/more.conf") << "JobAcctGatherType=jobacct_gather/linux\n";
    const auto check = SlurmAccounting({"/none/slurm.conf", file});
    ASSERT_TRUE(check.has_value());
    EXPECT_EQ(check->verdict, c.verdict);
    EXPECT_NE(check->detail.find(c.says), std::string::npos) << check->detail;
    EXPECT_EQ(check->remedy.find("UsePss") != std::string::npos, c.verdict == Verdict::kWarn) << check->remedy;
  }
  EXPECT_FALSE(SlurmAccounting({"/none/slurm.conf"}).has_value());
  EXPECT_EQ(SlurmConfigFiles("/my/slurm.conf"), std::vector<std::string>{"/my/slurm.conf"});
  EXPECT_GE(SlurmConfigFiles("").size(), 4u);
}

TEST(DoctorCheck, DiskInMemoryOrForeignFails) {
  const auto checks = Disk("/dev/shm/tierd-doctor", true);
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks[0].verdict, Verdict::kFail);
  EXPECT_NE(checks[0].remedy, "");
}

TEST(DoctorCheck, MeasuringADiskLeavesNothing) {
  const FakeControl directory;
  const auto checks = Disk(directory.directory() + "/cache", true);
  if (checks.size() == 1) GTEST_SKIP() << "the temporary directory is on no disk: " << checks[0].detail;
  EXPECT_EQ(checks[1].name, "ssd.speed");
  EXPECT_NE(checks[1].detail.find("reads of 4 KiB/s"), std::string::npos) << checks[1].detail;
  EXPECT_NE(::access((directory.directory() + "/cache").c_str(), F_OK), 0);
}

TEST(DoctorCheck, SourceIsNamedAndProbed) {
  const FakeControl directory;
  std::ofstream(directory.directory() + "/a") << "x";
  const auto checks = Source(directory.directory());
  ASSERT_EQ(checks.size(), 2u);
  EXPECT_EQ(checks[0].name, "source.type");
  EXPECT_NE(checks[0].detail.find("local file system"), std::string::npos) << checks[0].detail;
  EXPECT_EQ(checks[1].name, "source.versions");
  const auto missing = Source(directory.directory() + "/none");
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_EQ(missing[0].verdict, Verdict::kFail);
}

// As large image sets lie: links, and nothing but directories at the top.
TEST(DoctorCheck, SourceIsProbedThroughALinkAndBelowManyDirectories) {
  const FakeControl directory;
  const std::string wide = directory.directory() + "/wide", link = directory.directory() + "/link", empty = directory.directory() + "/empty";
  for (int i = 0; i < 5000; ++i) std::filesystem::create_directories(wide + "/n" + std::to_string(i));
  for (int i = 0; i < 5000; i += 100) std::ofstream(wide + "/n" + std::to_string(i) + "/image") << "x";
  std::filesystem::create_symlink(wide, link);
  std::filesystem::create_directory(empty);
  for (const std::string& path : {wide, link}) {
    const auto checks = Source(path);
    ASSERT_EQ(checks.size(), 2u) << path;
    EXPECT_EQ(checks[1].detail.find("not examined"), std::string::npos) << path << ": " << checks[1].detail;
  }
  const auto none = Source(empty);
  ASSERT_EQ(none.size(), 2u);
  EXPECT_EQ(none[1].verdict, Verdict::kWarn) << none[1].detail;
}

TEST(DoctorCheck, WhatHangsIsLeftBehind) {
  const auto checks = Isolated(
      []() -> std::vector<Check> {
        for (;;) ::pause();
      },
      50, {"x", Verdict::kFail, "hangs", "wait"});
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks[0].detail, "hangs");
}

// Whoever reads our output would wait for it, too.
TEST(DoctorCheck, WhatMayBeLeftBehindHoldsNoneOfOurDescriptors) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const auto held = [] {
    std::vector<Check> all;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      all.push_back({entry.path().filename(), Verdict::kOk, std::filesystem::read_symlink(entry.path(), error), ""});
    }
    return all;
  };
  int others = 0;
  for (const Check& check : Isolated(held, 5000, {})) {
    const int fd = std::stoi(check.name);
    EXPECT_TRUE(fd >= 3 || check.detail == "/dev/null") << fd << " " << check.detail;
    others += fd >= 3 && check.detail.find("/proc/") == std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(others, 1) << "that of its answer";
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(DoctorCheck, IsolatedBringsEverythingBack) {
  const auto checks = Isolated([]() -> std::vector<Check> { return {{"a", Verdict::kWarn, "line \n \"quoted\" \xff", "r"}, {"b", Verdict::kOk, "", ""}}; }, 5000, {});
  ASSERT_EQ(checks.size(), 2u);
  EXPECT_EQ(checks[0].verdict, Verdict::kWarn);
  EXPECT_EQ(checks[0].remedy, "r");
  const auto crashed = Isolated([]() -> std::vector<Check> { ::_exit(3); }, 5000, {"x", Verdict::kFail, "died", ""});
  EXPECT_EQ(crashed.at(0).detail, "died");
}

TEST(DoctorCheck, TheRestSaysSomething) {
  for (const Check& check : {IoUring(), UserNamespaces(), FileDescriptors(), LockedMemory(), MemoryLimit(1 << 20, 0), HugePages("/sys").at(0)}) {
    EXPECT_NE(check.detail, "") << check.name;
    EXPECT_EQ(check.verdict == Verdict::kOk, check.remedy.empty()) << check.name;
  }
  EXPECT_EQ(MemoryLimit(std::uint64_t{1} << 60, 0).verdict, Verdict::kWarn);
}

}  // namespace
}  // namespace tierctl::doctor
