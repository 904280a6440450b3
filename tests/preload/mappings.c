/* Mappings of cached files behave as those of any file. The files hold 32-bit words: the file's number in bits 24-31, the word's place in the others.
 * usage: mappings DIRECTORY [check...]: the directory holds `small` (file 1, 30,000 bytes), `middle` (file 2, 1,000,000 bytes) and big0 ... big5 (files 10-15, 10,000,000 bytes); for
 * `huge` one more of that name (file 20). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/preload/by_hand.h"
#include "tests/preload/check.h"

static const char *directory;
static const size_t page = 4096;
static const size_t small_bytes = 30000, middle_bytes = 1000000, big_bytes = 10000000;

static int open_file(int number) {
  char name[4096];
  if (number <= 2) snprintf(name, sizeof name, "%s/%s", directory, number == 1 ? "small" : "middle");
  else snprintf(name, sizeof name, "%s/big%d", directory, number - 10);
  return open(name, O_RDONLY | O_CLOEXEC);
}
static uint32_t word_at(int number, size_t offset) { return ((uint32_t)number << 24) | (uint32_t)(offset / 4); }

/* Whether [begin, end) of what is mapped from `offset` on are the file's bytes: every `step` bytes, and the last word. */
static int shows(const char *map, int number, size_t offset, size_t bytes, size_t step) {
  for (size_t at = 0; at + 4 <= bytes; at += step) {
    uint32_t word;
    memcpy(&word, map + at, 4);
    if (word != word_at(number, offset + at)) return 0;
  }
  uint32_t last;
  memcpy(&last, map + bytes - 4, 4);
  return last == word_at(number, offset + bytes - 4);
}

static char *map_file(int number, int protection, int flags) {
  int fd = open_file(number);
  if (fd < 0) return MAP_FAILED;
  char *map = mmap(NULL, number == 1 ? small_bytes : big_bytes, protection, flags, fd, 0);
  close(fd);
  return map;
}

