// Who beats when: the loop, or its heart while it rests.
#include "tierd/engine/heart.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace tierd::engine {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kPeriod{40};

class HeartTest : public testing::Test {
 protected:
  HeartTest() { EXPECT_TRUE(heart_.Start().ok()); }
  // Waits until it has beaten so often since then, for a minute at most.
  bool Beats(int times) {
    const int before = beats_;
    for (const auto until = Clock::now() + std::chrono::minutes(1); beats_ - before < times;) {
      if (Clock::now() > until) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }
  int BeatsIn(std::chrono::nanoseconds time) {
    const int before = beats_;
    std::this_thread::sleep_for(time);
    return beats_ - before;
  }
  static Heart::Time Later() { return Clock::now() + std::chrono::hours(1); }

  std::atomic<int> beats_ = 0;
  Heart heart_{kPeriod, [this] { ++beats_; }};
};

TEST_F(HeartTest, BeatsWhileTheLoopRests) {
  EXPECT_EQ(BeatsIn(3 * kPeriod), 0) << "nobody lent it";
  heart_.Lend(Later(), true);
  EXPECT_TRUE(Beats(3));
  heart_.TakeBack();
  EXPECT_EQ(BeatsIn(3 * kPeriod), 0);
  heart_.Lend(Later(), true);
  EXPECT_TRUE(Beats(1));
}

TEST_F(HeartTest, NoMoreOftenThanItHasTo) {
  const auto begin = Clock::now();
  heart_.Lend(Later(), true);
  EXPECT_TRUE(Beats(5));
  EXPECT_GE(Clock::now() - begin, 5 * kPeriod);
}

// What a handler changes it changes alone; one that hangs is not said to live.
TEST_F(HeartTest, IsStillWhileAHandlerRuns) {
  heart_.Lend(Later(), true);
  ASSERT_TRUE(Beats(1));
  heart_.Stir();
  EXPECT_EQ(BeatsIn(5 * kPeriod), 0);
  heart_.Rest();
  EXPECT_TRUE(Beats(1));
}

// A loop that goes from one handler to the next lives: it beats itself, when it is time.
TEST_F(HeartTest, BeatsBetweenHandlersThatFollowOneAnother) {
  heart_.Lend(Later(), true);
  const auto until = Clock::now() + std::chrono::minutes(1);
  while (beats_ < 5 && Clock::now() < until) {
    heart_.Stir();
    std::this_thread::sleep_for(milliseconds(1));
    heart_.Rest();
  }
  EXPECT_GE(beats_, 5);
  EXPECT_LT(Clock::now(), until - std::chrono::seconds(50));
}

// However late it was the last time: nobody is a period and more behind it.
TEST_F(HeartTest, ALateLoopLeavesNoGap) {
  constexpr milliseconds kHalf{500};
  std::vector<Heart::Time> beats;
  Heart slow(kHalf, [&] { beats.push_back(Clock::now()); });
  ASSERT_TRUE(slow.Start().ok());
  Heart::Time loop = Clock::now();
  for (const milliseconds late : {milliseconds(220), milliseconds(0)}) {
    slow.Lend(loop + 3 * kHalf, true);
    std::this_thread::sleep_until(loop + 3 * kHalf + late);
    loop = Clock::now();
  }
  slow.Stop();
  ASSERT_FALSE(beats.empty());
  EXPECT_LT(loop - beats.back(), kHalf + kHalf / 4) << "the loop's own came in time";
}

TEST_F(HeartTest, LentByAHandlerItBeginsWhenThatEnds) {
  heart_.Lend(Later(), false);
  EXPECT_EQ(BeatsIn(3 * kPeriod), 0);
  heart_.Rest();
  EXPECT_TRUE(Beats(1));
}

TEST_F(HeartTest, RestingWithoutALoanIsNone) {
  heart_.Stir();
  heart_.Rest();
  EXPECT_EQ(BeatsIn(3 * kPeriod), 0);
}

// The loop was to come and did not.
TEST_F(HeartTest, DoesNotBeatForALoopThatDoesNotCome) {
  heart_.Lend(Clock::now() + 3 * kPeriod, true);
  std::this_thread::sleep_for(3 * kPeriod + milliseconds(600));
  EXPECT_EQ(BeatsIn(5 * kPeriod), 0);
}

// Where it comes, it beats itself: the other one need not wake for that.
TEST_F(HeartTest, TheBeatOfTheLoopIsNotDoubled) {
  for (int i = 0; i < 5; ++i) {
    heart_.Lend(Clock::now() + 3 * kPeriod, true);
    std::this_thread::sleep_for(3 * kPeriod);
  }
  EXPECT_GE(beats_, 5);
  EXPECT_LE(beats_, 2 * 5 + 3) << "but for what a busy machine makes late";
  heart_.Lend(Later(), true);
  EXPECT_TRUE(Beats(1)) << "as soon as the loop stays away longer";
}

// No beat lies farther than a period behind the loop's last, whatever it had meant to wait for.
TEST_F(HeartTest, ALoanBeginsAnew) {
  constexpr milliseconds kSecond{1000};
  Heart slow(kSecond, [this] { ++beats_; });
  ASSERT_TRUE(slow.Start().ok());
  slow.Lend(Clock::now() + 2 * kSecond, true);
  ASSERT_TRUE(Beats(1));  // the next one would be a second behind the loop's, which comes in a second
  slow.TakeBack();
  const auto begin = Clock::now();
  slow.Lend(Later(), true);
  EXPECT_TRUE(Beats(1));
  EXPECT_LT(Clock::now() - begin, milliseconds(1600));
}

}  // namespace
}  // namespace tierd::engine
