// Whether a cached file may still be read is asked by an open, unless anybody may read it.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class AccessTest : public EngineTest {
 protected:
  static constexpr std::uint32_t kTtlMs = 200, kRecheckMs = 1000;
  AccessTest() {
    source_options().ttl_ms = kTtlMs;
    source_options().access_recheck_ms = kRecheckMs;
  }
  std::string Make(const std::string& name, mode_t mode) {
    Write(name, Bytes(name, 5000));
    Mode(name, mode);
    return name;
  }
  void Mode(const std::string& name, mode_t mode) { ASSERT_EQ(::chmod((tree_ / name).c_str(), mode), 0); }
  std::uint64_t opens() const { return source_io_.count(io::Step::kOpen); }
  std::uint64_t stats() const { return source_io_.count(io::Step::kStat); }
  void Pass(int ms) {
    RunUntil([] { return false; }, ms);
  }
  // Reads the file now and then for so long. False: it was refused.
  bool Serves(const std::string& name, int ms) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
    for (auto asked = std::chrono::steady_clock::now(); asked < end; asked = std::chrono::steady_clock::now()) {
      const Answer answer = Fetch(name);
      if (answer.status() == abi::FetchStatus::kError) {
        EXPECT_EQ(answer.reply.sys_errno, EACCES);
        return false;
      }
      EXPECT_EQ(answer.bytes, Bytes(name, 5000));
      last_served_ = asked;
      Pass(10);
    }
    return true;
  }
  void Restart() {
    StopEngine();
    StartEngine();
  }

  std::chrono::steady_clock::time_point last_served_;  // when the last request that Serves saw served was made
};

TEST_F(AccessTest, AFileWhoseOpenIsRefusedIsServedNoLongerThanTheRecheck) {
  const std::string name = Make("secret", 0640);
  StartEngine();
  ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  source_io_.open_error = EACCES;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(Serves(name, 10 * kRecheckMs));
  EXPECT_LE(last_served_ - begin, std::chrono::milliseconds(kRecheckMs + 40)) << "deadlines are rounded to ticks of 17 ms";
  EXPECT_GE(stats(), 1u) << "until then a stat was enough";
  EXPECT_EQ(engine().counters().access_refused, 1u);
  // Not before an open has succeeded.
  Pass(2 * kTtlMs);
  EXPECT_FALSE(Serves(name, kTtlMs));
  source_io_.open_error = 0;
  EXPECT_TRUE(Serves(name, kTtlMs));
  EXPECT_EQ(engine().counters().promotions_source_ram, 1u) << "what was cached is served again";
}

TEST_F(AccessTest, ASetThatNeverChangesIsAskedAboutToo) {
  source_options().staleness = abi::Staleness::kImmutable;
  const std::string name = Make("secret", 0640);
  StartEngine();
  ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  source_io_.open_error = EACCES;
  EXPECT_FALSE(Serves(name, 3 * kRecheckMs));
  EXPECT_EQ(stats(), 0u);
}

TEST_F(AccessTest, TheFirstConfirmationAfterARestartIsAnOpen) {
  UseSsd();
  const std::string name = Make("secret", 0640), other = Make("other", 0640);
  StartEngine();
  ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  ASSERT_EQ(Fetch(other).status(), abi::FetchStatus::kFrame);
  ASSERT_TRUE(RunUntil([&] { return OnSsd(name) && OnSsd(other); }));
  Restart();
  ASSERT_TRUE(OnSsd(name));
  const std::uint64_t before = opens();
  EXPECT_EQ(Fetch(name).tier(), abi::Tier::kSsd);
  EXPECT_EQ(opens() - before, 1u);
  source_io_.open_error = EACCES;
  const Answer refused = Fetch(other);
  EXPECT_EQ(refused.status(), abi::FetchStatus::kError);
  EXPECT_EQ(refused.reply.sys_errno, EACCES);
  EXPECT_FALSE(InRam(other));
}

