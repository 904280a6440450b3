#include "tierd/engine/seed_hunt.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "tierd/engine/out_of_memory.h"

namespace tierd::engine {
namespace {

constexpr std::uint64_t kUnits = 500;  // of 10 microseconds: a slice
constexpr double kLongestRestSeconds = 0.2;

double ThreadSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

SeedHunt::SeedHunt(orders::Observation observation, orders::SeedSearch::Options options, double share_of_core)
    : thread_([this, observation = std::move(observation), options, share_of_core]() mutable {
        (void)Survives([&] { Run(std::move(observation), options, share_of_core); });
        ended_.store(true, std::memory_order_release);
      }) {}

SeedHunt::~SeedHunt() {
  stop_ = true;
  thread_.join();
}

void SeedHunt::Run(orders::Observation observation, const orders::SeedSearch::Options& options, double share) {
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 19);  // of this thread alone
  orders::SeedSearch search(std::move(observation), options);
  double rest = 0;
  for (double before = ThreadSeconds(); !stop_;) {
    const auto state = search.Advance(kUnits);
    if (state == orders::SeedSearch::State::kFound) result_ = search.result();
    if (state != orders::SeedSearch::State::kSearching) return;
    const double now = ThreadSeconds();
    rest = std::min(kLongestRestSeconds, (now - before) * (1 / share - 1));
    before = now;
    std::this_thread::sleep_for(std::chrono::duration<double>(rest));
  }
}

}  // namespace tierd::engine
