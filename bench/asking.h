// What it costs to have another process wait for something: what a cache that is a daemon pays for each read that it has to be asked for, on this machine, whatever it does.
#pragma once

#include <cstdint>

namespace bench {

// Added to each wait: of time, and of both processes' processor time. Medians.
struct Asking {
  double ns = 0;
  double cpu_ns = 0;
};
// A wait of `wait_ns` that an interrupt ends (a timer's, for a device's), by this process alone and by another one that is asked for it and answers through a socket; all sleep meanwhile. Zeros where
// there is no other process to be had. Takes some 2000 waits of each kind.
Asking MeasureAsking(std::int64_t wait_ns);

}  // namespace bench
