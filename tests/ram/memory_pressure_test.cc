#include "tierd/ram/memory_pressure.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace tierd::ram {
namespace {

class MemoryPressureTest : public testing::Test {
 protected:
  void SetUp() override {
    root = std::filesystem::path(testing::TempDir()) / ("tierd_memory_" + std::to_string(::getpid()));
    std::filesystem::remove_all(root);
    Write("proc/meminfo", "MemTotal:       1000000 kB\nMemFree: 5 kB\nMemAvailable:    500000 kB\nBuffers: 1 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  MemoryRoom Read() const { return ReadMemoryRoom({(root / "proc").string(), (root / "cgroup").string()}); }
  std::filesystem::path root;
};

constexpr std::uint64_t kMiB = 1 << 20;

TEST_F(MemoryPressureTest, WithoutCgroupsTheNodeBounds) {
  const MemoryRoom room = Read();
  EXPECT_TRUE(room.known);
  EXPECT_EQ(room.available_bytes, 500'000u << 10);
  EXPECT_EQ(room.room_bytes, 500'000u << 10);
  EXPECT_EQ(room.cgroup_limit_bytes, 0u);
  EXPECT_EQ(room.bound_by, "node");
}

TEST_F(MemoryPressureTest, VersionOneCountsReclaimableCacheAsRoom) {
  Write("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/job/step\n0::/\n");
  Write("cgroup/memory/job/step/memory.limit_in_bytes", "104857600\n");
  Write("cgroup/memory/job/step/memory.usage_in_bytes", "94371840\n");
  Write("cgroup/memory/job/step/memory.stat", "cache 1\ninactive_file 7\ntotal_inactive_file 20971520\n");
  const MemoryRoom room = Read();
  EXPECT_EQ(room.cgroup_limit_bytes, 100 * kMiB);
  EXPECT_EQ(room.cgroup_used_bytes, 70 * kMiB);
  EXPECT_EQ(room.room_bytes, 30 * kMiB);
  EXPECT_NE(room.bound_by.find("/job/step"), std::string::npos);
}

TEST_F(MemoryPressureTest, AnAncestorMayBeTheTightest) {
  Write("proc/self/cgroup", "0::/user/job\n");
  Write("cgroup/user/job/memory.max", "max\n");
  Write("cgroup/user/job/memory.current", "1048576\n");
  Write("cgroup/user/memory.max", "209715200\n");
  Write("cgroup/user/memory.current", "104857600\n");
  Write("cgroup/user/memory.stat", "anon 1\ninactive_file 0\n");
  const MemoryRoom room = Read();
  EXPECT_EQ(room.room_bytes, 100 * kMiB);
  EXPECT_EQ(room.cgroup_limit_bytes, 200 * kMiB);
}

TEST_F(MemoryPressureTest, VersionTwoHighBindsBeforeMax) {
  Write("proc/self/cgroup", "0::/job\n");
  Write("cgroup/unified/job/memory.max", "104857600\n");
  Write("cgroup/unified/job/memory.high", "52428800\n");
  Write("cgroup/unified/job/memory.current", "10485760\n");
  EXPECT_EQ(Read().room_bytes, 40 * kMiB);
}

TEST_F(MemoryPressureTest, OverTheLimitLeavesNothing) {
  Write("proc/self/cgroup", "0::/job\n");
  Write("cgroup/job/memory.max", "1000\n");
  Write("cgroup/job/memory.current", "5000\n");
  const MemoryRoom room = Read();
  EXPECT_EQ(room.room_bytes, 0u);
  EXPECT_TRUE(room.known);
}

// A container sees its own cgroup as the root of the mount, while /proc names a path that exists only outside.
TEST_F(MemoryPressureTest, AForeignPathFallsBackToTheMount) {
  Write("proc/self/cgroup", "4:memory:/docker/0123456789\n");
  Write("cgroup/memory/memory.limit_in_bytes", "104857600\n");
  Write("cgroup/memory/memory.usage_in_bytes", "52428800\n");
  EXPECT_EQ(Read().room_bytes, 50 * kMiB);
}

TEST_F(MemoryPressureTest, NoLimitOfVersionOneIsAHugeNumber) {
  Write("proc/self/cgroup", "4:memory:/\n");
  Write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("cgroup/memory/memory.usage_in_bytes", "52428800\n");
  EXPECT_EQ(Read().room_bytes, 500'000u << 10);
}

TEST_F(MemoryPressureTest, UnreadableFilesAreUnknown) {
  Write("proc/meminfo", "garbage");
  Write("proc/self/cgroup", "nonsense\n:::\n4:memory\n");
  const MemoryRoom room = Read();
  EXPECT_FALSE(room.known);
  EXPECT_EQ(room.room_bytes, 0u);
}

TEST(MemoryPressure, ReadsThisMachine) {
  const MemoryRoom room = ReadMemoryRoom({});
  EXPECT_TRUE(room.known);
  EXPECT_GT(room.room_bytes, 0u);
  std::printf("room %llu MiB, bound by %s\n", static_cast<unsigned long long>(room.room_bytes >> 20), room.bound_by.c_str());
}

// What is looked at again is read anew, also where another cgroup is ours, or one has come that was not there.
TEST_F(MemoryPressureTest, AGaugeSeesWhatChanges) {
  Write("proc/self/cgroup", "0::/job\n");
  Write("cgroup/job/memory.max", "104857600\n");
  Write("cgroup/job/memory.current", "52428800\n");
  MemoryGauge gauge({(root / "proc").string(), (root / "cgroup").string()});
  EXPECT_EQ(gauge.Read().room_bytes, 50 * kMiB);
  Write("cgroup/job/memory.current", "83886080\n");
  EXPECT_EQ(gauge.Read().room_bytes, 20 * kMiB);
  Write("proc/self/cgroup", "0::/next\n");
  Write("cgroup/next/memory.max", "104857600\n");
  Write("cgroup/next/memory.current", "94371840\n");
  EXPECT_EQ(gauge.Read().room_bytes, 10 * kMiB);
  Write("proc/self/cgroup", "0::/gone\n");
  EXPECT_EQ(gauge.Read().room_bytes, 500'000u << 10);
  Write("cgroup/gone/memory.max", "104857600\n");
  Write("cgroup/gone/memory.current", "0\n");
  EXPECT_EQ(gauge.Read().room_bytes, 100 * kMiB) << "it was not there before";
}

// Files of each level stay open; where a process may have few descriptors they are for its clients (F15).
TEST_F(MemoryPressureTest, WhereDescriptorsAreFewNoneAreKept) {
  Write("proc/self/cgroup", "0::/a/b\n");
  for (const char* group : {"cgroup/a/", "cgroup/a/b/"}) {
    Write(std::string(group) + "memory.max", "104857600\n");
    Write(std::string(group) + "memory.current", "52428800\n");
  }
  const auto open_files = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()); };
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  MemoryGauge gauge({(root / "proc").string(), (root / "cgroup").string()});
  const auto none = open_files();
  rlimit few = before;
  few.rlim_cur = 100;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(gauge.Read().room_bytes, 50 * kMiB);
  EXPECT_EQ(open_files(), none);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(gauge.Read().room_bytes, 50 * kMiB);
  EXPECT_EQ(open_files(), none + 6);
}

// The controller is in one hierarchy: what lies in the other's directory is not a limit.
TEST_F(MemoryPressureTest, OneHierarchyHasTheController) {
  Write("proc/self/cgroup", "4:memory:/job\n0::/job,memory,\n");
  Write("cgroup/memory/job/memory.limit_in_bytes", "104857600\n");
  Write("cgroup/memory/job/memory.usage_in_bytes", "52428800\n");
  Write("cgroup/unified/job,memory,/memory.max", "4096\n");
  Write("cgroup/unified/job,memory,/memory.current", "0\n");
  EXPECT_EQ(Read().room_bytes, 50 * kMiB);
}

// Others may take four floors a second: the look that follows must still find four of them.
TEST_F(MemoryPressureTest, LooksAreLeftOutOnlyWhileThereIsPlenty) {
  constexpr std::uint64_t kFloor = 512 * kMiB;
  constexpr std::int64_t kSecond = 1'000'000'000;
  EXPECT_EQ(LooksToSkipNs(0, kFloor), 0);
  EXPECT_EQ(LooksToSkipNs(23 * kFloor, kFloor), 0);
  EXPECT_EQ(LooksToSkipNs(24 * kFloor, kFloor), kSecond);
  EXPECT_EQ(LooksToSkipNs(1000 * kFloor, kFloor), 9 * kSecond);
  EXPECT_EQ(LooksToSkipNs(1000 * kFloor, 0), 0);
}

// Whoever looks again by then finds them at less than a floor before all is taken, wherever it begins.
TEST_F(MemoryPressureTest, LooksComeInTimeWhileOthersTakeFourFloorsASecond) {
  constexpr std::uint64_t kFloor = 64 * kMiB;
  constexpr std::int64_t kMs = 1'000'000;
  constexpr std::int64_t kLate = 30 * kMs;  // each look is heard of
  constexpr std::int64_t kIdle = 1320 * kMs;
  EXPECT_EQ(HalfTakenNs(0, kFloor), 100 * kMs);
  EXPECT_EQ(HalfTakenNs(4 * kFloor, kFloor), 500 * kMs);
  EXPECT_EQ(HalfTakenNs(8 * kFloor, kFloor), 1000 * kMs);
  EXPECT_EQ(HalfTakenNs(1000 * kFloor, kFloor), 10'000 * kMs);
  EXPECT_EQ(HalfTakenNs(0, 0), 10'000 * kMs);
  for (std::uint64_t begin = kFloor; begin < 24 * kFloor; begin += kMiB) {
    std::uint64_t room = begin;
    while (room >= kFloor) {
      const std::uint64_t taken = 4 * kFloor / 1000 * static_cast<std::uint64_t>((std::min(HalfTakenNs(room, kFloor), kIdle) + kLate) / kMs);
      ASSERT_GT(room, taken + kFloor / 4) << "begun at " << begin;  // a quarter of a floor is left for giving back
      room -= taken;
    }
  }
}

}  // namespace
}  // namespace tierd::ram
