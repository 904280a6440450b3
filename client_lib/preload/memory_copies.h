// Descriptors that were converted to a copy in memory still show the file that they were opened of: its numbers, times and mode, whatever they are duplicated to and whoever
// inherits them by fork. Any thread; no lock.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>

#include "client_lib/src/lookup.h"

namespace tierd::preload {

namespace memory_copies_detail {
extern std::atomic<std::uint32_t> count;
bool Show(struct stat& st);
}  // namespace memory_copies_detail

// `fd` is a copy of what the facts are of.
void NoteMemoryCopy(int fd, const client::FileFacts& facts, std::uint64_t dev);

// What the kernel says of a descriptor, if it is one of those: what is to be said instead. True if it was. A load for everything else.
inline bool ShowCopied(struct stat& st) {
  return memory_copies_detail::count.load(std::memory_order_acquire) != 0 && memory_copies_detail::Show(st);
}

}  // namespace tierd::preload
