// Descriptors of this library itself: the application neither sees nor closes them, but it may put a file of its own onto their numbers (dup2), and by closing one of
// a file that it has locked *we* would end its locks. Both are looked after here.
//
// Any thread, signal handlers too. No lock, no allocation.
#pragma once

#include <atomic>
#include <cstdint>

namespace tierd::preload {

namespace own_numbers_detail {
extern std::atomic<std::uint32_t> locked_count;
}

// `fd` is ours, and `holder`, -1 so far, says where it is. False: the holder has another one by now.
bool HoldOwn(int fd, std::atomic<int>& holder);
// Takes it out of its holder: the caller's, no longer known as ours. -1: there is none.
int TakeOwn(std::atomic<int>& holder);
// The application is about to put a file of its own onto that number of ours. What has a holder moves to another one; the core looks at what it has before it uses it.
void MoveOwnAway(int fd);

// It has one there already: ours was closed behind our back, and is no more.
void ForgetOwn(int fd);

// fcntl locks are the process's and end with the close of *any* of its descriptors of the file (POSIX). One is about to be taken through `fd`.
void NoteLock(int fd);
// Whether the process may hold such locks on the file behind it.
bool IsLocked(int fd);
// Closes a descriptor of a source's file that we had opened. If the process may have locked the file it is left open, as one of ours, until the application closes one
// of its own, which ends the locks. errno is left alone.
void CloseOwnFile(int fd);
// The application is about to close a descriptor of that file: its locks are forgotten, and what was left open for their sake is closed. Whether there may have been some.
bool EndLocks(std::uint64_t device, std::uint64_t inode);
void EndLocksBehind(int fd);
// Whether there may be any at all.
inline bool AnyLocks() { return own_numbers_detail::locked_count.load(std::memory_order_acquire) != 0; }
inline void EndLocks(int fd) {
  if (AnyLocks()) EndLocksBehind(fd);
}

}  // namespace tierd::preload
