// What is seen of a consumer: accesses in the order in which they arrive here, by which stream of it (a worker process), as indices of
// samples. Values; no thread rule.
#pragma once

#include <cstdint>
#include <vector>

namespace tierd::orders {

struct SampleAccess {
  std::uint32_t stream = 0;  // any number; accesses of one stream are seen in the order in which it made them
  std::uint32_t index = 0;   // below the number of samples
};

// The first accesses of one epoch. Nothing is assumed about how streams interleave.
struct Observation {
  std::uint32_t samples = 0;  // n
  std::vector<SampleAccess> accesses;
};

}  // namespace tierd::orders
