// Mappings of frames that the application has unmapped, kept for its next mapping of the same frames: a loader that maps its files anew each epoch, or each sample, then
// faults in no page a second time (4 KiB pages: that is half of the time that reading a mapped file takes).
//
// What is kept is addresses, not leases: the frames may be reused meanwhile, and whoever takes a mapping out has leased what it is to show and asks the kernel, page range
// by page range, whether that is what lies there (PROCMAP_QUERY; where the kernel has not got it, nothing is kept). The application may do to its addresses what it likes:
// what the kernel does not confirm is neither used nor unmapped.
// A handful, below a cap on their size, none in a process whose address space is limited; gone with the arena that they show. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "client_lib/preload/mapped_frames.h"

namespace tierd::preload {

// Bytes of the arena, and where a mapping shows them; whole pages.
struct ShownFrame {
  const std::byte* data;
  std::uint64_t place;
  std::uint64_t bytes;
};

// Whether mappings may be kept in this process.
void StartKeepingMappings();
// None are from now on, and none is left.
void StopKeepingMappings();

// The mapping at `where`, whose first frame is at `first`: kept instead of unmapped. False: unmap it.
bool KeepMapping(AddressRange where, const std::byte* first);

// A kept mapping of `bytes` that begins with `first`; 0: there is none. The caller owns it, and gives it up if it shows something else.
std::uint64_t TakeKeptMapping(const std::byte* first, std::uint64_t bytes);
void GiveUpMapping(AddressRange where, const std::byte* first);
// Whether these frames, and only those, are what is mapped there, readable and nothing else.
bool ShowsExactly(const ShownFrame* frames, std::uint32_t count);

// The application is about to map something of its own at these addresses.
void ForgetKeptMappings(AddressRange where);
// All of them: nobody leases from that arena any more.
void DropKeptMappings();

}  // namespace tierd::preload
