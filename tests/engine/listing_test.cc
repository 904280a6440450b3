// Listings: from one walk for all who ask, believed only as far as HAZARDS 2.15 allows.
#include <algorithm>
#include <cstring>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class ListingTest : public EngineTest {
 protected:
  ListingTest() { source_options().ttl_ms = 500; }
  static std::vector<std::string> NamesOf(const Answer& answer) {
    std::vector<std::string> names;
    for (std::size_t at = 0; at + sizeof(abi::ListingEntry) <= answer.bytes.size();) {
      abi::ListingEntry head;
      std::memcpy(&head, answer.bytes.data() + at, sizeof head);
      names.push_back(answer.bytes.substr(at + sizeof head, head.name_bytes));
      at += abi::PadTo8(sizeof head + head.name_bytes);
    }
    return names;
  }
  // As whoever lists it himself sees it.
  std::vector<std::string> Bare(const std::string& path) const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(tree_ / path)) names.push_back(entry.path().filename());
    return names;
  }
  Answer List(const std::string& path) { return Fetch(path, abi::FetchOp::kList); }
  // Until when the directory's listing is served.
  std::uint32_t DeadlineOf(const std::string& path) { return engine().catalogue().ListingDeadline(engine().catalogue().ListingOf(FileOf(path), false)); }
  void Pass(std::int64_t ms) { clock_.ahead_ns += ms * 1'000'000; }
  void ExpectATtlFromNow(const std::string& path) {
    EXPECT_LE(DeadlineOf(path), abi::TicksOf(clock_.PreciseNs() + std::int64_t{source_options().ttl_ms} * 1'000'000));
    EXPECT_GT(DeadlineOf(path), 1u);
  }
};

// Processes of one job that number files by it would else disagree, as soon as one of them is sent to the source.
TEST_F(ListingTest, IsInTheOrderOfTheSource) {
  for (int i = 0; i < 300; ++i) Write("d/" + std::to_string(i * 7919 % 300), "x");
  StartEngine();
  EXPECT_TRUE(NamesOf(List("d")) == Bare("d"));
  const Answer again = List("d");
  EXPECT_EQ(again.tier(), abi::Tier::kRam);
  EXPECT_TRUE(NamesOf(again) == Bare("d"));
}

TEST_F(ListingTest, IsServedFromRamUntilItsTimeIsOver) {
  for (const char* name : {"d/b", "d/a", "d/c/inner"}) Write(name, "x");
  StartEngine();
  EXPECT_EQ(NamesOf(List("d")), Bare("d"));
  Write("d/late", "x");
  EXPECT_EQ(List("d").tier(), abi::Tier::kRam);
  std::this_thread::sleep_for(std::chrono::milliseconds(540));
  EXPECT_EQ(NamesOf(List("d")), Bare("d"));
  std::filesystem::remove(tree_ / "d/a");
  std::this_thread::sleep_for(std::chrono::milliseconds(540));
  EXPECT_EQ(List("d").status(), abi::FetchStatus::kBypass) << "names are missing: the client lists by itself";
  EXPECT_EQ(List("missing").reply.sys_errno, ENOENT);
}

