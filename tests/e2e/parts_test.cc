// Records of a file much larger than RAM, in random order, from the SSD tier: right bytes by every way to read, and no more of the device than about them.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/exposition.h"
#include "tests/e2e/reading.h"

namespace tierd::e2e {
namespace {

constexpr std::size_t kMiB = 1 << 20;
constexpr std::size_t kBytes = 160 * kMiB + 12345;
constexpr std::size_t kPart = 16384;

class PartsTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string("io_uring") && !IoUringIsAllowed()) GTEST_SKIP() << "io_uring is refused here";
    Write(path, content);
    ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
    ASSERT_EQ(daemon.Prefetch(path, "ssd")["state"], "done");
    // RAM takes what it takes.
    Client client(daemon.socket());
    std::string buffer(kMiB, '\0');
    for (std::size_t at = 0; at + kMiB <= kBytes; at += kMiB) ASSERT_EQ(tier_pread(client.get(), path.c_str(), buffer.data(), kMiB, static_cast<int64_t>(at), 0), static_cast<ssize_t>(kMiB));
  }
  DaemonProcess::Options Options() const {
    DaemonProcess::Options options;
    options.source = source;
    options.ram = "48 MiB";
    options.more = kTrustStamps;
    options.more.insert(options.more.end(), {"--set", std::string("ssd.engine=") + GetParam(), "--set", "source.mode=blind", "--set", "source.warm=off"});
    return options;
  }
  double DeviceBytes() const { return ParseExposition(daemon.Metrics()).Value("tierd_ssd_device_read_bytes_total"); }
  double SlowReads() const { return ParseExposition(daemon.Metrics()).Value("tierd_ssd_slow_reads_total"); }
  std::uint64_t SourceBytes() const { return daemon.Status()["sources"][0]["read_bytes"]; }

  ScratchDir scratch;
  std::string source = scratch.path() + "/data";
  std::string path = source + "/records.bin";
  std::string content = Content(path, kBytes);
  DaemonProcess daemon{scratch.path()};
};

TEST_P(PartsTest, RandomRecordsCostLittleMoreThanThemselves) {
  constexpr int kReaders = 4, kReads = 400;
  const double device = DeviceBytes();
  const std::uint64_t from_source = SourceBytes();
  const double slow = SlowReads();
  std::atomic<std::uint64_t> wrong = 0, most = 0;
  std::vector<std::thread> readers;
  Client client(daemon.socket());
  for (int reader = 0; reader < kReaders; ++reader) {
    readers.emplace_back([&, reader] {
      std::mt19937_64 random(static_cast<std::uint64_t>(reader));
      tier_file* file = nullptr;
      if (tier_open(client.get(), path.c_str(), &file, 0) != 0) {
        ++wrong;
        return;
      }
      std::string buffer(300'000, '\0');
      for (int i = 0; i < kReads; ++i) {
        const std::size_t size = i % 10 == 0 ? 1 + random() % 300'000 : 1 + random() % 20'000;
        const std::size_t at = random() % (kBytes - size);
        most += (size + 2 * kPart) / kPart * kPart + 2 * 8192;
        bool good = false;
        if (i % 3 == 0) {
          tier_view view;
          good = tier_file_pin(file, static_cast<int64_t>(at), size, &view) == 0 && content.compare(at, view.size, static_cast<const char*>(view.data), view.size) == 0 && view.size > 0;
          if (good) tier_release(&view);
        } else if (i % 3 == 1) {
          good = tier_file_pread(file, buffer.data(), size, static_cast<int64_t>(at)) == static_cast<ssize_t>(size) && content.compare(at, size, buffer.data(), size) == 0;
        } else {
          good = tier_pread(client.get(), path.c_str(), buffer.data(), size, static_cast<int64_t>(at), 0) == static_cast<ssize_t>(size) && content.compare(at, size, buffer.data(), size) == 0;
        }
        if (!good) ++wrong;
      }
      tier_close(file);
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_LE(DeviceBytes() - device, static_cast<double>(most.load()));
  EXPECT_GT(DeviceBytes() - device, 0.0);
  EXPECT_LE(SourceBytes() - from_source, static_cast<std::uint64_t>(SlowReads() - slow) * 4 * kMiB) << "nothing from the source, but where a busy device was slower (F08)";
}

// A restart knows the records again, and their parts.
TEST_P(PartsTest, AfterARestartToo) {
  ASSERT_EQ(daemon.Stop(), 0);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  Client client(daemon.socket());
  std::mt19937_64 random(7);
  std::string buffer(5000, '\0');
  for (int i = 0; i < 300; ++i) {
    const std::size_t at = random() % (kBytes - buffer.size());
    ASSERT_EQ(tier_pread(client.get(), path.c_str(), buffer.data(), buffer.size(), static_cast<int64_t>(at), 0), static_cast<ssize_t>(buffer.size()));
    ASSERT_EQ(content.compare(at, buffer.size(), buffer), 0) << at;
  }
  EXPECT_LE(SourceBytes(), static_cast<std::uint64_t>(SlowReads()) * 4 * kMiB);
}

INSTANTIATE_TEST_SUITE_P(Engines, PartsTest, testing::Values("io_uring", "threads"));

}  // namespace
}  // namespace tierd::e2e
