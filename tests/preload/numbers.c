/* What programs do to descriptor numbers of cached files, and around them. The file holds 32-bit numbers, one after the other.
 * usage: numbers FILE OTHER-FILE [check...] */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <stddef.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/preload/by_hand.h"
#include "tests/preload/check.h"

static const char *path, *other;

static int reads(int fd, uint32_t wanted) {
  uint32_t number;
  return read(fd, &number, 4) == 4 && number == wanted;
}
static int ends_well(pid_t child) {
  int status;
  return waitpid(child, &status, 0) == child && status == 0;
}

/* What is put at a standard descriptor is the lowest free number, as every shell of old relies on. */
static int check_lowest(void) {
  for (int how = 0; how < 3; ++how) {
    int fd = open(path, O_RDONLY), input = dup2(0, 30);
    CHECK(close(0) == 0);
    int copy = how == 0 ? dup(fd) : fcntl(fd, how == 1 ? F_DUPFD : F_DUPFD_CLOEXEC, 0);
    CHECK(copy == 0 && reads(0, 0) && reads(fd, 1));
    CHECK(dup2(input, 0) == 0 && close(input) == 0 && close(fd) == 0);
  }
  return 0;
}

/* No number is beyond the program's reach: it may put a file of its own anywhere. */
static int check_taken(void) {
  int ends[2], fd = open(path, O_RDONLY);
  struct stat st;
  CHECK(fd >= 0 && flock(fd, LOCK_SH) == 0 && fstat(fd, &st) == 0 && pipe(ends) == 0);
  struct statvfs fs;
  CHECK(fstatvfs(fd, &fs) == 0);
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  for (int to = 600; to < 1200 && (rlim_t)to < limit.rlim_cur; ++to) {
    if (to == fd) continue; /* all others are free, as far as this program knows */
    CHECK(dup2(ends[1], to) == to);
    int next = open(other, O_RDONLY); /* nothing of ours was one of them */
    CHECK(next >= 0 && next != to && reads(next, 0x80000000u) && close(next) == 0);
    CHECK(close(to) == 0);
  }
  CHECK(close(ends[1]) == 0);
  char byte;
  CHECK(read(ends[0], &byte, 1) == 0); /* nobody holds the other end */
  CHECK(reads(fd, 0) && flock(fd, LOCK_UN) == 0 && close(fd) == 0 && close(ends[0]) == 0);
  return 0;
}

static int check_refused(void) {
  int fd = open(path, O_RDONLY), null = open("/dev/null", O_RDONLY);
  CHECK(dup3(null, fd, 0x40000000) == -1 && errno == EINVAL && reads(fd, 0));
  CHECK(dup2(999999, fd) == -1 && errno == EBADF && reads(fd, 1));
  CHECK(close_range(fd, fd, 0x100) == -1 && errno == EINVAL && reads(fd, 2));
  CHECK(close_range(fd, fd - 1, 0) == -1 && errno == EINVAL && reads(fd, 3));
  return close(fd) | close(null);
}

static void *close_mine(void *argument) {
  int fd = *(int *)argument;
  return (void *)(size_t)(close_range((unsigned)fd, (unsigned)fd, CLOSE_RANGE_UNSHARE) != 0 || fcntl(fd, F_GETFD) != -1);
}
static int check_unshared(void) { /* converts */
  int fd = open(path, O_RDONLY);
  pthread_t thread;
  void *bad;
  CHECK(pthread_create(&thread, NULL, close_mine, &fd) == 0 && pthread_join(thread, &bad) == 0 && bad == NULL);
  CHECK(reads(fd, 0));
  return close(fd);
}

/* A lock of fcntl lasts until its holder closes a descriptor of the file; what happens inside the library is no such close. */
static int is_locked(void) {
  pid_t child = fork();
  if (child == 0) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = open(path, O_RDWR);
    _exit(fd >= 0 && fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type == F_RDLCK ? 0 : 1);
  }
  return ends_well(child);
}
static int check_locks(void) {
  struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_CUR, .l_start = 4};
  int first = open(path, O_RDONLY), second = open(path, O_RDONLY);
  CHECK(lseek(first, 8, SEEK_SET) == 8 && fcntl(first, F_SETLK, &lock) == 0 && lock.l_whence == SEEK_CUR && lock.l_start == 4);
  struct statvfs fs;
  CHECK(fstatvfs(second, &fs) == 0 && is_locked());
  CHECK(dup2(second, 50) == 50 && is_locked());
  CHECK(close(first) == 0 && !is_locked());
  return close(second) | close(50);
}

