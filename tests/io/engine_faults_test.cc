// What a healthy kernel seldom does: each outcome forced, and what must come of it.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tests/io/engine_test_base.h"

namespace tierd::io {
namespace {

class Faults : public BothEngines {
 protected:
  // An engine whose steps go through `script`.
  void MakeFaulty(ScriptedFaults::Script script) {
    faults_ = std::make_unique<ScriptedFaults>(std::move(script));
    Make({.faults = faults_.get()});
  }
  std::unique_ptr<ScriptedFaults> faults_;
};

#define MAKE_FAULTY(...)      \
  do {                        \
    MakeFaulty(__VA_ARGS__);  \
    if (IsSkipped()) return;  \
  } while (0)

TEST_P(Faults, ShortReadsOfAFileAreContinued) {
  MAKE_FAULTY([](Step step, long result) { return step == Step::kRead ? std::min(result, 7001L) : result; });
  const std::string bytes = WriteContent("file", 50'000);
  const FileOutcome outcome = Read("file");
  EXPECT_EQ(outcome.result.error, 0);
  EXPECT_TRUE(outcome.bytes == bytes);
  EXPECT_TRUE(outcome.result.before.SameVersion(outcome.result.after));
  EXPECT_GE(engine_->counters().short_continued, 7U);
}

TEST_P(Faults, ShortDirectReadGoesOnBuffered) {
  MAKE_FAULTY([](Step step, long result) { return step == Step::kRead ? std::min(result, 7001L) : result; });
  const std::string bytes = WriteContent("file", 50'000);
  const FileOutcome outcome = Read("file", 1 << 20, 0, [](FileReadRequest* request) { request->direct = true; });
  EXPECT_EQ(outcome.result.error, 0);
  EXPECT_FALSE(outcome.result.direct_refused);
  EXPECT_TRUE(outcome.bytes == bytes);
}

TEST_P(Faults, ShortTransfersAreContinuedAcrossVectors) {
  MAKE_FAULTY([](Step step, long result) {
    return step == Step::kReadv || step == Step::kWritev ? std::min(result, 333L) : result;
  });
  const UniqueFd file(::open(Path("file").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  std::string one = Content("one", 1000);
  std::string two = Content("two", 1234);
  const iovec out[] = {{one.data(), one.size()}, {two.data(), two.size()}};
  EXPECT_EQ(Writev(file.get(), out, 0).bytes, 2234U);
  std::string first(500, 'x');
  std::string second(1734, 'x');
  const iovec in[] = {{first.data(), first.size()}, {second.data(), second.size()}};
  EXPECT_EQ(Readv(file.get(), in, 0).bytes, 2234U);
  EXPECT_TRUE(first + second == one + two);
  EXPECT_GE(engine_->counters().short_continued, 12U);
}

TEST_P(Faults, TransientErrorsAreRepeatedAtEveryStep) {
  int turn = 0;
  MAKE_FAULTY([&turn](Step, long result) {
    ++turn;
    return turn % 3 == 0 ? -EINTR : turn % 3 == 1 ? -EAGAIN : result;
  });
  const std::string bytes = WriteContent("file", 5000);
  const UniqueFd file(::open(Path("file").c_str(), O_RDWR | O_CLOEXEC));
  const FileOutcome outcome = Read("file");
  EXPECT_EQ(outcome.result.error, 0);
  EXPECT_TRUE(outcome.bytes == bytes);
  EXPECT_EQ(Stat("file").stat.size, 5000U);
  EXPECT_EQ(Stat("./file").stat.size, 5000U);
  std::string copy(5000, 'x');
  const iovec iov{copy.data(), copy.size()};
  EXPECT_EQ(Readv(file.get(), {&iov, 1}, 0).bytes, 5000U);
  EXPECT_TRUE(copy == bytes);
  EXPECT_EQ(Writev(file.get(), {&iov, 1}, 5000).bytes, 5000U);
  EXPECT_GE(engine_->counters().retried, 6U);
}

TEST_P(Faults, TransientErrorsDoNotRepeatForEver) {
  MAKE_FAULTY([](Step, long) { return -EAGAIN; });
  WriteContent("file", 10);
  const std::size_t before = OpenDescriptors();
  EXPECT_EQ(Read("file").result.error, EAGAIN);
  EXPECT_EQ(Stat("file").error, EAGAIN);
  EXPECT_EQ(Stat("./file").error, EAGAIN);
  std::string copy(10, 'x');
  const iovec iov{copy.data(), copy.size()};
  EXPECT_EQ(Readv(root(), {&iov, 1}, 0).error, EAGAIN);
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_P(Faults, AnErrorOfAnyStepIsTheErrorOfTheRequestAndClosesTheFile) {
  Step failing = Step::kOpen;
  MAKE_FAULTY([&failing](Step step, long result) { return step == failing ? -EIO : result; });
  WriteContent("file", 10);
  const std::size_t before = OpenDescriptors();
  for (const Step step : {Step::kOpen, Step::kStatBefore, Step::kRead, Step::kStatAfter}) {
    failing = step;
    EXPECT_EQ(Read("file").result.error, EIO) << static_cast<int>(step);
    EXPECT_EQ(Read("file").result.opened, step != Step::kOpen);
  }
  failing = Step::kAdvise;
  EXPECT_EQ(Read("file").result.error, 0);
  failing = Step::kStat;
  EXPECT_EQ(Stat("file").error, EIO);
  EXPECT_EQ(Stat("./file").error, EIO);
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_P(Faults, AStatThatFailsBehindItsNameLeavesNoDescriptor) {
  int turn = 0;
  MAKE_FAULTY([&turn](Step, long result) { return ++turn == 1 ? result : -EIO; });
  WriteContent("file", 10);
  const std::size_t before = OpenDescriptors();
  const int error = Stat("./file").error;
  EXPECT_EQ(error, GetParam() == EngineKind::kUring ? EIO : 0) << "to the pool a stat is one step";
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_P(Faults, DirectRefusedAtOpenOrReadFallsBackToBuffered) {
  Step refusing = Step::kOpen;
  int left = 1;
  MAKE_FAULTY([&](Step step, long result) { return step == refusing && left-- > 0 ? -EINVAL : result; });
  const std::string bytes = WriteContent("file", 50'000);
  for (const Step step : {Step::kOpen, Step::kRead}) {
    refusing = step;
    left = 1;
    const FileOutcome outcome = Read("file", 1 << 20, 0, [](FileReadRequest* request) { request->direct = true; });
    EXPECT_EQ(outcome.result.error, 0);
    EXPECT_TRUE(outcome.result.direct_refused);
    EXPECT_TRUE(outcome.bytes == bytes);
  }
}

TEST_P(Faults, WriteThatTakesNothingIsAnError) {
  MAKE_FAULTY([](Step step, long result) { return step == Step::kWritev ? 0 : result; });
  const UniqueFd file(::open(Path("file").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  std::string bytes(10, 'x');
  const iovec iov{bytes.data(), bytes.size()};
  EXPECT_EQ(Writev(file.get(), {&iov, 1}, 0).error, EIO);
}

TEST_P(Faults, ErrorAfterAShortTransferKeepsItsCount) {
  int turn = 0;
  MAKE_FAULTY([&turn](Step step, long result) {
    if (step != Step::kReadv) return result;
    return ++turn == 1 ? 4096L : static_cast<long>(-EIO);
  });
  WriteContent("file", 50'000);
  const UniqueFd file(::open(Path("file").c_str(), O_RDONLY | O_CLOEXEC));
  std::string bytes(50'000, 'x');
  const iovec iov{bytes.data(), bytes.size()};
  const IoResult result = Readv(file.get(), {&iov, 1}, 0);
  EXPECT_EQ(result.error, EIO);
  EXPECT_EQ(result.bytes, 4096U);
}

TEST_P(Faults, FileThatShrinksWhileReadEndsWhereItEnds) {
  bool cut = false;
  MAKE_FAULTY([&](Step step, long result) {
    if (step != Step::kRead) return result;
    if (cut) return result;
    cut = true;
    EXPECT_EQ(::truncate(Path("file").c_str(), 100), 0);
    return 50L;
  });
  const std::string bytes = WriteContent("file", 50'000);
  const FileOutcome outcome = Read("file");
  EXPECT_EQ(outcome.result.error, 0);
  EXPECT_TRUE(outcome.bytes == bytes.substr(0, 100));
  EXPECT_EQ(outcome.result.after.size, 100U);
}

INSTANTIATE_FOR_BOTH_ENGINES(Faults);

}  // namespace
}  // namespace tierd::io
