/* How many descriptors of each kind a process gets until there is none left (EMFILE).
 * usage: scarce FILE... : cached files of 32-bit numbers. One line for each kind: first with none of
 * the files open, then with all of them open. What they show is checked after each kind. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/preload/check.h"

enum { kMost = 5000 };
static int fds[kMost], used;
static FILE *streams[kMost];
static DIR *directories[kMost];
static int listener = -1;

static int keep(int fd) {
  if (fd >= 0) fds[used++] = fd;
  return fd >= 0 ? 1 : 0;
}
static int keep_two(int result, const int *ends) { return result == 0 ? keep(ends[0]) + keep(ends[1]) : 0; }
static int named(int how) {
  char pattern[] = "/tmp/tierd-scarce-XXXXXX", with[] = "/tmp/tierd-scarce-XXXXXX.end";
  char *name = how < 2 ? pattern : with;
  int fd = how == 0   ? mkstemp(name)
           : how == 1 ? mkostemp(name, O_CLOEXEC)
           : how == 2 ? mkstemps(name, 4)
                      : mkostemps(name, 4, O_CLOEXEC);
  int error = errno;
  if (fd >= 0) unlink(name);
  errno = error;
  return fd;
}
static int shared(void) {
  int fd = shm_open("/tierd-scarce", O_RDWR | O_CREAT, 0600), error = errno;
  if (fd >= 0) shm_unlink("/tierd-scarce");
  errno = error;
  return fd;
}
/* The client's end is a number, too: it is closed again, and the connection waits in the backlog. */
static int accepted(int four) {
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  socklen_t bytes = sizeof name;
  if (getsockname(listener, (struct sockaddr *)&name, &bytes) != 0) return -1;
  int end = socket(AF_UNIX, SOCK_STREAM, 0), fd;
  if (end < 0) return -1;
  if (connect(end, (struct sockaddr *)&name, bytes) != 0) return -1;
  close(end);
  fd = four ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : accept(listener, NULL, NULL);
  return fd;
}

/* How many numbers it made. */
static int make(int kind) {
  int ends[2];
  sigset_t none;
  struct open_how how = {.flags = O_RDONLY};
  sigemptyset(&none);
  switch (kind) {
    case 0: return keep(open("/dev/null", O_RDONLY));
    case 1: return keep(openat(AT_FDCWD, "/dev/null", O_RDONLY));
    case 2: return keep(syscall(SYS_openat2, AT_FDCWD, "/dev/null", &how, sizeof how));
    case 3: return keep(creat("/dev/null", 0600));
    case 4: return keep(dup(0));
    case 5: return keep(fcntl(0, F_DUPFD, 3));
    case 6: return keep(fcntl(0, F_DUPFD_CLOEXEC, 3));
    case 7: return (streams[used] = fopen("/dev/null", "r")) != NULL ? keep(fileno(streams[used])) : 0;
    case 8: return (streams[used] = tmpfile()) != NULL ? keep(fileno(streams[used])) : 0;
    case 9: return (directories[used] = opendir("/")) != NULL ? keep(dirfd(directories[used])) : 0;
    case 10: case 11: case 12: case 13: return keep(named(kind - 10));
    case 14: return keep(socket(AF_UNIX, SOCK_STREAM, 0));
    case 15: return keep_two(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), ends);
    case 16: return keep_two(pipe(ends), ends);
    case 17: return keep_two(pipe2(ends, O_CLOEXEC), ends);
    case 18: return keep(accepted(0));
    case 19: return keep(accepted(1));
    case 20: return keep(eventfd(0, 0));
    case 21: return keep(epoll_create(1));
    case 22: return keep(epoll_create1(0));
    case 23: return keep(memfd_create("scarce", 0));
    case 24: return keep(timerfd_create(CLOCK_MONOTONIC, 0));
    case 25: return keep(signalfd(-1, &none, 0));
    case 26: return keep(inotify_init());
    case 27: return keep(inotify_init1(0));
    case 28: return keep(fanotify_init(FAN_CLASS_NOTIF, O_RDONLY));
    case 29: return keep(shared());
    case 30: return keep(posix_openpt(O_RDWR | O_NOCTTY));
    case 31: return keep(syscall(SYS_eventfd2, 0, 0));
    case 32: return keep(syscall(SYS_pidfd_open, getpid(), 0));
    case 33: return (streams[used] = popen(":", "r")) != NULL ? keep(fileno(streams[used])) : 0;
    default: return -1;
  }
}
enum { kKinds = 34, kPopen = 33 };

static void close_all(int kind) {
  while (used > 0) {
    --used;
    if (kind == 7 || kind == 8) fclose(streams[used]);
    else if (kind == kPopen) pclose(streams[used]);
    else if (kind == 9) closedir(directories[used]);
    else close(fds[used]);
  }
}

static int count(int kind) {
  int made;
  do {
    errno = 0;
    made = make(kind);
  } while (made > 0 && used < kMost - 2);
  int result = errno == EMFILE ? used : -errno;
  close_all(kind);
  return result;
}

static int reads(int fd, uint32_t word) {
  uint32_t got = ~0u;
  return pread(fd, &got, 4, word * 4) == 4 && (got & 0xffffff) == word;
}

int main(int argc, char **argv) {
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  int open_files[64];
  listener = socket(AF_UNIX, SOCK_STREAM, 0);
  if (bind(listener, (struct sockaddr *)&name, sizeof(sa_family_t)) != 0 || listen(listener, 1000) != 0) return 3;
  for (int with = 0; with < 2; ++with) {
    for (int kind = 0; kind < kKinds; ++kind) {
      for (int i = 1; i < argc; ++i) { /* so that the library holds all that it ever holds */
        open_files[i] = open(argv[i], O_RDONLY);
        if (open_files[i] < 0 || !reads(open_files[i], 7)) return 4;
        if (!with) close(open_files[i]);
      }
      int most = count(kind);
      if (with) {
        for (int i = 1; i < argc; ++i) {
          if (!reads(open_files[i], 9) || close(open_files[i]) != 0) return 5;
        }
      }
      printf("%s %d %d\n", with ? "open" : "none", kind, most);
      fflush(stdout);
    }
  }
  return 0;
}
