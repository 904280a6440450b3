// Policies as a user has them: one built against the installed header and dropped into the policy directory, chosen per dataset, changed while the daemon runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"
#include "tests/tierctl/run_tierctl.h"

namespace tierd::e2e {
namespace {

using ::testing::HasSubstr;

constexpr int kFiles = 64;  // of 500 kB: twice the RAM tier

class PolicyChoiceTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"a", "b"})
      for (int i = 0; i < kFiles; ++i) Write(Path(name, i), Content(name + std::to_string(i), 500'000));
    const std::string build = std::string(TIERD_CMAKE_COMMAND) + " --install " + TIERD_BINARY_DIR + " --component policy_header --prefix " + scratch.path() + "/prefix && mkdir " +
                              scratch.path() + "/policies && cc -shared -fPIC -O2 -I " + scratch.path() + "/prefix/include -o " + scratch.path() + "/policies/mru.so " +
                              TIERD_SOURCE_DIR + "/policies/example/mru.c && echo no policy > " + scratch.path() + "/policies/broken.so";
    const tierctl::Ran built = tierctl::RunProgram({"/bin/sh", "-c", build}, {}, "");
    ASSERT_EQ(built.exit_code, 0) << built.err;
    Write(scratch.path() + "/t.toml", "[[source]]\npath = \"" + scratch.path() + "/a\"\npolicy = \"mru\"\n[[source]]\npath = \"" + scratch.path() +
                                          "/b\"\npolicy = \"lru\"\n[policy]\ndirectory = \"" + scratch.path() + "/policies\"\n");
    DaemonProcess::Options options;
    options.config = scratch.path() + "/t.toml";
    options.ram = "16 MiB";
    options.ssd = "off";
    options.more = {"--set", "source.racy_window=0s", "--set", "source.warm=off"};
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  }
  std::string Path(const std::string& name, int i) const { return scratch.path() + "/" + name + "/f" + std::to_string(i); }
  tierctl::Ran Ctl(const std::vector<std::string>& arguments) const { return tierctl::RunTierctl(arguments, {"TIERD_SOCKET=" + daemon.socket()}); }
  // Share of reads from RAM in three epochs of fresh orders, after one that settles.
  double HitRate(const Client& client, const std::string& name) {
    std::vector<int> order(kFiles);
    for (int i = 0; i < kFiles; ++i) order[static_cast<std::size_t>(i)] = i;
    int hits = 0;
    for (int epoch = 0; epoch < 4; ++epoch) {
      std::shuffle(order.begin(), order.end(), random);
      for (const int i : order) {
        const Got got = Get(client.get(), Path(name, i));
        EXPECT_EQ(got.error, 0);
        hits += epoch > 0 && got.origin == TIER_FROM_RAM ? 1 : 0;
      }
    }
    return hits / (3.0 * kFiles);
  }

  ScratchDir scratch;
  DaemonProcess daemon{scratch.path()};
  std::mt19937 random{7};
};

TEST_F(PolicyChoiceTest, IsLoadedChosenPerDatasetAndSwitchedAtRunTime) {
  EXPECT_EQ(Ctl({"config", "get", "source.a.policy"}).out, "mru\n");
  EXPECT_EQ(daemon.Status()["sources"][1]["policy"], "lru");
  EXPECT_THAT(daemon.output(), HasSubstr("broken.so"));  // refused, with a sentence; it costs only itself
  Client client(daemon.socket());
  const double mru = HitRate(client, "a");
  ASSERT_EQ(Ctl({"evict", scratch.path() + "/a"}).exit_code, 0);
  const double lru = HitRate(client, "b");
  std::printf("hit rates in the daemon: mru %.3f, lru %.3f\n", mru, lru);
  EXPECT_GT(mru, lru + .1);

  const tierctl::Ran set = Ctl({"config", "set", "source.b.policy", "mru"});
  EXPECT_EQ(set.out, "source.b.policy: lru -> mru\n") << set.err;
  EXPECT_EQ(daemon.Status()["sources"][1]["policy"], "mru");
  EXPECT_THAT(daemon.Metrics(), HasSubstr("tierd_policy_info{source=\"b\",policy=\"mru\",mode=\"blind\"} 1"));
  EXPECT_GT(HitRate(client, "b"), lru + .1);

  const tierctl::Ran unknown = Ctl({"config", "set", "source.b.policy", "mur"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("mur"));
  EXPECT_EQ(std::count(unknown.err.begin(), unknown.err.end(), '\n'), 1) << unknown.err;
  EXPECT_EQ(daemon.Status()["sources"][1]["policy"], "mru");
}

}  // namespace
}  // namespace tierd::e2e
