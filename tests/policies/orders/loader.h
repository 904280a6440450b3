// What a daemon sees of a DataLoader with workers: batch i goes to worker i mod W, each worker reads its batches in order and may be up to
// `prefetch` batches ahead; which worker reads next is up to chance.
#pragma once

#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "policies/orders/observation.h"

namespace tierd::orders::testing {

struct LoaderOptions {
  std::uint32_t workers = 2;  // 0: the main process reads
  std::uint32_t batch = 16;
  std::uint32_t prefetch = 2;
  std::uint32_t first_stream = 0;
};

inline std::vector<SampleAccess> Load(const std::vector<std::uint32_t>& order, const LoaderOptions& options, std::mt19937& random) {
  std::vector<SampleAccess> seen;
  const std::uint32_t workers = std::max(options.workers, 1u);
  const std::size_t batches = (order.size() + options.batch - 1) / options.batch;
  std::vector<std::deque<std::size_t>> queues(workers);  // samples that a worker has been told to read
  std::vector<std::size_t> left(batches);
  std::size_t told = 0, finished = 0;
  while (seen.size() < order.size()) {
    while (finished < told && left[finished] == 0) ++finished;
    for (; told < batches && told < finished + std::size_t{workers} * options.prefetch; ++told) {
      for (std::size_t i = told * options.batch; i < std::min(order.size(), (told + 1) * options.batch); ++i, ++left[told]) queues[told % workers].push_back(i);
    }
    const std::uint32_t worker = random() % workers;
    if (queues[worker].empty()) continue;
    const std::size_t i = queues[worker].front();
    queues[worker].pop_front();
    --left[i / options.batch];
    seen.push_back({options.first_stream + worker, order[i]});
  }
  return seen;
}

}  // namespace tierd::orders::testing
