// Traces, ghosts and regret of a daemon that runs: the simulator, given the daemon's trace and the very policy objects, hits what the daemon hit, also
// with a policy that is deliberately wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/own_mounts.h"
#include "tests/e2e/reading.h"
#include "tests/tierctl/run_tierctl.h"

namespace tierd::e2e {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int kFiles = 400;
constexpr std::size_t kBytes = 81'920;  // of each: all of them are twice the RAM tier
constexpr int kEpochs = 4;

class TraceTest : public testing::Test {
 protected:
  void SetUp() override {
    KeepMountsToOneself();
    for (int i = 0; i < kFiles; ++i) Write(Path(i), Content(std::to_string(i), kBytes));
    std::filesystem::create_directory(scratch.path() + "/policies");
    const tierctl::Ran built = tierctl::RunProgram(
        {"/bin/sh", "-c", "cc -shared -fPIC -O2 -I " TIERD_SOURCE_DIR " -o " + scratch.path() + "/policies/wrong.so " TIERD_SOURCE_DIR "/tests/e2e/wrong_policy.c"}, {}, "");
    ASSERT_EQ(built.exit_code, 0) << built.err;
    Write(scratch.path() + "/t.toml", "[[source]]\npath = \"" + scratch.path() + "/data\"\n[policy]\ndirectory = \"" + scratch.path() + "/policies\"\n");
    DaemonProcess::Options options;
    options.config = scratch.path() + "/t.toml";
    options.ram = "16 MiB";
    options.ssd = "off";
    options.more = {"--set", "source.racy_window=0s", "--set", "source.warm=off"};
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  }
  std::string Path(int i) const { return scratch.path() + "/data/f" + std::to_string(i); }
  tierctl::Ran Ctl(const std::vector<std::string>& arguments) const { return tierctl::RunTierctl(arguments, {"TIERD_SOCKET=" + daemon.socket()}); }
  // Epochs of fresh orders; the share of reads that came from RAM.
  double ReadEpochs() {
    Client client(daemon.socket());
    std::vector<int> order(kFiles);
    for (int i = 0; i < kFiles; ++i) order[static_cast<std::size_t>(i)] = i;
    int hits = 0;
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      std::shuffle(order.begin(), order.end(), random);
      for (const int i : order) {
        const Got got = Get(client.get(), Path(i));
        EXPECT_EQ(got.error, 0);
        hits += got.origin == TIER_FROM_RAM ? 1 : 0;
      }
    }
    return static_cast<double>(hits) / (kEpochs * kFiles);
  }
  double Simulated(const std::string& trace, const std::string& policy) {
    const tierctl::Ran ran = tierctl::RunTierctl({"--json", "simulate", trace, "--ram", "16 MiB", "-p", policy, "--skip", "0", "--mode", "blind"});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    const json outcome = json::parse(ran.out, nullptr, false);
    EXPECT_EQ(outcome["accesses"], kEpochs * kFiles) << policy;
    return outcome["curves"][0]["points"][0]["hit_rate"];
  }

  ScratchDir scratch;
  DaemonProcess daemon{scratch.path()};
  std::mt19937 random{7};
};

