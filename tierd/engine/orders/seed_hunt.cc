#include "tierd/engine/orders/seed_hunt.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
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

SeedHunt::SeedHunt(orders::Observation observation, orders::SeedSearch::Options options, std::vector<orders::PlanSearch> guesses, double share_of_core)
    : share_(share_of_core), thread_([this, observation = std::move(observation), options, guesses = std::move(guesses)]() mutable {
        (void)Survives([&] { Run(std::move(observation), options, guesses); });
        ended_.store(true, std::memory_order_release);
      }) {}

SeedHunt::~SeedHunt() {
  Stop();
  thread_.join();
}

// So long that it keeps to its share of a core.
void SeedHunt::Rest() {
  const double now = ThreadSeconds();
  const double rest = std::min(kLongestRestSeconds, (now - worked_) * (1 / share_ - 1));
  worked_ = now;
  std::this_thread::sleep_for(std::chrono::duration<double>(rest));
}

bool SeedHunt::TryGuesses(const orders::Observation& observation, const std::vector<orders::PlanSearch>& guesses) {
  std::uint64_t tried = 1;
  for (const orders::PlanSearch& guess : guesses) tried += guess.epochs;
  for (const orders::PlanSearch& guess : guesses) {
    const auto go_on = [this] {
      Rest();
      return !stop_;
    };
    std::optional<orders::Plan> rest = orders::Locate(guess, observation, std::log(static_cast<double>(tried)), go_on);
    if (!rest) continue;
    result_.guess = orders::PlanSearch{.plan = *std::move(rest), .like = guess.like};
    return true;
  }
  return false;
}

void SeedHunt::Run(orders::Observation observation, const orders::SeedSearch::Options& options, const std::vector<orders::PlanSearch>& guesses) {
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 19);  // of this thread alone
  worked_ = ThreadSeconds();
  if (TryGuesses(observation, guesses)) return;
  orders::SeedSearch search(std::move(observation), options);
  for (; !stop_; Rest()) {
    const auto state = search.Advance(kUnits);
    if (state == orders::SeedSearch::State::kFound) result_.order = search.result();
    if (state != orders::SeedSearch::State::kSearching) return;
  }
}

}  // namespace tierd::engine
