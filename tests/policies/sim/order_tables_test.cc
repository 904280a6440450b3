// The tables again, smaller than they were made (bench_simulate has them whole, each cell within .005).
#include "tests/policies/sim/order_tables.h"

#include <gtest/gtest.h>

namespace tierd::sim {
namespace {

constexpr std::uint64_t kSeed = 3;

void Compare(const std::vector<testing::Cell>& cells, std::uint64_t samples, double tolerance) {
  for (const testing::Cell& cell : cells) {
    const Result<double> rate = testing::HitRate(cell, samples, kSeed);
    ASSERT_TRUE(rate.ok()) << rate.status().ToString();
    std::printf("%-9s k=%-2u share %.2f: %.4f (%.3f)\n", cell.policy.c_str(), cell.nodes, cell.share, *rate, cell.expected);
    EXPECT_NEAR(*rate, cell.expected, tolerance) << cell.policy << " k=" << cell.nodes << " share " << cell.share;
  }
}

TEST(OrderTables, OneReader) { Compare(testing::OneReader(), 5000, .008); }
TEST(OrderTables, OneNodeOfSeveral) { Compare(testing::OneNodeOfSeveral(), 16'000, .008); }

}  // namespace
}  // namespace tierd::sim
