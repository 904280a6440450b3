#include "policies/orders/plan_location.h"

#include <vector>

#include "policies/orders/plan_orders.h"

namespace tierd::orders {

std::optional<Plan> Locate(const PlanSearch& search, const Observation& observation, double log_tried, const std::function<bool()>& go_on) {
  Result<PlanOrders> orders = PlanOrders::Create(search.plan);
  if (!orders.ok()) return std::nullopt;
  std::vector<std::uint32_t> order;
  for (std::uint64_t i = 0; i < search.epochs && go_on(); ++i) {
    std::optional<Plan> rest = orders->Rest();
    if (!rest || !orders->Next(&order)) return std::nullopt;
    if (i < search.from) continue;
    const std::optional<OrderFit> fit = FitOrder(order, observation, log_tried);
    if (fit && fit->stride == search.like.stride && fit->offsets == search.like.offsets) return rest;
  }
  return std::nullopt;
}

}  // namespace tierd::orders