TEST_F(ListingTest, OfAPrivateDirectoryIsWalkedAgainOnceADayAlsoOfAnImmutableSet) {
  source_options().staleness = abi::Staleness::kImmutable;
  Write("d/a", "x");
  ASSERT_EQ(::chmod((tree_ / "d").c_str(), 0750), 0);
  StartEngine();
  ASSERT_EQ(List("d").tier(), abi::Tier::kSource);
  Pass(61'000);
  ASSERT_EQ(List("d").tier(), abi::Tier::kSource);
  EXPECT_NE(DeadlineOf("d"), abi::kDeadlineNever);
  Pass(3'600'000);
  EXPECT_EQ(List("d").tier(), abi::Tier::kRam);
  Pass(24 * 3'600'000);
  EXPECT_EQ(List("d").tier(), abi::Tier::kSource);
}

// A part of the source may have been down.
TEST_F(ListingTest, OfAnImmutableSetIsBelievedForGoodWhenItWasTheSameTenSecondsBefore) {
  source_options().staleness = abi::Staleness::kImmutable;
  for (const char* name : {"d/a", "d/b"}) Write(name, "x");
  StartEngine();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(List("d").tier(), abi::Tier::kSource) << i;
    ExpectATtlFromNow("d");
    Pass(600);
  }
  Pass(10'000);
  ASSERT_EQ(List("d").tier(), abi::Tier::kSource);
  EXPECT_EQ(DeadlineOf("d"), abi::kDeadlineNever);
  const std::vector<std::string> before = Bare("d");
  Write("d/late", "x");
  Pass(3'600'000);
  const Answer answer = List("d");
  EXPECT_EQ(answer.tier(), abi::Tier::kRam);
  EXPECT_EQ(NamesOf(answer), before);
}

TEST_F(ListingTest, OfAnyOtherSetIsBelievedForATtl) {
  for (const char* name : {"d/a", "d/b"}) Write(name, "x");
  StartEngine();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(List("d").tier(), abi::Tier::kSource) << i;
    ExpectATtlFromNow("d");
    Pass(11'000);
  }
}

TEST_F(ListingTest, NamesThatAreMissingTakeNoFileAway) {
  source_options().staleness = abi::Staleness::kImmutable;
  for (const char* name : {"d/a", "d/b"}) Write(name, Bytes(name, 3000));
  StartEngine();
  for (const char* name : {"d/a", "d/b"}) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  ASSERT_EQ(List("d").status(), abi::FetchStatus::kFrame);
  std::filesystem::rename(tree_ / "d/a", tree_ / "away");
  Pass(600);
  EXPECT_EQ(List("d").status(), abi::FetchStatus::kBypass);
  EXPECT_TRUE(InRam("d/a"));
  Pass(10'000);
  EXPECT_EQ(NamesOf(List("d")), std::vector<std::string>{"b"}) << "the same ones ten seconds later";
  const Answer answer = Fetch("d/a");
  EXPECT_EQ(answer.tier(), abi::Tier::kRam);
  EXPECT_TRUE(answer.bytes == Bytes("d/a", 3000));
}

TEST_F(ListingTest, AWriteOfOursDuringTheWalkIsNotMissed) {
  for (const char* name : {"d/a", "d/b"}) Write(name, "x");
  StartEngine();
  const std::uint64_t id = Ask("d", abi::FetchOp::kList);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the walk has ended; the loop has not looked yet
  Write("d/new", "x");
  Advise(abi::AdviseOp::kInvalidate, "d/new");
  ASSERT_TRUE(RunUntil([&] { return answers().contains(id); }));
  EXPECT_EQ(answers()[id].status(), abi::FetchStatus::kBypass);
  EXPECT_EQ(NamesOf(List("d")), Bare("d"));
}

TEST_F(ListingTest, LargerThanAChunk) {
  source_options().chunk_bytes = 64 << 10;
  for (int i = 0; i < 600; ++i) Write("many/name-" + std::to_string(1000 + i) + std::string(191, 'x'), "");  // 224 bytes each: two chunks
  StartEngine();
  const Answer answer = List("many");
  ASSERT_EQ(answer.status(), abi::FetchStatus::kFrame);
  EXPECT_TRUE(NamesOf(answer) == Bare("many"));
  EXPECT_EQ(List("many").tier(), abi::Tier::kRam);
}

TEST_F(ListingTest, ThatIsTooLargeIsLeftToTheClientsAndNotWalkedAgainForATtl) {
  source_options().ttl_ms = 60'000;
  for (const char* name : {"small/a", "small/b", "many/short"}) Write(name, "x");
  for (int i = 0; i < 300; ++i) Write("many/name-" + std::to_string(1000 + i) + std::string(191, 'x'), "");
  StartEngine();
  engine().fetcher().SetLargestListing(32 << 10);
  ASSERT_EQ(List("small").status(), abi::FetchStatus::kFrame);
  const std::size_t remembered = unit().listings.counted();
  const auto expect_too_large = [&] {
    const Answer answer = List("many");
    EXPECT_EQ(answer.status(), abi::FetchStatus::kBypass);
    EXPECT_EQ(answer.reply.reason, static_cast<std::uint8_t>(abi::Fallback::kTooLarge));
  };
  expect_too_large();
  EXPECT_EQ(unit().listings.counted(), remembered);
  for (int i = 0; i < 300; ++i) std::filesystem::remove(tree_ / ("many/name-" + std::to_string(1000 + i) + std::string(191, 'x')));
  expect_too_large();  // a walk would have seen that it is not any more
  Pass(61'000);
  EXPECT_EQ(NamesOf(List("many")), std::vector<std::string>{"short"});
}

// It gets no frame, whoever leaves for it.
TEST_F(ListingTest, ThatFitsInNoSegmentMakesNobodyLeave) {
  options_.ram.capacity_bytes = options_.ram.segment_bytes = 2 << 20;
  source_options().ttl_ms = 60'000;
  const auto names = MakeFiles(12, 100'000);
  for (int i = 0; i < 7400; ++i) Write("many/name-" + std::to_string(1000 + i) + std::string(240, 'x'), "");  // 272 bytes each
  StartEngine();
  for (const std::string& name : names) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  const auto resident = [&] { return std::count_if(names.begin(), names.end(), [&](const std::string& name) { return InRam(name); }); };
  const auto before = resident();
  ASSERT_GT(before, 9);
  for (int i = 0; i < 2; ++i) {
    const Answer answer = List("many");
    EXPECT_EQ(answer.status(), abi::FetchStatus::kBypass);
    EXPECT_EQ(answer.reply.reason, static_cast<std::uint8_t>(abi::Fallback::kTooLarge));
  }
  EXPECT_EQ(resident(), before);
}

// Deadlines do not count the time for which the machine was suspended.
TEST_F(ListingTest, FromBeforeTheMachineSleptIsNotServed) {
  source_options().ttl_ms = 3'600'000;
  Write("d/a", "x");
  StartEngine();
  ASSERT_EQ(NamesOf(List("d")), Bare("d"));
  ASSERT_EQ(List("d").tier(), abi::Tier::kRam);
  Write("d/late", "x");
  clock_.asleep_ns += 3'600'000'000'000;
  ASSERT_TRUE(RunUntil([&] { return DeadlineOf("d") == abi::kDeadlineExpired; }, 5000));
  EXPECT_EQ(NamesOf(List("d")), Bare("d"));
}

TEST_F(ListingTest, WalkedWhileTheMachineSleptIsNotServed) {
  constexpr std::size_t kDirectories = 40;
  source_options().requests_per_s = 20;  // most of them are walked when it has woken up
  for (std::size_t i = 0; i < kDirectories; ++i) Write("d" + std::to_string(i) + "/a", "x");
  StartEngine();
  for (std::size_t i = 0; i < kDirectories; ++i) (void)Ask("d" + std::to_string(i), abi::FetchOp::kList);
  clock_.asleep_ns += 3'600'000'000'000;
  ASSERT_TRUE(RunUntil([&] { return answers().size() == kDirectories; }));
  const auto refused = [](const auto& one) { return one.second.reply.reason == static_cast<std::uint8_t>(abi::Fallback::kChanged); };
  EXPECT_GT(std::count_if(answers().begin(), answers().end(), refused), 20);
}

// On a source that is slow, or hangs, whoever asks for ever other directories leaves nothing behind.
TEST_F(ListingTest, ThatNobodyWaitsForStandsInNobodysWay) {
  constexpr std::size_t kAsked = 1500, kMostWalks = 1024;
  source_options().requests_per_s = 10;
  source_options().demand_timeout_ms = 60;
  StartEngine();
  for (std::size_t i = 0; i < kAsked; ++i) (void)Ask("absent" + std::to_string(i), abi::FetchOp::kList);
  EXPECT_EQ(answers().size(), kAsked - kMostWalks) << "have been answered at once";
  for (const auto& [id, answer] : answers()) ASSERT_EQ(answer.reply.reason, static_cast<std::uint8_t>(abi::Fallback::kSourceSlow)) << id;
  ASSERT_TRUE(RunUntil([&] { return answers().size() == kAsked; }));
  EXPECT_TRUE(RunUntil([&] { return unit().walker->active() <= 64; }, 10'000)) << unit().walker->active();
}

// The record was pinned as a file: what it has as a directory is nobody's to unpin.
TEST_F(ListingTest, OfADirectoryThatWasAPinnedFileIsNotPinned) {
  source_options().ttl_ms = 60;
  Write("name", Bytes("name", 7200));
  StartEngine();
  ASSERT_EQ(Fetch("name").status(), abi::FetchStatus::kFrame);
  engine().placement().SetPinned(FileOf("name"), true);
  ASSERT_EQ(engine().placement().pinned_bytes(TIERD_TIER_RAM), 7200u);
  std::filesystem::remove(tree_ / "name");
  for (const char* name : {"name/a", "name/b"}) Write(name, "x");
  Pass(100);
  ASSERT_EQ(NamesOf(List("name")), Bare("name"));
  EXPECT_EQ(engine().placement().pinned_bytes(TIERD_TIER_RAM), 0u);
  engine().placement().SetPinned(FileOf("name"), false);
  engine().placement().EvictFile(FileOf("name"), EvictCause::kRequest);
  EXPECT_EQ(engine().placement().pinned_bytes(TIERD_TIER_RAM), 0u);
}

}  // namespace
}  // namespace tierd::engine