/* However often, on however many files, and whichever descriptor of the file is closed; and no descriptor is left behind. */
static int count_open(void) {
  int count = 0;
  for (int fd = 0; fd < 4096; ++fd) count += by_hand(SYS_fcntl, fd, F_GETFD, 0, 0, 0, 0) >= 0;
  return count;
}
static int lock_real(int *fd) { /* by a descriptor that has become real */
  struct flock lock = {.l_type = F_RDLCK};
  *fd = open(path, O_RDONLY);
  return *fd >= 0 && fcntl(*fd, F_SETLK, &lock) == 0 && fcntl(*fd, F_SETFL, O_NONBLOCK) == 0;
}
static int check_locks_again(void) {
  struct flock lock = {.l_type = F_RDLCK};
  int fd, before = 0;
  for (int i = 0; i < 100; ++i) {
    fd = open(path, O_RDONLY);
    CHECK(fcntl(fd, F_SETLK, &lock) == 0 && is_locked() && close(fd) == 0 && !is_locked());
    if (i == 5) before = count_open();
  }
  for (int i = 0; i < 100; ++i) CHECK(lock_real(&fd) && close(fd) == 0);
  CHECK(lock_real(&fd) && is_locked() && close(fd) == 0 && !is_locked() && count_open() <= before);
  return 0;
}
static int check_locks_ended(void) {
  struct flock lock = {.l_type = F_RDLCK};
  for (int way = 0; way < 6; ++way) {
    int first = open(path, O_RDONLY), second = open(path, O_RDONLY), null = open("/dev/null", O_RDONLY);
    if (way == 5) CHECK(fcntl(first, F_SETFL, O_NONBLOCK) == 0);
    CHECK(fcntl(first, F_SETLK, &lock) == 0 && dup3(null, second, 0x40000000) == -1 && dup2(999999, second) == -1);
    if (way == 1) CHECK(close(dup(second)) == 0 && fcntl(second, F_SETFD, 0) == 0);
    if (way == 2) CHECK(dup2(null, second) == second);
    if (way == 3) CHECK(close_range((unsigned)second, (unsigned)second, 0) == 0);
    if (way == 4) CHECK(fcntl(second, F_SETFL, O_NONBLOCK) == 0);
    if (way != 1 && way != 3) CHECK(close(second) == 0);
    CHECK(!is_locked() && close(first) == 0 && close(null) == 0);
    if (way == 1) close(second);
  }
  return 0;
}
static int check_locks_many(void) {
  struct flock lock = {.l_type = F_RDLCK};
  char name[4096];
  int fds[40], before = 0;
  for (int i = 0; i < 40; ++i) {
    snprintf(name, sizeof name, "%s.lock%d", path, i);
    CHECK((fds[i] = open(name, O_RDWR | O_CREAT, 0600)) >= 0 && fcntl(fds[i], F_SETLK, &lock) == 0 && unlink(name) == 0);
  }
  for (int i = 0; i < 100; ++i) {
    int fd = open(path, O_RDONLY);
    CHECK(fcntl(fd, F_SETLK, &lock) == 0 && is_locked() && close(fd) == 0 && !is_locked());
    if (i == 5) before = count_open();
  }
  CHECK(count_open() <= before);
  for (int i = 0; i < 40; ++i) CHECK(close(fds[i]) == 0);
  return 0;
}

