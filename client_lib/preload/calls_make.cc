// Calls that make a descriptor which is never a file of a source. When the process has none left, they
// get those that the library holds (GiveNumbersBack).
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "client_lib/preload/calls.h"

using namespace tierd::preload;

#define TIERD_UNPACK(...) __VA_ARGS__
#define TIERD_MADE(name, parameters, arguments)            \
  TIERD_NEXT(int, name, TIERD_UNPACK parameters)           \
  TIERD_EXPORT(int, name, TIERD_UNPACK parameters) {       \
    return MakeNumber([&] { return Next_##name() arguments; }); \
  }
// Two of them, in `ends`.
#define TIERD_MADE_TWO(name, parameters, arguments)                \
  TIERD_NEXT(int, name, TIERD_UNPACK parameters)                   \
  TIERD_EXPORT(int, name, TIERD_UNPACK parameters) {               \
    if (!Active()) return Next_##name() arguments;                 \
    const int result = WithAllNumbers([&] { return Next_##name() arguments; }); \
    if (result != 0) return result;                                \
    NewNumber(ends[0]);                                            \
    NewNumber(ends[1]);                                            \
    return 0;                                                      \
  }

TIERD_MADE(socket, (int domain, int type, int protocol), (domain, type, protocol))
TIERD_MADE_TWO(socketpair, (int domain, int type, int protocol, int* ends), (domain, type, protocol, ends))
TIERD_MADE_TWO(pipe, (int* ends), (ends))
TIERD_MADE_TWO(pipe2, (int* ends, int flags), (ends, flags))
TIERD_MADE(eventfd, (unsigned value, int flags), (value, flags))
TIERD_MADE(epoll_create, (int size), (size))
TIERD_MADE(epoll_create1, (int flags), (flags))
TIERD_MADE(timerfd_create, (clockid_t clock, int flags), (clock, flags))
TIERD_MADE(inotify_init, (void), ())
TIERD_MADE(inotify_init1, (int flags), (flags))
TIERD_MADE(fanotify_init, (unsigned flags, unsigned event_flags), (flags, event_flags))
TIERD_MADE(memfd_create, (const char* name, unsigned flags), (name, flags))
TIERD_MADE(shm_open, (const char* name, int flags, mode_t mode), (name, flags, mode))
TIERD_MADE(posix_openpt, (int flags), (flags))

TIERD_NEXT(FILE*, tmpfile, void)
TIERD_EXPORT(FILE*, tmpfile, void) {
  if (!Active()) return Next_tmpfile()();
  FILE* const stream = WithAllNumbers([] { return Next_tmpfile()(); });
  if (stream != nullptr) NewNumber(stream->_fileno);
  return stream;
}
TIERD_ALIAS(FILE*, tmpfile64, tmpfile, void)
