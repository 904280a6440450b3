// How many requests to one source the limit of open files allows: each holds a descriptor. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tierd::engine {

// A quarter of the descriptors is for all sources together; clients get as many (SessionHub), and the
// daemon opens others itself.
inline std::uint32_t RequestsOfASource(std::uint64_t open_files, std::size_t sources) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(open_files, 1 << 20) / 4 / sources);
}

}  // namespace tierd::engine
