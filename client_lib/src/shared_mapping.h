// Mapping what the daemon hands out: nothing is trusted that could make a later access fault.
//
// Where the address space of the process is limited (`ulimit -v`, which batch systems set), the job is meant to have it: all mappings together take at most an eighth of
// the limit, those that were overlaid with zeros included. What does not fit stays unmapped, and is read from the source.
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tierd::client {

bool SpaceIsLimited();
// Maps `bytes` of the file behind `fd`, which must be at least that long; null otherwise, and where there is no room for it. With `huge` on a 2 MiB boundary and with the advice for huge pages.
void* MapShared(int fd, std::uint64_t bytes, bool writable, bool huge);
// Of a mapping that nobody points into.
void UnmapShared(const void* data, std::uint64_t bytes);
// Of all that lies there now, whoever's the limit was when it was mapped.
std::uint64_t SharedBytes();

// A second mapping of `bytes` (whole pages, not hugetlb's) of such a mapping, at `place`, where the caller has reserved so much.
// kRefused: the reservation is untouched. kLost: nothing is known of it; what lies there now may be another thread's.
enum class Again : std::uint8_t { kMapped, kRefused, kLost };
Again MapAgain(const void* data, std::uint64_t bytes, void* place);
// Faults all pages of a mapping in; a hint.
void PopulateForReading(void* data, std::uint64_t bytes);
// Replaces a mapping by zero pages of this process: whoever still looks at it sees zeros and faults on nothing, its memory is given back.
void OverlayWithZeros(const void* data, std::uint64_t bytes, bool writable);

}  // namespace tierd::client
