#include "tierd/source/engine_trial.h"

#include <gtest/gtest.h>

#include <functional>

namespace tierd::source {
namespace {

using io::EngineKind;

constexpr std::uint32_t kWindow = 64;
constexpr double kRequests = EngineTrial::kTurns * (kWindow + EngineTrial::kMeasured);

struct Ended {
  std::int64_t took_ns = 0;  // since the request before
  std::size_t bytes = 2000;
};

// Completes requests until it is decided; `next` says how the request of that number ends with that engine.
void RunTrial(EngineTrial* trial, const std::function<Ended(EngineKind, int)>& next) {
  std::int64_t now = 1000;
  trial->Start(kWindow);
  for (int i = 0; i < 10'000 && !trial->decided(); ++i) {
    if (trial->ready()) trial->Start(kWindow);
    const EngineKind kind = trial->current();
    const Ended ended = next(kind, i);
    now += ended.took_ns;
    trial->OnComplete(kind, ended.bytes, now, kWindow);
  }
}

// Each kind takes its own time per request.
void RunTrial(EngineTrial* trial, std::int64_t uring_ns, std::int64_t threads_ns) {
  RunTrial(trial, [&](EngineKind kind, int) { return Ended{kind == EngineKind::kUring ? uring_ns : threads_ns}; });
}

TEST(EngineTrial, TakesTheClearlyFasterOne) {
  EngineTrial trial(EngineKind::kThreads);
  RunTrial(&trial, 30'000, 60'000);
  EXPECT_TRUE(trial.decided());
  EXPECT_EQ(trial.current(), EngineKind::kUring);
  EXPECT_EQ(trial.Report(), "measured: threads 16667/s, io_uring 33333/s");
}

TEST(EngineTrial, KeepsThePreferredWhenItIsAboutAsFast) {
  EngineTrial threads(EngineKind::kThreads);
  RunTrial(&threads, 57'000, 60'000);
  EXPECT_EQ(threads.current(), EngineKind::kThreads);
  EngineTrial uring(EngineKind::kUring);
  RunTrial(&uring, 60'000, 57'000);
  EXPECT_EQ(uring.current(), EngineKind::kUring);
}

TEST(EngineTrial, TakesTheOneThatIsFasterByHalfWhicheverIsPreferred) {
  for (const EngineKind preferred : {EngineKind::kThreads, EngineKind::kUring}) {
    EngineTrial uring(preferred);
    RunTrial(&uring, 40'000, 60'000);
    EXPECT_EQ(uring.current(), EngineKind::kUring);
    EngineTrial threads(preferred);
    RunTrial(&threads, 60'000, 40'000);
    EXPECT_EQ(threads.current(), EngineKind::kThreads);
  }
}

TEST(EngineTrial, KeepsThePreferredWhileTheSourceBecomesTwiceAsFast) {
  for (const EngineKind preferred : {EngineKind::kThreads, EngineKind::kUring}) {
    EngineTrial trial(preferred);
    RunTrial(&trial, [](EngineKind, int i) { return Ended{static_cast<std::int64_t>(100'000 / (1 + i / kRequests))}; });
    EXPECT_TRUE(trial.decided());
    EXPECT_EQ(trial.current(), preferred) << trial.Report();
  }
}

TEST(EngineTrial, OneLuckyTurnDoesNotDecide) {
  for (const int slow : {0, 3}) {  // turn of the preferred in which the machine did something else
    EngineTrial trial(EngineKind::kThreads);
    RunTrial(&trial, [&](EngineKind, int i) { return Ended{i / static_cast<int>(kRequests / 4) == slow ? 300'000 : 50'000}; });
    EXPECT_TRUE(trial.decided());
    EXPECT_EQ(trial.current(), EngineKind::kThreads) << trial.Report();
  }
}

TEST(EngineTrial, OneTrialWonDoesNotDecide) {
  EngineTrial trial(EngineKind::kThreads);
  RunTrial(&trial, [](EngineKind kind, int i) { return Ended{kind == EngineKind::kThreads && i < kRequests ? 150'000 : 50'000}; });
  EXPECT_TRUE(trial.decided());
  EXPECT_EQ(trial.current(), EngineKind::kThreads) << trial.Report();
}

TEST(EngineTrial, LargeReadsAmongTheSmallDoNotDecide) {
  EngineTrial trial(EngineKind::kThreads);
  // One of ten of the preferred engine's is a chunk; the other has none in its turns.
  RunTrial(&trial, [](EngineKind kind, int i) { return kind == EngineKind::kThreads && i % 10 == 9 ? Ended{900'000, 4 << 20} : Ended{30'000}; });
  EXPECT_EQ(trial.current(), EngineKind::kThreads) << trial.Report();
  EXPECT_FALSE(trial.decided());
  EXPECT_FALSE(trial.ready());
  for (int i = 0; i < 1000 && !trial.ready(); ++i) trial.OnComplete(EngineKind::kThreads, 2000, i, kWindow);
  EXPECT_TRUE(trial.ready());
  RunTrial(&trial, 20'000, 60'000);
  EXPECT_EQ(trial.current(), EngineKind::kUring);
}

TEST(EngineTrial, ALateLargeReadOfTheOtherEngineStartsItOver) {
  EngineTrial trial(EngineKind::kThreads);
  trial.Start(kWindow);
  trial.OnComplete(EngineKind::kUring, EngineTrial::kLargeBytes, 1000, kWindow);
  EXPECT_FALSE(trial.running());
}

TEST(EngineTrial, SmallerFilesInTheTurnsOfOneDoNotDecide) {
  for (const EngineKind smaller : {EngineKind::kThreads, EngineKind::kUring}) {
    EngineTrial trial(EngineKind::kThreads);
    RunTrial(&trial, [&](EngineKind kind, int) { return kind == smaller ? Ended{30'000, 1000} : Ended{60'000, 200'000}; });
    EXPECT_TRUE(trial.decided());
    EXPECT_EQ(trial.current(), EngineKind::kThreads) << trial.Report();
  }
}

TEST(EngineTrial, StartsOverWhenTheWindowChanges) {
  EngineTrial trial(EngineKind::kThreads);
  trial.Start(kWindow);
  trial.OnComplete(EngineKind::kThreads, 2000, 1000, kWindow);
  trial.OnComplete(EngineKind::kThreads, 2000, 2000, kWindow / 2);
  EXPECT_FALSE(trial.running());
  EXPECT_FALSE(trial.decided());
}

TEST(EngineTrial, TurnsAreNoChoice) {
  EngineTrial trial(EngineKind::kThreads);
  int others = 0;
  int told = 0;
  RunTrial(&trial, [&](EngineKind kind, int) {
    others += kind == EngineKind::kUring ? 1 : 0;
    told += trial.chosen() == EngineKind::kUring ? 1 : 0;
    return Ended{kind == EngineKind::kUring ? 20'000 : 60'000};
  });
  EXPECT_EQ(others, static_cast<int>(kRequests)) << "half of each of two trials";
  EXPECT_EQ(told, 0);
  EXPECT_EQ(trial.chosen(), EngineKind::kUring);
}

TEST(EngineTrial, StartsOverAfterAMomentWithoutBacklog) {
  EngineTrial trial(EngineKind::kThreads);
  trial.Start(16);
  for (int i = 0; i < 300; ++i) trial.OnComplete(trial.current(), 2000, i * 1000, 16);
  EXPECT_EQ(trial.current(), EngineKind::kUring);
  trial.OnComplete(EngineKind::kUring, 2000, 400'000, 0);
  EXPECT_FALSE(trial.running());
  EXPECT_FALSE(trial.decided());
  EXPECT_EQ(trial.current(), EngineKind::kThreads);
  RunTrial(&trial, 10'000, 50'000);
  EXPECT_EQ(trial.current(), EngineKind::kUring);
}

TEST(EngineTrial, LateCompletionsOfTheOtherEngineDoNotCount) {
  EngineTrial trial(EngineKind::kThreads);
  trial.Start(16);
  for (int i = 0; i < 10'000; ++i) trial.OnComplete(EngineKind::kUring, 2000, i * 1000, 16);
  EXPECT_TRUE(trial.running());
  EXPECT_EQ(trial.current(), EngineKind::kThreads);
}

TEST(EngineTrial, AbortKeepsThePreferredAndSaysWhy) {
  EngineTrial trial(EngineKind::kThreads);
  trial.Start(16);
  trial.Abort("io_uring is forbidden");
  EXPECT_TRUE(trial.decided());
  EXPECT_EQ(trial.current(), EngineKind::kThreads);
  EXPECT_EQ(trial.Report(), "io_uring is forbidden");
}

}  // namespace
}  // namespace tierd::source
