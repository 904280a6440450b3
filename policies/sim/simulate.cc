#include "policies/sim/simulate.h"

#include <algorithm>
#include <ctime>

#include "policies/plan_feeder.h"

namespace tierd::sim {
namespace {

double ProcessorSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// In parts, so that somebody may look at how it gets on.
void ReadAll(Cache& cache, std::span<const std::uint32_t> ids, const RunOptions& options, std::uint32_t consumer = 0) {
  constexpr std::size_t kPart = 1 << 16;
  if (!options.on_reads) return cache.Read(ids, consumer);
  for (std::size_t at = 0; at < ids.size(); at += kPart) {
    const std::size_t part = std::min(kPart, ids.size() - at);
    cache.Read(ids.subspan(at, part), consumer);
    options.on_reads(part);
  }
}

}  // namespace

double RunResult::hit_rate(std::size_t first) const {
  CacheCounts before;
  for (std::size_t i = 0; i < std::min(first, epochs.size()); ++i) {
    for (std::size_t d = 0; d < 3; ++d) before.reads[d] += epochs[i].reads[d];
  }
  return (total - before).hit_rate();
}

Result<RunResult> RunJob(const tierd_policy_ops& policy, const Job& job, const RunOptions& options) {
  Result<Cache> cache = Cache::Create(policy, job.sizes(), options.cache);
  if (!cache.ok()) return cache.status();
  const std::uint32_t lookahead = options.whole_plan_first ? job.options().epochs : options.lookahead;
  policies::PlanFeeder feeder({job.Orders()}, lookahead);
  if (options.seeded && options.whole_plan_first) {
    feeder.Advance(0, cache->policy());
    cache->Bring(UINT64_MAX);
  }
  RunResult result;
  orders::PlanOrders orders = job.Orders();
  std::vector<std::uint32_t> order;
  for (std::uint32_t epoch = 0; orders.Next(&order); ++epoch) {
    const CacheCounts before = cache->counts();
    if (options.seeded) {
      if (!options.whole_plan_first) feeder.Advance(epoch, cache->policy());
      if (epoch > 0) cache->policy().EpochBoundary(TIERD_CONSUMER_ALL, epoch);
    }
    if (options.bring) cache->Bring(UINT64_MAX);
    const double from = ProcessorSeconds();
    ReadAll(*cache, order, options);
    result.seconds += ProcessorSeconds() - from;
    result.epochs.push_back(cache->counts() - before);
  }
  result.total = cache->counts();
  result.dropped_answers = cache->policy().counters().dropped();
  return result;
}

Result<RunResult> RunTrace(const tierd_policy_ops& policy, const Trace& trace, const RunOptions& options) {
  std::vector<std::uint64_t> sizes;
  for (const TraceObject& object : trace.objects) sizes.push_back(object.bytes);
  std::vector<std::uint32_t> ids;
  for (const TraceAccess& access : trace.accesses) ids.push_back(access.id);
  Result<Cache> cache = Cache::Create(policy, sizes, options.cache);
  if (!cache.ok()) return cache.status();
  if (options.seeded) cache->policy().Plan(TIERD_CONSUMER_ALL, 0, ids);
  if (options.seeded && options.whole_plan_first) cache->Bring(UINT64_MAX);
  RunResult result;
  std::vector<std::uint64_t> ends = trace.epochs;
  ends.push_back(ids.size());
  std::size_t done = 0;
  for (std::uint32_t epoch = 0; epoch < ends.size(); ++epoch) {
    const CacheCounts before = cache->counts();
    if (epoch > 0) cache->policy().EpochBoundary(TIERD_CONSUMER_ALL, epoch);
    const double from = ProcessorSeconds();
    while (done < ends[epoch]) {
      const std::uint32_t consumer = trace.accesses[done].consumer;
      std::size_t end = done + 1;
      while (end < ends[epoch] && trace.accesses[end].consumer == consumer) ++end;
      ReadAll(*cache, std::span(ids).subspan(done, end - done), options, consumer);
      done = end;
    }
    result.seconds += ProcessorSeconds() - from;
    result.epochs.push_back(cache->counts() - before);
  }
  result.total = cache->counts();
  result.dropped_answers = cache->policy().counters().dropped();
  return result;
}

double LeastSourceBytes(const Job& job, double capacity_bytes) {
  const auto dataset = static_cast<double>(job.bytes());
  return dataset + (job.options().epochs - 1) * std::max(0.0, dataset - capacity_bytes);
}

}  // namespace tierd::sim
