#include "tierd/source/aimd_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <random>
#include <utility>
#include <vector>

namespace tierd::source {
namespace {

constexpr std::int64_t kMs = 1'000'000;

// A source that serves `servers` requests at a time, each for a time that `service` draws; with a backlog always.
class ModelSource {
 public:
  using Service = std::function<std::int64_t(std::mt19937&)>;
  ModelSource(std::uint32_t servers, std::size_t bytes, Service service, std::uint32_t seed = 7)
      : free_(servers, 0), bytes_(bytes), service_(std::move(service)), random_(seed) {}

  // Runs `requests` through the window; returns requests per second.
  double Run(AimdWindow* window, std::uint64_t requests, bool backlog = true) {
    const std::int64_t started = now_;
    for (std::uint64_t done = 0; done < requests; ++done) {
      while (flight_.size() < window->size()) Send();
      const Flight next = flight_.top();
      flight_.pop();
      now_ = next.ends;
      window->OnComplete(bytes_, next.ends - next.sent, now_, backlog);
    }
    return static_cast<double>(requests) * 1e9 / static_cast<double>(now_ - started);
  }
  void SetService(Service service) { service_ = std::move(service); }

 private:
  struct Flight {
    std::int64_t ends;
    std::int64_t sent;
    bool operator<(const Flight& o) const { return ends > o.ends; }
  };
  void Send() {
    auto server = std::min_element(free_.begin(), free_.end());
    const std::int64_t begins = std::max(now_, *server);
    *server = begins + service_(random_);
    flight_.push(Flight{*server, now_});
  }

