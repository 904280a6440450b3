// Plans that were told: mapped, followed, declared to the policy, dropped when they turn out wrong.
#include "tierd/engine/orders/foresight.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <random>

#include "policies/orders/sha256.h"
#include "tests/engine/plan_fixture.h"
#include "tierd/engine/orders/forerunner.h"

namespace tierd::engine {
namespace {

using ForesightTest = PlanTest;

TEST_F(ForesightTest, ThePolicyIsToldTheEpochsToCome) {
  StartWithSpy();
  const orders::Plan plan = PlanOf();
  ASSERT_TRUE(Tell(plan, List()).ok());
  ASSERT_TRUE(RunUntil([&] { return foresight().declared_ahead() >= 5 * kFiles; }));
  const auto declared = Declared();
  for (int epoch = 0; epoch < 5; ++epoch) EXPECT_EQ(declared.at(static_cast<std::uint32_t>(epoch)), IdsOf(OrderOf(plan, epoch))) << epoch;
  // None of the files had been known: they were looked for, not read.
  EXPECT_EQ(foresight().List().front().known, kFiles);
  EXPECT_EQ(source_io_.count(io::Step::kOpen), 0u);
}

// Ranks share the list of their plans, and nobody keeps it once its files are known: tens of megabytes for a million files.
TEST_F(ForesightTest, AListIsHeldOnceAndLetGoWhenItsFilesAreKnown) {
  StartEngine();
  SampleMap::Where where{.roots = {tree_.path()}, .wire_id = unit().wire_id, .secret = {}};
  std::copy_n(engine().catalogue().hash_secret(), where.secret.size(), where.secret.begin());
  std::string text = List();
  const auto more = static_cast<std::size_t>(5000 - kFiles);
  for (std::size_t i = 0; i < more; ++i) text += tree_.path() + "/none/" + std::to_string(i) + "\n";
  SampleMap::SharedList list = SampleMap::Share(SampleMap::Make(text, where).value(), engine().workers());
  const std::weak_ptr<const SampleMap::List> watched = list;
  for (const std::uint64_t rank : {0, 1}) {
    Foresight::Consumer consumer;
    consumer.id = 100 + rank;
    consumer.plan = PlanOf(2, rank);
    consumer.plan.samples = 5000;
    consumer.list = list;
    ASSERT_TRUE(foresight().Add(std::move(consumer)).ok());
  }
  list.reset();
  EXPECT_EQ(watched.use_count(), 2);
  engine().Kick();
  ASSERT_TRUE(RunUntil([&] { return foresight().List().back().state == PlanState::kWaiting && foresight().List().front().state == PlanState::kWaiting; }));
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(foresight().List().front().known, static_cast<std::uint32_t>(kFiles));
}

// For a while part of the source says nothing: the plan is of those files, too.
TEST_F(ForesightTest, AFileThatCouldNotBeAskedAboutIsAskedAboutAgain) {
  StartEngine();
  source_io_.Hold(io::Step::kStat);
  ASSERT_TRUE(Tell(PlanOf(), List()).ok());
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting >= 8; }));
  source_io_.released_with = EIO;
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return foresight().List().front().known >= kFiles - 64; }));
  source_io_.released_with = 0;
  ASSERT_LE(foresight().List().front().known, static_cast<std::uint32_t>(kFiles - 8));
  clock_.ahead_ns += SampleMap::kAgainNs;
  EXPECT_TRUE(RunUntil([&] { return foresight().List().front().known == kFiles; })) << foresight().List().front().known;
}

// Batches that nobody reads, at the end of each epoch.
TEST_F(ForesightTest, WhatEpochsLeaveBehindIsNotAhead) {
  StartWithSpy();
  const orders::Plan plan = PlanOf(1, 0, 60);
  ASSERT_TRUE(Tell(plan, List()).ok());
  ASSERT_TRUE(RunUntil([&] { return foresight().declared_ahead() >= 5 * kFiles; }));
  const std::uint32_t incarnation = unit().policy.incarnation();
  for (int epoch = 0; epoch < 30; ++epoch) {
    std::vector<std::uint32_t> order = OrderOf(plan, epoch);
    order.resize(order.size() * 4 / 5);
    ReadAll(order);
  }
  EXPECT_TRUE(RunUntil([&] { return Declared().contains(31); }));
  EXPECT_EQ(foresight().List().front().state, PlanState::kFollowed);
  EXPECT_EQ(unit().policy.incarnation(), incarnation);
}

