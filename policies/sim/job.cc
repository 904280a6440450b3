#include "policies/sim/job.h"

#include <cmath>
#include <numbers>
#include <random>

namespace tierd::sim {

Result<Job> Job::Create(const JobOptions& options) {
  const auto bad = [](const std::string& what) { return Status(Code::kInvalid, "job: " + what); };
  if (options.bytes_mean < 1 || options.bytes_mean > 1e12) return bad("sizes of " + std::to_string(options.bytes_mean) + " bytes");
  if (!(options.bytes_sigma >= 0 && options.bytes_sigma <= 4)) return bad("sigma is 0 to 4");
  if (options.nodes < 1 || options.node >= options.nodes || options.nodes > options.samples) return bad("node " + std::to_string(options.node) + " of " + std::to_string(options.nodes));
  orders::Plan plan;
  plan.samples = options.samples;
  plan.epochs = options.epochs;
  plan.seed = static_cast<std::int64_t>(options.seed & INT64_MAX);
  plan.world = options.nodes;
  plan.rank = options.node;
  if (options.order == "distributed" || options.order == "same" || options.order == "sequential") {
    plan.kind = orders::Kind::kTorchDistributed;
    plan.shuffle = options.order != "sequential";
    plan.set_epoch = options.order == "distributed";
  } else if (options.order == "replacement") {
    plan.kind = orders::Kind::kTorchRandom;
    plan.replacement = true;
    plan.draws = options.samples / options.nodes;
    plan.start = orders::GeneratorStart{.seed = options.seed + options.node, .words = std::nullopt};
  } else {
    return bad("no order is named \"" + options.order + "\"; there are distributed, same, sequential, replacement");
  }
  Result<orders::PlanOrders> orders = orders::PlanOrders::Create(plan);
  if (!orders.ok()) return orders.status();
  return Job(options, std::move(orders).value());
}

Job::Job(const JobOptions& options, orders::PlanOrders orders) : options_(options), orders_(std::move(orders)), sizes_(options.samples) {
  std::mt19937_64 random(options.seed);
  const auto unit = [&random] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  const double median = options.bytes_mean / std::exp(options.bytes_sigma * options.bytes_sigma / 2);
  for (std::uint64_t& size : sizes_) {
    // Box and Muller.
    const double normal = options.bytes_sigma == 0 ? 0 : std::sqrt(-2 * std::log(1 - unit())) * std::cos(2 * std::numbers::pi * unit());
    size = static_cast<std::uint64_t>(median * std::exp(options.bytes_sigma * normal)) + (options.bytes_sigma == 0 ? 0 : 1);
    bytes_ += size;
  }
}

}  // namespace tierd::sim
