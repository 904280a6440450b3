// Calls for sockets, terminals, timers and the like, which a regular file is not. The kernel refuses them of a number of ours, too, with what else is wrong before it looks at the
// descriptor, but as no descriptor (EBADF): what is to be said of a file is put in that one's place.
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <termios.h>

#include <cstdint>

#include "client_lib/preload/calls.h"

using namespace tierd::preload;

#define TIERD_UNPACK(...) __VA_ARGS__
// `fd` is the name of the descriptor among `parameters`.
#define TIERD_REFUSED(error, ret, name, parameters, arguments)                                                          \
  TIERD_NEXT(ret, name, TIERD_UNPACK parameters)                                                                        \
  TIERD_EXPORT(ret, name, TIERD_UNPACK parameters) { return RefuseAsFile(fd, error, [&] { return Next_##name() arguments; }); }
// Success is a new number.
#define TIERD_REFUSED_OR_MADE(error, ret, name, parameters, arguments)                                \
  TIERD_NEXT(ret, name, TIERD_UNPACK parameters)                                                     \
  TIERD_EXPORT(ret, name, TIERD_UNPACK parameters) {                                                 \
    return RefuseAsFile(fd, error, [&] { return MakeNumber([&] { return Next_##name() arguments; }); }); \
  }

TIERD_REFUSED(ENOTSOCK, ssize_t, recv, (int fd, void* bytes, size_t count, int flags), (fd, bytes, count, flags))
TIERD_REFUSED(ENOTSOCK, ssize_t, __recv_chk, (int fd, void* bytes, size_t count, size_t room, int flags), (fd, bytes, count, room, flags))
TIERD_REFUSED(ENOTSOCK, ssize_t, recvfrom, (int fd, void* bytes, size_t count, int flags, sockaddr* from, socklen_t* from_bytes), (fd, bytes, count, flags, from, from_bytes))
TIERD_REFUSED(ENOTSOCK, ssize_t, __recvfrom_chk, (int fd, void* bytes, size_t count, size_t room, int flags, sockaddr* from, socklen_t* from_bytes),
              (fd, bytes, count, room, flags, from, from_bytes))
TIERD_REFUSED(ENOTSOCK, ssize_t, recvmsg, (int fd, msghdr* message, int flags), (fd, message, flags))
TIERD_REFUSED(ENOTSOCK, int, recvmmsg, (int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout), (fd, messages, count, flags, timeout))
TIERD_REFUSED(ENOTSOCK, int, setsockopt, (int fd, int level, int name, const void* value, socklen_t bytes), (fd, level, name, value, bytes))
TIERD_REFUSED(ENOTSOCK, int, getsockname, (int fd, sockaddr* address, socklen_t* bytes), (fd, address, bytes))
TIERD_REFUSED(ENOTSOCK, int, getpeername, (int fd, sockaddr* address, socklen_t* bytes), (fd, address, bytes))
TIERD_REFUSED(ENOTSOCK, int, shutdown, (int fd, int how), (fd, how))
TIERD_REFUSED(ENOTSOCK, int, listen, (int fd, int backlog), (fd, backlog))
TIERD_REFUSED_OR_MADE(ENOTSOCK, int, accept, (int fd, sockaddr* address, socklen_t* bytes), (fd, address, bytes))
TIERD_REFUSED_OR_MADE(ENOTSOCK, int, accept4, (int fd, sockaddr* address, socklen_t* bytes, int flags), (fd, address, bytes, flags))
TIERD_REFUSED(ENOTSOCK, int, connect, (int fd, const sockaddr* address, socklen_t bytes), (fd, address, bytes))

TIERD_REFUSED(ENOTTY, int, tcgetattr, (int fd, termios* settings), (fd, settings))
TIERD_REFUSED(ENOTTY, int, tcsetattr, (int fd, int when, const termios* settings), (fd, when, settings))
TIERD_REFUSED(ENOTTY, int, tcflush, (int fd, int queue), (fd, queue))
TIERD_REFUSED(ENOTTY, int, tcdrain, (int fd), (fd))
TIERD_REFUSED(ENOTTY, int, tcflow, (int fd, int action), (fd, action))
TIERD_REFUSED(ENOTTY, int, tcsendbreak, (int fd, int duration), (fd, duration))
TIERD_REFUSED(ENOTTY, pid_t, tcgetsid, (int fd), (fd))
TIERD_REFUSED(ENOTTY, int, tcsetpgrp, (int fd, pid_t group), (fd, group))
TIERD_REFUSED(ENOTTY, int, sockatmark, (int fd), (fd))

TIERD_REFUSED(EINVAL, int, epoll_wait, (int fd, epoll_event* events, int most, int timeout), (fd, events, most, timeout))
TIERD_REFUSED(EINVAL, int, epoll_pwait, (int fd, epoll_event* events, int most, int timeout, const sigset_t* mask), (fd, events, most, timeout, mask))
TIERD_REFUSED(EINVAL, int, timerfd_settime, (int fd, int flags, const itimerspec* value, itimerspec* old), (fd, flags, value, old))
TIERD_REFUSED(EINVAL, int, timerfd_gettime, (int fd, itimerspec* value), (fd, value))
TIERD_REFUSED_OR_MADE(EINVAL, int, signalfd, (int fd, const sigset_t* mask, int flags), (fd, mask, flags))
TIERD_REFUSED(EINVAL, int, inotify_rm_watch, (int fd, int watch), (fd, watch))
TIERD_REFUSED(EINVAL, int, fanotify_mark, (int fd, unsigned flags, std::uint64_t mask, int directory, const char* path), (fd, flags, mask, directory, path))

// Of the placeholder the kernel would say that it is a socket.
TIERD_NEXT(int, isfdtype, int, int)
TIERD_EXPORT(int, isfdtype, int fd, int type) { return Emulate(fd) ? type == S_IFREG : Next_isfdtype()(fd, type); }