// More than a third of the draws have been read before in that epoch.
TEST_F(ForesightTest, AnOrderWithReplacementIsNotDoubted) {
  StartWithSpy();
  orders::Plan plan;
  plan.kind = orders::Kind::kTorchRandom;
  plan.samples = plan.draws = kFiles;
  plan.replacement = true;
  plan.epochs = 4;
  plan.start = orders::GeneratorStart{.seed = 5, .words = std::nullopt};
  ASSERT_TRUE(Tell(plan, List()).ok());
  ASSERT_TRUE(RunUntil([&] { return foresight().declared_ahead() >= 2 * kFiles; }));
  const std::uint32_t incarnation = unit().policy.incarnation();
  int read = 0;
  for (const std::uint32_t sample : OrderOf(plan, 0)) {
    Read(sample);
    if (++read % 40 != 0) continue;
    Settle();
    EXPECT_NE(foresight().List().front().state, PlanState::kDoubted) << read;
  }
  EXPECT_EQ(unit().policy.incarnation(), incarnation);
}

class ShardTest : public PlanTest {
 protected:
  static constexpr std::size_t kChunks = 64;
  // Sparse: their sizes are known, nothing of them is read.
  ShardTest() : PlanTest(96, 1) {
    source_options().chunk_bytes = 64 << 10;
    for (const std::string& name : names_) std::filesystem::resize_file(tree_.path() + "/" + name, kChunks * source_options().chunk_bytes);
  }
  ~ShardTest() override { StopEngine(); }
};

// Nobody else is heard while the policy is told something: not too much at a time, by what it is told and not by the files.
TEST_F(ShardTest, OfFilesOfManyChunksFewAreDeclaredAtATime) {
  StartWithSpy();
  orders::Plan plan = PlanOf();
  plan.samples = names_.size();
  ASSERT_TRUE(Tell(plan, List()).ok());
  ASSERT_TRUE(RunUntil([&] { return foresight().declared_ahead() >= 5 * names_.size(); }));
  std::size_t most = 0;
  for (const SpyPolicy::PlanCall& call : spy_.plans) most = std::max(most, call.ids.size());
  EXPECT_LT(most, 2048 + kChunks);
  const auto declared = Declared();
  for (std::uint32_t epoch = 0; epoch < 5; ++epoch) EXPECT_EQ(declared.at(epoch).size(), names_.size() * kChunks);
}

TEST_F(ForesightTest, AnEpochIsFollowedByTheNext) {
  StartWithSpy();
  const orders::Plan plan = PlanOf(4, 1);
  const auto id = Tell(plan, List());
  ASSERT_TRUE(WaitForState(*id, PlanState::kWaiting));
  for (int epoch = 0; epoch < 5; ++epoch) ReadAll(OrderOf(plan, epoch));
  const PlanStatus status = foresight().List().front();
  EXPECT_EQ(status.state, PlanState::kFollowed);
  EXPECT_EQ(status.counts.recall(), 1);
  EXPECT_EQ(status.epochs_begun, 5u);
  EXPECT_EQ(status.readers, 1u);
  EXPECT_TRUE(RunUntil([&] { return Declared().size() == 6; })) << Declared().size() << ", not all epochs of the plan, once";
}

// Small epochs are over before they are computed: what was read of them is kept, and counts as what is seen later does.
TEST_F(ForesightTest, AnEpochThatIsReadBeforeItIsComputedIsFollowed) {
  StartWithSpy();
  for (const std::string& name : names_) Fetch(name);
  const orders::Plan plan = PlanOf();
  ASSERT_TRUE(Tell(plan, List(), UniqueFd(), [&] {
                for (const std::uint32_t sample : OrderOf(plan, 0)) Read(sample);
                EXPECT_EQ(foresight().List().front().epoch_samples, 0u) << "it is there already: this test says nothing";
              }).ok());
  ASSERT_TRUE(RunUntil([&] { return foresight().List().front().position == kFiles; }));
  const PlanStatus status = foresight().List().front();
  EXPECT_EQ(status.state, PlanState::kFollowed);
  EXPECT_EQ(status.counts.expected, kFiles);
}

TEST_F(ForesightTest, APlanThatIsWrongIsForgottenByThePolicyWithinAWindow) {
  StartWithSpy();
  const auto id = Tell(PlanOf(), List());
  ASSERT_TRUE(RunUntil([&] { return foresight().declared_ahead() >= 5 * kFiles; }));
  const std::uint32_t before = unit().policy.incarnation();
  const auto other = OrderOf(PlanOf(1, 0, 6, 99), 0);
  for (std::size_t i = 0; i < kFiles / 4; ++i) Read(other[i]);
  EXPECT_EQ(foresight().List().front().state, PlanState::kDoubted);
  // The engine makes the source's policy anew: the one of that name in its registry.
  unit().options.policy = "belady";
  engine().Kick();
  ASSERT_TRUE(RunUntil([&] { return unit().policy.incarnation() == before + 1; }));
  Settle();
  EXPECT_EQ(foresight().declared_ahead(), 0u);
  EXPECT_EQ(*id, 1u);
}

