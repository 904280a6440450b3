#include "tierd/source/engine_trial.h"

#include <gtest/gtest.h>

namespace tierd::source {
namespace {

using io::EngineKind;

// Completes requests until the trial is over; each kind takes its own time per request.
void RunTrial(EngineTrial* trial, std::int64_t uring_ns, std::int64_t threads_ns) {
  std::int64_t now = 1000;
  trial->Start(64);
  for (int i = 0; i < 10'000 && trial->running(); ++i) {
    const EngineKind kind = trial->current();
    now += kind == EngineKind::kUring ? uring_ns : threads_ns;
    trial->OnComplete(kind, now, 64);
  }
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

TEST(EngineTrial, StartsOverAfterAMomentWithoutBacklog) {
  EngineTrial trial(EngineKind::kThreads);
  trial.Start(16);
  for (int i = 0; i < 300; ++i) trial.OnComplete(trial.current(), i * 1000, 16);
  EXPECT_EQ(trial.current(), EngineKind::kUring);
  trial.OnComplete(EngineKind::kUring, 400'000, 0);
  EXPECT_FALSE(trial.running());
  EXPECT_FALSE(trial.decided());
  EXPECT_EQ(trial.current(), EngineKind::kThreads);
  RunTrial(&trial, 10'000, 50'000);
  EXPECT_EQ(trial.current(), EngineKind::kUring);
}

TEST(EngineTrial, LateCompletionsOfTheOtherEngineDoNotCount) {
  EngineTrial trial(EngineKind::kThreads);
  trial.Start(16);
  for (int i = 0; i < 10'000; ++i) trial.OnComplete(EngineKind::kUring, i * 1000, 16);
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
