// What clients advise, as the daemon takes it.
#include <gtest/gtest.h>
#include <tier/tier.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/fuzz/daemon_fixture.h"

namespace tierd::server {
namespace {

class AdviceTest : public testing::Test {
 protected:
  // Runs `work` with a client on a thread of its own while the loop turns here.
  void Run(const std::function<void(tier_client*)>& work) {
    std::atomic<bool> done = false;
    std::thread thread([&] {
      tier_options options{};
      options.size = sizeof options;
      const std::string socket = daemon.socket();
      options.socket = socket.c_str();
      tier_client* client = nullptr;
      EXPECT_EQ(tier_connect(&options, &client), 0);
      work(client);
      tier_disconnect(client);
      done = true;
    });
    while (!done) {
      daemon.loop().restart();
      daemon.loop().run_for(std::chrono::milliseconds(1));
    }
    thread.join();
  }
  std::int64_t Prefetch(tier_client* client, int count) {
    std::vector<std::string> paths;
    for (int i = 0; i < count; ++i) paths.push_back(daemon.data() + "/missing" + std::to_string(i));
    paths.front() = daemon.data() + "/a";
    std::vector<const char*> texts;
    for (const std::string& path : paths) texts.push_back(path.c_str());
    return tier_prefetch(client, texts.data(), texts.size(), 0);
  }
  fuzz::InProcessDaemon daemon;
};

TEST_F(AdviceTest, WhatOneCallPrefetchesIsOneJob) {
  Run([&](tier_client* client) { EXPECT_EQ(Prefetch(client, 200), 200); });
  ASSERT_EQ(daemon.engine().jobs().List().size(), 1u);
  EXPECT_LE(daemon.engine().jobs().List().front().files_total, 200u);
}

TEST_F(AdviceTest, OneThatFindsTooManyJobsIsRefused) {
  engine::SourceUnit* const unit = daemon.engine().sources().front().get();
  for (std::size_t i = 0; i < engine::Jobs::kRunningJobs; ++i) ASSERT_NE(daemon.engine().jobs().Walk({{unit, "b"}}), 0u);
  EXPECT_FALSE(daemon.engine().Prefetch({{unit, "a"}}, {}));
}

}  // namespace
}  // namespace tierd::server
