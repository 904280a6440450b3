#include <gtest/gtest.h>

#include "tests/ssd/tier_fixture.h"

namespace tierd::ssd {
namespace {

TEST(SsdTier, ReadsBackEverySizeFromBufferAndDevice) {
  TempDirectory dir;
  SsdOptions options = SmallOptions(dir.path() + "/c");
  options.region_bytes = 8u << 20;
  options.write_unit_bytes = 1u << 20;
  options.capacity_bytes = 64u << 20;
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  const std::size_t sizes[] = {1, 7, 63, 64, 65, 784, 4095, 4096, 4097, 16383, 16384, 16385, 110'000, 262'144, 262'145, 1'000'003, 4u << 20};
  for (const std::size_t size : sizes) {
    const std::string path = "set/file" + std::to_string(size);
    ASSERT_TRUE(life.Put(path, 3, size).ok());
    EXPECT_EQ(life.Get(path), ReadOutcome::kOk);
  }
  // The 4 MiB record does not fit behind the others: the first region is closed, the second synced.
  life.Settle();
  for (const std::size_t size : sizes) EXPECT_EQ(life.Get("set/file" + std::to_string(size)), ReadOutcome::kOk) << size;
  EXPECT_EQ(life.tier->status().live_records, std::size(sizes));
  life.Stop();

  Life next(options);
  const RecoveryReport report = next.Start();
  EXPECT_TRUE(report.status.ok()) << report.status.ToString();
  EXPECT_EQ(report.records, std::size(sizes));
  EXPECT_FALSE(report.index_rebuilt) << report.note;
  for (const std::size_t size : sizes) EXPECT_EQ(next.Get("set/file" + std::to_string(size)), ReadOutcome::kOk) << size;
  EXPECT_GT(next.tier->counters().device_read_bytes, 0u);
}

}  // namespace
}  // namespace tierd::ssd