TEST_F(ForesightTest, RanksOfOneNodeAreMergedAndToldApart) {
  StartWithSpy();
  const orders::Plan a = PlanOf(4, 0), b = PlanOf(4, 2);
  const auto first = Tell(a, List()), second = Tell(b, List());
  ASSERT_TRUE(WaitForState(*second, PlanState::kWaiting));
  unit().options.policy = "belady";
  const auto order_a = OrderOf(a, 0), order_b = OrderOf(b, 0);
  for (std::size_t i = 0; i < order_a.size(); ++i) {
    Read(order_a[i], SessionId{1 + static_cast<std::uint32_t>(i % 2)});  // two workers each
    Read(order_b[i], SessionId{11 + static_cast<std::uint32_t>(i % 2)});
  }
  Settle();
  for (const PlanStatus& status : foresight().List()) {
    EXPECT_EQ(status.counts.recall(), 1) << status.id;
    EXPECT_EQ(status.readers, 2u) << status.id;
  }
}

// A loader that was announced and is not iterated over yet, or not any more: a quarter of what others read is in its window by chance.
TEST_F(ForesightTest, APlanThatNobodyReadsByTakesNothingFromTheOneThatIsReadBy) {
  StartWithSpy();
  const orders::Plan plan = PlanOf();
  const auto idle = Tell(PlanOf(1, 0, 6, 99), List()), id = Tell(plan, List());
  ASSERT_TRUE(WaitForState(*idle, PlanState::kWaiting) && WaitForState(*id, PlanState::kWaiting));
  constexpr int kEpochs = 3, kWorkers = 2;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const auto order = OrderOf(plan, epoch);
    for (std::size_t i = 0; i < order.size(); ++i) Read(order[i], SessionId{1 + static_cast<std::uint32_t>(kWorkers * epoch + i / 4 % kWorkers)});  // new ones each epoch
    Settle();
  }
  const PlanStatus other = foresight().List().front(), status = foresight().List().back();
  EXPECT_LE(other.counts.expected, 1u) << "but for the very first access, of which nobody knows whose it is";
  EXPECT_GE(status.counts.expected, std::uint64_t{kEpochs} * kFiles - 1);
  EXPECT_LE(status.counts.missed, 1u);
  EXPECT_EQ(status.epochs_begun, 3u);
  EXPECT_EQ(status.readers, std::uint32_t{kEpochs} * kWorkers);
}

// Another program on the same files, which told nothing.
TEST_F(ForesightTest, AStrangerDoesNotMakeAGoodPlanDoubtful) {
  StartWithSpy();
  const orders::Plan plan = PlanOf();
  const auto id = Tell(plan, List());
  ASSERT_TRUE(WaitForState(*id, PlanState::kWaiting));
  const auto order = OrderOf(plan, 0);
  std::mt19937 random(3);
  for (std::size_t i = 0; i < order.size(); ++i) {
    Read(order[i]);
    if (i < 64) continue;
    for (int k = 0; k < 2; ++k) Read(random() % kFiles, SessionId{7});
    ASSERT_NE(foresight().List().front().state, PlanState::kDoubted) << i;
  }
  EXPECT_EQ(foresight().List().front().readers, 1u);
  EXPECT_EQ(foresight().List().front().counts.recall(), 1);
  EXPECT_EQ(foresight().List().front().counts.missed, 0u);
}

TEST_F(ForesightTest, AnotherPolicyIsToldFromWhereTheReaderIs) {
  StartEngine();
  const orders::Plan plan = PlanOf();
  const auto id = Tell(plan, List());
  ASSERT_TRUE(WaitForState(*id, PlanState::kWaiting));
  const auto order = OrderOf(plan, 0);
  ReadAll({order.begin(), order.begin() + 300});
  UseSpy();
  ASSERT_TRUE(RunUntil([&] { return !spy_.plans.empty() && foresight().declared_ahead() >= 4 * kFiles; }));
  EXPECT_EQ(Declared().at(0), IdsOf(order, 300));
}

