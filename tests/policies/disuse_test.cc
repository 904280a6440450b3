// What nobody reads any more leaves, and nothing else: freeze and auto under the jobs that there are, one below the same source after another, and beside one another.
#include "policies/disuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>

#include "policies/builtin.h"
#include "tests/policies/replay.h"

namespace tierd::policies {
namespace {

using testing::Permutation;
using testing::Random;
using testing::Replay;

constexpr std::uint64_t kBytes = 1024;
constexpr std::int64_t kMillisecond = 1'000'000;

class DisuseTest : public ::testing::TestWithParam<const char*> {
 protected:
  // `objects` of one size, room for `room`.
  void Use(std::uint32_t objects, std::uint64_t room) {
    sizes_.assign(objects, kBytes);
    const tierd_policy_ops* ops = std::string(GetParam()) == "auto" ? AutoPolicy() : FreezePolicy();
    policy_.emplace(std::move(PolicyInstance::Create(*ops, {.seed = 1, .capacity_bytes = {room * kBytes, 0}, .parameters = ""})).value());
    replay_.emplace(*policy_, sizes_, room * kBytes);
    replay_->step_ns = kMillisecond;
  }
  // An epoch of the objects from `first` on; the share that was there.
  double Epoch(std::uint32_t first, std::uint32_t count) {
    const std::uint64_t hits = replay_->hits;
    for (const std::uint32_t id : Permutation(count, random_)) replay_->Access(first + id);
    return static_cast<double>(replay_->hits - hits) / count;
  }
  Replay& replay() { return *replay_; }
  void TearDown() override { EXPECT_EQ(policy_->counters().dropped(), 0u); }

