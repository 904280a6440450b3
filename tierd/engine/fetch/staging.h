// Private buffers for bytes whose frame is not known yet (a file of unknown size) or never will be (promotion to the SSD tier alone).
// Owner: Fetcher, and with it the reads under way that may need more than they were given.
#pragma once

#include <cstddef>

#include "tierd/io/buffer_pool.h"

namespace tierd::engine {

class StagingPool final : public io::BufferPool {
 public:
  // Beyond it Take refuses, so that a slow SSD cannot fill the memory.
  static constexpr std::size_t kLimitBytes = std::size_t{128} << 20;
  StagingPool() : BufferPool(kLimitBytes) {}
};

}  // namespace tierd::engine
