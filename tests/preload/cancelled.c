/* Threads that are cancelled while they use cached files: a call that ends them bare ends them here, before it has done anything; no other does.
 * usage: cancelled FILE [check...]: 100,000 bytes of 32-bit numbers */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/preload/check.h"

static const char *path;
static int fd, ends[2];
static char room[8];
static const struct iovec parts = {room, 4};
static FILE *stream;

/* ---- calls ---- */
static int lock_by(int command) {
  struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
  return fcntl(fd, command, &lock);
}
static int poll_it(int (*ask)(struct pollfd *)) {
  struct pollfd asked = {fd, POLLIN, 0};
  return ask(&asked);
}
static int ask_poll(struct pollfd *asked) { return poll(asked, 1, 0); }
static int ask_ppoll(struct pollfd *asked) { return ppoll(asked, 1, NULL, NULL); }
static int select_it(void) {
  fd_set set;
  FD_ZERO(&set);
  FD_SET(fd, &set);
  return select(fd + 1, &set, NULL, NULL, NULL);
}
static int describe(void) {
  struct stat st;
  return fstat(fd, &st) == 0 && stat(path, &st) == 0 && access(path, R_OK) == 0 && fcntl(fd, F_GETFL) >= 0 && lseek(fd, 0, SEEK_CUR) >= 0 ? 0 : -1;
}
static int send_it(void) {
  off_t offset = 0;
  return (int)sendfile(ends[1], fd, &offset, 4);
}

enum { kOpen, kOpenat, kFopen, kRead, kPread, kReadv, kPreadv, kPreadv2, kFread, kClose, kPoll, kPpoll, kSelect, kSplice, kWaitForLock, kWaitForOwnLock, kPoints,
       kDescribe = kPoints, kSendfile, kFlock, kTryLock, kAdvise, kCalls };
static int call(int which) {
  switch (which) {
    case kOpen: return open(path, O_RDONLY);
    case kOpenat: return openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    case kFopen: return fopen(path, "r") != NULL ? 0 : -1;
    case kRead: return (int)read(fd, room, 4);
    case kPread: return (int)pread(fd, room, 4, 0);
    case kReadv: return (int)readv(fd, &parts, 1);
    case kPreadv: return (int)preadv(fd, &parts, 1, 0);
    case kPreadv2: return (int)preadv2(fd, &parts, 1, 0, RWF_HIPRI);
    case kFread: return (int)fread(room, 1, 4, stream);
    case kClose: return close(fd);
    case kPoll: return poll_it(ask_poll);
    case kPpoll: return poll_it(ask_ppoll);
    case kSelect: return select_it();
    case kSplice: return (int)splice(fd, NULL, ends[1], NULL, 4, 0);
    case kWaitForLock: return lock_by(F_SETLKW);
    case kWaitForOwnLock: return lock_by(F_OFD_SETLKW);
    case kDescribe: return describe();
    case kSendfile: return send_it();
    case kFlock: return flock(fd, LOCK_SH);
    case kTryLock: return lock_by(F_SETLK);
    default: return posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED);
  }
}

/* ---- who makes them ---- */
static void *make(void *which) {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
  pthread_cancel(pthread_self());
  if (call(kPread) != 4) return (void *)2; /* whoever may not be cancelled goes on */
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
  return (void *)(size_t)(call((int)(size_t)which) < 0);
}

static int check_points(void) {
  for (int which = 0; which < kCalls; ++which) {
    pthread_t thread;
    void *result;
    uint32_t number;
    CHECK((fd = open(path, O_RDONLY)) >= 0 && (stream = fopen(path, "r")) != NULL && pipe(ends) == 0);
    CHECK(pthread_create(&thread, NULL, make, (void *)(size_t)which) == 0 && pthread_join(thread, &result) == 0);
    if (result != (which < kPoints ? PTHREAD_CANCELED : NULL)) printf("call %d\n", which);
    CHECK(result == (which < kPoints ? PTHREAD_CANCELED : NULL));
    CHECK(read(fd, &number, 4) == 4 && number == 0 && close(fd) == 0); /* it is open, and stands where it stood */
    fclose(stream), close(ends[0]), close(ends[1]);
  }
  return 0;
}

/* Somebody else cancels: what the thread was in the middle of is over, and nothing of it is kept. */
static void close_it(void *number) { close(*(int *)number); }
static void *read_on(void *argument) {
  for (;;) {
    char part[1000];
    volatile int mine = open(path, O_RDONLY);
    pthread_cleanup_push(close_it, (void *)&mine);
    while (read(mine, part, sizeof part) > 0) {
    }
    pthread_cleanup_pop(0);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL); /* cancelled in close it would leave the file open */
    close(mine);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    *(volatile int *)argument = 1;
  }
}
static int check_loop(void) {
  alarm(20); /* whoever is never cancelled is waited for for ever */
  for (int round = 0; round < 400; ++round) {
    pthread_t thread;
    void *result;
    volatile int begun = 0;
    CHECK(pthread_create(&thread, NULL, read_on, (void *)&begun) == 0);
    while (!begun) sched_yield();
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
  }
  return 0;
}

int main(int argc, char **argv) {
  static const struct check checks[] = {{"points", check_points}, {"loop", check_loop}};
  if (argc < 2) return 64;
  path = argv[1];
  return RUN_CHECKS(checks, argc, argv, 2);
}