/* The limit is lowered under what is open: that stays. */
static int check_limit(void) {
  struct rlimit limit;
  uint32_t number;
  int fd = open(path, O_RDONLY);
  CHECK(reads(fd, 0) && getrlimit(RLIMIT_NOFILE, &limit) == 0);
  pid_t child = fork();
  if (child == 0) {
    int mine = open(path, O_RDONLY);
    limit.rlim_cur = 256;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(2);
    pid_t grandchild = fork();
    if (grandchild == 0) _exit(reads(mine, 0) ? 0 : 3);
    if (!ends_well(grandchild)) _exit(4);
    _exit(read(mine, &number, 4) == 4 && number < 2 ? 0 : 5);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  return close(fd);
}

/* By whatever name it is lowered: what is open can be handed on, and so can what is opened then. */
static int lower(int how, rlim_t to) {
  struct rlimit limit;
  struct rlimit64 limit64;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || getrlimit64(RLIMIT_NOFILE, &limit64) != 0) return -1;
  limit.rlim_cur = limit64.rlim_cur = to;
  switch (how) {
    case 0: return setrlimit(RLIMIT_NOFILE, &limit);
    case 1: return setrlimit64(RLIMIT_NOFILE, &limit64);
    case 2: return prlimit(0, RLIMIT_NOFILE, &limit, NULL);
    case 3: return prlimit64(getpid(), RLIMIT_NOFILE, &limit64, &limit64);
    case 4: return (int)syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit64, NULL);
    default: return (int)syscall(SYS_setrlimit, RLIMIT_NOFILE, &limit);
  }
}
static int hand_on(int how) {
  int fd = open(path, O_RDONLY);
  CHECK(reads(fd, 0) && lower(how, 200) == 0);
  int copy = dup(fd), duplicate = fcntl(fd, F_DUPFD, 10);
  CHECK(reads(copy, 1) && dup2(fd, 9) == 9 && reads(9, 2) && reads(duplicate, 3) && reads(fd, 4));
  int later = open(other, O_RDONLY), later_copy = dup(later);
  CHECK(reads(later, 0x80000000u) && reads(later_copy, 0x80000001u) && dup2(later, 8) == 8 && reads(8, 0x80000002u));
  execl("/bin/sh", "sh", "-c", "test \"$(head -c 4 <&9 | wc -c)$(head -c 4 <&8 | wc -c)\" = 44", NULL);
  return 1;
}
static int check_lowered(void) { /* converts one each */
  for (int how = 0; how < 6; ++how) {
    pid_t child = fork();
    if (child == 0) {
      int bad = hand_on(how);
      fflush(stdout);
      _exit(bad);
    }
    CHECK(ends_well(child));
  }
  return 0;
}

/* What takes nothing from what is open, and what is refused, changes nothing. */
static int check_not_lowered(void) {
  struct rlimit limit;
  int fd = open(path, O_RDONLY);
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0 && setrlimit(RLIMIT_NOFILE, &limit) == 0 && prlimit(0, RLIMIT_NOFILE, NULL, &limit) == 0 && lower(0, 1024) == 0);
  CHECK(setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}) == 0);
  int next = open(path, O_RDONLY);
  CHECK(reads(fd, 0) && reads(next, 0) && close(next) == 0);
  return close(fd);
}
static int check_limit_refused(void) { /* converts one */
  struct rlimit refused = {300, 200};
  int fd = open(path, O_RDONLY);
  CHECK(setrlimit(RLIMIT_NOFILE, &refused) == -1 && errno == EINVAL);
  int next = open(path, O_RDONLY);
  CHECK(reads(fd, 0) && reads(next, 0) && close(next) == 0);
  return close(fd);
}