TEST_F(AccessTest, AFileThatAnybodyMayReadIsNeverOpenedForIt) {
  UseSsd();
  const std::string name = Make("d/open", 0644);
  Mode("d", 0755);
  StartEngine();
  ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  ASSERT_TRUE(RunUntil([&] { return OnSsd(name); }));
  EXPECT_TRUE(Serves(name, 3 * kRecheckMs));
  EXPECT_EQ(opens(), 1u) << "it was read once";
  const std::uint64_t asked = stats();
  // However slow the machine is, nothing is asked about twice.
  source_options().ttl_ms = 60'000;
  source_options().access_recheck_ms = 600'000;
  Restart();
  EXPECT_EQ(Fetch(name).tier(), abi::Tier::kSsd);
  EXPECT_EQ(opens(), 1u);
  EXPECT_EQ(stats() - asked, 2u) << "the directory, and the file";
}

TEST_F(AccessTest, ADirectoryThatNotEverybodyMaySearchCountsForTheFilesBelow) {
  const std::string name = Make("d/e/open", 0644);
  Mode("d", 0750);
  StartEngine();
  ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  EXPECT_TRUE(Serves(name, 2 * kRecheckMs));
  EXPECT_GE(opens(), 2u);
  source_io_.open_error = EACCES;
  EXPECT_FALSE(Serves(name, 2 * kRecheckMs));
}

// The source is asked about a directory once for all its files, and the files need no open then.
TEST_F(AccessTest, ADirectoryIsAskedAboutOnceForAllItsFiles) {
  UseSsd();
  source_options().access_recheck_ms = 0;
  std::vector<std::string> names;
  for (int i = 0; i < 50; ++i) names.push_back(Make("d/f" + std::to_string(i), 0644));
  Mode("d", 0755);
  StartEngine();
  for (const std::string& name : names) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  ASSERT_TRUE(RunUntil([&] { return std::all_of(names.begin(), names.end(), [&](const std::string& name) { return OnSsd(name); }); }));
  Restart();
  const std::uint64_t opened = opens(), asked = stats();
  std::vector<std::uint64_t> ids;
  for (const std::string& name : names) ids.push_back(Ask(name));
  ASSERT_TRUE(RunUntil([&] { return std::all_of(ids.begin(), ids.end(), [&](std::uint64_t id) { return answers().contains(id); }); }));
  for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(answers()[ids[i]].bytes, Bytes(names[i], 5000)) << names[i];
  EXPECT_EQ(opens() - opened, 0u);
  EXPECT_EQ(stats() - asked, names.size() + 1);
}

// Ahead of use, and as often as is promised.
TEST_F(AccessTest, HotFilesAreOpenedOncePerRecheckAndNoReaderWaitsForIt) {
  constexpr int kPeriodMs = 2000, kMarginMs = 100;
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) names.push_back(Make("d/f" + std::to_string(i), 0640));
  source_options().ttl_ms = 600;
  source_options().access_recheck_ms = kPeriodMs;
  StartEngine();
  std::vector<Answer> read;
  for (const std::string& name : names) read.push_back(Fetch(name));
  using Time = std::chrono::steady_clock;
  // A period in which the machine let this thread wait says nothing of who waits for whom.
  bool undisturbed = false;
  for (int tries = 0; !undisturbed && tries < 10; ++tries) {
    const std::uint64_t before = opens(), confirmed = engine().counters().revalidations;
    const auto begin = Time::now();
    auto last = begin;
    Time::duration longest{};
    std::int64_t least_ns = 1'000'000'000;
    for (std::size_t i = 0; last < begin + std::chrono::milliseconds(2 * kPeriodMs); ++i) {
      NoteRead(read[i % read.size()]);
      Pass(3);
      const auto now = Time::now();
      longest = std::max(longest, now - std::exchange(last, now));
      for (const std::string& name : names) {
        const std::uint32_t deadline = engine().catalogue().DeadlineOf(FileOf(name));
        least_ns = std::min(least_ns, (std::int64_t{deadline} << abi::kTickShift) - SystemClock().MonotonicNs());
      }
    }
    const std::uint64_t opened = opens() - before;
    EXPECT_GE(opened, names.size());
    EXPECT_LE(opened, static_cast<std::uint64_t>((last - begin) / std::chrono::milliseconds(kPeriodMs) + 1) * names.size());
    EXPECT_GT(engine().counters().revalidations - confirmed, opened) << "most confirmations are stats";
    undisturbed = longest < std::chrono::milliseconds(kMarginMs);
    EXPECT_TRUE(least_ns > 0 || !undisturbed) << "a hit never waits for an open";
  }
  if (!undisturbed) GTEST_SKIP() << "the machine was too busy to say whether a hit waits for an open";
}

