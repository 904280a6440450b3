// One job after another below one source that has no room for both their sets: the second one's set takes the place of the first one's, in both tiers and over a restart.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"

namespace tierd::e2e {
namespace {

class NextSetTest : public testing::Test {
 protected:
  void Make(int files, std::size_t bytes) {
    files_ = files;
    bytes_ = bytes;
    for (const char* set : {"a", "b"})
      for (int i = 0; i < files; ++i) Write(Path(set, i), Content(Path(set, i), bytes_));
  }
  std::string Path(const std::string& set, int i) const { return scratch.path() + "/data/" + set + "/d" + std::to_string(i % 4) + "/f" + std::to_string(i); }
  void Start(const std::string& ram, const std::string& ssd_capacity) {
    DaemonProcess::Options options;
    options.source = scratch.path() + "/data";
    options.ram = ram;
    options.ssd = ssd_capacity.empty() ? "off" : "on";
    options.ssd_capacity = ssd_capacity;
    options.more = kTrustStamps;
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
    if (ssd_capacity.empty()) return;
    ASSERT_TRUE(Eventually(10'000, [&] { return daemon.Status()["tiers"]["ssd"]["state"] == "ok"; })) << daemon.output();
  }
  // An epoch by a process of its own; the share that did not come from the source.
  double Epoch(const std::string& set) {
    const Client client(daemon.socket());
    std::vector<int> order(static_cast<std::size_t>(files_));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    int hits = 0;
    for (const int i : order) {
      const Got got = Get(client.get(), Path(set, i));
      EXPECT_TRUE(got.error == 0 && got.bytes == Content(Path(set, i), bytes_)) << Path(set, i);
      hits += got.origin == TIER_FROM_RAM || got.origin == TIER_FROM_SSD ? 1 : 0;
    }
    return static_cast<double>(hits) / files_;
  }

  // Nearly all of it is there after some epochs, of half a second here; space of the SSD tier is looked for once a second. Where the device is busy the source is the faster of the two here:
  // then readers pass by what the SSD has (F08), which is counted.
  bool Comes(const std::string& set) {
    const auto passed_by = [&] { return daemon.Status()["tiers"]["ssd"]["slow_reads"].get<double>(); };
    double share = 0;
    for (int epoch = 0; epoch < 16 && share < .9; ++epoch) {
      const double before = passed_by();
      const double hits = Epoch(set);
      share = hits + (passed_by() - before) / files_;
    }
    return share >= .9;
  }

  ScratchDir scratch;
  DaemonProcess daemon{scratch.path()};

 private:
  int files_ = 0;
  std::size_t bytes_ = 0;
  std::mt19937 random_{3};
};

TEST_F(NextSetTest, InRam) {
  Make(500, 50'000);
  ASSERT_NO_FATAL_FAILURE(Start("32 MiB", ""));
  for (int epoch = 0; epoch < 3; ++epoch) Epoch("a");
  EXPECT_GT(Epoch("a"), .99);
  double hits[4];
  for (double& share : hits) share = Epoch("b");
  EXPECT_GT(hits[2], .4) << hits[0] << " " << hits[1];
  EXPECT_GT(hits[3], .9);
  EXPECT_EQ(daemon.Stop(), 0);
}

TEST_F(NextSetTest, OnSsd) {
  Make(1150, 200'000);  // 230 MB each
  ASSERT_NO_FATAL_FAILURE(Start("16 MiB", "256 MiB"));
  EXPECT_TRUE(Comes("a"));
  EXPECT_TRUE(Comes("b"));
  EXPECT_EQ(daemon.Stop(), 0);
  ASSERT_NO_FATAL_FAILURE(Start("16 MiB", "256 MiB"));
  EXPECT_TRUE(Comes("a")) << "when the set that is there was last read nobody knows any more";
  EXPECT_EQ(daemon.Stop(), 0);
}

}  // namespace
}  // namespace tierd::e2e