  std::vector<std::int64_t> free_;
  std::size_t bytes_;
  Service service_;
  std::mt19937 random_;
  std::priority_queue<Flight> flight_;
  std::int64_t now_ = kMs;
};

ModelSource::Service Always(std::int64_t ns) {
  return [ns](std::mt19937&) { return ns; };
}

// Requests of one length march in step, which no real source does.
ModelSource::Service About(std::int64_t ns) {
  return [ns](std::mt19937& random) { return ns * static_cast<std::int64_t>(80 + random() % 41) / 100; };
}

// Of so many looks, each after so many requests more.
double MeanSize(ModelSource& source, AimdWindow& window, int looks, std::uint64_t requests) {
  double sum = 0;
  for (int i = 0; i < looks; ++i) {
    source.Run(&window, requests);
    sum += window.size();
  }
  return sum / looks;
}

TEST(AimdWindow, GrowsToTheMaximumWithinAThousandRequestsWhileLatencyStays) {
  AimdWindow window(4, 8, 256);
  ModelSource source(1000, 1000, Always(4 * kMs));
  source.Run(&window, 8 + 16 + 32);
  EXPECT_EQ(window.size(), 64u);
  source.Run(&window, 900);
  EXPECT_EQ(window.size(), 256u);
  EXPECT_EQ(window.cuts(), 0u);
}

TEST(AimdWindow, SettlesWhereTheSourceIsBusyAndLosesNoThroughput) {
  for (const std::uint32_t servers : {8u, 16u, 40u}) {
    AimdWindow window(4, 8, 512);
    ModelSource source(servers, 100'000, About(4 * kMs));
    source.Run(&window, 20'000);
    const double rate = source.Run(&window, 20'000);
    EXPECT_GE(rate, 0.97 * servers * 250) << servers;
    EXPECT_LE(window.size(), servers * 6) << servers;
    EXPECT_GE(window.size(), servers) << servers;
  }
}

TEST(AimdWindow, GoesToTheMinimumOnASourceThatServesOneAtATime) {
  AimdWindow window(4, 8, 512);
  ModelSource source(1, 4 << 20, Always(20 * kMs));  // 4 MiB at 200 MB/s
  source.Run(&window, 3000);
  EXPECT_LE(window.size(), 6u);
  EXPECT_LE(MeanSize(source, window, 30, 300), 8.0);  // it is asked for more now and then
  EXPECT_GE(source.Run(&window, 300), 49.0);
}

TEST(AimdWindow, AsksABusySourceForNoMoreThanTheMinimum) {
  AimdWindow window(8, 8, 512);
  ModelSource source(1, 4 << 20, Always(20 * kMs));
  for (int i = 0; i < 100; ++i) {
    source.Run(&window, 12);  // all of it in less time than a base is kept
    EXPECT_EQ(window.size(), 8u) << i;
  }
}

TEST(AimdWindow, IsNotMisledByRequestsThatACacheAnswers) {
  for (const std::uint32_t cached_percent : {2u, 5u, 20u, 50u, 80u}) {
    AimdWindow window(4, 8, 256);
    ModelSource source(1000, 1000, [=](std::mt19937& r) { return r() % 100 < cached_percent ? kMs / 5 : 5 * kMs; });
    source.Run(&window, 50'000);
    EXPECT_GE(MeanSize(source, window, 100, 1000), 200.0) << cached_percent;
  }
}

TEST(AimdWindow, BacksOffWhenTheSourceGetsBusyWithOthersAndComesBack) {  // F38
  AimdWindow window(4, 8, 256);
  ModelSource source(64, 1000, Always(2 * kMs));
  source.Run(&window, 20'000);
  const std::uint32_t before = window.size();
  source.SetService(Always(20 * kMs));
  source.Run(&window, 5'000);
  EXPECT_GT(window.cuts(), 0u);
  source.SetService(Always(2 * kMs));
  source.Run(&window, 50'000);
  EXPECT_GE(source.Run(&window, 10'000), 0.9 * 32'000);
  EXPECT_GE(window.size() * 2, before);
}

TEST(AimdWindow, DoesNotCreepUpOverTime) {
  AimdWindow window(4, 8, 512);
  ModelSource source(16, 100'000, About(4 * kMs));
  for (int minute = 0; minute < 20; ++minute) {
    const double rate = source.Run(&window, 60 * 4000);
    if (minute > 0) {
      EXPECT_GE(rate, 0.97 * 4000) << minute;
    }
    EXPECT_LE(window.size(), 96u) << minute;
  }
}

TEST(AimdWindow, DoesNotGrowWhereItBringsNothing) {
  AimdWindow window(4, 8, 512);
  // Latency is low and stays so, but only one request ends at a time: our own processor is the limit.
  std::int64_t now = kMs;
  for (int i = 0; i < 20'000; ++i) window.OnComplete(1000, 2 * kMs + i % 7 * 1000, now += 50'000, true);
  EXPECT_LE(window.size(), 80u);
}

// Processors that others use, too: a request takes 20 us of one, and now and then it waits some milliseconds for its turn. More in flight only means that more wait,
// and that the daemon's own loop waits among them.
ModelSource::Service OfMemory() {
  return [](std::mt19937& random) -> std::int64_t { return random() % 150 == 0 ? 4 * kMs : 15'000 + static_cast<std::int64_t>(random() % 10'000); };
}

TEST(AimdWindow, StaysSmallOnASourceThatLiesInMemory) {
  for (const std::uint32_t seed : {7u, 8u, 9u, 10u, 11u}) {
    AimdWindow window(4, 8, 448);
    ModelSource source(2, 4096, OfMemory(), seed);
    source.Run(&window, 100'000);
    EXPECT_LE(MeanSize(source, window, 100, 10'000), 32.0) << seed;
  }
}

TEST(AimdWindow, StaysWithoutBacklog) {
  AimdWindow window(4, 8, 256);
  ModelSource source(1, 1000, Always(4 * kMs));
  source.Run(&window, 5'000, false);
  EXPECT_EQ(window.size(), 8u);
}

TEST(AimdWindow, StaysWithinItsBounds) {
  AimdWindow window(3, 5, 7);
  ModelSource fast(1000, 10, Always(kMs));
  fast.Run(&window, 1000);
  EXPECT_EQ(window.size(), 7u);
  ModelSource slow(1, 10, Always(kMs));
  AimdWindow other(3, 5, 7);
  slow.Run(&other, 10'000);
  EXPECT_GE(other.size(), 3u);
}

}  // namespace
}  // namespace tierd::source