TEST_F(AccessTest, ARefusedFileIsNotAskedAboutAheadOfUse) {
  const std::string name = Make("secret", 0640), hot = Make("hot", 0644);
  StartEngine();
  const Answer answer = Fetch(hot);
  ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  source_io_.open_error = EACCES;
  ASSERT_FALSE(Serves(name, 3 * kRecheckMs));
  const std::uint64_t before = opens();
  for (int i = 0; i < 100; ++i) {
    NoteRead(answer);
    Pass(10);
  }
  EXPECT_EQ(opens(), before);
}

// A walk looks at names and stats: that is no open.
TEST_F(AccessTest, AWalkConfirmsNoFileThatMustBeOpened) {
  UseSsd();
  source_options().ttl_ms = 60'000;
  source_options().access_recheck_ms = 600'000;  // what the walk says of the directories does not grow old before the test has looked
  const std::string secret = Make("d/secret", 0640), open = Make("d/open", 0644);
  Mode("d", 0755);
  StartEngine();
  for (const std::string& name : {secret, open}) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  ASSERT_TRUE(RunUntil([&] { return OnSsd(secret) && OnSsd(open); }));
  Restart();
  const auto observe = [&](const std::string& name) {
    io::FileStat stat = engine().catalogue().StatOf(FileOf(name));
    struct stat st {};
    ASSERT_EQ(::stat((tree_ / name).c_str(), &st), 0);
    stat.mode = st.st_mode;
    engine().fetcher().Observe(unit(), name, stat, clock_.PreciseNs());
  };
  io::FileStat directory;
  directory.mode = S_IFDIR | 0755;
  engine().fetcher().Observe(unit(), "d", directory, clock_.PreciseNs());
  observe(secret);
  observe(open);
  EXPECT_EQ(engine().catalogue().DeadlineOf(FileOf(secret)), abi::kDeadlineExpired);
  EXPECT_GT(engine().catalogue().DeadlineOf(FileOf(open)), abi::kDeadlineExpired);
}

TEST_F(AccessTest, AnotherErrorOfTheOpenIsAsOneOfTheStat) {
  const std::string name = Make("secret", 0640);
  StartEngine();
  ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  source_io_.open_error = EIO;
  Pass(kRecheckMs + 100);
  const Answer answer = Fetch(name);
  EXPECT_EQ(answer.status(), abi::FetchStatus::kError);
  EXPECT_EQ(answer.reply.sys_errno, EIO);
  EXPECT_EQ(engine().counters().access_refused, 0u);
  EXPECT_TRUE(InRam(name));
  source_io_.open_error = 0;
  EXPECT_EQ(Fetch(name).tier(), abi::Tier::kRam);
}

// A reader that waits for a directory of a source that does not answer is sent away in time, as
// from a file's stat.
TEST_F(AccessTest, AReaderDoesNotWaitForADirectoryLongerThanForAFile) {
  UseSsd();
  const std::string name = Make("d/open", 0644);
  StartEngine();
  ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  ASSERT_TRUE(RunUntil([&] { return OnSsd(name); }));
  source_options().demand_timeout_ms = 300;
  Restart();
  source_io_.Hold(io::Step::kStat);
  const std::uint64_t id = Ask(name);
  ASSERT_TRUE(RunUntil([&] { return answers().contains(id); }));
  EXPECT_EQ(answers()[id].status(), abi::FetchStatus::kBypass);
  source_io_.Release();
  EXPECT_TRUE(RunUntil([&] { return Fetch(name).bytes == Bytes(name, 5000); }));
}

}  // namespace
}  // namespace tierd::engine
