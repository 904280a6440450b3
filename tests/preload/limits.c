/* The kernel's limits of reading calls: of sizes, places and numbers of parts. What each call says
 * is to be the same bare and served.
 * usage: limits FILE... */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/preload/check.h"

static const char *path;
static int fd = -1;
static void say(const char *call, long long result) {
  int error = errno;
  long long at = lseek(fd, 0, SEEK_CUR);
  printf("%s: %lld %s, at %lld\n", call, result, result == -1 ? strerrorname_np(error) : "", at);
  fflush(stdout);
}
/* Each with a descriptor of its own: one that has become real would answer by itself. */
#define SAY(call)                                                                                 \
  do {                                                                                            \
    fd = open(path, O_RDONLY);                                                                    \
    say(#call, call);                                                                             \
    close(fd);                                                                                    \
  } while (0)

/* So much address space over and over the same memory. */
enum { kPiece = 16 << 20, kPieces = 130 };
static char *make_buffer(void) {
  int memory = memfd_create("buffer", MFD_CLOEXEC);
  char *all = mmap(NULL, (size_t)kPiece * kPieces, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory < 0 || ftruncate(memory, kPiece) != 0 || all == MAP_FAILED) exit(3);
  for (int i = 0; i < kPieces; ++i) {
    mmap(all + (size_t)i * kPiece, kPiece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, 0);
  }
  close(memory);
  return all;
}

static void read_it(char *b) {
  const size_t most = (size_t)kPiece * kPieces, gib = (size_t)1 << 30;
  const off_t far = INT64_MAX, wide = (off_t)1 << 43, wider = (off_t)1 << 50;
  static struct iovec parts[IOV_MAX + 1];
  for (int i = 0; i <= IOV_MAX; ++i) parts[i] = (struct iovec){b, kPiece};
  struct iovec none[2] = {{b, 0}, {b, 0}}, negative[2] = {{b, 10}, {b, (size_t)-1}};
  struct iovec sum[3] = {{b, SSIZE_MAX}, {b, SSIZE_MAX}, {b, 10}}, some[2] = {{b, 10}, {b, 20}};
  struct iovec huge[3] = {{b, 3 * gib / 4}, {b, gib}, {b, gib}};
  SAY(read(fd, b, 0));
  SAY(read(fd, b, SSIZE_MAX));
  SAY(read(fd, b, SIZE_MAX));
  SAY(read(fd, b, gib << 20));
  SAY(pread(fd, b, 10, -1));
  SAY(pread(fd, b, 10, far));
  SAY(pread(fd, b, 10, far - 9));
  SAY(pread(fd, b, 0, far));
  SAY(pread(fd, b, 10, wide));
  SAY(pread(fd, b, SIZE_MAX, 0));
  SAY(pread(fd, b, SSIZE_MAX, 1));
  SAY(readv(fd, parts, kPieces));
  SAY(readv(fd, parts, IOV_MAX + 1));
  SAY(readv(fd, parts, -1));
  SAY(readv(fd, parts, 0));
  SAY(readv(fd, none, 2));
  SAY(readv(fd, negative, 2));
  SAY(readv(fd, sum, 3));
  SAY(preadv(fd, parts, kPieces, 99));
  SAY(preadv(fd, parts, IOV_MAX + 1, 0));
  SAY(preadv(fd, some, 2, -1));
  SAY(preadv(fd, some, 2, far));
  SAY(preadv(fd, some, 2, far - 29));
  SAY(preadv(fd, none, 2, far));
  SAY(preadv(fd, some, -1, far));
  SAY(preadv(fd, huge, 3, far - 2 * gib));
  SAY(preadv(fd, negative, 2, far));
  SAY(preadv(fd, sum, 3, 0));
  SAY(preadv2(fd, parts, kPieces, -1, 0));
  SAY(preadv2(fd, some, 2, -2, 0));
  SAY(preadv2(fd, some, 2, far, 0));
  SAY(preadv2(fd, parts, IOV_MAX + 1, 0, 0));
  SAY(preadv2(fd, some, 2, 0, -1));
  SAY(lseek(fd, far, SEEK_SET));
  SAY(lseek(fd, wide, SEEK_SET));
  SAY(lseek(fd, wider, SEEK_SET));
  SAY(lseek(fd, wide, SEEK_END));
  SAY(lseek(fd, far, SEEK_END));
  SAY(lseek(fd, far, SEEK_CUR));
  SAY(lseek(fd, -1, SEEK_CUR));
  SAY(lseek(fd, far, SEEK_DATA));
  SAY(lseek(fd, -1, SEEK_HOLE));
  SAY(lseek(fd, 0, 99));
  off_t at;
  int null = open("/dev/null", O_WRONLY);
  SAY(sendfile(null, fd, NULL, most));
  SAY(sendfile(null, fd, (at = -1, &at), 10));
  SAY(sendfile(null, fd, (at = far, &at), 10));
  SAY(sendfile(null, fd, (at = wider, &at), 10));
  SAY(sendfile(null, fd, (at = 0, &at), SIZE_MAX));
  SAY(sendfile(null, fd, NULL, 0));
  close(null);
  off_t to;
  int file = open(".", O_RDWR | O_TMPFILE, 0600);
  SAY(copy_file_range(fd, (at = 0, &at), file, (to = 0, &to), 1000, 0));
  SAY(copy_file_range(fd, (at = -1, &at), file, NULL, 10, 0));
  SAY(copy_file_range(fd, (at = far, &at), file, NULL, 10, 0));
  SAY(copy_file_range(fd, NULL, file, (to = far, &to), 10, 0));
  SAY(copy_file_range(fd, NULL, file, (to = -1, &to), 10, 0));
  SAY(copy_file_range(fd, (at = 1, &at), file, NULL, SIZE_MAX, 0));
  SAY(copy_file_range(fd, (at = wider, &at), file, NULL, 10, 0));
  close(file);
  int ends[2];
  if (pipe2(ends, O_NONBLOCK) != 0) exit(3);
  SAY(splice(fd, (at = -1, &at), ends[1], NULL, 10, 0));
  SAY(splice(fd, (at = far, &at), ends[1], NULL, 10, 0));
  SAY(splice(fd, (at = far - 5, &at), ends[1], NULL, 10, 0));
  SAY(splice(fd, NULL, ends[1], NULL, SIZE_MAX, SPLICE_F_NONBLOCK) > 0);
  close(ends[0]), close(ends[1]);
  SAY(mmap(NULL, SIZE_MAX, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED ? -1 : 0);
  SAY(mmap(NULL, 0, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED ? -1 : 0);
  SAY(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 1) == MAP_FAILED ? -1 : 0);
  SAY(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, far & -4096) == MAP_FAILED ? -1 : 0);
  SAY(mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, fd, -4096) == MAP_FAILED ? -1 : 0);
}

int main(int argc, char **argv) {
  char *buffer = make_buffer();
  for (int i = 1; i < argc; ++i) {
    path = argv[i];
    printf("%s\n", strrchr(path, '/'));
    read_it(buffer);
  }
  return argc < 2;
}