/* Pages that are dropped come back with the file's bytes. */
static int check_dropped(void) {
  for (int number = 1; number <= 10; number += 9) {
    const size_t bytes = number == 1 ? small_bytes : big_bytes;
    const size_t whole = (bytes + page - 1) / page * page;
    for (int sharing = MAP_SHARED; sharing <= MAP_PRIVATE; ++sharing) {
      char *map = map_file(number, PROT_READ, sharing);
      CHECK(map != MAP_FAILED && shows(map, number, 0, bytes, 4));
      CHECK(madvise(map, whole, MADV_DONTNEED) == 0 && shows(map, number, 0, bytes, 4));
      for (size_t at = bytes; at < whole; ++at) CHECK(map[at] == 0);
      CHECK(madvise(map, whole, MADV_FREE) == -1 && errno == EINVAL);
      CHECK(munmap(map, bytes) == 0);
    }
    char *map = map_file(number, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    CHECK(map != MAP_FAILED);
    map[8] = 9;
    CHECK(madvise(map, page, MADV_DONTNEED) == 0 && shows(map, number, 0, bytes, 4));
    CHECK(munmap(map, bytes) == 0);
  }
  return 0;
}

/* Only private mappings may be written to, and then only they change. */
static int check_protection(void) {
  for (int number = 1; number <= 10; number += 9) {
    const size_t bytes = number == 1 ? small_bytes : big_bytes;
    int fd = open_file(number);
    CHECK(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EACCES);
    CHECK(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE, fd, 0) == MAP_FAILED && errno == EACCES);
    CHECK(mmap(NULL, bytes, PROT_READ, 0, fd, 0) == MAP_FAILED && errno == EINVAL);
    char *shared = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0), *private = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(shared != MAP_FAILED && private != MAP_FAILED && close(fd) == 0);
    CHECK(mprotect(shared, bytes, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
    CHECK(mprotect(private + page, 2 * page, PROT_READ | PROT_WRITE) == 0);
    memset(private + page, 7, 2 * page);
    CHECK(mprotect(private + page, page, PROT_NONE) == 0 && mprotect(private + page, 4 * page, PROT_READ | PROT_WRITE) == 0);
    CHECK(private[page] == 7 && private[3 * page - 1] == 7);
    CHECK(shows(private, number, 0, page, 4) && shows(private + 3 * page, number, 3 * page, bytes - 3 * page, 4) && shows(shared, number, 0, bytes, 4));
    CHECK(madvise(private, 5 * page, MADV_DONTNEED) == 0 && shows(private, number, 0, bytes, 4));
    char *keyed = map_file(number, PROT_READ, MAP_PRIVATE);
    CHECK(keyed != MAP_FAILED && pkey_mprotect(keyed + page, page, PROT_READ | PROT_WRITE, -1) == 0);
    keyed[page] = 7;
    CHECK(shows(keyed, number, 0, page, 4) && shows(keyed + 2 * page, number, 2 * page, bytes - 2 * page, 4) && munmap(keyed, bytes) == 0);
    CHECK(munmap(shared, bytes) == 0 && munmap(private, bytes) == 0);
  }
  return 0;
}

/* What the program puts into the place of a part of a mapping is the program's. */
static int check_replaced(void) {
  char *map = map_file(10, PROT_READ, MAP_PRIVATE);
  CHECK(map != MAP_FAILED && munmap(map + page, page) == 0);
  char *own = mmap(map + page, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  CHECK(own == map + page && mprotect(own, page, PROT_READ | PROT_WRITE) == 0 && own[0] == 0);
  own[0] = 1;
  char *over = mmap(map + 4 * page, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  CHECK(over == map + 4 * page);
  over[5] = 3;
  pid_t child = fork();
  if (child == 0) {
    mprotect(map, 8 * page, PROT_READ | PROT_WRITE);
    over[5] = 4; /* shared still */
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0 && over[5] == 4 && own[0] == 1);
  CHECK(shows(map + 6 * page, 10, 6 * page, big_bytes - 6 * page, 4));
  return munmap(map, big_bytes);
}

static int check_resized(void) {
  char *map = map_file(10, PROT_READ, MAP_SHARED);
  CHECK(map != MAP_FAILED);
  char *shorter = mremap(map, big_bytes, 8 * page, MREMAP_MAYMOVE);
  CHECK(shorter != MAP_FAILED && shows(shorter, 10, 0, 8 * page, 4));
  char *longer = mremap(shorter, 8 * page, 4096 * page, MREMAP_MAYMOVE);
  CHECK(longer != MAP_FAILED && shows(longer, 10, 0, big_bytes, 4));
  return munmap(longer, 4096 * page);
}

/* What mprotect has cut a mapping into grows, each part to the pages that follow it in the file, with what was written to it. */
static int check_grown_parts(void) {
  const size_t rest = big_bytes - 2 * page;
  char *map = map_file(10, PROT_READ, MAP_PRIVATE);
  CHECK(map != MAP_FAILED && mprotect(map + 2 * page, 2 * page, PROT_READ | PROT_WRITE) == 0);
  map[2 * page] = 7;
  CHECK(mremap(map, 4 * page, 8 * page, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT); /* two parts at once */
  char *part = mremap(map + 2 * page, 2 * page, rest, MREMAP_MAYMOVE);
  CHECK(part != MAP_FAILED && part != map + 2 * page && part[0] == 7 && shows(part + 4, 10, 2 * page + 4, rest - 4, 4));
  part[rest - 1] = 7;
  CHECK(shows(map, 10, 0, 2 * page, 4) && shows(map + 4 * page, 10, 4 * page, big_bytes - 4 * page, 4));
  CHECK(munmap(part, rest) == 0 && munmap(map, big_bytes) == 0);
  /* What is protected as it was is one mapping again. */
  map = map_file(11, PROT_READ, MAP_SHARED);
  CHECK(map != MAP_FAILED && mprotect(map + page, page, PROT_NONE) == 0 && mprotect(map + page, page, PROT_READ) == 0);
  CHECK(munmap(map + 4 * page, big_bytes - 4 * page) == 0);
  char *longer = mremap(map, 4 * page, big_bytes, MREMAP_MAYMOVE);
  CHECK(longer != MAP_FAILED && shows(longer, 11, 0, big_bytes, 4) && munmap(longer, big_bytes) == 0);
  /* Moved, and twice at once. */
  map = map_file(12, PROT_READ, MAP_SHARED);
  char *place = mmap(NULL, big_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mremap(map, big_bytes, big_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place && shows(place, 12, 0, big_bytes, 4));
  char *twice = mremap(place, 0, big_bytes, MREMAP_MAYMOVE);
  CHECK(twice != MAP_FAILED && twice != place && shows(twice, 12, 0, big_bytes, 4) && munmap(twice, big_bytes) == 0);
  return munmap(place, big_bytes);
}

/* A mapping in more holes than are followed never shows what is not its file's. */
static int check_holes(void) {
  char *map = map_file(13, PROT_READ, MAP_SHARED);
  CHECK(map != MAP_FAILED);
  for (size_t hole = 0; hole < 16; ++hole) CHECK(munmap(map + (4 * hole + 2) * page, page) == 0);
  for (size_t hole = 0; hole + 1 < 16; ++hole) {
    char *between = mremap(map + (4 * hole + 3) * page, 3 * page, 600 * page, MREMAP_MAYMOVE);
    CHECK(between == MAP_FAILED ? errno == ENOMEM : shows(between, 13, (4 * hole + 3) * page, 600 * page, 4));
  }
  return 0;
}

/* As another process does it: this one's library does not see it. */
static int chmod_elsewhere(const char *name, int mode) { return (int)by_hand(SYS_fchmodat, AT_FDCWD, (long)name, mode, 0, 0, 0); }
static int write_elsewhere(const char *name, size_t at, char byte) {
  const long fd = by_hand(SYS_openat, AT_FDCWD, (long)name, O_WRONLY, 0, 0, 0);
  const long written = by_hand(SYS_pwrite64, fd, (long)&byte, 1, (long)at, 0, 0);
  return written == 1 && by_hand(SYS_close, fd, 0, 0, 0, 0, 0) == 0 ? 0 : -1;
}

/* The file has been touched since: what is mapped stays as it was, may be protected, and does not grow into anything else. Bare it grows. */
static int check_touched(void) {
  char name[4096];
  snprintf(name, sizeof name, "%s/big%d", directory, 4);
  char *map = map_file(14, PROT_READ, MAP_PRIVATE);
  CHECK(map != MAP_FAILED && munmap(map + 8 * page, big_bytes - 8 * page) == 0 && chmod_elsewhere(name, 0600) == 0);
  CHECK(mprotect(map + page, page, PROT_READ | PROT_WRITE) == 0);
  map[page] = 7;
  CHECK(shows(map, 14, 0, page, 4) && map[page] == 7 && shows(map + page + 4, 14, page + 4, 7 * page - 4, 4));
  for (size_t at = 0; at < 8; at += 1) {
    char *longer = mremap(map + at * page, page, 600 * page, MREMAP_MAYMOVE);
    if (longer == MAP_FAILED) {
      CHECK(errno == ENOMEM || errno == EFAULT);
      continue;
    }
    CHECK(at == 1 ? longer[0] == 7 : shows(longer, 14, at * page, page, 4));
    CHECK(shows(longer + page, 14, (at + 1) * page, 599 * page, 4) && munmap(longer, 600 * page) == 0);
  }
  return munmap(map, 8 * page);
}

/* A mapping of a part grows to the rest of the file, as of any file; a small window into a larger file too. */
static int check_grown(void) {
  const struct {
    int number;
    size_t bytes;
  } files[] = {{1, small_bytes}, {2, middle_bytes}};
  for (size_t i = 0; i < 2; ++i) {
    for (int sharing = MAP_SHARED; sharing <= MAP_PRIVATE; ++sharing) {
      for (size_t offset = 0; offset <= 2 * page; offset += 2 * page) {
        const int number = files[i].number, fd = open_file(number);
        const size_t rest = files[i].bytes - offset;
        char *map = mmap(NULL, page, PROT_READ, sharing, fd, (off_t)offset);
        CHECK(map != MAP_FAILED && close(fd) == 0 && shows(map, number, offset, page, 4));
        char *longer = mremap(map, page, rest, MREMAP_MAYMOVE);
        CHECK(longer != MAP_FAILED && shows(longer, number, offset, rest, 4));
        for (size_t at = rest; at % page != 0; ++at) CHECK(longer[at] == 0);
        CHECK(munmap(longer, rest) == 0);
      }
    }
  }
  return 0;
}

/* Threads map and unmap while others read more than the cache has room for. */
static volatile int stop, wrong;
static void *map_and_look(void *argument) {
  unsigned seed = (unsigned)(size_t)argument;
  while (!stop) {
    int number = 10 + (int)(rand_r(&seed) % 6), fd = open_file(number);
    size_t chunk = 1 << 22, offset = rand_r(&seed) % 2 * chunk; /* one chunk at a time: all threads find room below the cap on what one process holds */
    char *map = mmap(NULL, chunk, PROT_READ, MAP_SHARED, fd, (off_t)offset);
    close(fd);
    if (map == MAP_FAILED) continue;
    sched_yield();
    if (!shows(map, number, offset, chunk, 16 * page)) wrong = 1;
    munmap(map, chunk);
  }
  return NULL;
}
static int check_churn(void) {
  pthread_t threads[5];
  for (size_t i = 0; i < 5; ++i) CHECK(pthread_create(&threads[i], NULL, map_and_look, (void *)(i + 1)) == 0);
  sleep(4);
  stop = 1;
  for (int i = 0; i < 5; ++i) pthread_join(threads[i], NULL);
  CHECK(!wrong);
  return 0;
}

/* A mapping of the source's file, made while another thread forks and a third opens: never of another file. */
static void *open_and_close(void *argument) {
  (void)argument;
  while (!stop) {
    int fd = open_file(12);
    void *map = mmap(NULL, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    if (map != MAP_FAILED) munmap(map, page);
    close(fd);
  }
  return NULL;
}
static void *fork_always(void *argument) {
  (void)argument;
  while (!stop) {
    pid_t child = fork();
    if (child == 0) _exit(0);
    if (child > 0) waitpid(child, NULL, 0);
  }
  return NULL;
}
static int check_forks(void) {
  pthread_t threads[2];
  stop = 0;
  CHECK(pthread_create(&threads[0], NULL, open_and_close, NULL) == 0 && pthread_create(&threads[1], NULL, fork_always, NULL) == 0);
  int bad = 0;
  for (int round = 0; round < 1500 && !bad; ++round) {
    int fd = open_file(11);
    char *map = mmap(NULL, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0); /* not from frames */
    bad = map == MAP_FAILED || !shows(map, 11, 0, page, 4);
    if (map != MAP_FAILED) munmap(map, page);
    close(fd);
  }
  stop = 1;
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  CHECK(!bad);
  return 0;
}

/* How many pages of [map, map + bytes) this process has in its page tables. */
static size_t pages_present(const char *map, size_t bytes) {
  size_t present = 0;
  int fd = open("/proc/self/pagemap", O_RDONLY);
  for (size_t at = 0; at < bytes; at += page) {
    uint64_t entry = 0;
    if (pread(fd, &entry, 8, (off_t)((size_t)(map + at) / page * 8)) == 8 && entry >> 63 != 0) ++present;
  }
  close(fd);
  return present;
}

/* What is mapped again after it was unmapped shows its file, whatever was done to it and its place meanwhile; and need not be faulted in once more. */
static int check_again(void) {
  const size_t whole = (big_bytes + page - 1) / page * page;
  char *map = map_file(10, PROT_READ, MAP_SHARED);
  CHECK(map != MAP_FAILED && shows(map, 10, 0, big_bytes, page) && munmap(map, big_bytes) == 0);
  char *again = map_file(10, PROT_READ, MAP_SHARED);
  size_t present = pages_present(again, big_bytes);
  printf("%zu pages of %zu are there, %s\n", present, whole / page, again == map ? "at the same place" : "elsewhere");
  CHECK(shows(again, 10, 0, big_bytes, 4));
  for (size_t at = big_bytes; at < whole; ++at) CHECK(again[at] == 0);
  /* Two at a time are two. */
  char *second = map_file(10, PROT_READ, MAP_PRIVATE);
  CHECK(second != again && munmap(again, big_bytes) == 0 && shows(second, 10, 0, big_bytes, page) && munmap(second, big_bytes) == 0);
  /* Unmapped, the place is the program's. */
  char *own = mmap(second, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (own != MAP_FAILED) {
    CHECK(own == second);
    memset(own, 1, whole);
    for (int number = 10; number < 16; ++number) {
      map = map_file(number, PROT_READ, MAP_SHARED);
      CHECK(map != MAP_FAILED && shows(map, number, 0, big_bytes, page) && munmap(map, big_bytes) == 0);
    }
    for (size_t at = 0; at < whole; at += page) CHECK(own[at] == 1);
    CHECK(munmap(own, whole) == 0);
  }
  /* Neither what it was protected by nor what was done behind everybody's back is inherited. */
  map = map_file(12, PROT_READ, MAP_SHARED);
  if (madvise(map + page, page, 102 /* MADV_GUARD_INSTALL, where there is such a thing */) == 0) {
    CHECK(munmap(map, big_bytes) == 0);
    map = map_file(12, PROT_READ, MAP_SHARED);
  }
  CHECK(shows(map, 12, 0, big_bytes, page) && munmap(map, big_bytes) == 0);
  map = map_file(11, PROT_READ, MAP_SHARED);
  CHECK(mprotect(map, 3 * page, PROT_NONE) == 0 && munmap(map, big_bytes) == 0);
  map = map_file(11, PROT_READ, MAP_SHARED);
  CHECK(shows(map, 11, 0, big_bytes, page) && munmap(map, big_bytes) == 0);
#if defined(__x86_64__)
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(11 /* munmap */), "D"(map), "S"(whole) : "rcx", "r11", "memory");
  own = mmap(map, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(own, 2, whole);
  again = map_file(11, PROT_READ, MAP_SHARED);
  CHECK(again != own && shows(again, 11, 0, big_bytes, page) && own[page] == 2 && munmap(again, big_bytes) == 0 && own[page] == 2 && munmap(own, whole) == 0);
#endif
  pid_t child = fork();
  if (child == 0) {
    map = map_file(12, PROT_READ, MAP_SHARED);
    _exit(map == MAP_FAILED || !shows(map, 12, 0, big_bytes, page));
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  return 0;
}

/* A child without libc's handlers has inherited a mapping that its parent unmaps: it keeps its bytes while the cache is used for others. */
static pid_t by_clone(void) { return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }
static int inherited_by(pid_t (*make)(void)) {
  static char data[1 << 20];
  int go[2], status;
  char byte, *map = map_file(10, PROT_READ, MAP_SHARED);
  CHECK(map != MAP_FAILED && pipe(go) == 0);
  pid_t child = make();
  if (child == 0) {
    close(go[1]);
    _exit(read(go[0], &byte, 1) != 0 || !shows(map, 10, 0, big_bytes, 4));
  }
  CHECK(child > 0 && close(go[0]) == 0 && munmap(map, big_bytes) == 0);
  for (int number = 11; number < 21; ++number) {
    int fd = open_file(11 + number % 5);
    for (size_t at = 0; at + sizeof data <= big_bytes; at += sizeof data) CHECK(pread(fd, data, sizeof data, (off_t)at) == sizeof data && shows(data, 11 + number % 5, at, sizeof data, page));
    close(fd);
  }
  CHECK(close(go[1]) == 0 && waitpid(child, &status, 0) == child && status == 0);
  return 0;
}
static int check_inherited_fork(void) { return inherited_by(fork); }
static int check_inherited_bare_fork(void) { return inherited_by(_Fork); }
static int check_inherited_clone(void) { return inherited_by(by_clone); }

/* What was sent and is not received yet stays what it was, whatever the memory that it came from is used for by then. */
static int tcp_pair(int ends[2]) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  int room = 1 << 20, listener = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &room, sizeof room) == 0);
  CHECK(listen(listener, 1) == 0 && getsockname(listener, (struct sockaddr *)&address, &length) == 0);
  CHECK((ends[1] = socket(AF_INET, SOCK_STREAM, 0)) >= 0 && setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof room) == 0);
  CHECK(connect(ends[1], (struct sockaddr *)&address, sizeof address) == 0 && (ends[0] = accept(listener, NULL, NULL)) >= 0);
  return close(listener);
}
static int check_sent(void) {
  enum { count = 6, bytes = 128 << 10 };
  static char data[1 << 20];
  int ends[count][2];
  for (int i = 0; i < count; ++i) {
    int fd = open_file(10 + i);
    off_t at = (i % 2) * (4 << 20) + page;
    CHECK(fd >= 0 && tcp_pair(ends[i]) == 0 && sendfile(ends[i][1], fd, &at, bytes) == bytes && close(fd) == 0);
  }
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < count; ++i) {
      int fd = open_file(10 + i);
      for (size_t at = 0; at + sizeof data <= big_bytes; at += sizeof data) CHECK(pread(fd, data, sizeof data, (off_t)at) == sizeof data && shows(data, 10 + i, at, sizeof data, page));
      close(fd);
    }
  }
  for (int i = 0; i < count; ++i) {
    CHECK(recv(ends[i][0], data, bytes, MSG_WAITALL) == bytes && shows(data, 10 + i, (size_t)((i % 2) * (4 << 20)) + page, bytes, 4));
    CHECK(close(ends[i][0]) == 0 && close(ends[i][1]) == 0);
  }
  return 0;
}

/* The same of what the kernel was given without its being copied, whatever becomes of the mapping that it lay in. */
static int give_pages(int way, int from, const char *pages, size_t bytes) {
  struct iovec part = {(char *)pages, bytes};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  switch (way) {
    case 0: return (int)vmsplice(from, &part, 1, 0);
    case 1: return (int)syscall(SYS_vmsplice, from, &part, 1, 0);
    case 2: return (int)send(from, pages, bytes, MSG_ZEROCOPY);
    case 3: return (int)sendto(from, pages, bytes, MSG_ZEROCOPY, NULL, 0);
    case 4: return (int)syscall(SYS_sendto, from, pages, bytes, MSG_ZEROCOPY, NULL, 0);
    default: return (int)sendmsg(from, &message, MSG_ZEROCOPY);
  }
}
static int check_given(void) {
  enum { count = 6, bytes = 32 << 10 };
  static char data[1 << 20];
  int ends[count][2];
  for (int i = 0; i < count; ++i) {
    const int one = 1;
    int fd = open_file(10 + i);
    char *map = mmap(NULL, sizeof data, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && close(fd) == 0 && (i < 2 ? pipe(ends[i]) : tcp_pair(ends[i])) == 0);
    if (i >= 2 && setsockopt(ends[i][1], SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one) != 0) perror("no MSG_ZEROCOPY");
    CHECK(give_pages(i, ends[i][1], map + 5 * page, bytes) == bytes && shows(map, 10 + i, 0, sizeof data, page) && munmap(map, sizeof data) == 0);
  }
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < count; ++i) {
      int fd = open_file(10 + i);
      for (size_t at = 0; at + sizeof data <= big_bytes; at += sizeof data) CHECK(pread(fd, data, sizeof data, (off_t)at) == sizeof data && shows(data, 10 + i, at, sizeof data, page));
      close(fd);
    }
  }
  for (int i = 0; i < count; ++i) {
    for (size_t got = 0; got < bytes;) {
      const ssize_t more = read(ends[i][0], data + got, bytes - got);
      CHECK(more > 0);
      got += (size_t)more;
    }
    if (!shows(data, 10 + i, 5 * page, bytes, 4)) printf("way %d\n", i);
    CHECK(shows(data, 10 + i, 5 * page, bytes, 4) && close(ends[i][0]) == 0 && close(ends[i][1]) == 0);
  }
  return 0;
}

