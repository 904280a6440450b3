// The log of uses against a plain list, over random uses and removals, with sweeps under way, members that never leave, and places beyond 2^32.
#include "policies/use_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tierd::policies {
namespace {

std::vector<std::uint32_t> OldestOf(UseLog& log, std::size_t count) {
  std::vector<std::uint32_t> ids(count);
  ids.resize(log.Oldest(ids.data(), count, [](std::uint32_t) { return false; }));
  return ids;
}

void Use(UseLog& log, std::uint32_t id) {
  log.Has(id) ? log.Touch(id) : log.Add(id);
}

TEST(UseLog, KeepsTheOrderOfUse) {
  for (std::uint32_t seed = 1; seed <= 5; ++seed) {
    std::mt19937 random(seed);
    UseLog log(seed % 2 == 0 ? 1 : (std::uint64_t{1} << 32) - 90'000);
    std::vector<std::uint32_t> order;  // oldest first
    const std::uint32_t objects = seed == 1 ? 3 : 40 * seed;
    for (int step = 0; step < 300'000; ++step) {
      const std::uint32_t id = random() % objects * (seed % 2 == 0 ? 1 : 5003);
      const auto at = std::find(order.begin(), order.end(), id);
      if (random() % 50 == 0) {
        log.Remove(id);
        if (at != order.end()) order.erase(at);
      } else {
        Use(log, id);
        if (at != order.end()) order.erase(at);
        order.push_back(id);
      }
      ASSERT_EQ(log.Has(id), !order.empty() && std::find(order.begin(), order.end(), id) != order.end());
      if (step % 997 != 0) continue;
      const std::size_t count = 1 + random() % 20;
      ASSERT_EQ(OldestOf(log, count), std::vector<std::uint32_t>(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(std::min(count, order.size())))) << "seed " << seed << " step " << step;
    }
    while (!order.empty()) {  // evicted from the oldest on
      ASSERT_EQ(OldestOf(log, 1), std::vector<std::uint32_t>{order[0]});
      log.Remove(order[0]);
      order.erase(order.begin());
    }
    EXPECT_TRUE(log.empty());
    EXPECT_TRUE(OldestOf(log, 4).empty());
  }
}

// One that cannot leave, and behind it everything else used again and again: what is stale behind it does not hide the others for long.
TEST(UseLog, AMemberThatStaysDoesNotHideTheOthers) {
  UseLog log;
  constexpr std::uint32_t kObjects = 300'000;
  for (std::uint32_t id = 0; id < kObjects; ++id) Use(log, id);
  for (std::uint32_t id = 1; id < kObjects; ++id) Use(log, id);
  std::vector<std::uint32_t> oldest;
  int calls = 0;
  for (; oldest.size() < 3 && calls < 20; ++calls) oldest = OldestOf(log, 3);
  EXPECT_EQ(oldest, (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_LT(calls, 12);
}

TEST(UseLog, AgeIsByPlace) {
  UseLog log;
  for (std::uint32_t id = 0; id < 101; ++id) Use(log, id);
  EXPECT_EQ(log.Age(100), 0);
  EXPECT_EQ(log.Age(0), 1);
  EXPECT_NEAR(log.Age(50), .5, .001);
}

}  // namespace
}  // namespace tierd::policies
