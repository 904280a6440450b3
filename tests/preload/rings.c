/* Reads a cached file through io_uring. usage: rings FILE now|late: with liburing linked in, or loaded after a file was opened. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/preload/check.h"

static struct io_uring_sqe *next_entry(struct io_uring *ring) {
  struct io_uring_sq *sq = &ring->sq;
  return &sq->sqes[sq->sqe_tail++ & *sq->kring_mask];
}

static int read_through(int (*init)(unsigned, struct io_uring *, unsigned), int (*submit)(struct io_uring *), const char *path, int fd) {
  struct io_uring ring;
  uint32_t numbers[100];
  int made = init(4, &ring, 0);
  if (made < 0) return made == -ENOSYS || made == -EPERM ? 0 : 1; /* not allowed here */
  if (fd < 0) fd = open(path, O_RDONLY);
  struct io_uring_sqe *entry = next_entry(&ring);
  memset(entry, 0, sizeof *entry);
  entry->opcode = IORING_OP_READ, entry->fd = fd, entry->addr = (uint64_t)(uintptr_t)numbers, entry->len = sizeof numbers, entry->off = 400;
  CHECK(submit(&ring) == 1);
  while (*(volatile unsigned *)ring.cq.ktail == *ring.cq.khead) usleep(100);
  struct io_uring_cqe *done = &ring.cq.cqes[*ring.cq.khead & *ring.cq.kring_mask];
  CHECK(done->res == sizeof numbers && numbers[0] == 100 && numbers[99] == 199);
  return close(fd);
}

int main(int argc, char **argv) {
  if (argc < 3) return 64;
#ifdef LINKED
  return read_through(io_uring_queue_init, io_uring_submit, argv[1], -1);
#else
  int before = open(argv[1], O_RDONLY);
  void *library = dlopen("liburing.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return 0;
  int again = open(argv[1], O_RDONLY); /* the first look after it was loaded: all is real from here on */
  CHECK(before >= 0 && again >= 0 && close(again) == 0);
  return read_through(dlsym(library, "io_uring_queue_init"), dlsym(library, "io_uring_submit"), argv[1], before);
#endif
}
