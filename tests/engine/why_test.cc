// What a policy is told: of the reason for which an object would enter a tier, of pins, of priorities, of tiers and of epochs; and what those are told of plans that are tried beside it.
#include <algorithm>

#include "tests/engine/engine_fixture.h"
#include "tests/engine/plan_fixture.h"
#include "tests/engine/spy_policy.h"

namespace tierd::engine {
namespace {

class WhyTest : public EngineTest {
 protected:
  using Whys = std::vector<std::uint32_t>;
  static constexpr std::size_t kBytes = 100'000;

  WhyTest() {
    options_.ram.capacity_bytes = 16 << 20;
    source_options().staleness = abi::Staleness::kImmutable;
    UseSsd();
  }
  ~WhyTest() override { StopEngine(); }
  void Start() {
    StartEngine();
    engine().SwitchPolicy(unit(), spy_.Instance(), "spy", "");
    ASSERT_TRUE(RunUntil([&] { return !unit().policy.changing(); }));
  }
  Whys RamWhys(const std::string& name) { return spy_.WhyOf(TIERD_TIER_RAM, Raw(ObjectOf(name))); }
  Whys SsdWhys(const std::string& name) { return spy_.WhyOf(TIERD_TIER_SSD, Raw(ObjectOf(name))); }

  SpyPolicy spy_;
};

TEST_F(WhyTest, AReaderAndThenACopy) {
  const std::string name = Write("a", Bytes("a", kBytes));
  Start();
  ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  EXPECT_EQ(RamWhys(name), Whys{TIERD_FOR_READER});
  EXPECT_EQ(SsdWhys(name), Whys{TIERD_COPY}) << "and it was in RAM by then";
  EXPECT_TRUE(InRam(name));
  EXPECT_TRUE(OnSsd(name));
}

// Who is sent to the source is taken to have read it there; not who has ended meanwhile, whom all else has forgotten.
TEST_F(WhyTest, NoAccessOfAReaderThatHasEnded) {
  source_options().demand_timeout_ms = 60;
  const std::string name = Write("a", Bytes("a", kBytes));
  Start();
  ASSERT_EQ(Fetch(name, abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
  source_io_.Hold(io::Step::kRead);
  (void)Ask(name, abi::FetchOp::kChunk, 0, SessionId{2});
  engine().OnSessionEnd(SessionId{2});
  ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kBypass);
  EXPECT_TRUE(RunUntil([&] { return spy_.accesses.size() == 1; }));
  source_io_.Release();
  EXPECT_TRUE(RunUntil([&] { return InRam(name); })) << "the work goes on";
  EXPECT_EQ(spy_.accesses.size(), 1u) << "of the other one";
}

TEST_F(WhyTest, AheadOfAReader) {
  const std::string name = Write("a", Bytes("a", kBytes));
  Start();
  WaitForJob(engine().jobs().Prefetch({{&unit(), "a"}}, {}));
  EXPECT_EQ(RamWhys(name), Whys{TIERD_AHEAD});
  EXPECT_EQ(SsdWhys(name), Whys{TIERD_COPY});
}

TEST_F(WhyTest, AheadToTheSsdAlone) {
  const std::string name = Write("a", Bytes("a", kBytes));
  Start();
  WaitForJob(engine().jobs().Prefetch({{&unit(), "a"}}, {.ssd_only = true}));
  EXPECT_TRUE(RamWhys(name).empty());
  EXPECT_EQ(SsdWhys(name), Whys{TIERD_AHEAD});
}

TEST_F(WhyTest, WhatIsRefusedInRamIsOfferedToTheSsdForItsReader) {
  const std::string name = Write("a", Bytes("a", kBytes));
  Start();
  spy_.admits[TIERD_TIER_RAM] = false;
  ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame) << "passes through";
  EXPECT_FALSE(InRam(name));
  EXPECT_EQ(SsdWhys(name), Whys{TIERD_FOR_READER});
}

TEST_F(WhyTest, WhatLeavesRamIsDemoted) {
  const auto names = MakeFiles(300, kBytes);
  Start();
  spy_.admits[TIERD_TIER_SSD] = false;
  for (const std::string& name : names) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  ASSERT_FALSE(InRam(names.front()));
  EXPECT_EQ(SsdWhys(names.front()), (Whys{TIERD_COPY, TIERD_DEMOTION}));
}

// More pinned files than are named at a time, all of them first in line: others leave in their place, and no access is made up for them.
TEST_F(WhyTest, PinnedVictimsLeaveThePolicysSightAndNothingElse) {
  const auto names = MakeFiles(600, kBytes);  // 60 MB through 32 MiB
  options_.ram.capacity_bytes = 32 << 20;
  options_.ssd.directory.clear();
  Start();
  const std::vector<std::string> pinned(names.begin(), names.begin() + 150);
  for (const std::string& name : pinned) {
    ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
    engine().placement().SetPinned(FileOf(name), true);
  }
  for (const std::string& name : names) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame) << name;
  EXPECT_GT(engine().counters().evictions[0][static_cast<std::size_t>(EvictCause::kCapacity)], 100u);
  for (const std::string& name : pinned) EXPECT_TRUE(InRam(name)) << name;
  EXPECT_TRUE(spy_.accesses.empty()) << "nobody noted a read";
  const auto in_sight = [&](const std::string& name) { return std::count(spy_.residents[TIERD_TIER_RAM].begin(), spy_.residents[TIERD_TIER_RAM].end(), Raw(ObjectOf(name))); };
  EXPECT_EQ(in_sight(pinned.front()), 0);
  for (const std::string& name : pinned) engine().placement().SetPinned(FileOf(name), false);
  for (const std::string& name : pinned) EXPECT_EQ(in_sight(name), 1) << name;
}

TEST_F(WhyTest, PrioritiesOfFilesThatAreKnown) {
  const auto names = MakeFiles(3, kBytes);
  Start();
  for (const std::string& name : names) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  const std::string_view paths[] = {names[0], "absent", names[2]};
  const double values[] = {.5, 1, 2};
  EXPECT_EQ(engine().Prioritize(unit(), paths, values), 2u);
  EXPECT_EQ(spy_.priorities, (std::map<std::uint32_t, double>{{Raw(ObjectOf(names[0])), .5}, {Raw(ObjectOf(names[2])), 2}}));
}

// As `config set` says it, or memory and disk do: the one that answers and its successor.
TEST_F(WhyTest, OfTiersThatMayHoldAnotherNumberOfBytes) {
  options_.ram.capacity_bytes = 48 << 20;
  Start();
  SpyPolicy next;
  unit().policy.Begin(next.Instance());
  engine().placement().SetRamCapacity(32 << 20);
  const std::uint64_t ssd = 16 * options_.ssd.region_bytes;
  engine().ssd()->SetCapacity(ssd);
  engine().placement().Tick();  // as once in a second or two; a turn of the loop might seat the successor before
  EXPECT_EQ(spy_.capacity_bytes[TIERD_TIER_RAM], 32u << 20);
  EXPECT_EQ(spy_.capacity_bytes[TIERD_TIER_SSD], ssd);
  EXPECT_TRUE(std::equal(next.capacity_bytes, next.capacity_bytes + TIERD_POLICY_TIERS, spy_.capacity_bytes));
  EXPECT_EQ(engine().placement().told_capacity(TIERD_TIER_RAM), 32u << 20) << "what one that comes later begins with";
  EXPECT_EQ(engine().placement().told_capacity(TIERD_TIER_SSD), ssd);
}

TEST_F(WhyTest, OfEpochsThatHaveBegun) {
  const auto names = MakeFiles(40, 1000);
  Start();
  std::vector<Answer> answers;
  for (const std::string& name : names) answers.push_back(Fetch(name));
  using Epochs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
  for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
    const Epochs before = spy_.epochs;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      NoteRead(answers[i]);
      EXPECT_TRUE(i >= 9 || spy_.epochs == before) << "a quarter of them has to be read again";
    }
  }
  EXPECT_EQ(spy_.epochs, (Epochs{{TIERD_CONSUMER_ALL, 1}, {TIERD_CONSUMER_ALL, 2}}));
}

