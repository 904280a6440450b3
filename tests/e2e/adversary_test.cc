// Readers that do not do what they told: the running daemon then hits no less than `freeze` would have. The same accesses, one daemon per policy; a hit is a read that
// no file was opened for (counted by the client, each read's origin).
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <random>

#include "policies/orders/plan_orders.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"
#include "tests/tierctl/run_tierctl.h"

namespace tierd::e2e {
namespace {

using Epochs = std::vector<std::vector<std::uint32_t>>;

constexpr std::uint32_t kFiles = 1000;
constexpr std::uint32_t kGrown = 1200;        // that there are in the end
constexpr std::size_t kBytes = 65'536;
constexpr std::uint32_t kEpochs = 6;
constexpr double kWorse = 0.01;

class AdversaryTest : public testing::Test {
 protected:
  void SetUp() override {
    for (std::uint32_t i = 0; i < kGrown; ++i) Write(Path(i), std::string(kBytes, static_cast<char>('a' + i % 26)));
    std::ofstream list(scratch.path() + "/list");
    for (std::uint32_t i = 0; i < kFiles; ++i) list << Path(i) << "\n";
  }
  std::string Path(std::uint32_t i) const { return scratch.path() + "/data/f" + std::to_string(i); }

  // What DistributedSampler with seed 3 gives, of one rank: the plan that is told.
  static Epochs Told(std::uint32_t samples = kFiles) {
    orders::Plan plan;
    plan.kind = orders::Kind::kTorchDistributed;
    plan.samples = samples;
    plan.seed = 3;
    orders::PlanOrders orders = orders::PlanOrders::Create(plan).value();
    Epochs epochs(kEpochs);
    for (auto& epoch : epochs) orders.Next(&epoch);
    return epochs;
  }

  void Start(const std::string& policy) {
    DaemonProcess::Options options;
    options.source = scratch.path() + "/data";
    options.ram = "16 MiB";  // 256 files
    options.ssd = "off";
    options.more = {"--policy", policy, "--set", "source.racy_window=0s", "--set", "source.warm=off", "--set", "source.ahead=off", "--set", "source.staleness=immutable"};
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
    if (policy == "freeze") return;
    const std::vector<std::string> plan = {"plan", "torch-distributed", "--seed", "3", "--epochs", std::to_string(kEpochs), scratch.path() + "/list"};
    const tierctl::Ran told = tierctl::RunTierctl(plan, {"TIERD_SOCKET=" + daemon.socket()});
    ASSERT_EQ(told.exit_code, 0) << told.err;
    ASSERT_TRUE(Eventually(10'000, [&] { return Plans().size() == 1 && Plans()[0]["state"] == "waiting"; }));
  }
  nlohmann::json Plans() const { return daemon.Control("GET", "/v1/plans")["plans"]; }
  // Reads that came from RAM.
  std::size_t Hits(const Epochs& epochs) {
    std::size_t hits = 0;
    Client client(daemon.socket());
    for (const auto& epoch : epochs) {
      for (const std::uint32_t sample : epoch) {
        const Got got = Get(client.get(), Path(sample));
        EXPECT_EQ(got.error, 0);
        hits += got.origin == TIER_FROM_RAM ? 1 : 0;
      }
    }
    EXPECT_EQ(daemon.Status()["ring_lost"], 0);
    EXPECT_EQ(daemon.Stop(), 0);
    return hits;
  }
  void NoWorseThanFreeze(const char* what, const Epochs& epochs) {
    const double reads = std::accumulate(epochs.begin(), epochs.end(), 0.0, [](double sum, const auto& epoch) { return sum + static_cast<double>(epoch.size()); });
    Start("freeze");
    const double freeze = static_cast<double>(Hits(epochs)) / reads;
    for (const char* policy : {"belady", "auto"}) {
      Start(policy);
      const double rate = static_cast<double>(Hits(epochs)) / reads;
      std::printf("%s: %s %.4f, freeze %.4f\n", what, policy, rate, freeze);
      EXPECT_GE(rate, freeze - kWorse) << what << ", " << policy;
    }
  }

  ScratchDir scratch;
  DaemonProcess daemon{scratch.path()};
  std::mt19937 random{5};
};

TEST_F(AdversaryTest, WithReplacement) {
  Epochs epochs = Told();
  for (auto& epoch : epochs) {
    for (std::uint32_t& sample : epoch) sample = random() % kFiles;
  }
  NoWorseThanFreeze("with replacement", epochs);
}

TEST_F(AdversaryTest, Reversed) {
  Epochs epochs = Told();
  for (auto& epoch : epochs) std::reverse(epoch.begin(), epoch.end());
  NoWorseThanFreeze("reversed", epochs);
}

// As told for half of an epoch, then what is left of it and all that follows in another order.
TEST_F(AdversaryTest, ChangedInMidEpoch) {
  Epochs epochs = Told();
  std::shuffle(epochs[2].begin() + kFiles / 2, epochs[2].end(), random);
  for (std::size_t i = 3; i < epochs.size(); ++i) std::shuffle(epochs[i].begin(), epochs[i].end(), random);
  NoWorseThanFreeze("changed in mid-epoch", epochs);
}

TEST_F(AdversaryTest, FivePercentRepeated) {
  Epochs epochs = Told();
  for (auto& epoch : epochs) {
    std::vector<std::uint32_t> read;
    for (std::size_t i = 0; i < epoch.size(); ++i) {
      read.push_back(epoch[i]);
      if (i % 20 == 19) read.push_back(epoch[random() % i]);
    }
    epoch = read;
  }
  NoWorseThanFreeze("5 % repeated", epochs);
}

// From the third epoch on the job reads 200 files more, which the plan knows nothing of; its orders are those of the larger set.
TEST_F(AdversaryTest, GrownInMidRun) {
  Epochs epochs = Told();
  const Epochs grown = Told(kGrown);
  std::copy(grown.begin() + 2, grown.end(), epochs.begin() + 2);
  NoWorseThanFreeze("dataset grown in mid-run", epochs);
}

}  // namespace
}  // namespace tierd::e2e