/* Lowered where nobody sees it: what cannot be handed on any more is not, and reads on. */
static int check_lowered_behind(void) {
  struct rlimit limit;
  int fd = open(path, O_RDONLY);
  CHECK(reads(fd, 0) && getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = 200;
  CHECK(by_hand(SYS_prlimit64, 0, RLIMIT_NOFILE, (long)&limit, 0, 0, 0) == 0);
  int copies[3] = {dup(fd), dup2(fd, 9), fcntl(fd, F_DUPFD, 10)}, error = errno;
  for (int i = 0; i < 3; ++i) CHECK(copies[i] == -1 ? error == EMFILE : lseek(copies[i], 4, SEEK_SET) == 4 && reads(copies[i], 1) && close(copies[i]) == 0);
  CHECK(lseek(fd, 4, SEEK_SET) == 4);
  CHECK(reads(fd, 1));
  return close(fd);
}

/* Numbers of which the library keeps no account: what is written by them is told when they are closed, by whatever call. */
static int check_high_writers(void) {
  char name[4096];
  snprintf(name, sizeof name, "%s.high", path);
  for (int way = 0; way < 4; ++way) {
    int low = open(name, O_RDWR | O_CREAT, 0600), high = fcntl(low, F_DUPFD, 5000);
    CHECK(low >= 0 && high >= 5000 && close(low) == 0 && pwrite(high, "two", 3, 0) == 3);
    if (way == 0) CHECK(close(high) == 0);
    if (way == 1) CHECK(close_range(4900, 5900, 0) == 0);
    if (way == 2) CHECK(dup2(0, high) == high && close(high) == 0);
    if (way == 3) CHECK((low = dup(high)) >= 0 && close(high) == 0 && close(low) == 0);
  }
  int reader = fcntl(0, F_DUPFD, 5000), elsewhere = open("/dev/null", O_WRONLY), high = fcntl(elsewhere, F_DUPFD, 5000); /* nobody is told of these */
  CHECK(reader >= 5000 && high >= 5000);
  return close(reader) | close(high) | close(elsewhere) | unlink(name);
}

/* By a thread that makes the numbers its own, and closes them in the same call. */
static int check_unshared_writers(void) {
  char name[4096];
  snprintf(name, sizeof name, "%s.unshared", path);
  int fd = open(name, O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0 && pwrite(fd, "two", 3, 0) == 3 && close_range(fd, fd, CLOSE_RANGE_UNSHARE) == 0 && close(fd) != 0 && errno == EBADF);
  return unlink(name);
}

/* All numbers are used up: what is open is converted all the same, one after the other. */
static int check_exhausted(void) {
  int ours[12], fds[5000], count = 0;
  for (int i = 0; i < 12; ++i) CHECK((ours[i] = open(path, O_RDONLY)) >= 0 && lseek(ours[i], 4 * i, SEEK_SET) == 4 * i);
  while (count < 5000 && (fds[count] = open("/dev/null", O_RDONLY)) >= 0) ++count;
  CHECK(count < 5000 && errno == EMFILE);
  pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 12; ++i) {
      if (!reads(ours[i], (uint32_t)i)) _exit(1);
    }
    _exit(0);
  }
  CHECK(ends_well(child));
  for (int i = 0; i < 12; ++i) CHECK(reads(ours[i], (uint32_t)i + 1) && close(ours[i]) == 0);
  while (count > 0) close(fds[--count]);
  return 0;
}

/* What is closed is there for others: bare all numbers are the program's, here all but one. */
static int check_given_back(void) {
  struct rlimit limit;
  int ours[6], ends[2], fds[5000], count = 0, before = count_open();
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 5000);
  for (int i = 0; i < 6; ++i) CHECK((ours[i] = open(path, O_RDONLY)) >= 0);
  while ((fds[count] = dup(0)) >= 0) ++count;
  CHECK(errno == EMFILE);
  for (int i = 0; i < 6; ++i) CHECK(close(ours[i]) == 0);
  CHECK(pipe(ends) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
  for (int how = 0; how < 3; ++how) {
    FILE *streams[6];
    if (how == 2) { /* streams take the last ones */
      for (int i = 0; i < 6; ++i) CHECK((streams[i] = fopen("/dev/null", "r")) != NULL);
    }
    while ((fds[count] = how == 0 ? dup(0) : open("/dev/null", O_RDONLY)) >= 0) ++count;
    CHECK(errno == EMFILE && count + (how == 2 ? 6 : 0) >= (int)limit.rlim_cur - before - 1);
    for (int i = 0; how == 2 && i < 6; ++i) CHECK(fclose(streams[i]) == 0);
    for (int i = 0; i < 20; ++i) close(fds[--count]);
  }
  int fd = open(path, O_RDONLY); /* and for us again */
  CHECK(reads(fd, 0));
  while ((fds[count] = dup(0)) >= 0) ++count;
  CHECK(errno == EMFILE && dup2(fd, fds[0]) == fds[0] && reads(fds[0], 1) && close(fd) == 0);
  while (count > 0) close(fds[--count]);
  return 0;
}

