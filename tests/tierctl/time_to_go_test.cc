// The time to go of a source whose costs are known, on a simulated clock.
#include "tierctl/terminal/time_to_go.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tierctl/terminal/output.h"
#include "tierctl/terminal/progress.h"

namespace tierctl {
namespace {

struct Source {
  double per_file = .001, per_byte = 1 / 200e6, noise = .2;
  double slower_after = 1e9, factor = 1;  // from that second on all costs so much more
};

struct Moment {
  double done = 0;  // share of the time
  double truth = 0;
  std::optional<TimeToGo::Estimate> estimate;
};

// Looks each half second, as WatchJobs does, while files of these sizes come one after the other.
std::vector<Moment> Watch(const std::vector<double>& sizes, const Source& source) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> noise(1 - source.noise, 1 + source.noise);
  std::vector<double> ends;
  double now = 0;
  for (const double bytes : sizes) {
    const double cost = (source.per_file + bytes * source.per_byte) * noise(random);
    now += now > source.slower_after ? cost * source.factor : cost;
    ends.push_back(now);
  }
  Work all, done;
  for (const double bytes : sizes) all.files += 1, all.bytes += bytes;
  TimeToGo pace;
  std::vector<Moment> moments;
  std::size_t next = 0;
  for (double at = .5; at < now; at += .5) {
    for (; next < sizes.size() && ends[next] <= at; ++next) done.files += 1, done.bytes += sizes[next];
    // A file that is under way has a part of its bytes.
    Work seen = done;
    if (next < sizes.size()) {
      const double begin = next == 0 ? 0 : ends[next - 1];
      seen.bytes += sizes[next] * (at - begin) / (ends[next] - begin);
    }
    pace.Note(at, seen);
    moments.push_back({at / now, now - at, pace.For({all.files - seen.files, all.bytes - seen.bytes}, true)});
  }
  return moments;
}

double Error(const Moment& moment) { return std::abs(moment.estimate->seconds - moment.truth) / moment.truth; }

std::vector<double> Small(std::size_t count) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> size(5e3, 200e3);
  std::vector<double> sizes(count);
  for (double& one : sizes) one = size(random);
  return sizes;
}
std::vector<double> Large(std::size_t count) {
  std::mt19937_64 random(4);
  std::uniform_real_distribution<double> size(300e6, 900e6);
  std::vector<double> sizes(count);
  for (double& one : sizes) one = size(random);
  return sizes;
}
std::vector<double> Then(std::vector<double> first, const std::vector<double>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

constexpr double kStatedError = .25;

// Of what is left only the last twentieth is shorter than the noise of a single large file.
void ExpectGood(const std::vector<Moment>& moments, double from) {
  std::size_t judged = 0;
  for (const Moment& moment : moments) {
    if (!moment.estimate || moment.done > .95) continue;
    if (moment.estimate->at_most) {
      EXPECT_GT(moment.estimate->seconds, (1 - kStatedError) * moment.truth) << "at " << moment.done;
      EXPECT_LT(moment.done, from) << "by then both costs are known";
    } else {
      EXPECT_LT(Error(moment), kStatedError) << "at " << moment.done << ": " << moment.estimate->seconds << " for " << moment.truth;
      judged += moment.done >= from ? 1 : 0;
    }
  }
  EXPECT_GT(static_cast<double>(judged), (.9 - from) * static_cast<double>(moments.size())) << "most moments have an estimate";
}

TEST(TimeToGo, OfSmallFilesBeforeLargeOnesIsRightOnceSomeLargeOnesHaveCome) {
  ExpectGood(Watch(Then(Small(20'000), Large(40)), {}), .3);
}

TEST(TimeToGo, OfLargeFilesBeforeSmallOnesIsRightOnceSomeSmallOnesHaveCome) {
  ExpectGood(Watch(Then(Large(40), Small(20'000)), {}), .85);
}

TEST(TimeToGo, OfSizesInAnyOrderIsRightFromATenthOn) {
  std::vector<double> sizes = Then(Small(60'000), Large(40));
  std::shuffle(sizes.begin(), sizes.end(), std::mt19937_64(5));
  for (const Moment& moment : Watch(sizes, {})) {
    if (moment.done < .1 || moment.done > .95) continue;
    ASSERT_TRUE(moment.estimate);
    EXPECT_LT(Error(moment), kStatedError) << moment.done;
  }
}

TEST(TimeToGo, FollowsASourceThatBecomesSlower) {
  std::vector<double> sizes = Small(100'000);
  const std::vector<Moment> moments = Watch(sizes, {.slower_after = 60, .factor = 3});
  for (const Moment& moment : moments) {
    if (moment.done < .6 || moment.done > .95) continue;
    ASSERT_TRUE(moment.estimate);
    EXPECT_LT(Error(moment), kStatedError) << moment.done;
  }
}

TEST(TimeToGo, CountsTimeInWhichNothingWasFinished) {
  TimeToGo pace;
  for (double at = .5; at <= 20; at += .5) pace.Note(at, {std::floor(at / 10), std::floor(at / 10) * 1e9});
  EXPECT_NEAR(pace.For({2, 2e9}, true)->seconds, 20, .1);
}

TEST(TimeToGo, SaysNothingBeforeSomethingIsDone) {
  TimeToGo pace;
  EXPECT_FALSE(pace.For({1, 1}, true));
  pace.Note(5, {0, 0});
  EXPECT_FALSE(pace.For({1, 1}, true));
  pace.Note(6, {3, 0});
  EXPECT_FALSE(pace.For({1, 1}, true)) << "no byte has come";
  EXPECT_NEAR(pace.For({1, 0}, false)->seconds, 2, 1e-9);
}

// A terminal is not needed to see when a line would be made.
TEST(Progress, MakesNoLineWithoutATerminal) {
  Output output(false);
  if (output.progress()) GTEST_SKIP() << "stderr is a terminal";
  auto now = Progress::TimePoint();
  int made = 0;
  Progress progress(output, [&] { return now; });
  for (int i = 0; i < 100; ++i, now += std::chrono::milliseconds(100)) progress.Show([&] { return ++made, std::string("x"); });
  EXPECT_EQ(made, 0);
}

}  // namespace
}  // namespace tierctl
