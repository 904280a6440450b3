// Plans told to a running daemon with tierctl: what `belady` makes of them, against the simulator; what ends them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "policies/orders/plan_orders.h"
#include "policies/registry.h"
#include "policies/sim/job.h"
#include "policies/sim/simulate.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"
#include "tests/tierctl/run_tierctl.h"

namespace tierd::e2e {
namespace {

using ::testing::HasSubstr;

constexpr int kFiles = 1200;
constexpr std::size_t kBytes = 65'536;  // 78 MB
constexpr int kRoom = 256;              // files that fit into 16 MiB

class PlanTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < kFiles; ++i) Write(Path(i), Content("f" + std::to_string(i), kBytes));
    std::ofstream list(scratch.path() + "/list");
    for (int i = 0; i < kFiles; ++i) list << Path(i) << "\n";
  }
  void Start(const std::string& policy, std::vector<std::string> more = {}) {
    DaemonProcess::Options options;
    options.source = scratch.path() + "/data";
    options.ram = "16 MiB";
    options.ssd = ssd;
    options.more = {"--policy", policy, "--set", "source.racy_window=0s", "--set", "source.warm=off", "--set", "source.ahead=off", "--set", "source.staleness=immutable"};
    options.more.insert(options.more.end(), more.begin(), more.end());
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  }
  std::string Path(int i) const { return scratch.path() + "/data/c" + std::to_string(i % 7) + "/f" + std::to_string(i) + ".jpg"; }
  tierctl::Ran Ctl(const std::vector<std::string>& arguments) const { return tierctl::RunTierctl(arguments, {"TIERD_SOCKET=" + daemon.socket()}); }
  nlohmann::json Plans() const { return daemon.Control("GET", "/v1/plans")["plans"]; }
  bool Await(const std::string& state) const {
    for (int i = 0; i < 500; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(10)))
      if (!Plans().empty() && Plans()[0]["state"] == state) return true;
    return false;
  }
  // Share of the reads of all epochs that came from RAM.
  double HitRate(const Client& client, orders::PlanOrders orders) const {
    double hits = 0, reads = 0;
    std::vector<std::uint32_t> order;
    while (orders.Next(&order)) {
      for (const std::uint32_t sample : order) {
        const Got got = Get(client.get(), Path(static_cast<int>(sample)));
        EXPECT_EQ(got.error, 0);
        hits += got.origin == TIER_FROM_RAM ? 1 : 0;
        reads += 1;
      }
    }
    return hits / reads;
  }
  static sim::Job JobOf(std::uint32_t nodes, std::uint32_t epochs) {
    return sim::Job::Create({.samples = kFiles, .bytes_mean = kBytes, .seed = 3, .nodes = nodes, .epochs = epochs}).value();
  }
  static double Simulated(const std::string& policy, const sim::Job& job) {
    const policies::Registry registry;
    sim::RunOptions options;
    options.cache.capacity_bytes[0] = std::uint64_t{kRoom} * kBytes;
    options.seeded = policy != "lru" && policy != "freeze";
    options.lookahead = 16;
    return sim::RunJob(**registry.Find(policy), job, options).value().hit_rate();
  }

  ScratchDir scratch;
  DaemonProcess daemon{scratch.path()};
  std::string ssd = "off";
};

TEST_F(PlanTest, BeladyHitsWhatTheSimulatorSays) {
  Start("belady");
  const sim::Job job = JobOf(4, 12);
  const tierctl::Ran told = Ctl({"plan", "torch-distributed", "--seed", "3", "--world", "4", "--rank", "0", "--epochs", "12", scratch.path() + "/list"});
  ASSERT_EQ(told.exit_code, 0) << told.err;
  EXPECT_THAT(told.out, HasSubstr("plan 1: 1200 samples"));
  ASSERT_TRUE(Await("waiting"));
  Client client(daemon.socket());
  const double rate = HitRate(client, job.Orders());
  EXPECT_NEAR(rate, Simulated("belady", job), 0.01);
  EXPECT_GT(rate, Simulated("freeze", job) + 0.1) << "and that is worth having";
  EXPECT_EQ(daemon.Status()["ring_lost"], 0);
}