static int check_poll(void) {
  int fd = open(path, O_RDONLY), ends[2];
  CHECK(pipe(ends) == 0);
  /* ~fd is the customary way to have an entry left out. */
  struct pollfd p[3] = {{~fd, POLLIN, 7}, {fd, POLLIN | POLLPRI, 0}, {ends[0], POLLIN, 0}};
  CHECK(poll(p, 3, 1000) == 1 && p[0].fd == ~fd && p[0].revents == 0 && p[1].fd == fd && p[1].revents == POLLIN && p[2].revents == 0);
  fd_set set;
  FD_ZERO(&set);
  FD_SET(fd, &set);
  FD_SET(40, &set); /* not open: the sets stay as they are */
  CHECK(select(fd > 40 ? fd + 1 : 41, &set, NULL, NULL, NULL) == -1 && errno == EBADF && FD_ISSET(fd, &set) && FD_ISSET(40, &set));
  return close(fd) | close(ends[0]) | close(ends[1]);
}

/* sendfile while other threads fork and dup: nothing is sent twice. */
static volatile int stop;
static int sent_fd;
static void *fork_and_dup(void *argument) {
  while (!stop) {
    if (argument != NULL) {
      int copy = dup(sent_fd);
      if (copy >= 0) close(copy);
    } else {
      pid_t child = fork();
      if (child == 0) _exit(0);
      if (child > 0) waitpid(child, NULL, 0);
    }
  }
  return NULL;
}
static void *receive(void *argument) {
  int fd = *(int *)argument;
  uint32_t wanted = 0, numbers[512];
  for (;;) {
    ssize_t got = recv(fd, numbers, sizeof numbers, MSG_WAITALL);
    if (got <= 0) return (void *)(size_t)(wanted != 25000);
    for (ssize_t i = 0; i < got / 4; ++i) {
      if (numbers[i] != wanted++) return (void *)1;
    }
    usleep(20);
  }
}
static int check_sendfile(void) {
  for (int how = 0; how < 2; ++how) {
    for (int round = 0; round < 40; ++round) {
      int ends[2], small = 4096;
      pthread_t receiver, disturber;
      CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
      CHECK((sent_fd = open(path, O_RDONLY)) >= 0);
      stop = 0;
      CHECK(pthread_create(&receiver, NULL, receive, &ends[0]) == 0 && pthread_create(&disturber, NULL, fork_and_dup, how == 0 ? &stop : NULL) == 0);
      ssize_t n, total = 0;
      while ((n = sendfile(ends[1], sent_fd, NULL, 1 << 14)) > 0) total += n;
      shutdown(ends[1], SHUT_WR);
      void *wrong;
      pthread_join(receiver, &wrong);
      stop = 1;
      pthread_join(disturber, NULL);
      CHECK(total == 100000 && wrong == NULL);
      close(sent_fd), close(ends[0]), close(ends[1]);
    }
  }
  return 0;
}

/* A child with our memory and descriptors of its own. */
static int close_it(void *argument) {
  int fd = *(int *)argument;
  char byte;
  int bad = read(fd, &byte, 1) != 1 || close(fd) != 0;
  dup2(1, fd + 1);
  _exit(bad);
}
static int check_shared_memory(void) { /* converts */
  static char stack[65536] __attribute__((aligned(16)));
  int fd = open(path, O_RDONLY);
  pid_t child = clone(close_it, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &fd);
  CHECK(child > 0 && ends_well(child));
  CHECK(lseek(fd, 0, SEEK_CUR) == 1 && lseek(fd, 4, SEEK_SET) == 4 && reads(fd, 1) && close(fd) == 0);
  fd = open(path, O_RDONLY);
  CHECK(reads(fd, 0));
  return close(fd);
}

/* Somebody who runs on our memory and descriptors, though libc has made no thread: no step is lost. */
enum { kSteps = 2000000 };
static int step(void *fd) {
  for (int i = 0; i < kSteps; ++i) lseek(*(int *)fd, 1, SEEK_CUR);
  return 0;
}
static int step_beside(void *fd) {
  return prctl(PR_SET_PDEATHSIG, SIGKILL) | step(fd);
}
static int check_cloned(void) {
  static char stack[65536] __attribute__((aligned(16)));
  alarm(60); /* whose step is lost may wait for ever */
  int fd = open(path, O_RDONLY);
  pid_t child = clone(step_beside, stack + sizeof stack, CLONE_VM | CLONE_FILES | SIGCHLD, &fd);
  CHECK(child > 0 && step(&fd) == 0 && ends_well(child) && lseek(fd, 0, SEEK_CUR) == 2 * kSteps);
  return close(fd);
}