using TryTest = PlanTest;

TEST_F(TryTest, WhatIsTriedHearsOfThePlan) {
  StartWithSpy();
  ASSERT_TRUE(unit().watch->Try(**registry().Find("belady"), "").ok());
  ASSERT_TRUE(unit().watch->Try(**registry().Find("lru"), "").ok());
  const auto tried = [&](std::size_t i) { return unit().watch->tried().at(i); };
  EXPECT_TRUE(tried(0).takes_plans);
  EXPECT_FALSE(tried(1).takes_plans);
  EXPECT_FALSE(tried(0).planned) << "nobody has told anything";
  const orders::Plan plan = PlanOf(4, 1);
  ASSERT_TRUE(Tell(plan, List()).ok());
  ASSERT_TRUE(RunUntil([&] { return foresight().declared_ahead() >= 5 * kFiles / 4; }));
  EXPECT_TRUE(tried(0).planned);
  EXPECT_FALSE(tried(1).planned);
  for (int epoch = 0; epoch < 3; ++epoch) ReadAll(OrderOf(plan, epoch));
  EXPECT_EQ(tried(0).counts.all_reads(), 3u * kFiles / 4);
  // A policy that begins anew has been told nothing: neither have they.
  ASSERT_TRUE(foresight().Remove(foresight().List().front().id));
  UseSpy();
  EXPECT_FALSE(tried(0).planned);
}

}  // namespace
}  // namespace tierd::engine
