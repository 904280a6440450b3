// A search that is told to stop ends by itself: its owner need not wait for it.
#include "tierd/engine/orders/seed_hunt.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>
#include <utility>

namespace tierd::engine {
namespace {

TEST(SeedHunt, EndsSoonAfterItWasStopped) {
  orders::Observation noise{.samples = 100'000, .accesses = {}};
  std::mt19937 random(3);
  for (int i = 0; i < 400; ++i) noise.accesses.push_back({0, static_cast<std::uint32_t>(random() % noise.samples)});
  SeedHunt hunt(std::move(noise), {}, {}, 0.1);  // of all seeds: an hour
  EXPECT_FALSE(hunt.ended());
  hunt.Stop();
  for (int waited = 0; waited < 2000 && !hunt.ended(); ++waited) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(hunt.ended());
  EXPECT_FALSE(hunt.result().order);
}

}  // namespace
}  // namespace tierd::engine
