// Orders that nobody told, found out from what is read; and what a plan brings ahead of its readers.
#include <algorithm>

#include "policies/orders/evidence.h"
#include "tests/engine/plan_fixture.h"

namespace tierd::engine {
namespace {

class ObserverTest : public PlanTest {
 protected:
  // Half as much again as the RAM tier has room for: where all is in RAM no order is looked for. The order of their indices: by path.
  explicit ObserverTest(int files = kFiles, std::size_t bytes = 0) : PlanTest(files, bytes != 0 ? bytes : (24 << 20) / static_cast<std::size_t>(files)) {
    options_.ram.capacity_bytes = 16 << 20;
    UseSsd();
    std::sort(names_.begin(), names_.end());
  }
  ~ObserverTest() override { StopEngine(); }
  std::string Report() { return engine().observer(unit()).Report(); }
  bool Await(const std::string& report) {
    return RunUntil([&] { return Report() == report; }, 30'000);
  }
  void FirstEpoch(const std::vector<std::uint32_t>& order) {
    for (const std::uint32_t sample : order) NoteRead(Fetch(names_[sample]));
  }
  static orders::Plan Generator(bool of_loader, bool shared, std::uint64_t seed = 42) {
    orders::Plan plan;
    plan.kind = orders::Kind::kTorchRandom;
    plan.samples = plan.draws = kFiles;
    plan.start = orders::GeneratorStart{.seed = seed, .words = std::nullopt};
    plan.shared = shared;
    plan.skip_first = plan.skip_later = of_loader ? 1 : 0;
    return plan;
  }
  // From *epoch on, which is the next one in the end.
  bool ReadUntilFound(const orders::Plan& plan, int* epoch) {
    for (const int first = *epoch; *epoch < first + 8 && foresight().empty(); ++*epoch) {
      ReadAll(OrderOf(plan, *epoch));
      RunUntil([&] { return !foresight().empty(); }, 1200);  // the hunt begins
      RunUntil([&] { return Report() == "watching for the next epoch" || Report() == "recovered"; }, 30'000);
    }
    return !foresight().empty();
  }
  void ExpectFollowed(const orders::Plan& plan, int epoch) {
    ASSERT_TRUE(RunUntil([&] { return foresight().declared_ahead() > names_.size(); }));
    for (int more = 0; more < 3; ++more) ReadAll(OrderOf(plan, epoch + more));
    const PlanStatus followed = foresight().List().front();
    EXPECT_EQ(followed.state, PlanState::kFollowed);
    EXPECT_EQ(followed.position, followed.epoch_samples) << "at the end of the last one";
    // But for those that say that the epoch that was found is over.
    const double most = names_.size() >= 800 ? 0.97 : 0.85;
    EXPECT_GT(followed.counts.recall(), most);
    EXPECT_GT(followed.counts.precision(), most);
    // What it says of the next one is what that is.
    auto orders = orders::PlanOrders::Create(orders::ParsePlan(followed.document).value()).value();
    std::vector<std::uint32_t> next;
    while (orders.epoch() <= followed.epoch + 1) ASSERT_TRUE(orders.Next(&next));
    EXPECT_EQ(next, OrderOf(plan, epoch + 3));
  }
};

TEST_F(ObserverTest, TheSeedsOfTwoEpochsMakeAPlan) {
  StartEngine();
  const orders::Plan plan = PlanOf(1, 0, 20, 1234);
  FirstEpoch(OrderOf(plan, 0));
  ReadAll(OrderOf(plan, 1));
  ASSERT_TRUE(Await("watching for the next epoch")) << Report();
  int epoch = 2;
  ASSERT_TRUE(ReadUntilFound(plan, &epoch)) << Report();
  const PlanStatus found = foresight().List().front();
  EXPECT_FALSE(found.told);
  EXPECT_NE(found.document.find("\"seed\":" + std::to_string(1234 + epoch - 1)), std::string::npos) << found.document;
  // From here on it is a plan as any other.
  ExpectFollowed(plan, epoch);
}

// RandomSampler: a generator seeded once draws all epochs, the DataLoader's own draws between them; given to the loader, to the sampler alone, or the process's.
TEST_F(ObserverTest, AGeneratorOfASmallSeedMakesAPlan) {
  for (const int which : {0, 1, 2}) {
    SCOPED_TRACE(which == 0 ? "DataLoader(generator=g)" : which == 1 ? "RandomSampler(generator=g)" : "torch.manual_seed");
    StartEngine();
    const orders::Plan plan = Generator(which != 1, which == 2);
    FirstEpoch(OrderOf(plan, 0));
    ReadAll(OrderOf(plan, 1));
    ASSERT_TRUE(Await("watching for the next epoch")) << Report();
    int epoch = 2;
    ASSERT_TRUE(ReadUntilFound(plan, &epoch)) << Report();
    EXPECT_LE(epoch, 5);
    EXPECT_NE(foresight().List().front().document.find("torch.random"), std::string::npos) << foresight().List().front().document;
    ExpectFollowed(plan, epoch);
    StopEngine();
  }
}

// Behind each epoch a part of it is read again, which looks like the beginning of one: epochs that are counted are too many.
TEST_F(ObserverTest, ThePlanBeginsWhereItsReadersAre) {
  const orders::Plan plan = Generator(true, false);
  StartEngine();
  FirstEpoch(OrderOf(plan, 0));
  ReadAll(OrderOf(plan, 1));
  ASSERT_TRUE(Await("watching for the next epoch")) << Report();
  int epoch = 2;
  for (; epoch < 500 && foresight().empty(); ++epoch) {  // a machine that is busy takes many
    std::vector<std::uint32_t> order = OrderOf(plan, epoch);
    ReadAll(order);
    order.resize(kFiles / 4);
    std::sort(order.begin(), order.end());
    ReadAll(order);
    RunUntil([&] { return !foresight().empty(); }, 400);  // and while it looks, on to the next
  }
  ASSERT_FALSE(foresight().empty()) << Report();
  ExpectFollowed(plan, epoch);
}

// Another job with another seed follows without a pause: what is not so any more is not declared, and soon given up.
TEST_F(ObserverTest, APlanThatNobodyReadsByIsTakenBack) {
  StartEngine();
  orders::Plan plan = Generator(true, false);
  FirstEpoch(OrderOf(plan, 0));
  ReadAll(OrderOf(plan, 1));
  ASSERT_TRUE(Await("watching for the next epoch")) << Report();
  int epoch = 2;
  ASSERT_TRUE(ReadUntilFound(plan, &epoch)) << Report();
  ExpectFollowed(plan, epoch);
  const orders::Plan other = PlanOf(1, 0, 40, 77);
  ReadAll(OrderOf(other, 0));
  EXPECT_EQ(foresight().List().front().state, PlanState::kDoubted);
  epoch = 1;
  for (; epoch < 40 && !foresight().empty(); ++epoch) {
    ReadAll(OrderOf(other, epoch));
    RunUntil([&] { return foresight().empty(); }, 1000);
  }
  ASSERT_TRUE(foresight().empty());
  EXPECT_LE(epoch, static_cast<int>(Observer::kDoubtedTicks) + 4);
  // The other job's is found as the first one's was.
  ASSERT_TRUE(Await("watching for the next epoch")) << Report();
  ASSERT_TRUE(ReadUntilFound(other, &epoch)) << Report();
  ExpectFollowed(other, epoch);
}

// A second job, which draws from a generator as well, begins when nobody has read for a while: its first accesses count.
TEST_F(ObserverTest, AJobBeginsBehindAPause) {
  StartEngine();
  const orders::Plan plan = Generator(true, false, 5), other = Generator(true, true, 6);
  FirstEpoch(OrderOf(plan, 0));
  for (int epoch = 1; epoch < 3; ++epoch) ReadAll(OrderOf(plan, epoch));
  RunUntil([] { return false; }, static_cast<int>(Observer::kQuietNs / 1'000'000) + 4000);
  int epoch = 0;
  ASSERT_TRUE(ReadUntilFound(other, &epoch)) << Report();
  ExpectFollowed(other, epoch);
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

// ---- all of it in RAM ------------------------------------------------------------------------------------------------------

class InRamTest : public ObserverTest {
 protected:
  InRamTest() : ObserverTest(kFiles, 1000) {}
  ~InRamTest() override { StopEngine(); }
  static constexpr const char* kInRam = "all of it is in RAM: no order is looked for";
  // Of every other file: what a reader of the set meets now and then is not there.
  void Evict() {
    for (std::size_t i = 0; i < names_.size(); i += 2) engine().placement().EvictRam(ObjectOf(names_[i]), EvictCause::kRequest);
  }
  void ReadFor(const orders::Plan& plan, int* epoch, int epochs) {
    for (const int end = *epoch + epochs; *epoch < end; ++*epoch) {
      ReadAll(OrderOf(plan, *epoch));
      RunUntil([] { return false; }, 1200);
    }
  }
};

// An order is good for bringing things up: there is nothing to bring.
TEST_F(InRamTest, NoOrderIsLookedForUntilSomethingIsMissing) {
  StartEngine();
  const orders::Plan plan = PlanOf(1, 0, 60, 1234);
  FirstEpoch(OrderOf(plan, 0));
  int epoch = 1;
  ReadFor(plan, &epoch, 7);
  EXPECT_EQ(Report(), kInRam);
  EXPECT_TRUE(foresight().empty());
  Evict();
  ASSERT_TRUE(ReadUntilFound(plan, &epoch)) << Report();
  ExpectFollowed(plan, epoch);
}

// Of a seed that is not small: a search takes a tenth of a core for a minute, or for an hour. It goes on when there is a reason again, also that of a job's first accesses.
TEST_F(InRamTest, ASearchThatRunsEnds) {
  const orders::Plan plan = PlanOf(1, 0, 60, 4'000'000'000);
  for (const bool of_first : {true, false}) {
    StartEngine();
    const std::string search = of_first ? "looking for the seed of the first epoch" : "looking for the seed of epoch";
    FirstEpoch(OrderOf(of_first ? plan : Generator(true, false, 5), 0));
    Evict();
    int epoch = 1;
    ReadFor(plan, &epoch, 1);
    ASSERT_TRUE(RunUntil([&] { return Report().starts_with("looking for the seed"); }));
    while (epoch < 20 && !Report().starts_with(search)) ReadFor(plan, &epoch, 1);
    ASSERT_TRUE(Report().starts_with(search)) << Report();
    for (std::size_t i = 0; i < names_.size(); i += 2) Fetch(names_[i]);
    ReadFor(plan, &epoch, 3);
    EXPECT_EQ(Report(), kInRam);
    Evict();
    ReadFor(plan, &epoch, 2);
    EXPECT_TRUE(Report().starts_with(search)) << Report();
    StopEngine();
  }
}

// ---- small sets -------------------------------------------------------------------------------------------------------------

class SmallSetTest : public ObserverTest {
 protected:
  explicit SmallSetTest(int files, std::size_t bytes = 0) : ObserverTest(files, bytes) {}
  orders::Plan Distributed(std::uint64_t world, std::uint64_t rank, std::int64_t seed) const {
    orders::Plan plan = PlanOf(world, rank, 60, seed);
    plan.samples = names_.size();
    return plan;
  }
  orders::Plan Drawn(bool of_loader, bool shared) const {
    orders::Plan plan = Generator(of_loader, shared);
    plan.samples = plan.draws = names_.size();
    return plan;
  }
  // All chunks of it.
  void ReadFile(std::uint32_t sample, SessionId session) {
    const std::uint32_t chunks = engine().catalogue().ChunkCount(FileOf(names_[sample]));
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
      if (chunks > 1 && !engine().placement().InRam(ObjectOf(names_[sample], chunk))) Fetch(names_[sample], abi::FetchOp::kChunk, chunk);  // it has no place in a ring
      else Read(sample, session, chunk);
    }
  }
  // Two workers with batches of `batch`, which take turns.
  void ReadByTwo(const std::vector<std::uint32_t>& order, std::size_t batch) {
    if (const std::uint32_t chunks = engine().catalogue().ChunkCount(FileOf(names_[0])); chunks > 1)
      engine().placement().EvictRam(ObjectOf(names_[0], chunks - 1), EvictCause::kRequest);  // something is missed in each epoch
    for (std::size_t start = 0; start < order.size(); start += 2 * batch) {
      for (std::size_t i = 0; i < batch; ++i) {
        if (start + batch + i < order.size()) ReadFile(order[start + batch + i], SessionId{1002});
        if (start + i < order.size()) ReadFile(order[start + i], SessionId{1001});
      }
    }
    Settle();
  }
  void Begin(const orders::Plan& plan) {
    StartEngine();
    for (const std::string& name : names_) {
      NoteRead(Fetch(name));
      for (std::uint32_t chunk = 1; chunk < engine().catalogue().ChunkCount(FileOf(name)); ++chunk) NoteRead(Fetch(name, abi::FetchOp::kChunk, chunk));
    }
    ReadByTwo(OrderOf(plan, 1), 4);
    ReadByTwo(OrderOf(plan, 2), 4);
    ASSERT_TRUE(Await("watching for the next epoch")) << Report();
  }
  // Reads by two workers until there is a plan, and three epochs more.
  void ExpectFound(const orders::Plan& plan, std::size_t batch) {
    Begin(plan);
    int epoch = 3;
    for (; epoch < 20 && foresight().empty(); ++epoch) {
      ReadByTwo(OrderOf(plan, epoch), batch);
      RunUntil([&] { return !foresight().empty(); }, 1200);  // the hunt begins
      RunUntil([&] { return Report() == "watching for the next epoch" || Report() == "recovered"; }, 30'000);
    }
    ASSERT_FALSE(foresight().empty()) << Report();
    ASSERT_TRUE(RunUntil([&] { return foresight().declared_ahead() > names_.size(); }));
    ReadByTwo(OrderOf(plan, epoch), batch);  // its first accesses say that the epoch that was found is over
    const std::uint64_t before = foresight().List().front().counts.expected;
    for (int more = 1; more < 3; ++more) ReadByTwo(OrderOf(plan, epoch + more), batch);
    const PlanStatus followed = foresight().List().front();
    EXPECT_EQ(followed.state, PlanState::kFollowed);
    EXPECT_EQ(followed.position, followed.epoch_samples);
    EXPECT_EQ(followed.counts.expected - before, 2 * OrderOf(plan, epoch).size()) << "every access of two epochs";
    auto orders = orders::PlanOrders::Create(orders::ParsePlan(followed.document).value()).value();
    std::vector<std::uint32_t> next;
    while (orders.epoch() <= followed.epoch + 1) ASSERT_TRUE(orders.Next(&next));
    EXPECT_EQ(next, OrderOf(plan, epoch + 3));
  }
};
class Set168Test : public SmallSetTest {
 protected:
  Set168Test() : SmallSetTest(168) {}
  ~Set168Test() override { StopEngine(); }
};
class Set40Test : public SmallSetTest {
 protected:
  Set40Test() : SmallSetTest(40) {}
  ~Set40Test() override { StopEngine(); }
};
class Set40OfChunksTest : public SmallSetTest {
 protected:
  Set40OfChunksTest() : SmallSetTest(40, 300'000) {
    source_options().chunk_bytes = 64 << 10;
    options_.ram.capacity_bytes = 64 << 20;  // nearly all of it: a chunk that only passes through has no place in a ring
  }
  ~Set40OfChunksTest() override { StopEngine(); }
};
class Set256Test : public SmallSetTest {
 protected:
  Set256Test() : SmallSetTest(256) {}
  ~Set256Test() override { StopEngine(); }
};
class Set6Test : public SmallSetTest {
 protected:
  Set6Test() : SmallSetTest(6, 1000) {}
  ~Set6Test() override { StopEngine(); }
};

TEST_F(Set168Test, TheSeedsOfTwoEpochsMakeAPlan) { ExpectFound(Distributed(1, 0, 1234), 7); }
TEST_F(Set40Test, TheSeedsOfTwoEpochsMakeAPlan) { ExpectFound(Distributed(1, 0, 1234), 4); }
// Each is five accesses, and one sample.
TEST_F(Set40OfChunksTest, TheSeedsOfTwoEpochsMakeAPlan) { ExpectFound(Distributed(1, 0, 1234), 4); }
// 64 samples each.
TEST_F(Set256Test, TheOrderOfOneOfFourRanksIsFound) { ExpectFound(Distributed(4, 2, 77), 4); }

TEST_F(Set168Test, AGeneratorOfASmallSeedMakesAPlan) {
  const orders::Plan plan = Drawn(true, true);
  StartEngine();
  FirstEpoch(OrderOf(plan, 0));
  ReadAll(OrderOf(plan, 1));
  ASSERT_TRUE(Await("watching for the next epoch")) << Report();
  int epoch = 2;
  ASSERT_TRUE(ReadUntilFound(plan, &epoch)) << Report();
  EXPECT_LE(epoch, 6);
  ExpectFollowed(plan, epoch);
}

// Nearly all of 40 files is in the window: that another order is read is seen by readers that go back.
TEST_F(Set40Test, AnotherOrderIsNoticedWithinAWindow) {
  const orders::Plan plan = Distributed(1, 0, 1234), other = Distributed(1, 0, 99);
  Begin(plan);
  int epoch = 3;
  ASSERT_TRUE(ReadUntilFound(plan, &epoch)) << Report();
  ExpectFollowed(plan, epoch);
  const std::vector<std::uint32_t> order = OrderOf(other, 0);
  std::size_t read = 0;
  while (read < order.size() && foresight().List().front().state == PlanState::kFollowed) {
    Read(order[read++]);
    Settle();  // while the epoch that follows is not there yet, nothing can be said of what might be its first
  }
  EXPECT_LE(read, orders::PlanFollower::kWindowLeast);
  EXPECT_FALSE(foresight().trusted());
}

// 720 orders: nothing is listed, no seed is looked for.
TEST_F(Set6Test, IsLeftAlone) {
  EXPECT_LT(6u, orders::LeastSamples(orders::SeedSearch::LogTried(false)));
  EXPECT_LE(orders::LeastSamples(orders::SeedSearch::LogTried(false)), Observer::kLeastSamples) << "what is looked at can be told";
  const orders::Plan plan = Distributed(1, 0, 3);
  StartEngine();
  FirstEpoch(OrderOf(plan, 0));
  for (int epoch = 1; epoch < 12; ++epoch) {
    ReadAll(OrderOf(plan, epoch));
    RunUntil([] { return false; }, 300);
    EXPECT_EQ(Report(), "");
  }
  EXPECT_TRUE(foresight().empty());
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

// RAM holds a fifth, the SSD all: before anybody reads, what RAM has no room for is brought to the SSD, in the order of its use, and nothing twice.
TEST_F(AheadTest, WhatRamHasNoRoomForIsBroughtToTheSsd) {
  constexpr std::size_t kBytes = 100'000;
  options_.ram.capacity_bytes = 16 << 20;  // of 80 MB
  UseSsd();
  for (const std::string& name : names_) Write(name, Bytes(name, kBytes));
  StartEngine();
  const orders::Plan plan = PlanOf();
  ASSERT_TRUE(Tell(plan, List()).ok());
  const auto on_node = [&](std::uint32_t sample) {
    const ObjectId object = FileOf(names_[sample]) == kNoFile ? kNoObject : ObjectOf(names_[sample]);
    return object != kNoObject && (engine().placement().InRam(object) || engine().placement().OnSsd(object));
  };
  const std::vector<std::uint32_t> order = OrderOf(plan, 0);
  ASSERT_TRUE(RunUntil([&] { return on_node(order[kFiles / 2]); }, 30'000));
  EXPECT_TRUE(std::all_of(order.begin(), order.begin() + kFiles / 4, on_node)) << "what is used sooner was brought sooner";
  ASSERT_TRUE(RunUntil([&] { return std::all_of(order.begin(), order.end(), on_node); }, 30'000));
  RunUntil([] { return false; }, 300);
  EXPECT_EQ(source_io_.count(io::Step::kOpen), static_cast<std::uint64_t>(kFiles)) << "each once";
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
