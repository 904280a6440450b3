// Mappings of cached files: which pieces of memory are frames of the cache, and the leases that must last as long as they do.
//
// A mapping is put together over memory that the kernel reserved for it: whole pages of leased frames are mapped there a second time, the page that the file ends in,
// and files whose frame is not page-aligned, are a private copy with zeros behind the end. So no byte of a neighbour is ever seen (HAZARDS 2.9).
// Any thread. No lock; a table of fixed size: when it is full, mappings are the source's.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "client_lib/preload/descriptors.h"

namespace tierd::preload {

struct MapRequest {
  void* address;
  std::size_t length;
  int protection;
  int flags;
  std::uint64_t offset;
};

// The mapping, or null: map the source instead.
void* MapCached(Description& description, const MapRequest& request);

// Whether any mapping of ours exists: the question of munmap and its kin.
bool AnyMappings();
// [address, address + length) has been unmapped.
void NoteUnmapped(const void* address, std::size_t length);
// It was moved or changed in size by mremap: its leases stay for good.
void NoteMoved(const void* address, std::size_t length);
// mprotect asks to write to a private mapping of ours: replaces those pages by copies. True if it did all there is to do.
bool MakeWritable(void* address, std::size_t length, int protection);

}  // namespace tierd::preload