// The plan was told for the beginning of an epoch; its reader goes on in the middle.
TEST_F(ForesightTest, AResumedReaderIsFoundAndThePolicyToldAnew) {
  source_options().policy = "belady";
  StartEngine();
  const orders::Plan plan = PlanOf();
  ASSERT_TRUE(Tell(plan, List()).ok());
  ASSERT_TRUE(RunUntil([&] { return foresight().declared_ahead() >= 5 * kFiles; }));
  const auto order = OrderOf(plan, 0);
  ReadAll({order.begin() + 500, order.begin() + 700});
  ASSERT_TRUE(RunUntil([&] { return unit().policy.incarnation() == 1 && foresight().declared_ahead() >= 4 * kFiles; }));
  ReadAll({order.begin() + 700, order.end()});
  ReadAll(OrderOf(plan, 1));
  EXPECT_EQ(unit().policy.incarnation(), 1u);
  EXPECT_EQ(foresight().List().front().epochs_begun, 2u);
  EXPECT_EQ(foresight().List().front().state, PlanState::kFollowed);
}

// Told when its epoch is half read: the policy knows the rest of it a few reads later.
TEST_F(ForesightTest, APlanThatIsToldInMidEpochIsFollowedFromThere) {
  StartWithSpy();
  const orders::Plan plan = PlanOf();
  const auto id = Tell(plan, List());
  ASSERT_TRUE(WaitForState(*id, PlanState::kWaiting));
  unit().options.policy = "belady";  // what it was told for the beginning of the epoch is taken back
  const auto order = OrderOf(plan, 0);
  for (std::size_t i = 400; i < 424; ++i) Read(order[i], SessionId{1 + static_cast<std::uint32_t>(i % 2)});  // two workers
  const PlanStatus status = foresight().List().front();
  EXPECT_EQ(status.state, PlanState::kFollowed);
  EXPECT_EQ(status.position, 424u);
  EXPECT_GE(status.counts.expected, 16u);
}

TEST_F(ForesightTest, WhatReadersAreSentToTheSourceForCountsAsRead) {
  options_.ram.capacity_bytes = 16 << 20;
  StartWithSpy();
  const orders::Plan plan = PlanOf();
  const auto id = Tell(plan, List());
  ASSERT_TRUE(WaitForState(*id, PlanState::kWaiting));
  spy_.admits[TIERD_TIER_RAM] = false;
  options_.ram.min_available_bytes = 0;
  const auto order = OrderOf(plan, 0);
  engine().placement().SetRamCapacity(0);  // no frame at all: every reader bypasses
  ASSERT_TRUE(RunUntil([&] { return engine().ram().segment_bytes() == 0; }));
  for (std::size_t i = 0; i < 100; ++i) ASSERT_EQ(Fetch(names_[order[i]]).status(), abi::FetchStatus::kBypass);
  EXPECT_EQ(foresight().List().front().position, 100u);
  EXPECT_EQ(spy_.accesses.size(), 100u);
}

TEST_F(ForesightTest, APlanEndsWithItsProcess) {
  StartWithSpy();
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  ASSERT_TRUE(process.valid());
  ASSERT_TRUE(Tell(PlanOf(), List(), std::move(process)).ok());
  RunUntil([] { return false; }, 1500);
  EXPECT_EQ(foresight().List().size(), 1u);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(RunUntil([&] { return foresight().empty(); }));
}

// What waits in the source's line cannot be put in another order any more.
TEST_F(ForesightTest, NoMoreIsBroughtAheadAtATimeThanKeepsTheSourceBusy) {
  source_options().ahead = true;
  source_options().policy = "belady";
  StartEngine();
  source_io_.Hold(io::Step::kOpen);
  ASSERT_TRUE(Tell(PlanOf(), List()).ok());
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting > 0; }));
  Settle();
  const source::SourceCounters counters = unit().reader->counters();
  constexpr std::uint64_t kLookedFor = 64;  // at a time, while the plan's files are not known
  EXPECT_GE(counters.in_flight, counters.window);
  EXPECT_LE(counters.in_flight + counters.queued[0] + counters.queued[1] + counters.queued[2], std::max<std::uint64_t>(2 * counters.window, Forerunner::kLeastUnderWay) + kLookedFor);
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return foresight().List().front().known == kFiles; }));
  EXPECT_TRUE(RunUntil([&] { return std::all_of(names_.begin(), names_.end(), [&](const std::string& name) { return InRam(name); }); }));
}

// Files of many sizes, some 80 MB, beside a RAM tier of 32 MiB: what is free there is in pieces.
class UnequalTest : public PlanTest {
 protected:
  UnequalTest() {
    std::mt19937 random(1);
    std::lognormal_distribution<double> bytes(11.4, .5);
    for (const std::string& name : names_) {
      const auto size = static_cast<std::size_t>(bytes(random));
      std::filesystem::resize_file(tree_.path() + "/" + name, size);
      all_bytes_ += size;
    }
    source_options().ahead = true;
    source_options().policy = "belady";
    options_.ram.capacity_bytes = 32 << 20;
  }
  ~UnequalTest() override { StopEngine(); }

