#include "tierd/base/mailbox.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

namespace tierd {
namespace {

bool Readable(const Mailbox& box) {
  pollfd wait{box.fd(), POLLIN, 0};
  return ::poll(&wait, 1, 0) == 1;
}

TEST(Mailbox, RunsWhatWasPostedInItsOrder) {
  Mailbox box;
  std::vector<int> ran;
  EXPECT_FALSE(Readable(box));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(box.Post([&ran, i] { ran.push_back(i); }));
  EXPECT_TRUE(Readable(box));
  EXPECT_EQ(box.Run(2), 2u);
  EXPECT_TRUE(Readable(box)) << "three wait";
  EXPECT_TRUE(box.Post([&ran] { ran.push_back(5); }));
  EXPECT_EQ(box.Run(100), 4u);
  EXPECT_EQ(ran, (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_TRUE(box.empty());
  EXPECT_FALSE(Readable(box));
  EXPECT_EQ(box.Run(100), 0u);
}

TEST(Mailbox, WhatAJobPostsRunsAsWell) {
  Mailbox box;
  int ran = 0;
  box.Post([&] { box.Post([&] { ++ran; }); });
  EXPECT_EQ(box.Run(1), 1u);
  EXPECT_TRUE(Readable(box));
  EXPECT_EQ(box.Run(1), 1u);
  EXPECT_EQ(ran, 1);
}

TEST(Mailbox, WhatAJobThrowsEndsTheCall) {
  Mailbox box;
  int ran = 0;
  box.Post([] { throw std::runtime_error("here"); });
  box.Post([&] { ++ran; });
  EXPECT_THROW(box.Run(10), std::runtime_error);
  EXPECT_TRUE(Readable(box));
  EXPECT_EQ(box.Run(10), 1u);
  EXPECT_EQ(ran, 1);
  EXPECT_FALSE(Readable(box));
}

TEST(Mailbox, CloseDropsWhatWaits) {
  Mailbox box;
  const auto held = std::make_shared<int>(0);
  box.Post([held] { FAIL(); });
  box.Post([held] { FAIL(); });
  box.Close();
  EXPECT_EQ(held.use_count(), 1) << "the jobs are gone, and what they held";
  EXPECT_FALSE(box.Post([held] { FAIL(); }));
  EXPECT_FALSE(box.PostBounded([] { FAIL(); }, 1));
  EXPECT_EQ(box.Run(10), 0u);
}

TEST(Mailbox, CloseWakesWhoWaitsForRoom) {
  Mailbox box;
  box.Post([] {});
  std::thread waits([&] { EXPECT_FALSE(box.PostBounded([] { FAIL(); }, 1)); });
  box.Close();
  waits.join();
}

// Posters with and without a bound, and a loop that sleeps whenever the descriptor says that nothing waits: nothing is lost, nobody is left asleep.
TEST(Mailbox, LosesNothingBetweenThreads) {
  constexpr int kThreads = 4, kEach = 20'000;
  constexpr std::size_t kBound = 16;
  Mailbox box;
  std::vector<int> next(kThreads, 0);
  int in_order = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        auto job = [&next, &in_order, t, i] { in_order += next[static_cast<std::size_t>(t)]++ == i; };
        EXPECT_TRUE(t % 2 == 0 ? box.Post(job) : box.PostBounded(job, kBound));
      }
    });
  }
  int ran = 0;
  while (ran < kThreads * kEach) {
    pollfd wait{box.fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&wait, 1, 10'000), 1) << ran << " ran";
    ran += static_cast<int>(box.Run(7));
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(in_order, kThreads * kEach);
  EXPECT_TRUE(box.empty());
}

// A job that is found before its poster has signalled leaves no signal behind: the loop would turn for nothing, for ever.
TEST(Mailbox, IsNotReadableForWhatHasRun) {
  Mailbox box;
  for (int round = 0; round < 3000; ++round) {
    bool ran = false;
    std::thread poster([&] { box.Post([&] { ran = true; }); });
    while (!ran) box.Run(1);
    poster.join();
    box.Run(1);
    ASSERT_FALSE(Readable(box)) << round;
  }
}

}  // namespace
}  // namespace tierd
