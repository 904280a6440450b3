// A daemon that may not make files as long as it would like (ulimit -f): its SSD tier is as large as the limit lets it be, and is well.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/exposition.h"
#include "tests/e2e/reading.h"

namespace tierd::e2e {
namespace {

constexpr rlim_t kLimit = 40'000 << 10;
constexpr int kFiles = 600;
constexpr std::size_t kBytes = 110'000;

// For this process and those it starts meanwhile.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_{};
};

TEST(FileLimitTest, ATierThatMayGrowNoFurtherServesWhatItHolds) {
  const ScratchDir scratch;
  DaemonProcess daemon(scratch.path());
  DaemonProcess::Options options;
  options.source = scratch.path() + "/data";
  options.ram = "16 MiB";
  options.ssd_capacity = "256 MiB";
  options.more = kTrustStamps;
  options.more.insert(options.more.end(), {"--set", "source.warm=off", "--set", "ssd.region_size=8 MiB"});
  const auto path = [&](int i) { return options.source + "/f" + std::to_string(i); };
  for (int i = 0; i < kFiles; ++i) Write(path(i), Content(path(i), kBytes));
  {
    const FileLimit limit(kLimit);
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  }
  ASSERT_TRUE(Eventually(5000, [&] { return daemon.Status()["tiers"]["ssd"]["state"] != "recovering"; }));
  const Client client(daemon.socket());
  std::map<std::uint32_t, int> origins;
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < kFiles; ++i) {
      const Got got = Get(client.get(), path(i));
      ASSERT_EQ(got.error, 0) << path(i);
      ASSERT_TRUE(got.bytes == Content(path(i), kBytes)) << path(i) << " from " << got.origin;
      ++origins[got.origin];
    }
    ASSERT_FALSE(daemon.Ended()) << "round " << round << ": " << daemon.output();
    // It tries to grow every second.
    const bool ails = round == 2 && Eventually(4000, [&] { return daemon.Status()["tiers"]["ssd"]["state"] != "ok"; });
    EXPECT_FALSE(ails) << daemon.Status()["tiers"]["ssd"];
  }
  EXPECT_GT(origins[TIER_FROM_SSD] + static_cast<int>(daemon.SlowSsdReads()), kFiles / 4);
  EXPECT_EQ(ParseExposition(daemon.Metrics()).Value("tierd_ssd_retired_regions"), 0);
  EXPECT_EQ(daemon.Stop(), 0);
}

}  // namespace
}  // namespace tierd::e2e
