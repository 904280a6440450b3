// What goes over a million files does so in slices: readers are answered and the heart beats in between (HAZARDS 5).
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class SweepTest : public EngineTest {
 protected:
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static constexpr std::uint32_t kFiles = 60'000;
#else
  static constexpr std::uint32_t kFiles = 400'000;
#endif
  // As a walk makes them known.
  void KnowFiles() {
    io::FileStat stat;
    stat.mode = S_IFREG | 0644;
    stat.size = 100;
    for (std::uint32_t i = 0; i < kFiles; ++i) {
      stat.ino = 1'000'000u + i;
      const std::string path = "tree/" + std::to_string(i % 500) + "/" + std::to_string(i);
      if (engine().fetcher().Observe(unit(), path, stat, 1) == Fetcher::Observed::kKnown) continue;
      const std::size_t known = engine().catalogue().file_count();
      ASSERT_TRUE(RunUntil([&] { return engine().fetcher().Observe(unit(), path, stat, 1) == Fetcher::Observed::kKnown; })) << known;
    }
    ASSERT_TRUE(RunUntil([&] { return !engine().catalogue().growing(); }));
  }
  // Turns that a sweep takes at least.
  static constexpr std::uint64_t kLeastTurns = kFiles / Sweeps::kSlotsPerStep;
};

TEST_F(SweepTest, ReadersAreAnsweredWhileATreeIsEvicted) {
  const auto names = MakeFiles(20, 5000);
  StartEngine();
  KnowFiles();
  const std::string& cached = names.front();
  ASSERT_EQ(Fetch(cached).status(), abi::FetchStatus::kFrame);
  bool ended = false;
  std::uint64_t evicted = 0;
  const std::uint64_t turns = engine().lag().count;
  engine().Advise(unit(), abi::AdviseOp::kEvict, "tree", true, [&](int error, std::uint64_t files) {
    EXPECT_EQ(error, 0);
    evicted = files;
    ended = true;
  });
  ASSERT_FALSE(ended);
  // A hit is answered at once, and misses in the turns between the slices.
  const std::uint64_t hit = Ask(cached);
  ASSERT_TRUE(answers().contains(hit));
  EXPECT_EQ(answers()[hit].tier(), abi::Tier::kRam);
  std::vector<std::uint64_t> asked;
  for (std::size_t i = 1; i < names.size(); ++i) asked.push_back(Ask(names[i]));
  std::size_t answered_before = 0;
  ASSERT_TRUE(RunUntil([&] {
    if (!ended) answered_before = static_cast<std::size_t>(std::count_if(asked.begin(), asked.end(), [&](std::uint64_t id) { return answers().contains(id); }));
    return ended;
  }));
  EXPECT_EQ(evicted, kFiles);
  EXPECT_GE(engine().lag().count - turns, kLeastTurns);
  EXPECT_LT(engine().lag().max_ns, 250'000'000u);
  std::printf("%zu of %zu misses answered before the end, %llu turns\n", answered_before, asked.size(), static_cast<unsigned long long>(engine().lag().count - turns));
  ASSERT_TRUE(RunUntil([&] { return std::all_of(asked.begin(), asked.end(), [&](std::uint64_t id) { return answers().contains(id); }); }));
  for (const std::uint64_t id : asked) EXPECT_EQ(answers()[id].status(), abi::FetchStatus::kFrame);
  EXPECT_TRUE(InRam(cached)) << "not below the tree";
}