  Random random_{5};
  std::vector<std::uint64_t> sizes_;
  std::optional<PolicyInstance> policy_;
  std::optional<Replay> replay_;
};

TEST_P(DisuseTest, TheNextSetOfTheSameSourceTakesThePlaceOfTheFirst) {
  for (const std::uint32_t count : {100u, 1000u, 8000u}) {
    SCOPED_TRACE(count);
    Use(2 * count, count + count / 16);
    for (int epoch = 0; epoch < 4; ++epoch) Epoch(0, count);
    EXPECT_LT(Epoch(count, count), .1);
    const double second = Epoch(count, count), third = Epoch(count, count), fourth = Epoch(count, count), fifth = Epoch(count, count);
    std::printf("%s, %u objects: epochs 2 to 5 of the next set hit %.3f %.3f %.3f %.3f\n", GetParam(), count, second, third, fourth, fifth);
    EXPECT_GT(third, count < 1000 ? .1 : .8) << "of few objects few gaps are seen";
    EXPECT_GT(fourth, .95);
    EXPECT_GT(fifth, count < 1000 ? .95 : .999);
  }
}

TEST_P(DisuseTest, ALargerOneAndASmallerOne) {
  Use(12'000, 2000);
  for (int epoch = 0; epoch < 3; ++epoch) Epoch(0, 2000);
  for (int epoch = 0; epoch < 4; ++epoch) Epoch(2000, 8000);
  EXPECT_NEAR(Epoch(2000, 8000), .25, .01);
  for (int epoch = 0; epoch < 5; ++epoch) Epoch(10'000, 2000);
  EXPECT_EQ(Epoch(10'000, 2000), 1);
}

TEST_P(DisuseTest, OneOfTwoJobsThatLeavesMakesRoomForTheOther) {
  Use(8000, 4400);
  for (int epoch = 0; epoch < 4; ++epoch) {
    const auto one = Permutation(4000, random_), other = Permutation(4000, random_);
    for (std::uint32_t i = 0; i < 4000; ++i) {
      replay().Access(one[i]);
      replay().Access(4000 + other[i]);
    }
  }
  EXPECT_EQ(replay().evictions, 0u) << "both are there";
  for (int epoch = 0; epoch < 4; ++epoch) Epoch(0, 4000);
  EXPECT_EQ(Epoch(0, 4000), 1);
}

TEST_P(DisuseTest, EpochsOfASetThatDoesNotFitEvictNobody) {
  for (const std::uint32_t count : {100u, 300u, 4000u, 40'000u}) {
    for (const std::uint32_t part : {2u, 10u}) {
      SCOPED_TRACE(count);
      Use(count, count / part);
      Epoch(0, count);
      replay().Clear();
      for (int epoch = 0; epoch < 12; ++epoch) Epoch(0, count);
      EXPECT_LE(replay().evictions, count < 4000 ? count / 50 : 0u) << part;
      EXPECT_NEAR(replay().HitRate(), 1.0 / part, count < 4000 ? .01 / part : 1e-9);
    }
  }
}

// A fixed order, reads by pieces, and beside it files that are read all the time.
TEST_P(DisuseTest, NorDoWhatElseReadersDo) {
  Use(5020, 2020);
  for (std::uint32_t id = 5000; id < 5020; ++id) replay().Access(id);
  for (int epoch = 0; epoch < 6; ++epoch) {
    for (std::uint32_t id = 0; id < 5000; ++id) {
      for (int piece = 0; piece < 4; ++piece) replay().Access(id);
      replay().Access(5000 + id % 20);
      if (id % 1000 == 0) {
        for (int i = 0; i < 20'000; ++i) replay().Access(5000 + static_cast<std::uint32_t>(i) % 20);
      }
    }
  }
  EXPECT_EQ(replay().evictions, 0u);
}

TEST_P(DisuseTest, AScanEvictsNobody) {
  Use(60'000, 4000);
  for (int epoch = 0; epoch < 3; ++epoch) Epoch(0, 4000);
  for (std::uint32_t id = 4000; id < 30'000; ++id) {
    for (int piece = 0; piece < 4; ++piece) replay().Access(id);
  }
  EXPECT_EQ(Epoch(0, 4000), 1) << "of a job that waited meanwhile";
  // And of one that goes on, at a fiftieth of the rate.
  const auto order = Permutation(4000, random_);
  for (std::uint32_t i = 0; i < 600; ++i) {
    replay().Access(order[i]);
    for (std::uint32_t id = 30'000 + i * 50; id < 30'050 + i * 50; ++id) replay().Access(id);
  }
  EXPECT_EQ(replay().evictions, 0u);
}

// The slower of two jobs that both go on.
TEST_P(DisuseTest, AFastJobTakesNothingFromASlowOne) {
  Use(12'000, 6000);
  for (int epoch = 0; epoch < 3; ++epoch) Epoch(0, 4000);
  replay().Clear();
  std::vector<std::uint32_t> slow, fast;
  for (int i = 0; i < 400'000; ++i) {
    if (fast.empty()) fast = Permutation(8000, random_);
    if (slow.empty()) slow = Permutation(4000, random_);
    replay().Access(4000 + fast.back());
    fast.pop_back();
    if (i % 20 != 0) continue;
    replay().Access(slow.back());
    slow.pop_back();
  }
  EXPECT_EQ(replay().evictions, 0u);
}

// Drawn with replacement and in epochs that are a part of the set, as good as a policy can be that does not know what comes.
TEST_P(DisuseTest, DrawsKeepWhatFreezeHas) {
  for (const double part : {0.0, .25, .5}) {  // 0: with replacement
    SCOPED_TRACE(part);
    Use(8000, 2000);
    const auto epoch = [&] {
      const auto order = Permutation(8000, random_);
      const auto count = static_cast<std::size_t>(8000 * (part == 0 ? 1 : part));
      for (std::size_t i = 0; i < count; ++i) replay().Access(part == 0 ? static_cast<std::uint32_t>(random_.Below(8000)) : order[i]);
    };
    for (int i = 0; i < 4; ++i) epoch();
    replay().Clear();
    for (int i = 0; i < 40; ++i) epoch();
    std::printf("%s, epochs of %.2f: hits %.4f, %.5f of all reads evict\n", GetParam(), part, replay().HitRate(), static_cast<double>(replay().evictions) / static_cast<double>(replay().accesses));
    EXPECT_GE(replay().HitRate(), .95 * .25);
    EXPECT_LT(static_cast<double>(replay().evictions), .01 * static_cast<double>(replay().accesses));
  }
}

// Read once before, then every tenth epoch: as long as all fits it stays, else training loses nothing by it.
TEST_P(DisuseTest, AValidationSetThatIsReadEveryTenthEpoch) {
  for (const bool fits : {true, false}) {
    SCOPED_TRACE(fits);
    Use(4400, fits ? 4400 : 2200);
    Epoch(4000, 400);
    Epoch(0, 4000);
    replay().Clear();
    for (int epoch = 1; epoch <= 40; ++epoch) {
      Epoch(0, 4000);
      if (epoch % 10 == 0) Epoch(4000, 400);
    }
    const double freeze = fits ? 1 : (40 * 1800 + 4 * 400) / (40.0 * 4000 + 4 * 400);
    EXPECT_GE(replay().HitRate(), freeze);
    EXPECT_LE(replay().evictions, fits ? 0u : 400u) << "once";
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, DisuseTest, ::testing::Values("freeze", "auto"));

TEST(Disuse, TheSsdReclaimsWhatNobodyReads) {
  PolicyInstance freeze = std::move(PolicyInstance::Create(*FreezePolicy(), {.seed = 1, .capacity_bytes = {0, 1000 * kBytes}, .parameters = ""})).value();
  for (std::uint32_t id = 0; id < 2000; ++id) freeze.ObjectKnown({.id = id, .file_id = id, .chunk = 0, .bytes = kBytes});
  for (std::uint32_t id = 0; id < 1000; ++id) freeze.Inserted(TIERD_TIER_SSD, id);  // found there by a restart
  Random random(3);
  std::int64_t now_ns = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (const std::uint32_t id : Permutation(1000, random)) freeze.Accessed({.id = 1000 + id, .consumer = 1, .time_ns = now_ns += kMillisecond, .tier = 2});
    EXPECT_EQ(freeze.Admit(TIERD_TIER_SSD, 1000, 0), epoch == 2);
  }
  EXPECT_TRUE(freeze.Admit(TIERD_TIER_SSD, 1000, 0, TIERD_COPY));
  EXPECT_FALSE(freeze.Admit(TIERD_TIER_SSD, 1000, 0, TIERD_AHEAD));
  EXPECT_FALSE(freeze.Admit(TIERD_TIER_SSD, 1000, 0, TIERD_DEMOTION));
  freeze.Inserted(TIERD_TIER_SSD, 1000);
  EXPECT_EQ(freeze.Worth(TIERD_TIER_SSD, 0), 0);
  EXPECT_EQ(freeze.Worth(TIERD_TIER_SSD, 1000), 1);
}

TEST(Disuse, OneThatIsForgottenIsNotNamed) {
  Disuse disuse;
  disuse.Cover(3000);
  Random random(1);
  const auto bytes_of = [](std::uint32_t) { return kBytes; };
  std::int64_t now_ns = 0;
  for (std::uint32_t id = 0; id < 20; ++id) disuse.SetResident(TIERD_TIER_RAM, id, true);
  for (int epoch = 0; epoch < 4; ++epoch) {
    for (const std::uint32_t id : Permutation(1000, random)) disuse.Read(1000 + id, now_ns += kMillisecond);
  }
  std::uint32_t ids[64];
  std::size_t count = 0;
  for (int i = 0; i < 20; ++i) count = disuse.Victims(TIERD_TIER_RAM, 20 * kBytes, ids, 64, bytes_of);
  ASSERT_EQ(count, 20u);
  disuse.Forget(7);
  EXPECT_EQ(disuse.Victims(TIERD_TIER_RAM, 20 * kBytes, ids, 64, bytes_of), 19u);
  disuse.SetResident(TIERD_TIER_RAM, 7, true);
  EXPECT_EQ(disuse.Victims(TIERD_TIER_RAM, 20 * kBytes, ids, 64, bytes_of), 19u) << "it has just come";
  EXPECT_EQ(disuse.Victims(TIERD_TIER_SSD, kBytes, ids, 64, bytes_of), 0u);
}

}  // namespace
}  // namespace tierd::policies
