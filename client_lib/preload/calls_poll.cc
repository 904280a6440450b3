// poll, select, epoll: a regular file is always ready, and epoll does not take it. The placeholder behind a number of ours would say otherwise. inotify: who is told that
// a file has changed reads then what was changed.
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/select.h>

#include <cstring>

#include "client_lib/preload/calls.h"
#include "client_lib/preload/changes.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/reopened.h"

using namespace tierd::preload;

TIERD_NEXT(int, poll, pollfd*, nfds_t, int)
TIERD_NEXT(int, ppoll, pollfd*, nfds_t, const timespec*, const sigset_t*)
TIERD_NEXT(int, __poll_chk, pollfd*, nfds_t, int, size_t)
TIERD_NEXT(int, __ppoll_chk, pollfd*, nfds_t, const timespec*, const sigset_t*, size_t)
TIERD_NEXT(int, select, int, fd_set*, fd_set*, fd_set*, timeval*)
TIERD_NEXT(int, pselect, int, fd_set*, fd_set*, fd_set*, const timespec*, const sigset_t*)
TIERD_NEXT(int, epoll_ctl, int, int, int, epoll_event*)
TIERD_NEXT(int, inotify_add_watch, int, const char*, std::uint32_t)

namespace {

constexpr nfds_t kMost = 256;  // of an array that is copied onto the stack
constexpr short kReady = POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM;  // what the kernel says of any regular file

// Whether one of ours is among them. Of an array that is too large to be copied they become real.
bool AnyOurs(const pollfd* fds, nfds_t count) {
  if (OpenDescriptions() == 0 || !Active()) return false;
  for (nfds_t i = 0; i < count; ++i) {
    if (fds[i].fd < 0 || !IsOurs(fds[i].fd)) continue;
    if (count <= kMost) return true;
    (void)Materialise(fds[i].fd, Conversion::kSyscall);
  }
  return false;
}

// `others` asks the kernel about a copy in which ours are left out, without waiting if one of ours is ready. The caller's array is its own: only `revents` change.
template <typename Others>
int PollOurs(pollfd* fds, nfds_t count, Others others) {
  pollfd copy[kMost];
  int ready = 0;
  for (nfds_t i = 0; i < count; ++i) {
    copy[i] = fds[i];
    if (fds[i].fd < 0 || !IsOurs(fds[i].fd)) continue;
    copy[i].fd = -1;
    copy[i].events = static_cast<short>(fds[i].events & kReady);  // of what is left out the kernel does not look at the events
    ready += copy[i].events != 0 ? 1 : 0;
  }
  const int result = others(copy, ready != 0);
  if (result < 0) return result;
  for (nfds_t i = 0; i < count; ++i) fds[i].revents = copy[i].fd == -1 && fds[i].fd >= 0 ? copy[i].events : copy[i].revents;
  return result + ready;
}

}  // namespace

TIERD_EXPORT(int, poll, pollfd* fds, nfds_t count, int timeout_ms) {
  if (!AnyOurs(fds, count)) return Next_poll()(fds, count, timeout_ms);
  return PollOurs(fds, count, [&](pollfd* asked, bool ready) { return Next_poll()(asked, count, ready ? 0 : timeout_ms); });
}

TIERD_EXPORT(int, ppoll, pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  if (!AnyOurs(fds, count)) return Next_ppoll()(fds, count, timeout, mask);
  const timespec now{};
  return PollOurs(fds, count, [&](pollfd* asked, bool ready) { return Next_ppoll()(asked, count, ready ? &now : timeout, mask); });
}

TIERD_EXPORT(int, __poll_chk, pollfd* fds, nfds_t count, int timeout_ms, size_t room) {
  if (count * sizeof *fds > room || !AnyOurs(fds, count)) return Next___poll_chk()(fds, count, timeout_ms, room);
  return PollOurs(fds, count, [&](pollfd* asked, bool ready) { return Next_poll()(asked, count, ready ? 0 : timeout_ms); });
}