/* Jumps out of the middle of calls that handlers may interrupt: the others go on. */
static sigjmp_buf out;
static volatile sig_atomic_t jumping;
static void jump(int number) {
  (void)number;
  if (jumping) siglongjmp(out, 1);
}
static int check_jumps(void) {
  struct sigaction action = {.sa_handler = jump};
  struct itimerval every = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
  char name[4096];
  CHECK(sigaction(SIGALRM, &action, NULL) == 0);
  for (volatile int round = 0; round < 600; ++round) {
    if (sigsetjmp(out, 1) == 0) {
      snprintf(name, sizeof name, "%s.none%d", path, round); /* not in the cache: the daemon is asked */
      jumping = 1;
      setitimer(ITIMER_REAL, &every, NULL);
      for (;;) {
        struct stat st;
        stat(name, &st);
        int fd = open(path, O_RDONLY);
        close(fd);
      }
    }
    jumping = 0;
    setitimer(ITIMER_REAL, &never, NULL);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && reads(fd, 0));
    close(fd);
    for (int i = 3; i < 1024; ++i) close(i); /* what a jump has left open */
  }
  return 0;
}

/* A number is closed where nobody sees it, and the kernel gives it out again. */
static int check_behind(void) {
#if defined(__x86_64__)
  long closed;
  char byte;
  int fd = open(path, O_RDONLY), null = open("/dev/null", O_RDONLY);
  __asm__ volatile("syscall" : "=a"(closed) : "a"(3 /* close */), "D"(fd) : "rcx", "r11", "memory");
  CHECK(closed == 0 && fcntl(null, F_DUPFD, fd) == fd && read(fd, &byte, 1) == 0 && close(fd) == 0);
  fd = open(path, O_RDONLY);
  __asm__ volatile("syscall" : "=a"(closed) : "a"(3), "D"(fd) : "rcx", "r11", "memory");
  int other_fd = open(other, O_RDONLY);
  CHECK(closed == 0 && reads(other_fd, 0x80000000u) && close(other_fd) == 0 && close(null) == 0);
#endif
  return 0;
}

/* A number that was closed is not open, whoever keeps it for what; and it is free for files of the program's own. */
static int check_closed(void) {
  int ends[2], piped = pipe(ends), fd = open(path, O_RDONLY), number = fd;
  struct stat st;
  char byte;
  CHECK(piped == 0 && fd >= 0 && close(fd) == 0);
  CHECK(fcntl(number, F_GETFD) == -1 && errno == EBADF && fstat(number, &st) == -1 && errno == EBADF && read(number, &byte, 1) == -1 && errno == EBADF);
  CHECK(fstatat(number, "", &st, AT_EMPTY_PATH) == -1 && errno == EBADF && lseek(number, 0, SEEK_CUR) == -1 && errno == EBADF);
  CHECK(dup(number) == -1 && errno == EBADF && dup2(number, 40) == -1 && errno == EBADF && close(number) == -1 && errno == EBADF);
  CHECK(dup2(999999, number) == -1 && errno == EBADF && fcntl(number, F_GETFD) == -1 && errno == EBADF);
  for (int i = 0; i < 20; ++i) {
    int other_fd = open(i % 2 ? path : other, O_RDONLY), path_fd = open(i % 2 ? other : path, O_RDONLY);
    CHECK(reads(other_fd, i % 2 ? 0 : 0x80000000u) && reads(path_fd, i % 2 ? 0x80000000u : 0) && close(other_fd) == 0 && close(path_fd) == 0);
  }
  CHECK(dup2(ends[1], number) == number);
  fd = open(path, O_RDONLY);
  CHECK(fd >= 0 && fd != number && reads(fd, 0) && write(number, "x", 1) == 1 && close(number) == 0 && close(ends[1]) == 0);
  CHECK(read(ends[0], &byte, 1) == 1 && byte == 'x' && read(ends[0], &byte, 1) == 0 && close(ends[0]) == 0 && reads(fd, 1) && close(fd) == 0);
  return 0;
}