// A tree is evicted and another policy told of it, the source hangs, and many read: no handler of the loop does more than its share, and who reads what is cached is
// answered at once. Told by what a handler does and by processor time, neither of which depends on what else the machine does.
TEST_F(SweepTest, NoTurnIsLongWhileTheSourceHangsAndManyRead) {
  constexpr std::uint32_t kSessions = 200;
  constexpr std::uint64_t kMostTold = 16'384;  // of a policy's events in a handler
  source_options().demand_timeout_ms = 300'000;
  source_options().staleness = abi::Staleness::kImmutable;
  const auto names = MakeFiles(20, 5000);
  StartEngine();
  KnowFiles();
  for (std::size_t i = 0; i < 10; ++i) ASSERT_EQ(Fetch(names[i]).status(), abi::FetchStatus::kFrame);
  source_io_.Hold(io::Step::kRead);
  std::vector<std::uint64_t> hanging;
  for (std::uint32_t session = 0; session < kSessions; ++session) hanging.push_back(Ask(names[10 + session % 10], abi::FetchOp::kChunk, 0, SessionId{session + 2}));
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting > 0; }));

  static std::uint64_t told;
  static const tierd_policy_ops* lru;
  told = 0;
  lru = *registry().Find("lru");
  static tierd_policy_ops counting;
  counting = *lru;
  counting.object_known = [](void* self, const tierd_object* object) {
    ++told;
    lru->object_known(self, object);
  };
  auto policy = policies::PolicyInstance::Create(counting, {});
  ASSERT_TRUE(policy.ok());
  const auto processor_ns = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  };
  std::uint64_t most_told = 0;
  std::int64_t longest_ns = 0;
  const auto watch = [&](const auto& handler) {
    const std::uint64_t told_before = told;
    const std::int64_t begin_ns = processor_ns();
    handler();
    longest_ns = std::max(longest_ns, processor_ns() - begin_ns);
    most_told = std::max(most_told, told - told_before);
  };
  bool ended = false;
  watch([&] { engine().SwitchPolicy(unit(), std::move(policy).value(), "counting", ""); });
  watch([&] { engine().Advise(unit(), abi::AdviseOp::kEvict, "tree", true, [&](int, std::uint64_t) { ended = true; }); });
  std::size_t handlers = 0;
  const auto patience = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!ended || unit().policy.changing()) {
    ASSERT_LT(std::chrono::steady_clock::now(), patience);
    for (std::uint32_t i = 0; i < 10; ++i) {
      const std::uint64_t hit = Ask(names[i], abi::FetchOp::kChunk, 0, SessionId{i + 2});
      EXPECT_EQ(answers()[hit].tier(), abi::Tier::kRam);
    }
    watch([&] { handlers += RunReady(1); });
  }
  EXPECT_GE(told, kFiles);
  EXPECT_LE(most_told, kMostTold);
  EXPECT_LT(longest_ns, std::int64_t{LoopLag::kLateNs});
  std::printf("%zu handlers, of which one told %llu at most and one took %lld us\n", handlers, static_cast<unsigned long long>(most_told), static_cast<long long>(longest_ns / 1000));
  EXPECT_TRUE(std::none_of(hanging.begin(), hanging.end(), [&](std::uint64_t id) { return answers().contains(id); })) << "the source still hangs";
}

TEST_F(SweepTest, AnInvalidationOfATreeHasTakenEffectWhenItIsDone) {
  const auto names = MakeFiles(64, 3000);
  StartEngine();
  for (const std::string& name : names) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  KnowFiles();
  bool ended = false;
  engine().Advise(unit(), abi::AdviseOp::kInvalidate, "", true, [&](int, std::uint64_t files) {
    EXPECT_GE(files, kFiles + names.size());
    for (const std::string& name : names) EXPECT_FALSE(InRam(name)) << name;
    ended = true;
  });
  ASSERT_TRUE(RunUntil([&] { return ended; }));
}

TEST_F(SweepTest, SweepsWaitForOneAnotherAndOfOneFileForNobody) {
  const auto names = MakeFiles(4, 100);
  StartEngine();
  KnowFiles();
  ASSERT_EQ(Fetch(names.front()).status(), abi::FetchStatus::kFrame);
  std::vector<int> order;
  const auto sweep = [&](int which, const std::string& path) {
    engine().Sweep({.unit = &unit(), .path = path, .visit = [](FileId) { return true; }, .done = [&order, which](bool complete, std::uint64_t) {
      EXPECT_TRUE(complete);
      order.push_back(which);
    }});
  };
  sweep(1, "");
  sweep(2, "tree/7");
  sweep(3, names.front());
  EXPECT_EQ(order, std::vector<int>{3});
  ASSERT_TRUE(RunUntil([&] { return order.size() == 3; }));
  EXPECT_EQ(order, (std::vector<int>{3, 1, 2}));
}

