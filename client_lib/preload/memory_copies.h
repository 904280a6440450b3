// Descriptors that were converted to a copy in memory still show the file that they were opened of: its numbers, times and mode, whatever they are duplicated to and whoever
// inherits them by fork; and are that file as soon as somebody wants to lock it. Any thread; no lock.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>

#include "client_lib/preload/descriptors.h"

namespace tierd::preload {

namespace memory_copies_detail {
extern std::atomic<std::uint32_t> count;
bool Show(struct stat& st);
int Reopen(int fd);
}  // namespace memory_copies_detail

// `fd` is a copy of what `d` is.
void NoteMemoryCopy(int fd, const Description& d);

// What the kernel says of a descriptor, if it is one of those: what is to be said instead. True if it was. A load for everything else.
inline bool ShowCopied(struct stat& st) {
  return memory_copies_detail::count.load(std::memory_order_acquire) != 0 && memory_copies_detail::Show(st);
}

// A lock on a copy would lock nobody: before one is asked for, all numbers of such a descriptor become the file itself, as it is by now, at the same offset. 0: so it is, or it
// was no copy; -ENOLCK: the file cannot be had any more. A process that shares the descriptor (by fork) keeps the copy until it asks for a lock as well. A load for everything else.
inline int MakeLockable(int fd) { return memory_copies_detail::count.load(std::memory_order_acquire) != 0 ? memory_copies_detail::Reopen(fd) : 0; }

}  // namespace tierd::preload
