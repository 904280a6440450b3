// Memory comes back while sessions stay open (C5, HAZARDS 2.8): the RAM tier is cut by half beside
// a session that reads and one that is idle, on each kind of memory.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"

namespace tierd::e2e {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr int kFiles = 550;
constexpr std::size_t kBytes = 100'000;

// Of all mappings of segments in this process: what of them lies in memory.
std::uint64_t MappedSegmentBytes() {
  std::ifstream in("/proc/self/smaps");
  std::uint64_t sum = 0;
  bool segment = false;
  for (std::string line; std::getline(in, line);) {
    unsigned long long kib = 0;
    if (line.find('-') < line.find(' '))
      segment = line.find("tierd-segment") != std::string::npos;
    else if (segment && std::sscanf(line.c_str(), "Rss: %llu", &kib) == 1)
      sum += kib << 10;
  }
  return sum;
}

std::uint64_t SharedBytesOf(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  unsigned long long kib = 0;
  for (std::string line; std::getline(in, line);)
    if (std::sscanf(line.c_str(), "RssShmem: %llu", &kib) == 1) return kib << 10;
  return 0;
}

struct Kind {
  const char* name;
  std::vector<std::string> more;
  bool no_tmpfs;
  bool returns_without_a_call;
};

class Shrink : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    for (int i = 0; i < kFiles; ++i)
      Write(PathOf(i), std::string(kBytes, static_cast<char>('a' + i % 26)));
  }
  void TearDown() override { ::unsetenv("TIERD_PRIVATE_TMPFS"); }
  std::string PathOf(int i) const { return scratch.path() + "/data/" + std::to_string(i); }
  // False: a wrong byte.
  bool Read(const Client& client, int i) const {
    return Get(client.get(), PathOf(i)).bytes ==
           std::string(kBytes, static_cast<char>('a' + i % 26));
  }

  ScratchDir scratch;
};

TEST_P(Shrink, MemoryComesBackUnderOpenSessions) {
  // A directory that is no tmpfs: as where namespaces are refused.
  if (GetParam().no_tmpfs) ::setenv("TIERD_PRIVATE_TMPFS", "/proc:/proc", 1);
  DaemonProcess daemon(scratch.path());
  DaemonProcess::Options options;
  options.source = scratch.path() + "/data";
  options.ssd = "off";
  options.ram = "64 MiB";
  options.more = {"--set", "ram.segment_size=8 MiB", "--set", "source.chunk_size=1 MiB",
                  "--set", "ram.min_available=1 MiB"};
  options.more.insert(options.more.end(), GetParam().more.begin(), GetParam().more.end());
  const bool started = daemon.Start(options);
  if (!started && std::string(GetParam().name) == "hugetlb") GTEST_SKIP() << "no hugetlb pool";
  ASSERT_TRUE(started) << daemon.output();
  const bool has_tmpfs = daemon.output().find("no private tmpfs") == std::string::npos;
  if (!has_tmpfs && GetParam().returns_without_a_call && std::string(GetParam().name) != "unsealed")
    GTEST_SKIP() << "no private tmpfs here: such memory is sealed";
  const Client idle(daemon.socket());
  const Client reading(daemon.socket());
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < kFiles; ++i) ASSERT_TRUE(Read(idle, i) && Read(reading, i)) << i;
  }
  ASSERT_GT(MappedSegmentBytes(), 2 * 48 * kMiB);
  ASSERT_GT(SharedBytesOf(daemon.pid()), 48 * kMiB);
  std::atomic<bool> stop{false};
  std::atomic<bool> wrong{false};
  std::thread reader([&] {
    for (int i = 0; !stop; i = (i + 1) % kFiles) {
      if (!Read(reading, i)) wrong = true;
      SleepMs(1);
    }
  });
  const auto changed =
      daemon.Control("PATCH", "/v1/config", R"({"key": "ram.capacity", "value": "32 MiB"})");
  EXPECT_TRUE(changed.contains("applied")) << changed;
  const auto back = [&](std::uint64_t most) {
    return Eventually(10'000, [&] {
      return MappedSegmentBytes() <= most && SharedBytesOf(daemon.pid()) <= 40 * kMiB;
    });
  };
  if (!GetParam().returns_without_a_call) {
    EXPECT_TRUE(back((64 + 32) * kMiB))
        << "of the session that reads: " << (MappedSegmentBytes() >> 20) << " MiB";
    EXPECT_TRUE(Read(idle, 0));  // the bound: its next call
  }
  EXPECT_TRUE(back(2 * 32 * kMiB)) << (MappedSegmentBytes() >> 20) << " MiB in clients, "
                                   << (SharedBytesOf(daemon.pid()) >> 20) << " MiB in the daemon";
  stop = true;
  reader.join();
  EXPECT_FALSE(wrong);
  for (int i = 0; i < kFiles; ++i) EXPECT_TRUE(Read(idle, i)) << i;
  EXPECT_EQ(daemon.Stop(), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Shrink,
    testing::Values(
        Kind{"chosen", {}, false, true}, Kind{"small", {"--set", "ram.pages=4k"}, false, true},
        Kind{"sealed", {"--set", "ram.pages=4k"}, true, false},
        Kind{"unsealed", {"--set", "ram.pages=4k", "--set", "ram.seal=shrink"}, true, true},
        Kind{"hugetlb", {"--set", "ram.pages=hugetlb"}, false, false}),
    [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace tierd::e2e