// RAM for a fifth of what the SSD holds: each file is in RAM by the time its turn has come, the source is not read again, and nothing is brought in vain.
TEST_F(PlanTest, WhatIsOnTheSsdIsInRamWhenItsTurnComes) {
  ssd = "on";
  Start("belady", {"--set", "source.ahead=auto"});
  ASSERT_EQ(daemon.Prefetch(scratch.path() + "/data", "ssd")["state"], "done");
  const auto source_bytes = [&] { return daemon.Status()["sources"][0]["read_bytes"].get<std::uint64_t>(); };
  const std::uint64_t before = source_bytes();
  ASSERT_EQ(Ctl({"plan", "torch-distributed", "--seed", "3", "--epochs", "3", scratch.path() + "/list"}).exit_code, 0);
  Client client(daemon.socket());
  orders::PlanOrders orders = JobOf(1, 3).Orders();
  std::vector<std::uint32_t> order;
  std::uint64_t there = 0;
  while (orders.Next(&order)) {
    for (const std::uint32_t sample : order) {
      tier_view view;
      // Asks the daemon for nothing: only who brings ahead can have put it there.
      const std::string path = Path(static_cast<int>(sample));
      if (!Eventually(5000, [&] { return tier_get(client.get(), path.c_str(), &view, TIER_NOWAIT) == 0; })) continue;
      EXPECT_EQ(view.origin, TIER_FROM_RAM);
      tier_release(&view);
      ++there;
    }
  }
  EXPECT_EQ(there, std::uint64_t{3} * kFiles);
  EXPECT_EQ(source_bytes(), before);
  const std::string metrics = daemon.Metrics();
  EXPECT_THAT(metrics, HasSubstr("\ntierd_prefetch_unused_bytes_total 0\n"));
  EXPECT_THAT(metrics, HasSubstr("\ntierd_prefetch_late_total 0\n"));
}

// Policies that know nothing of the plan let leave what was brought by it.
TEST_F(PlanTest, LookAheadCostsTheSourceNoMoreThanNoCacheWithAnyPolicy) {
  constexpr int kEpochs = 6;
  for (const std::string policy : {"lru", "fifo"}) {
    SCOPED_TRACE(policy);
    Start(policy, {"--set", "source.ahead=auto"});
    ASSERT_EQ(Ctl({"plan", "torch-distributed", "--seed", "3", "--epochs", std::to_string(kEpochs), scratch.path() + "/list"}).exit_code, 0);
    ASSERT_TRUE(Await("waiting"));
    {
      Client client(daemon.socket());
      (void)HitRate(client, JobOf(1, kEpochs).Orders());
    }
    const nlohmann::json status = daemon.Status(), source = status["sources"][0];
    const double read = 1.0 * kEpochs * kFiles * kBytes;
    const double given = source["read_bytes"].get<double>() + status["reads"]["bypass"]["bytes"].get<double>();
    std::printf("%s: the source gave %.3f of what was read; %s\n", policy.c_str(), given / read, source["look_ahead"].dump().c_str());
    EXPECT_LE(given, 1.02 * read) << source["look_ahead"];
    daemon.Stop();
  }
}

TEST_F(PlanTest, AWrongPlanDoesNoHarm) {
  Start("belady");
  ASSERT_EQ(Ctl({"plan", "torch-distributed", "--seed", "40", "--epochs", "12", scratch.path() + "/list"}).exit_code, 0);
  ASSERT_TRUE(Await("waiting"));
  Client client(daemon.socket());
  const sim::Job job = JobOf(1, 4);  // of seed 3
  EXPECT_GT(HitRate(client, job.Orders()), Simulated("freeze", job) - 0.01);
  EXPECT_EQ(Plans()[0]["state"], "doubted");
  const tierctl::Ran list = Ctl({"plan", "list"});
  EXPECT_THAT(list.out, HasSubstr("doubted"));
  EXPECT_EQ(Ctl({"plan", "remove", "1"}).exit_code, 0);
  EXPECT_TRUE(Plans().empty());
}

TEST_F(PlanTest, AFolderIsListedAsImageFolderDoes) {
  Start("belady");
  const tierctl::Ran told = Ctl({"plan", "sequential", "--epochs", "1", scratch.path() + "/data"});
  ASSERT_EQ(told.exit_code, 0) << told.err;
  ASSERT_TRUE(Await("waiting"));
  Client client(daemon.socket());
  EXPECT_EQ(Get(client.get(), Path(0)).error, 0);
  EXPECT_EQ(Get(client.get(), Path(1008)).error, 0);  // the name behind it: of the class c0 they are f0, f1001, f1008 ...
  EXPECT_EQ(Plans()[0]["known"], kFiles);
}

TEST_F(PlanTest, WhatCannotBeTold) {
  Start("belady", {"--set", "source.mode=blind"});
  const tierctl::Ran blind = Ctl({"plan", "sequential", scratch.path() + "/list"});
  EXPECT_EQ(blind.exit_code, 1);
  EXPECT_THAT(blind.err, HasSubstr("its mode is blind"));
  EXPECT_EQ(daemon.Status()["sources"][0]["mode"], "blind");
  EXPECT_EQ(Ctl({"plan", "torch-distributed", "--world", "2", "--rank", "2", scratch.path() + "/list"}).exit_code, 64);
  EXPECT_EQ(Ctl({"plan", "sequential", scratch.path() + "/none"}).exit_code, 1);
  EXPECT_EQ(Ctl({"plan", "remove", "9"}).exit_code, 1);
}

}  // namespace
}  // namespace tierd::e2e
