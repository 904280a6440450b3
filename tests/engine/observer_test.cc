// Orders that nobody told, found out from what is read; and what a plan brings ahead of its readers.
#include <algorithm>

#include "tests/engine/plan_fixture.h"

namespace tierd::engine {
namespace {

class ObserverTest : public PlanTest {
 protected:
  ObserverTest() { std::sort(names_.begin(), names_.end()); }  // the order of their indices: by path
  ~ObserverTest() override { StopEngine(); }
  std::string Report() { return engine().observer(unit()).Report(); }
  bool Await(const std::string& report) {
    return RunUntil([&] { return Report() == report; }, 30'000);
  }
  void FirstEpoch(const std::vector<std::uint32_t>& order) {
    for (const std::uint32_t sample : order) NoteRead(Fetch(names_[sample]));
  }
};

TEST_F(ObserverTest, TheSeedsOfTwoEpochsMakeAPlan) {
  StartEngine();
  const orders::Plan plan = PlanOf(1, 0, 20, 1234);
  FirstEpoch(OrderOf(plan, 0));
  ReadAll(OrderOf(plan, 1));
  ASSERT_TRUE(Await("watching for the next epoch")) << Report();
  ReadAll(OrderOf(plan, 2));
  int epoch = 3;
  for (; epoch < 8 && foresight().empty(); ++epoch) {
    ReadAll(OrderOf(plan, epoch));
    RunUntil([&] { return !foresight().empty(); }, 1200);  // the hunt begins
    ASSERT_TRUE(RunUntil([&] { return Report() == "watching for the next epoch" || Report() == "recovered"; }, 30'000)) << Report();
  }
  ASSERT_FALSE(foresight().empty()) << Report();
  const PlanStatus found = foresight().List().front();
  EXPECT_FALSE(found.told);
  EXPECT_NE(found.document.find("\"seed\":" + std::to_string(1234 + epoch - 1)), std::string::npos) << found.document;
  // From here on it is a plan as any other.
  ASSERT_TRUE(RunUntil([&] { return foresight().declared_ahead() > kFiles; }));
  for (int more = 0; more < 2; ++more) ReadAll(OrderOf(plan, epoch++));
  const PlanStatus followed = foresight().List().front();
  EXPECT_EQ(followed.state, PlanState::kFollowed);
  EXPECT_GT(followed.counts.recall(), 0.97) << "it was in another epoch than the plan when that came";
}

TEST_F(ObserverTest, BlindLooksAtNothing) {
  source_options().mode = OrderMode::kBlind;
  StartEngine();
  const orders::Plan plan = PlanOf(1, 0, 20, 1234);
  FirstEpoch(OrderOf(plan, 0));
  for (int epoch = 1; epoch < 4; ++epoch) ReadAll(OrderOf(plan, epoch));
  RunUntil([] { return false; }, 2500);
  EXPECT_EQ(Report(), "");
}

// ---- ahead -----------------------------------------------------------------------------------------------------------------

class AheadTest : public PlanTest {
 protected:
  AheadTest() {
    source_options().policy = "belady";
    source_options().ahead = true;
  }
  ~AheadTest() override { StopEngine(); }
};

TEST_F(AheadTest, AFirstEpochIsBroughtInTheOrderOfItsUse) {
  StartEngine();
  const orders::Plan plan = PlanOf();
  ASSERT_TRUE(Tell(plan, List()).ok());
  ASSERT_TRUE(RunUntil([&] { return engine().placement().ram_resident_objects() == kFiles; }));
  EXPECT_EQ(source_io_.count(io::Step::kOpen), static_cast<std::uint64_t>(kFiles)) << "each once";
  for (const std::uint32_t sample : OrderOf(plan, 0)) {
    const Answer answer = Fetch(names_[sample]);
    ASSERT_EQ(answer.tier(), abi::Tier::kRam);
    NoteRead(answer);
  }
  EXPECT_EQ(engine().counters().ahead_used, static_cast<std::uint64_t>(kFiles));
}

TEST_F(AheadTest, OffBringsNothing) {
  source_options().ahead = false;
  StartEngine();
  ASSERT_TRUE(Tell(PlanOf(), List()).ok());
  ASSERT_TRUE(RunUntil([&] { return foresight().declared_ahead() >= kFiles; }));
  RunUntil([] { return false; }, 200);
  EXPECT_EQ(engine().placement().ram_resident_objects(), 0u);
  EXPECT_EQ(source_io_.count(io::Step::kOpen), 0u);
}

// A tier that holds a fifth: what is read next is there when it is read, and little more is read from the source than without.
TEST_F(AheadTest, WhatIsReadNextReplacesWhatIsReadLast) {
  constexpr std::size_t kBytes = 100'000;
  options_.ram.capacity_bytes = 16 << 20;  // of 80 MB
  for (const std::string& name : names_) Write(name, Bytes(name, kBytes));
  StartEngine();
  const orders::Plan plan = PlanOf();
  ASSERT_TRUE(Tell(plan, List()).ok());
  ASSERT_TRUE(RunUntil([&] { return foresight().declared_ahead() >= 5 * kFiles; }));
  std::uint64_t hits = 0, reads = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    const std::uint64_t opens = source_io_.count(io::Step::kOpen);
    for (const std::uint32_t sample : OrderOf(plan, epoch)) {
      RunUntil([] { return false; }, 2);  // the accelerator
      const Answer answer = Fetch(names_[sample]);
      if (answer.status() == abi::FetchStatus::kFrame) NoteRead(answer);
      if (epoch == 0) continue;
      hits += answer.status() == abi::FetchStatus::kFrame && answer.tier() == abi::Tier::kRam ? 1 : 0;
      ++reads;
    }
    const std::uint64_t opened = source_io_.count(io::Step::kOpen) - opens;
    EXPECT_LT(opened, static_cast<std::uint64_t>(kFiles * 0.9) + (epoch == 0 ? kFiles : 0)) << "a fifth less would be best";
  }
  EXPECT_GT(static_cast<double>(hits) / static_cast<double>(reads), 0.9);
}

}  // namespace
}  // namespace tierd::engine
