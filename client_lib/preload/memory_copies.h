// Descriptors that were converted to a copy in memory still show the file that they were opened of: its numbers, times and mode, whatever they are duplicated to and whoever
// inherits them by fork; and are that file as soon as somebody wants to lock it, or asks for what is not its bytes: the processes of a fork are then given one open file, whose
// locks they share.
// Which numbers are copies is followed as long as libc's calls are used. Any thread, signal handlers too.
#pragma once

#include <errno.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdint>

#include "client_lib/preload/descriptors.h"
#include "client_lib/src/added_memory.h"

namespace tierd::preload {

namespace memory_copies_detail {
extern std::atomic<std::uint32_t> count;
bool Show(struct stat& st);
int Reopen(int fd, int at = -1);
void ReopenFile(std::uint64_t inode, int at);
void ReopenInherited(bool all);
void NameCopy(int fd);
void CopyToo(int from, int to);
void Forget(int fd);
}  // namespace memory_copies_detail

// `fd`, whose closing is told by ForgetCopy, is a copy of what `d` is. kShared: a child is about to inherit it, and will want to share its locks; false: that cannot be had.
enum class CopyUse { kAlone, kShared };
// `added`: its part of the budget, which it has from then on, and gives back with its last number here.
bool NoteMemoryCopy(int fd, const Description& d, CopyUse use, client::AddedBytes& added);

// The number may be such a copy from now on; it is what `from` is; it is something else. A load for everything else.
inline bool AnyCopies() { return memory_copies_detail::count.load(std::memory_order_acquire) != 0; }
inline void NameCopy(int fd) {
  if (AnyCopies()) memory_copies_detail::NameCopy(fd);
}
inline void CopyToo(int from, int to) {
  if (AnyCopies()) memory_copies_detail::CopyToo(from, to);
}
inline void ForgetCopy(int fd) {
  if (AnyCopies()) memory_copies_detail::Forget(fd);
}

// What the kernel says of a descriptor, if it is one of those: what is to be said instead. True if it was.
inline bool ShowCopied(struct stat& st) { return AnyCopies() && memory_copies_detail::Show(st); }

// A lock on a copy would lock nobody: before one is asked for, all numbers of such a descriptor become the file itself, as it is by now: that which another process of the fork
// has opened, else one opened here, at the same offset. 0: so it is, or it was no copy; -ENOLCK: the file cannot be had any more.
inline int MakeLockable(int fd) { return AnyCopies() ? memory_copies_detail::Reopen(fd) : 0; }
// The same before a call that changes the file, names it, runs it or asks where it lies. -ESTALE: a copy must not answer for it.
inline int MakeFile(int fd) { return MakeLockable(fd) != 0 ? -ESTALE : 0; }

// The same before another program is started, which knows nothing of copies: of all that exec leaves open; or of all, before a vfork child, which may put any onto a number
// that stays. What cannot be had any more is left as it is. A child of fork leaves its copies to the program that it executes: their offset is its parent's, too.
enum class Inherited { kOpenAfterExec, kAll };
inline void MakeInheritedFile(Inherited which) {
  if (AnyCopies()) memory_copies_detail::ReopenInherited(which == Inherited::kAll);
}

// All copies of that file, which is about to change or has: as MaterialiseFile, whose part this is.
inline void MakeCopiesFile(std::uint64_t inode, int at) {
  if (AnyCopies()) memory_copies_detail::ReopenFile(inode, at);
}

}  // namespace tierd::preload
