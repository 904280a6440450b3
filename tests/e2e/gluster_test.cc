// tierd over a real parallel file system (GlusterFS on loopback, tests/pfs_sim/gluster.sh): brought up, read, changed by others, killed, and without an answer of a server.
#include <gtest/gtest.h>

#include <csignal>
#include <memory>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"
#include "tests/pfs_sim/gluster.h"

namespace tierd::e2e {
namespace {

constexpr int kFiles = 120;
constexpr std::size_t kBytes = 30'000;

class GlusterTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    rig = pfs_sim::GlusterRig::Start(500, &why);
    if (rig == nullptr && why.starts_with("unavailable")) GTEST_SKIP() << why;
    ASSERT_NE(rig, nullptr) << why;
    source = rig->mount() + "/data";
    for (int i = 0; i < kFiles; ++i) Write(Path(i), Content(Path(i), kBytes));
    Write(source + "/large", Content("large", kLarge));
  }
  std::string Path(int i) const { return source + "/c" + std::to_string(i % 4) + "/f" + std::to_string(i); }
  void Start(const std::vector<std::string>& more) {
    DaemonProcess::Options options;
    options.source = source;
    options.more = kTrustStamps;
    options.more.insert(options.more.end(), {"--set", "source.warm=off"});
    options.more.insert(options.more.end(), more.begin(), more.end());
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
    ASSERT_TRUE(Eventually(10'000, [&] { return daemon.Status()["tiers"]["ssd"]["state"] == "ok"; })) << daemon.output();
  }
  // Every file once, right; answers by origin.
  std::map<std::uint32_t, int> ReadAll(const Client& client) {
    std::map<std::uint32_t, int> origins;
    for (int i = 0; i < kFiles; ++i) {
      const Got got = Get(client.get(), Path(i));
      EXPECT_EQ(got.error, 0) << Path(i);
      EXPECT_TRUE(got.bytes == Content(Path(i), kBytes)) << Path(i) << " from " << got.origin;
      ++origins[got.origin];
    }
    return origins;
  }
  std::string ReadLarge(const Client& client) {
    std::string bytes(kLarge, '\0');
    EXPECT_EQ(tier_read_file(client.get(), (source + "/large").c_str(), bytes.data(), bytes.size(), nullptr, 0), static_cast<ssize_t>(kLarge));
    return bytes;
  }
  std::uint64_t SourceBytes() const { return daemon.Status()["sources"][0]["read_bytes"]; }

  static constexpr std::size_t kLarge = 9'000'001;  // three chunks
  ScratchDir scratch;
  std::unique_ptr<pfs_sim::GlusterRig> rig;
  std::string source;
  DaemonProcess daemon{scratch.path()};
};

TEST_F(GlusterTest, IsBroughtUpOnceAndSurvivesAKill) {
  Start({"--set", "source.staleness=immutable"});
  const auto job = daemon.Prefetch(source);
  ASSERT_EQ(job["files_verified"], kFiles + 1) << job.dump();
  EXPECT_EQ(SourceBytes(), kFiles * kBytes + kLarge) << "each byte once";
  {
    Client client(daemon.socket());
    EXPECT_EQ(ReadAll(client)[TIER_FROM_RAM], kFiles);
    EXPECT_TRUE(ReadLarge(client) == Content("large", kLarge));
  }
  daemon.Kill(SIGKILL);
  Start({"--set", "source.staleness=immutable"});
  Client client(daemon.socket());
  auto origins = ReadAll(client);
  EXPECT_EQ(origins[TIER_FROM_SSD] + static_cast<int>(daemon.SlowSsdReads()), kFiles);
  EXPECT_TRUE(ReadLarge(client) == Content("large", kLarge));
}

TEST_F(GlusterTest, ChangesOfOthersAreSeenWithinTheBound) {
  Start({"--set", "source.staleness=ttl", "--set", "source.ttl=1s"});
  ASSERT_EQ(daemon.Prefetch(source)["files_verified"], kFiles + 1);
  Client client(daemon.socket());
  EXPECT_EQ(ReadAll(client)[TIER_FROM_RAM], kFiles);
  const std::string rewritten = Path(1), replaced = Path(2), removed = Path(3);
  Write(rewritten, Content(rewritten, kBytes, 2));
  Write(replaced + ".new", Content(replaced, kBytes, 2));
  std::filesystem::rename(replaced + ".new", replaced);
  std::filesystem::remove(removed);
  for (const std::string& path : {rewritten, replaced}) {
    // The bound, and what GlusterFS itself keeps attributes for (a second); then a busy machine.
    EXPECT_TRUE(Eventually(10'000, [&] {
      const Got got = Get(client.get(), path);
      const bool is_new = got.bytes == Content(path, kBytes, 2);
      EXPECT_TRUE(is_new || got.bytes == Content(path, kBytes)) << path << " from " << got.origin;
      return is_new;
    })) << path;
  }
  EXPECT_TRUE(Eventually(10'000, [&] { return Get(client.get(), removed).error == -ENOENT; }));
}

// A server that does not answer: what is cached goes on, and a restart has it still.
TEST_F(GlusterTest, AHungServerCostsNobodyWhatIsCached) {
  Start({"--set", "source.staleness=immutable"});
  ASSERT_EQ(daemon.Prefetch(source)["files_verified"], kFiles + 1);
  Client client(daemon.socket());
  EXPECT_EQ(ReadAll(client)[TIER_FROM_RAM], kFiles);
  ASSERT_TRUE(rig->Pause(2));
  EXPECT_EQ(ReadAll(client)[TIER_FROM_RAM], kFiles);
  EXPECT_EQ(daemon.Status()["tiers"]["ram"]["objects"].get<int>(), kFiles + 3);
  ASSERT_TRUE(rig->Resume(2));
  EXPECT_TRUE(ReadLarge(client) == Content("large", kLarge));
}

}  // namespace
}  // namespace tierd::e2e
