// A source that cannot be asked (HAZARDS 2.16): what a former life has left is served only where that was wished, and never when the source has answered.
#include <sched.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>
#include <functional>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

// The error with which stats and opens of the source end; 0: as they are.
class StatFaults final : public io::EngineFaults {
 public:
  long Outcome(io::Step step, long result) override {
    return (step == io::Step::kStat || step == io::Step::kOpen) && error != 0 ? -error : result;
  }
  unsigned SubmitLimit(unsigned pending) override { return pending; }
  unsigned CompletionEntries() override { return 0; }
  std::atomic<int> error = 0;
};

class OfflineTest : public EngineTest {
 protected:
  OfflineTest() {
    source_options().staleness = abi::Staleness::kImmutable;
    source_options().demand_timeout_ms = 60;
    UseSsd();
  }
  ~OfflineTest() override { StopEngine(); }
  // Another life, of which nothing has been compared with the source yet.
  void StartOverWith(bool offline_ok) {
    StopEngine();
    source_options().offline_ok = offline_ok;
    StartEngine();
    ASSERT_TRUE(OnSsd(names_[0]));
  }
  bool Checked(const std::string& name) { return (engine().catalogue().file(FileOf(name)).flags & kFileChecked) != 0; }
  void FillSsd() {
    names_ = MakeFiles(8, 20'000);
    StartEngine();
    for (const std::string& name : names_) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
    for (const std::string& name : names_) ASSERT_TRUE(OnSsd(name));
  }
  StatFaults faults_;
  std::vector<std::string> names_;
};

TEST_F(OfflineTest, ASourceThatHangsIsDoneWithoutWhereThatWasWished) {
  FillSsd();
  ASSERT_NO_FATAL_FAILURE(StartOverWith(false));
  source_io_.Hold(io::Step::kStat);
  const Answer refused = Fetch(names_[1]);
  EXPECT_EQ(refused.status(), abi::FetchStatus::kBypass);
  EXPECT_EQ(refused.reply.reason, static_cast<std::uint8_t>(abi::Fallback::kSourceSlow));
  ASSERT_NO_FATAL_FAILURE(StartOverWith(true));
  source_io_.Hold(io::Step::kStat);
  const Answer served = Fetch(names_[1]);
  EXPECT_EQ(served.tier(), abi::Tier::kSsd);
  EXPECT_TRUE(served.bytes == Bytes(names_[1], 20'000));
  // The next ones are not made to wait for it.
  const std::uint64_t waiting = source_io_.waiting;
  for (std::size_t i = 2; i < names_.size(); ++i) EXPECT_TRUE(Fetch(names_[i]).bytes == Bytes(names_[i], 20'000));
  EXPECT_EQ(source_io_.waiting, waiting);
}

TEST_F(OfflineTest, SoIsOneThatCannotBeReached) {
  options_.source_faults = &faults_;
  FillSsd();
  ASSERT_NO_FATAL_FAILURE(StartOverWith(false));
  faults_.error = ENOTCONN;
  EXPECT_NE(Fetch(names_[1]).status(), abi::FetchStatus::kFrame);
  faults_.error = 0;
  ASSERT_NO_FATAL_FAILURE(StartOverWith(true));
  std::size_t i = 1;
  // These are answers.
  for (const int answer : {ENOENT, EACCES}) {
    faults_.error = answer;
    EXPECT_NE(Fetch(names_[i]).status(), abi::FetchStatus::kFrame) << answer;
    ++i;
  }
  for (const int unreachable : {ENOTCONN, EIO, ETIMEDOUT, EHOSTDOWN, ESHUTDOWN}) {
    faults_.error = unreachable;
    const Answer served = Fetch(names_[i]);
    EXPECT_EQ(served.tier(), abi::Tier::kSsd) << unreachable;
    EXPECT_TRUE(served.bytes == Bytes(names_[i], 20'000)) << unreachable;
    unit().unreachable_until_ns = 0;
    ++i;
  }
}

// HAZARDS 2.16: what nobody could be asked about is believed until the source is asked again, not for the daemon's whole life.
TEST_F(OfflineTest, WhatWasServedUnaskedIsAskedAboutOnceTheSourceIsBack) {
  options_.source_faults = &faults_;
  FillSsd();
  ASSERT_NO_FATAL_FAILURE(StartOverWith(true));
  for (const std::size_t i : {1u, 2u}) Write(names_[i], Bytes(names_[i], 21'000, 2));
  faults_.error = ENOTCONN;
  for (const std::size_t i : {1u, 2u, 3u}) {  // the first was asked about, the others were not
    const Answer served = Fetch(names_[i]);
    EXPECT_TRUE(served.bytes == Bytes(names_[i], 20'000)) << i;
    EXPECT_NE(served.reply.deadline, abi::kDeadlineNever) << i;
    EXPECT_FALSE(Checked(names_[i])) << i;
  }
  EXPECT_EQ(unit().reader->counters().sent[0], 1u);
  clock_.ahead_ns += 6'000'000'000;
  EXPECT_TRUE(Fetch(names_[1]).bytes == Bytes(names_[1], 20'000)) << "still away";
  faults_.error = 0;
  EXPECT_TRUE(Fetch(names_[2]).bytes == Bytes(names_[2], 21'000, 2)) << "believed unasked no second time";
  clock_.ahead_ns += 6'000'000'000;
  EXPECT_TRUE(Fetch(names_[1]).bytes == Bytes(names_[1], 21'000, 2));
  const Answer confirmed = Fetch(names_[3]);
  EXPECT_TRUE(confirmed.bytes == Bytes(names_[3], 20'000));
  EXPECT_EQ(confirmed.reply.deadline, abi::kDeadlineNever);
  EXPECT_TRUE(Checked(names_[3]));
}

TEST_F(OfflineTest, AnErrorOfOneFileLeavesTheOthersAsked) {
  options_.source_faults = &faults_;
  FillSsd();
  ASSERT_NO_FATAL_FAILURE(StartOverWith(true));
  Write(names_[2], Bytes(names_[2], 21'000, 2));
  faults_.error = EIO;
  EXPECT_TRUE(Fetch(names_[1]).bytes == Bytes(names_[1], 20'000));
  EXPECT_FALSE(Checked(names_[1]));
  faults_.error = 0;
  EXPECT_TRUE(Fetch(names_[2]).bytes == Bytes(names_[2], 21'000, 2));
}

// That another file system covers the name by now is an answer, too.
TEST_F(OfflineTest, WhatAMountCoversIsNotServed) {
  // Threads that are started from here on see the mount, and nobody else.
  if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) GTEST_SKIP() << "no namespace of its own: " << std::strerror(errno);
  FillSsd();
  const std::string covered = Write("covered/f", Bytes("covered/f", 20'000)), other = names_[0];
  ASSERT_EQ(Fetch(covered).status(), abi::FetchStatus::kFrame);
  ASSERT_TRUE(OnSsd(covered));
  ASSERT_NO_FATAL_FAILURE(StartOverWith(true));
  const std::string directory = tree_.path() + "/covered";
  ASSERT_EQ(::mount("tmpfs", directory.c_str(), "tmpfs", 0, "size=1m"), 0) << std::strerror(errno);
  Write(covered, Bytes(covered, 20'000, 2));
  const Answer refused = Fetch(covered);
  EXPECT_NE(refused.status(), abi::FetchStatus::kFrame);
  EXPECT_TRUE(Fetch(other).bytes == Bytes(other, 20'000));
  EXPECT_EQ(::umount2(directory.c_str(), MNT_DETACH), 0);
}

}  // namespace
}  // namespace tierd::engine