// The catalogue is gone through once, however many wait, and each file is met once.
TEST_F(SweepTest, AllThatWaitAreServedByOnePass) {
  StartEngine();
  KnowFiles();
  constexpr int kEqual = 50;
  int ended = 0;
  const auto counts = [&](std::uint64_t expected) {
    return [&ended, expected](int error, std::uint64_t files) {
      EXPECT_EQ(error, 0);
      EXPECT_EQ(files, expected);
      ++ended;
    };
  };
  const std::uint64_t before = engine().counters().invalidated_request;
  for (int i = 0; i < kEqual; ++i) engine().Advise(unit(), abi::AdviseOp::kInvalidate, "tree", true, counts(kFiles));
  int directories = 0;
  for (int round = 0; round < 20; ++round) {
    for (int dir = 0; dir < 500; ++dir, ++directories) engine().Advise(unit(), abi::AdviseOp::kEvict, "tree/" + std::to_string(dir), true, counts(kFiles / 500));
  }
  const std::uint64_t turns = engine().lag().count;
  ASSERT_TRUE(RunUntil([&] { return ended == kEqual + directories; }, 20'000));
  EXPECT_EQ(engine().counters().invalidated_request - before, kFiles);
  std::printf("%d sweeps in %llu turns\n", kEqual + directories, static_cast<unsigned long long>(engine().lag().count - turns));
}

// A file and a directory have changed places: what was known as a file has files below it by now.
TEST_F(SweepTest, WhatWasAFileIsInvalidatedWithWhatIsBelowIt) {
  StartEngine();
  io::FileStat stat;
  stat.mode = S_IFREG | 0644;
  stat.size = 100;
  for (const char* path : {"place", "place/file", "places"}) {
    ++stat.ino;
    ASSERT_EQ(engine().fetcher().Observe(unit(), path, stat, 1), Fetcher::Observed::kKnown);
  }
  std::uint64_t invalidated = 0;
  engine().Advise(unit(), abi::AdviseOp::kInvalidate, "place", true, [&](int error, std::uint64_t files) {
    EXPECT_EQ(error, 0);
    invalidated = files;
  });
  EXPECT_TRUE(RunUntil([&] { return invalidated != 0; }));
  EXPECT_EQ(invalidated, 2u);
}

// A client whose daemon did not answer in time says it again; what has been done since then need not be done twice.
TEST_F(SweepTest, AnInvalidationThatIsToldAgainIsServedByTheOneUnderWay) {
  StartEngine();
  KnowFiles();
  int ended = 0;
  const auto count = [&](int error, std::uint64_t) {
    EXPECT_EQ(error, 0);
    ++ended;
  };
  const std::uint64_t before = engine().counters().invalidated_request;
  const std::int64_t said_ns = SystemClock().MonotonicNs();
  engine().Advise(unit(), abi::AdviseOp::kInvalidate, "tree", true, count);
  (void)HandlersIn(1);
  engine().Advise(unit(), abi::AdviseOp::kInvalidate, "tree", {true, said_ns - 20'000'000}, count);
  ASSERT_EQ(ended, 0);
  ASSERT_TRUE(RunUntil([&] { return ended == 2; }));
  EXPECT_EQ(engine().counters().invalidated_request - before, kFiles);
  engine().Advise(unit(), abi::AdviseOp::kInvalidate, "tree/3", {true, said_ns - 20'000'000}, count);
  EXPECT_EQ(ended, 3);
  KnowFiles();  // what was invalidated was forgotten
  engine().Advise(unit(), abi::AdviseOp::kInvalidate, "tree", {true, SystemClock().MonotonicNs() + 20'000'000}, count);
  EXPECT_EQ(ended, 3) << "said since";
  ASSERT_TRUE(RunUntil([&] { return ended == 4; }));
  EXPECT_EQ(engine().counters().invalidated_request - before, 2u * kFiles);
}

TEST_F(SweepTest, APolicyIsToldOfAMillionFilesInSlices) {
  const auto names = MakeFiles(8, 2000);
  StartEngine();
  for (const std::string& name : names) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  KnowFiles();
  auto policy = engine().PreparePolicy("lru", "");
  ASSERT_TRUE(policy.ok());
  engine().SwitchPolicy(unit(), std::move(policy).value(), "lru", "");
  EXPECT_TRUE(unit().policy.changing());
  const std::string late = Write("late", Bytes("late", 2000));
  ASSERT_EQ(Fetch(late).status(), abi::FetchStatus::kFrame) << "the old one decides meanwhile";
  ASSERT_TRUE(RunUntil([&] { return !unit().policy.changing(); }));
  std::vector<std::uint32_t> victims(16);
  victims.resize(unit().policy.Victims(TIERD_TIER_RAM, 1 << 20, victims));
  EXPECT_EQ(victims.size(), names.size() + 1);
}

TEST_F(SweepTest, RecordsOfAChangedImmutableSetAreVoidAtOnceAndGoByAndBy) {
  UseSsd();
  source_options().staleness = abi::Staleness::kImmutable;
  const auto names = MakeFiles(40, 20'000);
  StartEngine();
  for (const std::string& name : names) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  KnowFiles();
  for (const std::string& name : names) {
    ASSERT_TRUE(OnSsd(name));
    engine().placement().EvictRam(ObjectOf(name), EvictCause::kRequest);
  }
  const std::uint64_t opens = source_io_.count(io::Step::kOpen);
  engine().VoidRecords(unit(), [](bool) {});
  // Its record is known still, and not read.
  EXPECT_EQ(Fetch(names.back()).tier(), abi::Tier::kSource);
  EXPECT_EQ(source_io_.count(io::Step::kOpen), opens + 1);
  EXPECT_EQ(engine().counters().integrity_ssd, 0u);
  ASSERT_TRUE(RunUntil([&] { return !unit().voiding; }));
  for (std::size_t i = 0; i + 1 < names.size(); ++i) EXPECT_FALSE(OnSsd(names[i])) << names[i];
  // Written since: maybe only now, since nothing is while the superblock that says so is under way; and never taken for a void one.
  EXPECT_TRUE(RunUntil([&] { return OnSsd(names.back()); }));
  EXPECT_EQ(engine().counters().evictions[TIERD_TIER_SSD][static_cast<std::size_t>(EvictCause::kChanged)], names.size());
}

// One change says it of all records of earlier lives: each further one would void what has been written since.
TEST_F(SweepTest, ASetRewrittenBetweenTwoLivesIsVoidedOnce) {
  UseSsd();
  source_options().staleness = abi::Staleness::kImmutable;
  const auto names = MakeFiles(40, 20'000);
  StartEngine();
  for (const std::string& name : names) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  ASSERT_TRUE(RunUntil([&] { return std::all_of(names.begin(), names.end(), [&](const std::string& name) { return OnSsd(name); }); }));
  StopEngine();
  for (const std::string& name : names) Write(name, Bytes(name, 20'000, 2));
  StartEngine();
  for (const std::string& name : names) ASSERT_TRUE(Fetch(name).bytes == Bytes(name, 20'000, 2)) << name;
  EXPECT_EQ(engine().ssd()->DatasetGeneration(unit().dataset_id), 1u);
  // A file that this life has records of is another matter.
  ASSERT_TRUE(RunUntil([&] { return OnSsd(names[0]); }));
  Write(names[0], Bytes(names[0], 20'000, 3));
  engine().placement().EvictRam(ObjectOf(names[0]), EvictCause::kRequest);
  engine().placement().EvictSsd(ObjectOf(names[0]), EvictCause::kRequest);
  EXPECT_TRUE(Fetch(names[0]).bytes == Bytes(names[0], 20'000, 3));
  EXPECT_EQ(engine().ssd()->DatasetGeneration(unit().dataset_id), 2u);
}

// A list says nothing of the files in it. Of a directory that was young it is asked for again.
TEST_F(SweepTest, ADirectoryOfAnImmutableSetThatGainsAFileVoidsNoRecord) {
  constexpr std::int64_t kMinuteNs = 60'000'000'000;
  UseSsd();
  source_options().staleness = abi::Staleness::kImmutable;
  source_options().racy_window_ms = 10'000;
  clock_.ahead_ns = kMinuteNs;  // what is written now is a minute old
  const auto names = MakeFiles(40, 20'000);
  timespec young[2] = {{0, UTIME_OMIT}, {clock_.RealtimeNs() / 1'000'000'000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (tree_.path() + "/d0").c_str(), young, 0), 0);
  StartEngine();
  for (const std::string& name : names) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  ASSERT_TRUE(RunUntil([&] { return std::all_of(names.begin(), names.end(), [&](const std::string& name) { return OnSsd(name); }); }));
  ASSERT_EQ(Fetch("d0", abi::FetchOp::kList).status(), abi::FetchStatus::kFrame);
  Write("d0/another", "another");
  clock_.ahead_ns += 2 * kMinuteNs;
  EXPECT_NE(Fetch("d0", abi::FetchOp::kList).bytes.find("another"), std::string::npos);
  EXPECT_EQ(engine().ssd()->DatasetGeneration(unit().dataset_id), 0u);
  EXPECT_EQ(unit().void_before, 0u);
  for (const std::string& name : names) EXPECT_TRUE(OnSsd(name)) << name;
}

class ForgetTest : public EngineTest {
 protected:
  void Invalidate(const std::string& path) {
    bool swept = false;
    engine().Advise(unit(), abi::AdviseOp::kInvalidate, path, {true}, [&](int error, std::uint64_t) {
      EXPECT_EQ(error, 0);
      swept = true;
    });
    ASSERT_TRUE(RunUntil([&] { return swept; }));
  }
};

// Datasets come and go for as long as a daemon lives.
TEST_F(ForgetTest, OfWhatWasInvalidatedNothingIsLeft) {
  UseSsd();
  StartEngine();
  const Catalogue& catalogue = engine().catalogue();
  std::size_t slots = 0, objects = 0;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::string> names;
    for (int i = 0; i < 300; ++i) names.push_back("run" + std::to_string(round) + "/" + std::to_string(i % 50) + "/" + std::to_string(i));
    for (const std::string& name : names) ASSERT_EQ(Fetch(Write(name, name)).bytes, name);
    ASSERT_EQ(Fetch("run" + std::to_string(round), abi::FetchOp::kList).status(), abi::FetchStatus::kFrame);
    EXPECT_GE(catalogue.file_count(), names.size());
    Invalidate("");
    EXPECT_EQ(catalogue.file_count(), 0u);
    EXPECT_EQ(engine().index().live(), 0u);
    EXPECT_EQ(catalogue.directory_names(), 0u);
    EXPECT_EQ(engine().placement().ram_resident_objects(), 0u);
    if (round == 0) slots = catalogue.file_slots(), objects = catalogue.object_slots();
  }
  EXPECT_EQ(catalogue.file_slots(), slots) << "the records of the first round serve the others";
  EXPECT_EQ(catalogue.object_slots(), objects);
}

// As the preload library tells of what a program writes, renames and removes, a file at a time.
TEST_F(ForgetTest, NorOfFilesThatWereToldOfOneByOne) {
  UseSsd();
  StartEngine();
  for (int i = 0; i < 300; ++i) {
    const std::string name = Write("d/" + std::to_string(i), std::to_string(i));
    ASSERT_EQ(Fetch(name).bytes, std::to_string(i));
    EXPECT_EQ(Advise(abi::AdviseOp::kInvalidate, name), 1u);
  }
  ASSERT_EQ(Fetch("d/8").bytes, "8") << "read again: it stays";
  clock_.ahead_ns += 31'000'000'000;
  ASSERT_TRUE(RunUntil([&] { return engine().catalogue().file_count() <= 2; })) << engine().catalogue().file_count();
  EXPECT_TRUE(InRam("d/8"));
  ASSERT_EQ(Advise(abi::AdviseOp::kInvalidate, "d/8"), 1u);
  clock_.ahead_ns += 31'000'000'000;
  ASSERT_TRUE(RunUntil([&] { return FileOf("d/8") == kNoFile; }));
  EXPECT_LE(engine().catalogue().file_count(), 1u) << "their directory";
  EXPECT_EQ(engine().placement().ram_resident_objects(), 0u);
  const std::string name = Write("d/7", "another");
  EXPECT_EQ(Fetch(name).bytes, "another");
}

TEST_F(ForgetTest, WhatIsPinnedOrAskedForStaysKnown) {
  StartEngine();
  const std::string pinned = Write("d/pinned", "1"), asked = Write("d/asked", "2"), read = Write("d/read", "3"), plain = Write("d/plain", "4");
  for (const std::string& name : {pinned, asked, plain}) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  engine().placement().SetPinned(FileOf(pinned), true);
  engine().fetcher().Invalidate(unit(), FileOf(asked), EvictCause::kChanged);
  source_io_.Hold(io::Step::kStat);
  const std::uint64_t stat = Ask(asked, abi::FetchOp::kStat);
  const FileId id = FileOf(asked);
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting != 0; }));
  Invalidate("d");
  EXPECT_EQ(FileOf(plain), kNoFile);
  EXPECT_NE(FileOf(pinned), kNoFile);
  EXPECT_FALSE(InRam(pinned));
  EXPECT_EQ(FileOf(asked), id);
  source_io_.Hold(io::Step::kRead);
  ASSERT_TRUE(RunUntil([&] { return answers().contains(stat); }));
  const std::uint64_t bytes = Ask(read);
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting != 0; }));
  Invalidate("d");
  EXPECT_EQ(FileOf(asked), kNoFile) << "nobody asks any more";
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return answers().contains(bytes); }));
  EXPECT_EQ(answers()[bytes].bytes, "3");
  EXPECT_EQ(Fetch(plain).bytes, "4");
}

TEST_F(ForgetTest, AChangeOfAnImmutableSetIsNoticedByWhatWasKnown) {
  UseSsd();
  source_options().staleness = abi::Staleness::kImmutable;
  StartEngine();
  const std::string name = Write("d/file", Bytes("file", 1000, 1));
  ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  Invalidate("d");
  Write(name, Bytes("file", 1001, 2));
  EXPECT_EQ(Fetch(name).bytes, Bytes("file", 1001, 2));
  EXPECT_GT(unit().void_before, 0u) << "no older record of the set may come back after a crash";
}

// The number of a directory's path is another one's when it has gone; a sweep that is under way meanwhile keeps to its own tree.
TEST_F(ForgetTest, ASweepMeetsNoOtherTree) {
  StartEngine();
  for (int i = 0; i < 20; ++i) {
    const std::string gone = "gone" + std::to_string(i), kept = "kept" + std::to_string(i);
    ASSERT_EQ(Fetch(Write(gone + "/a", "1")).status(), abi::FetchStatus::kFrame);
    Invalidate(gone);
    EXPECT_EQ(FileOf(gone + "/a"), kNoFile);
    ASSERT_EQ(Fetch(Write(kept + "/a", "2")).status(), abi::FetchStatus::kFrame);
    Invalidate(gone);
    EXPECT_TRUE(InRam(kept + "/a"));
    EXPECT_EQ(engine().catalogue().PathOf(FileOf(kept + "/a")), kept + "/a");
  }
}

}  // namespace
}  // namespace tierd::engine
