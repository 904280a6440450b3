/* A program with functions of its own by the names of libc's, made of `syscall`: what the library does for that function must not come back to them.
 * usage: own_calls FILE: of 100,000 bytes */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/preload/check.h"

static int calls; /* of these: one that is made again and again does not end */
#define OWN(name, ...) (++calls > 1000 ? _exit(9), 0 : syscall(SYS_##name, __VA_ARGS__))
int open64(const char *path, int flags, ...) { return (int)OWN(openat, AT_FDCWD, path, flags, 0); }
int open(const char *path, int flags, ...) { return open64(path, flags); }
int close(int fd) { return (int)OWN(close, fd); }
ssize_t read(int fd, void *bytes, size_t count) { return OWN(read, fd, bytes, count); }
ssize_t pread64(int fd, void *bytes, size_t count, off64_t at) { return OWN(pread64, fd, bytes, count, at); }
ssize_t pread(int fd, void *bytes, size_t count, off_t at) { return pread64(fd, bytes, count, at); }
off64_t lseek64(int fd, off64_t at, int whence) { return OWN(lseek, fd, at, whence); }
off_t lseek(int fd, off_t at, int whence) { return lseek64(fd, at, whence); }
int fstat64(int fd, struct stat64 *st) { return (int)OWN(fstat, fd, st); }
int fstat(int fd, struct stat *st) { return fstat64(fd, (struct stat64 *)st); }
int dup(int fd) { return (int)OWN(dup, fd); }
int unlink(const char *path) { return (int)OWN(unlinkat, AT_FDCWD, path, 0); }
void *mmap64(void *at, size_t bytes, int protection, int flags, int fd, off64_t offset) { return (void *)OWN(mmap, at, bytes, protection, flags, fd, offset); }
void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) { return mmap64(at, bytes, protection, flags, fd, offset); }
#ifdef SYS_fork
pid_t fork(void) { return (pid_t)OWN(fork, 0); }
#endif

int main(int argc, char **argv) {
  struct stat st;
  uint32_t number = 9;
  int status, fd = open(argv[1], O_RDONLY);
  CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_size == 100000);
  CHECK(read(fd, &number, 4) == 4 && number == 0 && pread(fd, &number, 4, 40) == 4 && number == 10 && lseek(fd, 0, SEEK_CUR) == 4);
  int copy = dup(fd);
  CHECK(copy >= 0 && read(copy, &number, 4) == 4 && number == 1 && close(copy) == 0);
  uint32_t *map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
  CHECK(map != MAP_FAILED && map[7] == 7);
  CHECK(unlink("/none/at/all") == -1 && errno == ENOENT);
  pid_t child = fork();
  if (child == 0) _exit(read(fd, &number, 4) != 4 || number != 2);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  return close(fd);
}