TEST_F(TraceTest, TheSimulatorHitsWhatTheDaemonHitWithEachPolicy) {
  std::map<std::string, double> hits;
  for (const std::string policy : {"wrong", "fifo", "lru"}) {
    ASSERT_EQ(Ctl({"policy", "set", policy}).exit_code, 0);
    ASSERT_EQ(Ctl({"evict", scratch.path() + "/data"}).exit_code, 0);
    const std::string trace = scratch.path() + "/" + policy + ".trc";
    const tierctl::Ran started = Ctl({"trace", "start", trace});
    ASSERT_EQ(started.exit_code, 0) << started.err;
    ASSERT_EQ(Ctl({"policy", "try", "lru"}).exit_code, 0);
    hits[policy] = ReadEpochs();
    const tierctl::Ran stopped = Ctl({"trace", "stop"});
    ASSERT_EQ(stopped.exit_code, 0) << stopped.err;
    EXPECT_THAT(stopped.err, HasSubstr("1600 reads of 400 objects")) << policy;
    struct stat facts {};
    ASSERT_EQ(::stat(trace.c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0600u);
    const double simulated = Simulated(trace, policy == "wrong" ? scratch.path() + "/policies/wrong.so" : policy);
    const json tried = daemon.Status()["sources"][0]["tried"];
    ASSERT_EQ(tried.size(), 1u);
    const double ghost = 1 - tried[0]["all"]["misses"].get<double>() / tried[0]["all"]["reads"].get<double>();
    std::printf("%s: daemon %.4f, simulator %.4f; lru would have hit %.4f, simulated %.4f\n", policy.c_str(), hits[policy], simulated, ghost, Simulated(trace, "lru"));
    EXPECT_NEAR(hits[policy], simulated, .01) << policy;
    EXPECT_NEAR(ghost, Simulated(trace, "lru"), .001) << "beside " << policy;
    ASSERT_EQ(Ctl({"policy", "try", "--stop", "lru"}).exit_code, 0);
  }
  EXPECT_GT(hits["wrong"], hits["lru"] + .1) << "what is wrong is no less so for being better here";
}

// Its answers are not followed, so that what it hits is what a host hits that nobody helps: as good as the best policy here, and no merit of its own.
TEST_F(TraceTest, TheScoreOfAPolicyWithWrongAnswersIsVoid) {
  const std::string wrong = scratch.path() + "/policies/wrong.so";
  const tierctl::Ran simulated = tierctl::RunTierctl({"simulate", "-n", "1000", "--epochs", "4", "--ram", "25%", "-p", "freeze," + wrong});
  EXPECT_EQ(simulated.exit_code, 2);
  EXPECT_THAT(simulated.out, ::testing::ContainsRegex("wrong +blind +[0-9.]+ GB +25.0% +void "));
  EXPECT_THAT(simulated.out, ::testing::ContainsRegex("freeze +blind +[0-9.]+ GB +25.0% +0\\.2"));
  EXPECT_THAT(simulated.err, HasSubstr("the figures of wrong are void: "));

  ASSERT_EQ(Ctl({"policy", "try", "wrong"}).exit_code, 0);
  ASSERT_EQ(Ctl({"policy", "set", "wrong"}).exit_code, 0);
  for (int i = 0; i < 3; ++i) ReadEpochs();  // it names victims once the tier is full
  const tierctl::Ran tried = Ctl({"policy", "try"});
  EXPECT_EQ(tried.exit_code, 2);
  EXPECT_THAT(tried.out, ::testing::ContainsRegex("wrong +blind +4800 +void "));
  EXPECT_THAT(tried.err, HasSubstr("its figures are void"));
  const std::uint64_t dropped = daemon.Status()["sources"][0]["policy_dropped_answers"];
  EXPECT_GT(dropped, 0u);
  EXPECT_THAT(Ctl({"policy", "show"}).out, ::testing::ContainsRegex("wrong +- +[1-9][0-9]* "));
  EXPECT_THAT(Ctl({"status"}).out, HasSubstr(" of it were wrong and not followed"));
  EXPECT_THAT(daemon.Metrics(), HasSubstr("\ntierd_policy_dropped_answers_total{dataset=\"data\"} "));
  EXPECT_TRUE(Eventually(5000, [&] { return daemon.output().find("policy source=data state=wrong was=sound policy=wrong dropped_answers=") != std::string::npos; })) << daemon.output();
}

TEST_F(TraceTest, RegretIsWhatLruReadsNeedlessly) {
  ASSERT_EQ(Ctl({"policy", "set", "lru"}).exit_code, 0);
  for (int i = 0; i < 3; ++i) ReadEpochs();
  const json regret = daemon.Status()["sources"][0]["regret"];
  ASSERT_GE(regret["epochs"].size(), 10u) << regret;
  EXPECT_EQ(regret["epochs"][0]["least_bytes"], kFiles * kBytes) << "all of it has to be read once";
  EXPECT_EQ(regret["epochs"][1]["least_bytes"], kFiles * kBytes - (16 << 20));
  // lru misses .847 of the reads, and .488 of them would have to be missed.
  EXPECT_NEAR(regret["epochs"][4]["regret_bytes"].get<double>() / (kFiles * kBytes), .847 - .488, .06) << regret;
  const double judged = regret["judged_reads"];
  ASSERT_GT(judged, 2 * kFiles);
  EXPECT_NEAR(regret["judged_misses"].get<double>() / judged, .847, .04);
  EXPECT_NEAR(regret["least_misses"].get<double>() / judged, .488, .02);
  EXPECT_THAT(Ctl({"status"}).out, HasSubstr("MISSES ABOVE BELADY"));
  EXPECT_THAT(daemon.Metrics(), HasSubstr("tierd_regret_bytes{dataset=\"data\"}"));
}

TEST_F(TraceTest, WhatCannotBeDoneIsSaid) {
  const std::string trace = scratch.path() + "/t.trc";
  const struct {
    std::vector<std::string> arguments;
    std::string text;
  } rows[] = {{{"trace", "stop"}, "no trace runs"},
              {{"trace", "start", scratch.path() + "/data/t.trc"}, "below the source"},
              {{"trace", "start", scratch.path() + "/no/such/t.trc"}, "no/such"},
              {{"trace", "start", trace, "elsewhere"}, "no source elsewhere"},
              {{"trace", "start", trace, "--most", "much"}, "is no size"},
              {{"policy", "try", "lur"}, "lur"},
              {{"policy", "try", "belady", "--parameters", "depth=3"}, "depth=3"},
              {{"policy", "try", "--stop", "lru"}, "no policy lru is tried"}};
  for (const auto& row : rows) {
    const tierctl::Ran ran = Ctl(row.arguments);
    EXPECT_NE(ran.exit_code, 0) << row.text;
    EXPECT_THAT(ran.err, HasSubstr(row.text));
  }
  ASSERT_EQ(Ctl({"trace", "start", trace}).exit_code, 0);
  EXPECT_THAT(Ctl({"trace", "start", trace + "2"}).err, HasSubstr("runs already"));
  ASSERT_EQ(Ctl({"trace", "stop"}).exit_code, 0);
  EXPECT_THAT(Ctl({"trace", "start", trace}).err, HasSubstr("t.trc")) << "it is there";
  std::filesystem::create_directory_symlink(scratch.path() + "/data", scratch.path() + "/link");
  EXPECT_THAT(Ctl({"trace", "start", scratch.path() + "/link/t.trc"}).err, HasSubstr("below the source"));
}

// A disk that is full ends the trace, says so, and costs no read.
TEST_F(TraceTest, AFullDiskEndsTheTraceAndNoRead) {
  const std::string small = scratch.path() + "/small";
  std::filesystem::create_directory(small);
  if (tierctl::RunProgram({"/bin/mount", "-t", "tmpfs", "-o", "size=4k", "none", small}, {}, "").exit_code != 0) GTEST_SKIP() << "no mount";
  ASSERT_EQ(Ctl({"trace", "start", small + "/t.trc"}).exit_code, 0);
  Write(small + "/filler", std::string(4096, 'x'));
  ReadEpochs();
  const tierctl::Ran stopped = Ctl({"trace", "stop"});
  const json trace = daemon.Status()["sources"][0]["trace"];
  EXPECT_EQ(tierctl::RunProgram({"/bin/umount", small}, {}, "").exit_code, 0);
  EXPECT_NE(stopped.exit_code, 0);
  EXPECT_EQ(trace["running"], false);
  EXPECT_NE(trace["error"], "") << trace;
  EXPECT_GT(ReadEpochs(), .1);
}

}  // namespace
}  // namespace tierd::e2e
