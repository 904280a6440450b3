// What a client writes into its page, and how much it may ask at a time.
#include <gtest/gtest.h>

#include "tests/engine/engine_fixture.h"
#include "tests/server/bare_client.h"

namespace tierd::server {
namespace {

constexpr std::uint64_t kAll = ~std::uint64_t{0};

void SayEverything(abi::SessionPage& page, std::uint64_t value) {
  for (auto& word : page.counters.reads) word.store(value);
  for (auto& word : page.counters.bytes) word.store(value);
  for (auto& word : page.counters.fallback) word.store(value);
  for (auto& word : page.counters.latency_sum_ns) word.store(value);
  for (auto& tier : page.counters.latency)
    for (auto& word : tier) word.store(value);
}

TEST(HostileCounters, AddNoMoreThanAProcessCanDo) {
  fuzz::InProcessDaemon daemon;
  BareClient client(daemon);
  SayEverything(client.page(), kAll);
  const engine::ReadTotals totals = daemon.hub().Totals();
  constexpr std::uint64_t kFarMoreThanAnyDo = 100'000'000'000;  // in the minute that this may take
  for (std::uint32_t tier = 0; tier < abi::kTiers; ++tier) {
    EXPECT_LT(totals.reads[tier], kFarMoreThanAnyDo);
    EXPECT_LT(totals.bytes[tier], 1000 * kFarMoreThanAnyDo);
    EXPECT_LT(totals.latency_sum_ns[tier], std::uint64_t{1} << 63);
  }
  for (const std::uint64_t fallback : totals.fallback) EXPECT_LT(fallback, kFarMoreThanAnyDo);
}

// Whatever one client says, what others did before stays counted.
TEST(HostileCounters, NeverMakeATotalSmaller) {
  fuzz::InProcessDaemon daemon;
  BareClient honest(daemon);
  SayEverything(honest.page(), 1000);
  engine::ReadTotals before = daemon.hub().Totals();
  EXPECT_EQ(before.reads[0], 1000u);
  EXPECT_EQ(before.bytes[1], 1000u);
  EXPECT_EQ(before.latency_sum_ns[2], 1000u);
  for (int i = 0; i < 8; ++i) {
    BareClient client(daemon);
    SayEverything(client.page(), kAll / 3);
    const engine::ReadTotals now = daemon.hub().Totals();
    for (std::uint32_t tier = 0; tier < abi::kTiers; ++tier) {
      EXPECT_GE(now.reads[tier], before.reads[tier]) << i;
      EXPECT_GE(now.bytes[tier], before.bytes[tier]) << i;
      EXPECT_GE(now.latency_sum_ns[tier], before.latency_sum_ns[tier]) << i;
      for (std::uint32_t b = 0; b < abi::kLatencyBuckets; ++b) EXPECT_GE(now.latency[tier][b], before.latency[tier][b]) << i;
    }
    before = now;
  }
}

TEST(HostileCounters, ARingThatRunsAheadLosesNoMoreThanAProcessCanWrite) {
  fuzz::InProcessDaemon daemon;
  BareClient client(daemon);
  client.page().ring_head.store(kAll / 2);
  daemon.hub().DrainRings();
  EXPECT_LE(daemon.engine().counters().ring_lost, std::uint64_t{1} << 25);
}

TEST(HostileCounters, LeasedBytesAreAtMostTheMemoryThereIs) {
  fuzz::InProcessDaemon daemon;
  BareClient client(daemon);
  client.page().leased_bytes.store(kAll);
  EXPECT_LE(daemon.hub().Sessions().pinned_bytes, std::uint64_t{32} << 20);
}

// A source that hangs: what is asked for waits until its deadline, and more comes all the time.
TEST(HostileQuestions, PastTheLimitAreAnsweredAtOnce) {
  engine::SteppedFaults source_io;
  source_io.Hold(io::Step::kOpen);
  {
    fuzz::InProcessDaemon daemon(fuzz::SsdTier::kOff, &source_io);
    BareClient client(daemon);
    const std::uint32_t source = daemon.engine().sources().front()->wire_id;
    const std::string long_name(200, 'n');
    std::uint64_t id = 0, told = 0;
    for (int round = 0; round < 200; ++round) {
      std::vector<std::string> paths;
      for (int i = 0; i < 200; ++i) paths.push_back(long_name + std::to_string(id + static_cast<std::uint64_t>(i)));
      client.AskFor(paths, source, id);
      id += paths.size();
      daemon.Turn();
      while (const std::uint32_t count = client.Told(abi::MessageType::kFetchReply)) told += count;
    }
    EXPECT_LE(daemon.engine().counters().fetches, SessionHub::kMostAskedBytes / 1024 + told);
    EXPECT_GE(told, 20'000u) << "of " << id;
    source_io.Release();
  }
}

TEST(HostileReaders, ThatReadNoReplyForLongGo) {
  constexpr std::int64_t kMoment = 200'000'000;
  fuzz::InProcessDaemon daemon(fuzz::SsdTier::kOff, nullptr, {.socket_path = "", .unread_ns = kMoment});
  BareClient client(daemon);
  BareClient other(daemon);
  for (int i = 0; i < 2000; ++i) {  // more than the socket takes
    abi::FetchReply reply{};
    daemon.hub().OnFetchReply(static_cast<engine::SessionId>(client.session()), reply);
    daemon.hub().FlushReplies();
  }
  EXPECT_EQ(daemon.hub().Sessions().sessions, 2u);
  EXPECT_TRUE(daemon.Await([&] { return daemon.hub().Sessions().sessions == 1; }));
  EXPECT_EQ(daemon.hub().Sessions().turned_away[static_cast<std::size_t>(TurnedAway::kUnread)], 1u);
}

}  // namespace
}  // namespace tierd::server
