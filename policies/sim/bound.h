// What no policy can go below: how much of a sequence of reads has to come from the source, with so many bytes of cache, by whoever knows the whole order.
//
// Bytes: Belady's algorithm with bypass over bytes instead of objects, that is, an object may be kept in part: the optimum for equal sizes, and for others at or
// below what whole objects need. Reads of objects of unequal sizes: the larger of two bounds. Where no object comes twice (one epoch of one reader) only what was
// there at the beginning can be a hit: the smallest ones that fit. And over all, an object that is kept from one read to the next takes its bytes for that long, of
// capacity times time: the least first (fractional knapsacks both).
//
// Pure function, no thread rule. Memory: 24 bytes per read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tierd::sim {

struct LeastSource {
  double reads = 0;
  double bytes = 0;
};

inline constexpr std::size_t kMostBoundReads = 1u << 25;  // a sequence of more takes too much memory

// Of the reads from number `first` on. If there are earlier ones, the cache may hold at that point whatever is best: what was paid before does not count.
LeastSource LeastFromSource(std::span<const std::uint32_t> ids, std::span<const std::uint64_t> sizes, std::uint64_t capacity_bytes, std::size_t first);

}  // namespace tierd::sim
