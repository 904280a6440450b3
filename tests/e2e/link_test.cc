// What is opened through a link while names are exchanged behind it: no wrong byte.
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"

namespace tierd::e2e {
namespace {

constexpr std::size_t kMiB = 1 << 20;
constexpr int kOthers = 40;  // of one chunk: through 16 MiB of RAM

class LinkTest : public testing::Test {
 protected:
  void SetUp() override {
    Write(source + "/v1/large", content);
    for (int i = 0; i < kOthers; ++i) Write(Other(i), Content(Other(i), kMiB));
    ASSERT_EQ(::symlink("v1", (source + "/current").c_str()), 0);
    DaemonProcess::Options options;
    options.source = source;
    options.ram = "16 MiB";
    options.ssd = "off";
    options.more = {"--set", "source.racy_window=0s", "--set", "source.warm=off", "--set", "source.chunk_size=1 MiB",
                    "--set", "source.staleness=ttl",  "--set", "source.ttl=300ms", "--policy", "lru"};
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  }
  std::string Other(int i) const { return source + "/others/f" + std::to_string(i); }
  void EvictAll() const {
    EXPECT_TRUE(Eventually(5000, [&] {
      daemon.Control("POST", "/v1/evict", nlohmann::json{{"paths", {source}}}.dump());
      return daemon.Status()["tiers"]["ram"]["objects"] == 0;
    }));
  }

  ScratchDir scratch;
  std::string source = scratch.path() + "/data";
  std::string content = Content("large", 8 * kMiB);
  DaemonProcess daemon{scratch.path()};
};

// `rm current; mv v1 current`: the file keeps its version, and has another name in the cache. What the open file leases has the old one.
TEST_F(LinkTest, AnOpenFileIsLentNoMemoryOfAnotherName) {
  const Client client(daemon.socket());
  const std::string path = source + "/current/large";
  tier_file* file = nullptr;
  ASSERT_EQ(tier_open(client.get(), path.c_str(), &file, 0), 0);
  ASSERT_EQ(::unlink((source + "/current").c_str()), 0);
  ASSERT_EQ(::rename((source + "/v1").c_str(), (source + "/current").c_str()), 0);
  EvictAll();
  SleepMs(400);  // past the ttl
  ASSERT_TRUE(Get(client.get(), path).bytes == content) << "by its own name";
  tier_view view{};
  ASSERT_EQ(tier_file_pin(file, 5 * kMiB, kMiB, &view), 0);
  ASSERT_EQ(view.size, kMiB);
  EvictAll();
  for (int i = 0; i < kOthers; ++i) ASSERT_TRUE(Get(client.get(), Other(i)).bytes == Content(Other(i), kMiB)) << i;
  EXPECT_TRUE(std::string(static_cast<const char*>(view.data), view.size) == content.substr(5 * kMiB, kMiB));
  tier_release(&view);
  tier_close(file);
}

}  // namespace
}  // namespace tierd::e2e