/* All of a file, and a window of it that begins after three pages. */
static int map_huge(const char *name, int number, size_t window) {
  char path[4096];
  struct stat st;
  snprintf(path, sizeof path, "%s/%s", directory, name);
  int fd = open(path, O_RDONLY);
  CHECK(fd >= 0 && fstat(fd, &st) == 0);
  const size_t bytes = (size_t)st.st_size;
  char *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0), *part = mmap(NULL, window, PROT_READ, MAP_PRIVATE, fd, (off_t)(3 * page));
  CHECK(map != MAP_FAILED && part != MAP_FAILED && close(fd) == 0);
  CHECK(shows(map, number, 0, bytes, 997 * 4) && shows(part, number, 3 * page, window, 997 * 4));
  return munmap(map, bytes) | munmap(part, window);
}
static int check_huge(void) { return map_huge("huge", 20, 48 << 20); }
static int check_too_many(void) { return map_huge("big0", 10, 64 << 16); } /* of chunks of 64 KiB: 65 */
static int check_just_enough(void) { return map_huge("big0", 10, (64 << 16) - 3 * page); }

/* What this process writes is seen in all that it has mapped of the file, whichever way it opened it. */
static const size_t spot = 5000;
static const char *path_of(const char *name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return path;
}
static int put_into(int fd, const char *data, size_t bytes) { return fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes && close(fd) == 0; }
static int put(FILE *file, long at, const char *data, size_t bytes) {
  return file != NULL && fseek(file, at, SEEK_SET) == 0 && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0;
}
static int put_by_map(int fd, char byte) {
  char *map = mmap(NULL, page * 2, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return 0;
  map[spot] = byte;
  return munmap(map, page * 2) == 0 && close(fd) == 0;
}
enum { ways = 11 };
static int put_by(int way, const char *name, const char *data, size_t bytes) {
  struct {
    unsigned long long flags, mode, resolve;
  } how = {O_WRONLY | O_TRUNC, 0, 8 /* RESOLVE_BENEATH */};
  int fd;
  switch (way) {
    case 0: return (fd = open(name, O_RDWR)) >= 0 && pwrite(fd, data + spot, 1, (off_t)spot) == 1 && close(fd) == 0;
    case 1: return (fd = open(name, O_WRONLY)) >= 0 && lseek(fd, (off_t)spot, SEEK_SET) == (off_t)spot && put_into(fd, data + spot, 1);
    case 2: return put_by_map(open(name, O_RDWR), data[spot]);
    case 3: return put(fopen(name, "r+"), (long)spot, data + spot, 1);
    case 4: return put_into(open(name, O_WRONLY | O_TRUNC), data, bytes);
    case 5: return put_into(open(name, O_RDWR | O_CREAT | O_TRUNC, 0600), data, bytes);
    case 6: return put_into(creat(name, 0600), data, bytes);
    case 7: return put(fopen(name, "w"), 0, data, bytes);
    case 8: return put(freopen(name, "w", fopen("/dev/null", "r")), 0, data, bytes);
    case 9: return chdir(directory) == 0 && put_into((int)syscall(SYS_openat2, AT_FDCWD, strrchr(name, '/') + 1, &how, sizeof how), data, bytes);
    default: return truncate(name, (off_t)spot) == 0 && put_into(open(name, O_WRONLY), data, bytes);
  }
}
static int see_written(const char *name, size_t bytes) {
  const char *path = path_of(name);
  char *data = malloc(bytes);
  for (int way = 0; way <= ways; ++way) { /* an odd number of times in all, and once more: the file is as it was */
    const int fd = open(path, O_RDONLY);
    char *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && close(fd) == 0 && munmap(map + 4 * page, page) == 0);
    char *part = mmap(map + 4 * page, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    part[5] = 3; /* what else is in between stays */
    const int again = open(path, O_RDONLY);
    CHECK(pread(again, data, bytes, 0) == (ssize_t)bytes && close(again) == 0 && map[spot] == data[spot]);
    data[spot] ^= 1;
    CHECK(put_by(way % ways, path, data, bytes));
    if (map[spot] != data[spot]) printf("way %d of %s\n", way, name);
    CHECK(map[spot] == data[spot] && memcmp(map, data, 4 * page) == 0 && memcmp(map + 5 * page, data + 5 * page, bytes - 5 * page) == 0 && part[5] == 3);
    CHECK(munmap(map, bytes) == 0);
  }
  free(data);
  return 0;
}
static int check_written(void) { return see_written("small", small_bytes) || see_written("big0", big_bytes); }

/* A private one, which nothing was written to; and of a file whose directory has another name by now. */
static int check_written_elsewhere(void) {
  char from[4096], to[4096], name[4096], byte;
  snprintf(from, sizeof from, "%s/from", directory);
  snprintf(to, sizeof to, "%s/to", directory);
  snprintf(name, sizeof name, "%s/from/big", directory);
  int fd = open(name, O_RDONLY);
  char *map = mmap(NULL, big_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  CHECK(map != MAP_FAILED && close(fd) == 0 && rename(from, to) == 0);
  snprintf(name, sizeof name, "%s/to/big", directory);
  byte = map[spot] ^ 1;
  CHECK((fd = open(name, O_RDWR)) >= 0 && pwrite(fd, &byte, 1, (off_t)spot) == 1 && close(fd) == 0 && map[spot] == byte);
  return rename(to, from) | munmap(map, big_bytes);
}

/* What another process writes is not seen, and what comes then is not either. Not bare. */
static int check_snapshot(void) {
  const char *path = path_of("big1");
  char *map = map_file(11, PROT_READ, MAP_SHARED);
  const char before = map[spot], after = before ^ 1;
  CHECK(map != MAP_FAILED && write_elsewhere(path, spot, after) == 0 && map[spot] == before);
  for (int i = 0; i < 2; ++i) {
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pwrite(fd, &after, 1, (off_t)spot) == 1 && close(fd) == 0 && map[spot] == before);
  }
  return munmap(map, big_bytes);
}

/* Databases of LMDB, as it opens them: what another process commits is seen by who has opened the lock file, in either order. */
static int see_committed(const char *data, const char *lock, int lock_first) {
  char path[4096];
  snprintf(path, sizeof path, "%s", path_of(data));
  int fd = lock_first ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  const int locked = open(path_of(lock), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_first) fd = open(path, O_RDONLY | O_CLOEXEC);
  char *map = mmap(NULL, middle_bytes, PROT_READ, MAP_SHARED, fd, 0);
  CHECK(map != MAP_FAILED && fd >= 0 && locked >= 0);
  const char byte = map[spot] ^ 1;
  CHECK(write_elsewhere(path, spot, byte) == 0 && map[spot] == byte);
  return close(fd) | close(locked) | munmap(map, middle_bytes);
}
static int check_locked(void) {
  return see_committed("one/data.mdb", "one/lock.mdb", 0) || see_committed("two.lmdb", "two.lmdb-lock", 0) || see_committed("three/data.mdb", "three/../three/lock.mdb", 1) ||
         see_committed("four/data.mdb", "four/lock.mdb", 1);
}
/* lock=False: the cache's, and as it was. Not bare. */
static int check_without_lock(void) {
  char *path = strdup(path_of("five/data.mdb"));
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  char *map = mmap(NULL, middle_bytes, PROT_READ, MAP_SHARED, fd, 0);
  CHECK(map != MAP_FAILED && close(fd) == 0);
  const char byte = map[spot];
  CHECK(write_elsewhere(path, spot, byte ^ 1) == 0 && map[spot] == byte);
  return munmap(map, middle_bytes);
}

int main(int argc, char **argv) {
  static const struct check checks[] = {{"dropped", check_dropped}, {"protection", check_protection}, {"replaced", check_replaced},
                                        {"resized", check_resized}, {"grown", check_grown}, {"grown_parts", check_grown_parts}, {"holes", check_holes}, {"touched", check_touched}, {"again", check_again}, {"churn", check_churn}, {"forks", check_forks},
                                        {"sent", check_sent}, {"given", check_given}, {"huge", check_huge}, {"too_many", check_too_many}, {"just_enough", check_just_enough}, {"inherited_fork", check_inherited_fork},
                                        {"inherited_bare_fork", check_inherited_bare_fork}, {"inherited_clone", check_inherited_clone}, {"written", check_written}, {"written_elsewhere", check_written_elsewhere},
                                        {"snapshot", check_snapshot}, {"locked", check_locked}, {"without_lock", check_without_lock}};
  if (argc < 2) return 64;
  directory = argv[1];
  return RUN_CHECKS(checks, argc, argv, 2);
}