  std::uint64_t all_bytes_ = 0;
};

// Nobody leaves for what is used later, be there bytes enough in all.
TEST_F(UnequalTest, WhileNobodyReadsRamIsFilledOnce) {
  StartEngine();
  ASSERT_TRUE(Tell(PlanOf(), List()).ok());
  ASSERT_TRUE(RunUntil([&] { return unit().bytes_read > 25 << 20; }));
  RunUntil([] { return false; }, 3000);
  EXPECT_LT(unit().bytes_read, 36 << 20) << "read again and again";
}

TEST_F(UnequalTest, NoMoreIsReadThanWithoutAPlan) {
  StartEngine();
  const orders::Plan plan = PlanOf(1, 0, 3);
  ASSERT_TRUE(Tell(plan, List()).ok());
  ASSERT_TRUE(RunUntil([&] { return unit().bytes_read > 25 << 20; }));
  std::uint64_t read_by_readers = 0;  // who are sent to the source
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (const std::uint32_t sample : OrderOf(plan, epoch)) {
      if (Fetch(names_[sample]).status() != abi::FetchStatus::kFrame) read_by_readers += std::filesystem::file_size(tree_.path() + "/" + names_[sample]);
      Read(sample);
      if (sample % 8 == 0) Settle();
    }
  }
  EXPECT_LT(unit().bytes_read + read_by_readers, 3 * all_bytes_ * 85 / 100) << "a third and more of it stays";
  EXPECT_GT(engine().counters().ahead_used, 100u) << "and ahead of its reader";
}

TEST_F(ForesightTest, WhatIsNoPlanOfThisSourceIsRefused) {
  StartWithSpy();
  orders::Plan plan = PlanOf();
  plan.samples = kFiles + 1;
  EXPECT_EQ(Tell(plan, List()).status().code(), Code::kInvalid);
  EXPECT_EQ(Tell(PlanOf(), "/elsewhere/a\n").status().code(), Code::kInvalid);
  EXPECT_TRUE(foresight().empty());
  // One path that does not exist, and one that leads out: all the others are known.
  names_[3] = "no/such";
  names_[4] = "../up";
  ASSERT_TRUE(Tell(PlanOf(), List()).ok());
  ASSERT_TRUE(RunUntil([&] { return foresight().declared_ahead() >= kFiles; }));
  EXPECT_EQ(foresight().List().front().known, kFiles - 2);
}

// SHA-256 over the paths, each followed by a NUL.
TEST_F(ForesightTest, APlanForAnotherListIsRefused) {
  StartWithSpy();
  orders::Sha256 sha;
  for (const std::string& name : names_) sha.Add(tree_.path() + "/" + name + std::string(1, '\0'));
  orders::Plan plan = PlanOf();
  plan.list_sha256 = sha.Hex();
  EXPECT_TRUE(Tell(plan, List()).ok());
  for (char& digit : plan.list_sha256) digit = static_cast<char>(std::toupper(digit));
  EXPECT_TRUE(Tell(plan, List()).ok());
  std::swap(names_[3], names_[4]);
  const Status refused = Tell(plan, List()).status();
  EXPECT_EQ(refused.code(), Code::kInvalid);
  EXPECT_NE(refused.message().find("list_sha256"), std::string::npos) << refused.message();
  EXPECT_EQ(foresight().List().size(), 2u);
}

// `blind` and `observed` take no plan: the policy hears of none, and nothing is looked for at the source.
TEST_F(ForesightTest, OtherModesTakeNoPlan) {
  for (const OrderMode mode : {OrderMode::kBlind, OrderMode::kObserved}) {
    source_options().mode = mode;
    StartWithSpy();
    EXPECT_EQ(Tell(PlanOf(), List()).status().code(), Code::kBusy);
    EXPECT_FALSE(std::filesystem::exists(cache_.path() + "/told.list")) << "a list that nobody reads is removed, too";
    for (const std::uint32_t sample : OrderOf(PlanOf(), 0)) Fetch(names_[sample]);
    Settle();
    EXPECT_TRUE(foresight().empty());
    EXPECT_TRUE(spy_.plans.empty());
    EXPECT_EQ(source_io_.count(io::Step::kOpen), static_cast<std::uint64_t>(kFiles) * (mode == OrderMode::kBlind ? 1 : 2));
    StopEngine();
  }
}

}  // namespace
}  // namespace tierd::engine
