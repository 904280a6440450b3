// What it costs to have another process read from a device: what a cache that is a daemon pays for each read that it has to be asked for, on this machine, whatever it does.
#pragma once

#include <cstdint>
#include <string>

namespace bench {

// Of one read, and of both processes' processor time. Medians.
struct Asking {
  double alone_ns = 0, alone_cpu_ns = 0;  // pread
  double asked_ns = 0, asked_cpu_ns = 0;
};
// Random reads of `bytes` from `file` with O_DIRECT, one at a time, by this process alone, and by another one that is asked for each through a socket, sleeps in epoll_wait as who serves
// many must, reads with tierd's own I/O engine, a block more for what says whose bytes these are, and sums them before it answers; nothing else: no look-up, no account of anything.
// Both into large pages. Zeros where there is no such process or file to be had. Takes some 2000 reads of each kind.
Asking MeasureAsking(const std::string& file, std::uint32_t bytes);

}  // namespace bench
