#include "policies/plan_feeder.h"

#include <algorithm>
#include <queue>
#include <tuple>

namespace tierd::policies {
namespace {
constexpr std::size_t kPiece = 4096;  // ids per call: a policy should answer within some 10 microseconds
}

std::vector<std::uint32_t> MergeByNextUse(std::span<const std::vector<std::uint32_t>> orders, std::span<const double> speeds) {
  if (orders.size() == 1) return orders[0];
  // (time of its next entry, consumer): the earliest goes first.
  using Head = std::pair<double, std::size_t>;
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heads;
  std::vector<std::size_t> at(orders.size());
  const auto time = [&](std::size_t consumer) {
    const double pace = speeds.empty() ? static_cast<double>(orders[consumer].size()) : speeds[consumer];
    return (static_cast<double>(at[consumer]) + 0.5) / pace;
  };
  std::size_t total = 0;
  for (std::size_t i = 0; i < orders.size(); ++i) {
    total += orders[i].size();
    if (!orders[i].empty()) heads.emplace(time(i), i);
  }
  std::vector<std::uint32_t> merged;
  merged.reserve(total);
  while (!heads.empty()) {
    const std::size_t consumer = heads.top().second;
    heads.pop();
    merged.push_back(orders[consumer][at[consumer]++]);
    if (at[consumer] < orders[consumer].size()) heads.emplace(time(consumer), consumer);
  }
  return merged;
}

PlanFeeder::PlanFeeder(std::vector<orders::PlanOrders> consumers, std::uint32_t lookahead) : consumers_(std::move(consumers)), lookahead_(lookahead) {}

void PlanFeeder::Advance(std::uint32_t epoch, PolicyInstance& policy) {
  for (; declared_ <= epoch + lookahead_; ++declared_) {
    std::vector<std::vector<std::uint32_t>> orders(consumers_.size());
    for (std::size_t i = 0; i < consumers_.size(); ++i) consumers_[i].Next(&orders[i]);
    const std::vector<std::uint32_t> merged = MergeByNextUse(orders, {});
    const std::span<const std::uint32_t> ids = merged;
    for (std::size_t first = 0; first < ids.size(); first += kPiece) {
      policy.Plan(TIERD_CONSUMER_ALL, declared_, ids.subspan(first, std::min(kPiece, ids.size() - first)), static_cast<std::uint32_t>(first));
    }
  }
}

}  // namespace tierd::policies