TIERD_EXPORT(int, __ppoll_chk, pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask, size_t room) {
  if (count * sizeof *fds > room || !AnyOurs(fds, count)) return Next___ppoll_chk()(fds, count, timeout, mask, room);
  const timespec now{};
  return PollOurs(fds, count, [&](pollfd* asked, bool ready) { return Next_ppoll()(asked, count, ready ? &now : timeout, mask); });
}

// ---- select ----------------------------------------------------------------------------------------------------------------

namespace {

struct Sets {
  fd_set* asked[3];
  fd_set ours[3];
  bool any = false;

  Sets(int count, fd_set* read, fd_set* write, fd_set* except) : asked{read, write, except} {
    std::memset(ours, 0, sizeof ours);
    if (OpenDescriptions() == 0 || !Active()) return;
    for (int fd = 0; fd < count && fd < FD_SETSIZE; ++fd) {
      if (!IsOurs(fd)) continue;
      for (int i = 0; i < 3; ++i) {
        if (asked[i] == nullptr || !FD_ISSET(fd, asked[i])) continue;
        FD_SET(fd, &ours[i]);
        FD_CLR(fd, asked[i]);
        any = true;
      }
    }
  }
  bool ready() const { return Count(0) + Count(1) > 0; }
  int Count(int i) const {
    int n = 0;
    for (int fd = 0; fd < FD_SETSIZE; ++fd) n += FD_ISSET(fd, &ours[i]) ? 1 : 0;
    return n;
  }
  // Readable and writable, never exceptional. After an error the sets are as they were.
  int Add(int result) {
    for (int i = 0; i < 3 && result < 0; ++i) {
      for (int fd = 0; fd < FD_SETSIZE; ++fd) {
        if (FD_ISSET(fd, &ours[i])) FD_SET(fd, asked[i]);
      }
    }
    for (int i = 0; i < 2 && result >= 0; ++i) {
      for (int fd = 0; fd < FD_SETSIZE; ++fd) {
        if (FD_ISSET(fd, &ours[i])) FD_SET(fd, asked[i]);
      }
      result += Count(i);
    }
    return result;
  }
};

}  // namespace

TIERD_EXPORT(int, select, int count, fd_set* read, fd_set* write, fd_set* except, timeval* timeout) {
  Sets sets(count, read, write, except);
  if (!sets.any) return Next_select()(count, read, write, except, timeout);
  timeval now{};
  return sets.Add(Next_select()(count, read, write, except, sets.ready() ? &now : timeout));
}

TIERD_EXPORT(int, pselect, int count, fd_set* read, fd_set* write, fd_set* except, const timespec* timeout, const sigset_t* mask) {
  Sets sets(count, read, write, except);
  if (!sets.any) return Next_pselect()(count, read, write, except, timeout, mask);
  const timespec now{};
  return sets.Add(Next_pselect()(count, read, write, except, sets.ready() ? &now : timeout, mask));
}

TIERD_EXPORT(int, epoll_ctl, int epoll, int operation, int fd, epoll_event* event) {
  if (Emulate(fd)) return Result(-EPERM);
  if (Emulate(epoll)) [[unlikely]] (void)Materialise(epoll, Conversion::kSyscall);  // what is said of it depends on `fd`
  return Next_epoll_ctl()(epoll, operation, fd, event);
}

TIERD_EXPORT(int, inotify_add_watch, int fd, const char* path, std::uint32_t events) {
  RealIfNamed(path);
  const int watch = RefuseAsFile(fd, EINVAL, [=] { return Next_inotify_add_watch()(fd, path, events); });
  if (watch >= 0) ReadFromSource({AT_FDCWD, path}, (events & IN_DONT_FOLLOW) != 0 ? Changes::kEntry : Changes::kTarget);
  return watch;
}
