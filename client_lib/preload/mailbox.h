// Where processes that come of one fork find the open file that one of them has opened for all: the first that needs it leaves a descriptor, the others take another one of the
// same open file, as if it had been opened before the fork. It is a datagram socket that is connected to itself: what was sent to it first is what everybody sees.
//
// What was left stays open until the last process has closed the mailbox. Any thread; errno is left alone; no call waits.
#pragma once

namespace tierd::preload {

// A descriptor, the caller's, close-on-exec; or -errno.
int MakeMailbox();
// Another descriptor of what was left first, the caller's; or -errno: nobody has left anything.
int TakeFromMailbox(int mailbox);
// The same after leaving `fd`, which stays the caller's.
int LeaveAndTake(int mailbox, int fd);

}  // namespace tierd::preload
