// tier_pin and tier_unpin against a real daemon: what a program pins stays in RAM whatever is read past it, until it lets go.
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"

namespace tierd::e2e {
namespace {

constexpr int kOthers = 80;  // of half a megabyte: 40 MB through 16 MiB of RAM

class PinTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const std::string& path : pinned) Write(path, Content(path, kBytes));
    for (int i = 0; i < kOthers; ++i) Write(Other(i), Content(Other(i), kBytes));
    DaemonProcess::Options options;
    options.source = source;
    options.ram = "16 MiB";
    options.ssd = "off";
    options.more = {"--set", "source.racy_window=0s", "--set", "source.warm=off", "--policy", "lru"};
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  }
  std::string Other(int i) const { return source + "/others/f" + std::to_string(i); }
  // Forty megabytes go by; none is wrong.
  void ReadOthers(const Client& client) const {
    for (int i = 0; i < kOthers; ++i) ASSERT_TRUE(Get(client.get(), Other(i)).bytes == Content(Other(i), kBytes)) << i;
  }
  // How many of the pinned have `error` when only RAM is asked; those that are there are right.
  int Count(const Client& client, int error) const {
    int count = 0;
    for (const std::string& path : pinned) {
      const Got got = Get(client.get(), path, TIER_NOWAIT);
      EXPECT_TRUE(got.error != 0 || got.bytes == Content(path, kBytes)) << path;
      count += got.error == error;
    }
    return count;
  }
  bool NoJobRuns() const {
    for (const auto& job : daemon.Control("GET", "/v1/jobs")["jobs"])
      if (job["state"] != "done") return false;
    return true;
  }

  std::uint64_t PinnedBytes() const { return daemon.Status()["tiers"]["ram"]["pinned_bytes"]; }
  bool Pins(std::uint64_t bytes) const {
    return Eventually(10'000, [&] { return PinnedBytes() == bytes && daemon.Status()["jobs_running"] == 0; });
  }

  static constexpr std::size_t kBytes = 500'000;
  ScratchDir scratch;
  std::string source = scratch.path() + "/data";
  std::vector<std::string> pinned{source + "/read", source + "/new", source + "/dir/a", source + "/dir/b", source + "/dir/below/c"};
  DaemonProcess daemon{scratch.path()};
};

TEST_F(PinTest, PinnedFilesStayUntilTheyAreLetGo) {
  const Client client(daemon.socket());
  ASSERT_EQ(Get(client.get(), pinned[0]).error, 0);  // the daemon knows this one, and none of the others
  const char* files[] = {pinned[0].c_str(), pinned[1].c_str()};
  const std::string directory = source + "/dir";
  const char* directories[] = {directory.c_str()};
  EXPECT_EQ(tier_pin(client.get(), files, 2, 0), 2);
  EXPECT_EQ(tier_pin(client.get(), directories, 1, TIER_RECURSIVE), 1);
  ASSERT_TRUE(Eventually(10'000, [&] { return NoJobRuns(); })) << daemon.Control("GET", "/v1/jobs").dump();
  ReadOthers(client);
  EXPECT_TRUE(Eventually(5000, [&] { return Count(client, 0) == 5; }));  // where memory is may come late, what is in it not

  EXPECT_EQ(tier_unpin(client.get(), files, 2, 0), 2);
  ReadOthers(client);
  EXPECT_TRUE(Eventually(5000, [&] { return Count(client, 0) == 3; })) << "the directory is pinned still, and nothing else";
  EXPECT_EQ(tier_unpin(client.get(), directories, 1, TIER_RECURSIVE), 3);
  ReadOthers(client);
  EXPECT_EQ(Count(client, -ENODATA), 5);
}

// What a call pins the same call without "un" lets go, and what it does not pin neither does its link.
TEST_F(PinTest, ADirectoryIsPinnedWithWhatIsBelowItOnlyWhereThatIsSaid) {
  ASSERT_EQ(::symlink("dir", (source + "/link").c_str()), 0);
  const Client client(daemon.socket());
  const std::string directory = source + "/dir", link = source + "/link";
  for (const std::string& name : {directory, link, source}) {
    const char* paths[] = {name.c_str(), pinned[0].c_str()};
    EXPECT_EQ(tier_pin(client.get(), paths, 2, 0), 2) << name;
    ASSERT_TRUE(Pins(kBytes)) << name << daemon.Control("GET", "/v1/jobs").dump();
    const auto job = daemon.Control("GET", "/v1/jobs")["jobs"].back();
    EXPECT_EQ(job["state"], "partial") << job.dump();
    EXPECT_EQ(job["files_failed"], 1) << job.dump();
    EXPECT_NE(job["error"].get<std::string>().find("directory"), std::string::npos) << job.dump();
    EXPECT_GE(tier_unpin(client.get(), paths, 2, 0), 1) << name;
    EXPECT_EQ(PinnedBytes(), 0u) << name;
  }
  const char* paths[] = {directory.c_str()};
  EXPECT_EQ(tier_pin(client.get(), paths, 1, TIER_RECURSIVE), 1);
  EXPECT_TRUE(Pins(3 * kBytes));
  EXPECT_EQ(tier_unpin(client.get(), paths, 1, TIER_RECURSIVE), 3);
  EXPECT_EQ(PinnedBytes(), 0u);
}

TEST_F(PinTest, WhatWasPinnedThroughALinkToADirectoryIsLetGoAndDroppedByThatName) {
  ASSERT_EQ(::symlink("dir", (source + "/link").c_str()), 0);
  const Client client(daemon.socket());
  const std::string link = source + "/link";
  const char* paths[] = {link.c_str()};
  EXPECT_EQ(tier_pin(client.get(), paths, 1, TIER_RECURSIVE), 1);
  ASSERT_TRUE(Pins(3 * kBytes)) << daemon.Control("GET", "/v1/jobs").dump();
  EXPECT_TRUE(Eventually(5000, [&] { return Count(client, 0) == 3; }));
  EXPECT_EQ(tier_unpin(client.get(), paths, 1, TIER_RECURSIVE), 3);
  EXPECT_EQ(PinnedBytes(), 0u);
  EXPECT_GE(tier_evict(client.get(), paths, 1, TIER_RECURSIVE), 3);
  EXPECT_EQ(Count(client, 0), 0);

  const std::string body = nlohmann::json{{"paths", {link}}}.dump();
  const std::string bring = nlohmann::json{{"paths", {link}}, {"pin", true}}.dump();
  ASSERT_TRUE(daemon.Control("POST", "/v1/prefetch", bring).contains("job"));
  ASSERT_TRUE(Pins(3 * kBytes)) << daemon.Control("GET", "/v1/jobs").dump();
  EXPECT_TRUE(Eventually(5000, [&] { return Count(client, 0) == 3; }));
  EXPECT_EQ(daemon.Control("POST", "/v1/unpin", body), (nlohmann::json{{"files", 3}}));
  EXPECT_EQ(PinnedBytes(), 0u);
  EXPECT_TRUE(daemon.Control("POST", "/v1/evict", body).contains("files"));
  EXPECT_EQ(Count(client, 0), 0);
}

}  // namespace
}  // namespace tierd::e2e
