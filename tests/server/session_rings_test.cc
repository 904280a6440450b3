// Access rings as the hub reads them: whoever asks for something does not wait for all that others have left in theirs.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/server/bare_client.h"

namespace tierd::server {
namespace {

constexpr std::uint64_t kEntriesPerTurn = 8192;

TEST(SessionRings, WhoAsksWaitsForNoMoreThanATurnOfTheOthers) {
  constexpr std::size_t kClients = 8;
  fuzz::InProcessDaemon daemon;
  std::vector<std::unique_ptr<BareClient>> clients;
  for (std::size_t i = 0; i < kClients; ++i) clients.push_back(std::make_unique<BareClient>(daemon));
  daemon.Turn();
  ASSERT_EQ(daemon.hub().Sessions().sessions, kClients);
  for (const auto& client : clients) client->FillRing();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // rings that were looked at a moment ago are not looked at for a request
  clients.front()->AskForIndex();
  const auto heard = [&] { return daemon.engine().counters().ring_entries; };
  ASSERT_EQ(heard(), 0u);
  std::uint64_t most = 0;
  daemon.loop().restart();
  while (heard() < kClients * abi::kRingEntries) {
    const std::uint64_t before = heard();
    ASSERT_EQ(daemon.loop().run_one_for(std::chrono::seconds(20)), 1u) << before;
    most = std::max(most, heard() - before);
  }
  EXPECT_LE(most, kEntriesPerTurn + abi::kRingEntries) << "in one handler";
  EXPECT_EQ(daemon.engine().counters().ring_lost, 0u);
}

TEST(SessionRings, WhatAClientAsksCountsAsTimeOfTheLoop) {
  fuzz::InProcessDaemon daemon;
  BareClient client(daemon);
  daemon.Turn();
  const std::uint64_t before = daemon.engine().lag().count;
  client.AskForIndex();
  daemon.loop().restart();
  ASSERT_EQ(daemon.loop().run_one_for(std::chrono::seconds(20)), 1u);
  EXPECT_EQ(daemon.engine().lag().count, before + 1);
}

}  // namespace
}  // namespace tierd::server
