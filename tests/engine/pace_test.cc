// F08: an SSD that answers later than the source is passed by, by what was measured, and taken again when it has recovered.
#include <random>

#include "tests/engine/engine_fixture.h"
#include "tierd/engine/sources/service_pace.h"
#include "tierd/engine/sources/ssd_account.h"

namespace tierd::engine {
namespace {

TEST(ServicePace, AQueueOfOurOwnMakesNothingSlow) {
  ServicePace pace;
  EXPECT_EQ(pace.PerRequestNs(1000), 0);
  std::vector<std::uint32_t> depths;
  for (int i = 0; i < 100; ++i) depths.push_back(pace.Begin());
  for (const std::uint32_t depth : depths) pace.End(depth, 1000, std::int64_t{depth} * 1'000'000);  // each waits for those before it
  EXPECT_NEAR(pace.PerRequestNs(1000), 1e6, 1);
  for (int i = 0; i < 50; ++i) pace.End(pace.Begin(), 1000, 8'000'000);  // alone, and slow
  EXPECT_GT(pace.PerRequestNs(1000), 7e6);
  EXPECT_EQ(pace.PerRequestNs(1 << 20), 0) << "another size";
}

// Readers of a source that takes `source_ns`, beside a device that stalls for `stall_ns` in one of 1 / `share` reads: what they waited in all, by what the account says.
struct Waited {
  double ns = 0;
  int passed = 0;
};
Waited ReadBeside(SsdAccount& account, int reads, double source_ns, double share, double stall_ns, std::mt19937& random) {
  Waited waited;
  std::bernoulli_distribution stalls(share);
  for (int i = 0; i < reads; ++i) {
    account.Pay(source_ns);
    if (account.has_credit()) {
      const double ns = stalls(random) ? stall_ns : 200e3;
      account.Took(ns, source_ns);
      waited.ns += ns;
    } else {
      ++waited.passed;
      waited.ns += source_ns;
    }
  }
  return waited;
}

TEST(SsdAccount, HoweverADeviceStallsReadersLoseAnEighthAtMost) {
  std::mt19937 random(1);
  for (const double source_ns : {250e3, 1e6, 5e6, 20e6}) {
    for (const double share : {.001, .01, .1, .3, 1.}) {
      for (const double stall_ns : {50e6, 350e6, 1e9}) {
        SsdAccount account;
        const double alone = 50'000 * source_ns;
        const double ns = ReadBeside(account, 50'000, source_ns, share, stall_ns, random).ns;
        EXPECT_LE(ns, alone * (1 + SsdAccount::kShare) + SsdAccount::kMostNs + stall_ns) << source_ns << " " << share << " " << stall_ns;
      }
    }
  }
}

TEST(SsdAccount, WhoHasServedWellMayStallForAMoment) {
  std::mt19937 random(1);
  SsdAccount account;
  EXPECT_EQ(ReadBeside(account, 1000, 5e6, 0, 0, random).passed, 0);
  EXPECT_EQ(ReadBeside(account, 2, 5e6, 1, 490e6, random).passed, 0);
  EXPECT_EQ(ReadBeside(account, 1000, 5e6, 0, 0, random).passed, 0);
  EXPECT_EQ(ReadBeside(account, 3, 5e6, 1, 490e6, random).passed, 0) << "a second in all, and the read that uses it up";
  EXPECT_GT(ReadBeside(account, 1000, 5e6, 1, 490e6, random).passed, 990);
}

TEST(SsdAccount, ARequestThatWaitsPaysOnce) {
  SsdAccount account;
  account.Took(1.1e9, 5e6);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(account.has_credit());
  for (int i = 0; i < 152; ++i) account.Pay(5e6);
  EXPECT_TRUE(account.has_credit());
}

TEST(SsdAccount, WhoHasRecoveredServesAgain) {
  std::mt19937 random(1);
  SsdAccount account;
  (void)ReadBeside(account, 1000, 5e6, 1, 60e9, random);
  EXPECT_LE(ReadBeside(account, 2000, 5e6, 0, 0, random).passed, 1600) << "a second, an eighth of 5 ms at a time";
  EXPECT_EQ(ReadBeside(account, 2000, 5e6, 0, 0, random).passed, 0);
}

TEST(SsdAccount, WhatIsNotSlowIsLeftAlone) {
  std::mt19937 random(1);
  SsdAccount account;
  EXPECT_EQ(ReadBeside(account, 10'000, 100e3, 1, 4.9e6, random).passed, 0);
  EXPECT_EQ(ReadBeside(account, 10'000, 20e6, 1, 39e6, random).passed, 0);
  EXPECT_EQ(ReadBeside(account, 10'000, 0, 1, 19e6, random).passed, 0) << "beside a source that was not measured";
  EXPECT_GT(ReadBeside(account, 10'000, 0, 1, 21e6, random).passed, 9000);
}

class PaceTest : public EngineTest {
 protected:
  PaceTest() {
    UseSsd();
    // RAM for a few files: the rest is read from the SSD again and again.
    options_.ram.capacity_bytes = 16 << 20;
    source_options().policy = "freeze";
    clock_.StopPrecise();
    source_io_.clock = ssd_io_.clock = &clock_;
  }
  // From a source that takes so long a read; `on_ssd_` is what RAM had no room for.
  void FillSsd(std::uint32_t source_us) {
    const auto names = MakeFiles(60, 400'000);
    source_io_.delay_us[static_cast<std::size_t>(io::Step::kRead)] = source_us;
    StartEngine();
    // One after the other: time passes for all that is under way.
    for (const std::string& name : names) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
    ASSERT_TRUE(RunUntil([&] { return std::all_of(names.begin(), names.end(), [&](const std::string& name) { return InRam(name) || OnSsd(name); }); }));
    for (const std::string& name : names) {
      if (!InRam(name)) on_ssd_.push_back(name);
    }
    ASSERT_GT(on_ssd_.size(), 10u);
  }

  std::vector<std::string> on_ssd_;
};

TEST_F(PaceTest, ReadersGoToTheSourceWhileTheSsdIsSlower) {
  ASSERT_NO_FATAL_FAILURE(FillSsd(10'000));  // a source in the page cache may be the faster one
  const auto read_all = [&] {
    for (const std::string& name : on_ssd_) EXPECT_TRUE(Fetch(name).bytes == Bytes(name, 400'000)) << name;
  };
  read_all();
  EXPECT_EQ(engine().counters().ssd_slow_bypass, 0u);
  const std::uint64_t opens = source_io_.count(io::Step::kOpen);
  ssd_io_.delay_us[static_cast<std::size_t>(io::Step::kReadv)] = 80'000;
  read_all();
  read_all();
  EXPECT_GT(engine().counters().ssd_slow_bypass, on_ssd_.size() / 2);
  EXPECT_EQ(source_io_.count(io::Step::kOpen) - opens, engine().counters().ssd_slow_bypass);
  for (const std::string& name : on_ssd_) EXPECT_TRUE(OnSsd(name)) << "the copies stay";
  // It answers again as it should: one read in a few dozen finds out.
  ssd_io_.delay_us[static_cast<std::size_t>(io::Step::kReadv)] = 0;
  EXPECT_TRUE(RunUntil([&] {
    const std::uint64_t before = engine().counters().ssd_slow_bypass;
    read_all();
    return engine().counters().ssd_slow_bypass == before;
  }, 30'000));
}

// Whoever looks whether it has recovered waits for it: the slower it is, the fewer do.
TEST_F(PaceTest, LooksAtASlowSsdCostLittleBesideTheSource) {
  ASSERT_NO_FATAL_FAILURE(FillSsd(5'000));
  std::size_t next = 0;
  const auto read = [&](int count) {
    for (int i = 0; i < count; ++i) EXPECT_EQ(Fetch(on_ssd_[next++ % on_ssd_.size()]).status(), abi::FetchStatus::kFrame);
  };
  const auto asked = [&] { return ssd_io_.count(io::Step::kReadv); };
  ssd_io_.delay_us[static_cast<std::size_t>(io::Step::kReadv)] = 350'000;
  const auto pass = [&](std::uint64_t count) {
    const std::uint64_t until = engine().counters().ssd_slow_bypass + count;
    return RunUntil([&] {
      read(1);
      return engine().counters().ssd_slow_bypass >= until;
    });
  };
  ASSERT_TRUE(pass(1));
  const std::uint64_t before = asked();
  ASSERT_TRUE(pass(320));
  EXPECT_LE(asked() - before, 10u) << "one in sixteen would be 20";
  // The first that is answered as it should be brings the others.
  ssd_io_.delay_us[static_cast<std::size_t>(io::Step::kReadv)] = 0;
  ASSERT_TRUE(RunUntil([&] {
    const std::uint64_t slow = asked();
    read(1);
    return asked() != slow;
  }));
  const std::uint64_t passed = engine().counters().ssd_slow_bypass;
  read(100);
  EXPECT_LE(engine().counters().ssd_slow_bypass - passed, 50u);
}

// A device that has served well and is busy for a moment is not passed by.
TEST_F(PaceTest, AMomentCostsNobodyTheCache) {
  ASSERT_NO_FATAL_FAILURE(FillSsd(30'000));
  const auto read_all = [&] {
    for (const std::string& name : on_ssd_) EXPECT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  };
  for (int i = 0; i < 10; ++i) read_all();
  const std::uint64_t before = engine().counters().ssd_slow_bypass;
  ssd_io_.delay_us[static_cast<std::size_t>(io::Step::kReadv)] = 500'000;
  EXPECT_EQ(Fetch(on_ssd_[0]).status(), abi::FetchStatus::kFrame);
  ssd_io_.delay_us[static_cast<std::size_t>(io::Step::kReadv)] = 0;
  read_all();
  EXPECT_EQ(engine().counters().ssd_slow_bypass, before);
}

}  // namespace
}  // namespace tierd::engine
