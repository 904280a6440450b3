// At the end of a daemon's life: the memory of all frames that nobody leases goes back to the system, although clients still map the segments (HAZARDS 2.8).
// A trainer that calls nothing for an hour would else keep the whole tier of a daemon that is gone, beside that of its successor.
//
// Loop thread, when the index is retired and no I/O runs into or out of frames any more: nothing is allocated, filled or read after it.
#pragma once

#include <cstdint>
#include <functional>

#include "tierd/ram/ram_tier.h"

namespace tierd::ram {

// Bytes given back. Blocks ~170 ms per GiB; asks `go_on` before each piece of some 10 ms and ends when that is false. Nothing comes back under FUTURE_WRITE, and no
// huge page of which a part is leased.
std::uint64_t GiveBackUnleased(RamTier& ram, const std::function<bool()>& go_on);

}  // namespace tierd::ram
