// The step in which the RAM tier's memory comes and goes: for the engine, and for who says beforehand what "auto" comes out as. Pure, any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "client_lib/abi/layout.h"
#include "tierd/engine/options.h"

namespace tierd::engine {

// `largest_chunk`: of those that are put into segments; 0: of the options that this was asked for already.
inline std::uint64_t SegmentBytes(const RamOptions& options, std::uint64_t largest_chunk = 0) {
  constexpr std::uint64_t kStep = std::uint64_t{2} << 20;
  const std::uint64_t wanted = options.segment_bytes != 0 ? options.segment_bytes : options.capacity_bytes / 16;
  // A sixteenth of a segment is its reserve.
  const std::uint64_t least = std::max(8 * kStep, (largest_chunk / 15 * 16 / kStep + 1) * kStep);
  return std::clamp<std::uint64_t>(wanted, least, abi::kMaxSegmentBytes) / kStep * kStep;
}

}  // namespace tierd::engine
