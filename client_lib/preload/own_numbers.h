// Descriptors of this library itself: the application neither sees nor closes them, but it may put a file of its own onto their numbers (dup2), and by closing one of
// a file that it has locked *we* would end its locks. Both are looked after here.
//
// Any thread, signal handlers too. No lock, no allocation.
#pragma once

#include <atomic>

namespace tierd::preload {

// `fd` is ours, and `holder`, -1 so far, says where it is. False: the holder has another one by now.
bool HoldOwn(int fd, std::atomic<int>& holder);
// Takes it out of its holder: the caller's, no longer known as ours. -1: there is none.
int TakeOwn(std::atomic<int>& holder);
// The application is about to put a file of its own onto that number of ours. What has a holder moves to another one; the core looks at what it has before it uses it.
void MoveOwnAway(int fd);

// It has one there already: ours was closed behind our back, and is no more.
void ForgetOwn(int fd);

// fcntl locks are the process's and end with the close of *any* of its descriptors of the file (POSIX). One was taken through `fd`.
void NoteLock(int fd);
// Closes a descriptor of a source's file that we had opened; leaves it open for good, as one of ours, if the process may have locked the file. errno is left alone.
void CloseOwnFile(int fd);

}  // namespace tierd::preload