/* Opening, describing, reading and closing a hit needs no system call at all: here they are forbidden. */
static int use_no_calls(void) {
  static const int kForbidden[] = {SYS_openat, SYS_close, SYS_fcntl, SYS_fstat, SYS_newfstatat, SYS_read, SYS_pread64, SYS_lseek, SYS_ioctl};
  enum { kCount = sizeof kForbidden / sizeof *kForbidden };
  struct sock_filter filter[kCount + 3] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
  for (int i = 0; i < kCount; ++i) filter[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)kForbidden[i], (unsigned char)(kCount - i), 0);
  filter[kCount + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  filter[kCount + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  struct sock_fprog program = {kCount + 3, filter};
  struct stat st;
  int fd = open(path, O_RDONLY);
  CHECK(fd >= 0 && reads(fd, 0) && close(fd) == 0);
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && by_hand(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (long)&program, 0, 0, 0) == 0);
  for (int i = 0; i < 100; ++i) {
    fd = open(i % 2 ? path : other, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_size == 100000 && reads(fd, i % 2 ? 0 : 0x80000000u) && lseek(fd, 8, SEEK_SET) == 8 && !isatty(fd) && close(fd) == 0);
  }
  return 0;
}
static int check_no_calls(void) {
  if (getenv("LD_PRELOAD") == NULL) return 0; /* bare they are needed */
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    int bad = use_no_calls();
    fflush(stdout);
    _exit(bad);
  }
  CHECK(ends_well(child));
  return 0;
}

/* What the kernel refuses, or does not send. */
static int check_not_sent(void) {
  char name[4096], bytes[8];
  int ends[2], pipes[2], fd = open(path, O_RDONLY), reader = open(other, O_RDONLY | O_DSYNC); /* a flag that is not served */
  off_t start = 0, end = lseek(fd, 0, SEEK_END), before = -1;
  snprintf(name, sizeof name, "%s.appended", path);
  int appended = open(name, O_WRONLY | O_CREAT | O_APPEND, 0600);
  CHECK(fd >= 0 && reader >= 0 && appended >= 0 && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0 && pipe(pipes) == 0 && fcntl(pipes[1], F_SETFL, O_APPEND) == 0);
  CHECK(sendfile(ends[0], fd, &start, 0) == 0 && sendfile(ends[0], fd, &end, 10) == 0 && recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT) == -1 && errno == EAGAIN);
  for (size_t count = 0; count < 9; count += 4) {
    CHECK(sendfile(appended, fd, &start, count) == -1 && errno == EINVAL);
    CHECK(sendfile(reader, fd, &start, count) == -1 && errno == EBADF && sendfile(-1, fd, &start, count) == -1 && errno == EBADF);
    CHECK(sendfile(fd, fd, &start, count) == -1 && errno == EBADF && sendfile(ends[0], fd, &before, count) == -1 && errno == EINVAL);
  }
  CHECK(sendfile(reader, fd, &end, 4) == -1 && errno == EBADF && sendfile(appended, fd, &end, 4) == -1 && errno == EINVAL && start == 0);
  CHECK(sendfile(pipes[1], fd, &start, 4) == 4 && start == 4 && read(pipes[0], bytes, 8) == 4);
  return close(fd) | close(reader) | close(appended) | unlink(name) | close(ends[0]) | close(ends[1]) | close(pipes[0]) | close(pipes[1]);
}

int main(int argc, char **argv) {
  static const struct check checks[] = {{"lowest", check_lowest},       {"taken", check_taken},       {"refused", check_refused},
                                        {"unshared", check_unshared},   {"locks", check_locks},  {"locks_again", check_locks_again}, {"locks_ended", check_locks_ended}, {"locks_many", check_locks_many},     {"limit", check_limit},
                                        {"exhausted", check_exhausted}, {"given_back", check_given_back}, {"poll", check_poll},         {"behind", check_behind},     {"sendfile", check_sendfile},
                                        {"closed", check_closed},       {"lowered", check_lowered},   {"not_lowered", check_not_lowered}, {"limit_refused", check_limit_refused},
                                        {"lowered_behind", check_lowered_behind}, {"high_writers", check_high_writers}, {"unshared_writers", check_unshared_writers}, {"no_calls", check_no_calls},
                                        {"shared_memory", check_shared_memory}, {"cloned", check_cloned}, {"jumps", check_jumps}, {"not_sent", check_not_sent}};
  if (argc < 3) return 64;
  path = argv[1], other = argv[2];
  return RUN_CHECKS(checks, argc, argv, 3);
}
