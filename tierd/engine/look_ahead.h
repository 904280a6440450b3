// What was brought ahead of use for one source, in bytes, and what became of it. Read-ahead in a file, warm-up, prefetch jobs and plans alike.
//
// Owner: SourceUnit. Loop thread only.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tierd::engine {

struct LookAhead {
  std::uint64_t brought = 0;
  std::uint64_t used = 0;    // of these: a reader came while they were there
  std::uint64_t unused = 0;  // left both tiers before anybody read them
  // Still there, and nobody has read them.
  std::uint64_t waiting() const { return brought - std::min(brought, used + unused); }
};

}  // namespace tierd::engine
