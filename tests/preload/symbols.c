/* Every call that the preload library interposes, on a file below a source and on its twin outside: the two must behave alike. One word per check on stdout; exit 1
 * if one failed. usage: symbols CACHED-FILE PLAIN-COPY CACHED-DIRECTORY [check...]. Compiled with and without _FORTIFY_SOURCE and _FILE_OFFSET_BITS. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/preload/check.h"

static const char *cached, *plain, *directory;
static char want[8192]; /* the first bytes of the file */
static long size;

static int both(int (*one)(int fd)) {
  int fd = open(cached, O_RDONLY | O_CLOEXEC);
  int twin = open(plain, O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0 && twin >= 0);
  CHECK(one(fd) == 0);
  CHECK(one(twin) == 0);
  CHECK(close(fd) == 0 && close(twin) == 0);
  CHECK(close(fd) == -1 && errno == EBADF);
  return 0;
}

static int reads(int fd) {
  char b[8192];
  volatile size_t n = 100; /* unknown to the compiler: the fortified call checks it */
  errno = 77;
  CHECK(read(fd, b, n) == 100 && memcmp(b, want, 100) == 0 && errno == 77);
  CHECK(pread(fd, b, n, 50) == 100 && memcmp(b, want + 50, 100) == 0);
  CHECK(pread64(fd, b, n, 7) == 100 && memcmp(b, want + 7, 100) == 0);
  struct iovec parts[3] = {{b, 10}, {b + 10, 0}, {b + 10, 30}};
  CHECK(readv(fd, parts, 3) == 40 && memcmp(b, want + 100, 40) == 0);
  CHECK(preadv(fd, parts, 3, 5) == 40 && memcmp(b, want + 5, 40) == 0);
  CHECK(preadv2(fd, parts, 3, 6, 0) == 40 && memcmp(b, want + 6, 40) == 0);
  CHECK(preadv2(fd, parts, 1, -1, 0) == 10 && memcmp(b, want + 140, 10) == 0);
  CHECK(pread(fd, b, n, size) == 0 && pread(fd, b, n, size - 3) == 3);
  CHECK(pread(fd, b, n, -1) == -1 && errno == EINVAL);
  volatile int too_few = -1;
  CHECK(readv(fd, parts, too_few) == -1 && errno == EINVAL);
  CHECK(read(fd, b, 0) == 0);
  CHECK(write(fd, b, 1) == -1 && errno == EBADF);
  CHECK(pwrite(fd, b, 1, 0) == -1 && errno == EBADF);
  return 0;
}
static int check_read(void) { return both(reads); }

static int seeks(int fd) {
  char c;
  CHECK(lseek(fd, 0, SEEK_CUR) == 0 && lseek(fd, 10, SEEK_SET) == 10 && lseek(fd, 5, SEEK_CUR) == 15);
  CHECK(read(fd, &c, 1) == 1 && c == want[15]);
  CHECK(lseek64(fd, 0, SEEK_END) == size && read(fd, &c, 1) == 0);
  CHECK(lseek(fd, 100, SEEK_END) == size + 100 && read(fd, &c, 1) == 0);
  CHECK(lseek(fd, -1, SEEK_SET) == -1 && errno == EINVAL);
  CHECK(lseek(fd, 0, 99) == -1 && errno == EINVAL);
  CHECK(lseek(fd, 0, SEEK_DATA) == 0 && lseek(fd, 0, SEEK_HOLE) == size && lseek(fd, size, SEEK_DATA) == -1 && errno == ENXIO);
  return 0;
}
static int check_seek(void) { return both(seeks); }

static int dups(int fd) {
  char c;
  int copy = dup(fd);
  CHECK(copy >= 0 && copy != fd);
  CHECK(read(fd, &c, 1) == 1 && read(copy, &c, 1) == 1 && c == want[1]); /* one offset */
  CHECK((fcntl(copy, F_GETFD) & FD_CLOEXEC) == 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  int third = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  CHECK(third >= 3 && (fcntl(third, F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(fcntl(third, F_SETFD, 0) == 0 && fcntl(third, F_GETFD) == 0);
  CHECK(fcntl(fd, F_DUPFD, -1) == -1 && errno == EINVAL);
  CHECK(close(fd) == 0 && read(third, &c, 1) == 1 && c == want[2]);
  CHECK(lseek(copy, 0, SEEK_SET) == 0 && read(third, &c, 1) == 1 && c == want[0]);
  CHECK((fcntl(copy, F_GETFL) & O_ACCMODE) == O_RDONLY);
  CHECK(close(third) == 0 && read(copy, &c, 1) == 1 && c == want[1]);
  CHECK(dup2(copy, copy) == copy);
  CHECK(dup3(copy, copy, 0) == -1 && errno == EINVAL);
  CHECK(fcntl(copy, F_DUPFD_CLOEXEC, 3) >= 0);
  CHECK(close(copy) == 0);
  return 0;
}
static int check_dup(void) {
  int fd = open(cached, O_RDONLY | O_CLOEXEC);
  CHECK(dups(fd) == 0);
  fd = open(plain, O_RDONLY | O_CLOEXEC);
  return dups(fd);
}

static int dup_onto(int fd) { /* converts */
  char c;
  CHECK(lseek(fd, 4, SEEK_SET) == 4);
  CHECK(dup2(fd, 40) == 40 && read(40, &c, 1) == 1 && c == want[4] && read(fd, &c, 1) == 1 && c == want[5]);
  CHECK(dup3(fd, 41, O_CLOEXEC) == 41 && read(41, &c, 1) == 1 && c == want[6] && (fcntl(41, F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(close(40) == 0 && close(41) == 0);
  return 0;
}
static int check_dup2(void) { return both(dup_onto); }

/* A file of ours is replaced by another. */
static int check_replaced(void) {
  char c;
  int fd = open(cached, O_RDONLY), null = open("/dev/null", O_RDONLY);
  CHECK(dup2(null, fd) == fd && read(fd, &c, 1) == 0 && close(fd) == 0 && close(null) == 0);
  return 0;
}

static int same_stat(const struct stat *a, const struct stat *b) {
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mode == b->st_mode && a->st_nlink == b->st_nlink &&
         a->st_uid == b->st_uid && a->st_gid == b->st_gid && a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
         a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec && a->st_blocks == b->st_blocks;
}
static int check_stat(void) {
  struct stat real, st;
  struct stat64 st64;
  struct statx sx;
  CHECK(syscall(SYS_newfstatat, AT_FDCWD, cached, &real, 0) == 0); /* the source itself */
  int fd = open(cached, O_RDONLY);
  errno = 77;
  CHECK(fstat(fd, &st) == 0 && same_stat(&st, &real) && errno == 77);
  CHECK(fstat64(fd, &st64) == 0 && st64.st_ino == real.st_ino && st64.st_size == real.st_size);
  CHECK(stat(cached, &st) == 0 && same_stat(&st, &real));
  CHECK(lstat(cached, &st) == 0 && same_stat(&st, &real));
  CHECK(fstatat(AT_FDCWD, cached, &st, 0) == 0 && same_stat(&st, &real));
  CHECK(fstatat(fd, "", &st, AT_EMPTY_PATH) == 0 && same_stat(&st, &real));
  CHECK(statx(AT_FDCWD, cached, 0, STATX_BASIC_STATS, &sx) == 0 && sx.stx_ino == real.st_ino && sx.stx_size == (unsigned long)real.st_size);
  CHECK(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &sx) == 0 && sx.stx_mtime.tv_nsec == real.st_mtim.tv_nsec);
  char missing[4096];
  snprintf(missing, sizeof missing, "%s.missing", cached);
  CHECK(stat(missing, &st) == -1 && errno == ENOENT);
  CHECK(open(missing, O_RDONLY) == -1 && errno == ENOENT);
  int (*old)(int, const char *, struct stat *) = 0; /* what programs built before glibc 2.33 call */
  extern int __xstat(int, const char *, struct stat *) __attribute__((weak));
  old = __xstat;
  if (old) CHECK(old(1, cached, &st) == 0 && same_stat(&st, &real));
  CHECK(close(fd) == 0);
  return 0;
}

static int terminals(int fd) {
  int left = 0;
  CHECK(isatty(fd) == 0 && errno == ENOTTY);
  struct winsize window;
  CHECK(ioctl(fd, TIOCGWINSZ, &window) == -1 && errno == ENOTTY);
  CHECK(ioctl(fd, FIONREAD, &left) == 0 && left == (int)size);
  CHECK(ioctl(fd, FIONCLEX) == 0 && fcntl(fd, F_GETFD) == 0 && ioctl(fd, FIOCLEX) == 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
  CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL) == 0 && posix_fadvise(fd, 0, 0, 99) == EINVAL);
  CHECK(readahead(fd, 0, 4096) == 0);
  CHECK(fchdir(fd) == -1 && errno == ENOTDIR);
  return 0;
}
static int check_ioctl(void) { return both(terminals); }

static int ready(int fd) {
  struct pollfd p[2] = {{fd, POLLIN, 0}, {-1, POLLIN, 0}};
  volatile nfds_t n = 2;
  CHECK(poll(p, n, 5000) == 1 && p[0].revents == POLLIN && p[0].fd == fd);
  CHECK(ppoll(p, n, NULL, NULL) == 1 && p[0].revents == POLLIN);
  fd_set set;
  FD_ZERO(&set);
  FD_SET(fd, &set);
  CHECK(select(fd + 1, &set, NULL, NULL, NULL) == 1 && FD_ISSET(fd, &set));
  CHECK(pselect(fd + 1, &set, NULL, NULL, NULL, NULL) == 1 && FD_ISSET(fd, &set));
  int e = epoll_create1(0);
  struct epoll_event event = {EPOLLIN, {0}};
  CHECK(epoll_ctl(e, EPOLL_CTL_ADD, fd, &event) == -1 && errno == EPERM && close(e) == 0);
  return 0;
}
static int check_poll(void) { return both(ready); }

static int locks(int fd) {
  struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
  CHECK(flock(fd, LOCK_SH | LOCK_NB) == 0 && flock(fd, LOCK_UN) == 0);
  CHECK(fcntl(fd, F_SETLK, &lock) == 0);
  lock.l_type = F_UNLCK;
  CHECK(fcntl(fd, F_SETLK, &lock) == 0);
  lock.l_type = F_WRLCK;
  CHECK(fcntl(fd, F_SETLK, &lock) == -1 && errno == EBADF); /* not open for writing */
  return 0;
}
static int check_lock(void) {
  CHECK(both(locks) == 0);
  /* It is the file itself that is locked. */
  int ours = open(cached, O_RDONLY | O_CLOEXEC);
  CHECK(flock(ours, LOCK_SH) == 0);
  pid_t child = fork();
  if (child == 0) {
    int other = open(cached, O_RDWR);
    _exit(other >= 0 && flock(other, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK ? 0 : 1);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  return close(ours);
}

static int maps(int fd) {
  size_t length = (size_t)size;
  char *m = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, 0);
  CHECK(m != MAP_FAILED && memcmp(m, want, 4096) == 0);
  CHECK((size & 4095) == 0 || m[size] == 0); /* zeros behind the end */
  CHECK(munmap(m, length) == 0);
  m = mmap64(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 4096);
  CHECK(m != MAP_FAILED && memcmp(m, want + 4096, 4000) == 0);
  m[0] ^= 1;
  CHECK(m[0] != want[4096] && munmap(m, 4096) == 0);
  m = mmap(NULL, length, PROT_READ, MAP_PRIVATE, fd, 0);
  CHECK(m != MAP_FAILED && mprotect(m, length, PROT_READ | PROT_WRITE) == 0);
  m[1] ^= 1;
  CHECK(m[2] == want[2] && munmap(m, length) == 0);
  CHECK(mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EACCES);
  return 0;
}
static int check_mmap(void) { return both(maps); }

static int copies(int fd) {
  char b[300];
  char name[] = "/tmp/preload-copy-XXXXXX";
  int out = mkstemp(name);
  CHECK(out >= 0 && unlink(name) == 0);
  off_t from = 20;
  CHECK(sendfile(out, fd, &from, 100) == 100 && from == 120 && lseek(fd, 0, SEEK_CUR) == 0);
  CHECK(sendfile(out, fd, NULL, 50) == 50 && lseek(fd, 0, SEEK_CUR) == 50);
  off64_t at = 0, to = 150;
  CHECK(copy_file_range(fd, &at, out, &to, 60, 0) == 60 && at == 60 && to == 210);
  CHECK(copy_file_range(fd, NULL, out, &to, 60, 0) == 60 && lseek(fd, 0, SEEK_CUR) == 110);
  CHECK(pread(out, b, sizeof b, 0) == 270);
  CHECK(memcmp(b, want + 20, 100) == 0 && memcmp(b + 100, want, 50) == 0 && memcmp(b + 150, want, 60) == 0 && memcmp(b + 210, want + 50, 60) == 0);
  int ends[2];
  CHECK(pipe(ends) == 0 && copy_file_range(fd, &at, ends[1], NULL, 10, 0) == -1 && errno == EINVAL);
  at = 9;
  CHECK(splice(fd, &at, ends[1], NULL, 64, 0) == 64 && at == 73 && read(ends[0], b, 64) == 64 && memcmp(b, want + 9, 64) == 0);
  CHECK(close(ends[0]) == 0 && close(ends[1]) == 0 && close(out) == 0);
  return 0;
}
static int check_copy(void) { return both(copies); }

/* Whether `out` holds the file from `from` on, for `bytes`, and is `before` bytes longer. */
static int holds(int out, long before, long from, long bytes) {
  static char a[1 << 16], b[1 << 16];
  int twin = open(plain, O_RDONLY);
  long at = 0, step;
  for (; at < bytes; at += step) {
    step = bytes - at < (long)sizeof a ? bytes - at : (long)sizeof a;
    if (pread(out, a, step, before + at) != step || pread(twin, b, step, from + at) != step || memcmp(a, b, step) != 0) break;
  }
  return close(twin) == 0 && at == bytes && lseek(out, 0, SEEK_END) == before + bytes;
}

static void *drain(void *end) {
  static char b[1 << 16];
  long all = 0, got;
  while ((got = read(*(int *)end, b, sizeof b)) > 0) all += got;
  return (void *)all;
}

/* One call, all of it: to a file and to a socket that is read. What a pipe or a socket that does not wait has room for. */
static int copies_all(int fd) {
  static char b[1 << 20];
  char name[] = "/tmp/preload-copy-XXXXXX";
  int out = mkstemp(name), ends[2];
  CHECK(out >= 0 && unlink(name) == 0);
  errno = 77;
  CHECK(sendfile(out, fd, NULL, size) == size && lseek(fd, 0, SEEK_CUR) == size && holds(out, 0, 0, size) && errno == 77);
  off_t from = 20;
  CHECK(ftruncate(out, 0) == 0 && lseek(out, 5, SEEK_SET) == 5 && lseek(fd, 3, SEEK_SET) == 3);
  CHECK(sendfile(out, fd, &from, size) == size - 20 && from == size && lseek(out, 0, SEEK_CUR) == 5 + size - 20 && holds(out, 5, 20, size - 20));
  CHECK(lseek(fd, 0, SEEK_CUR) == 3 && sendfile(out, fd, &from, size) == 0 && from == size);
  off64_t at = 7, to = 11;
  CHECK(ftruncate(out, 0) == 0 && copy_file_range(fd, &at, out, &to, size - 9, 0) == size - 9 && at == size - 2 && to == size + 2 && holds(out, 11, 7, size - 9));
  CHECK(ftruncate(out, 0) == 0 && lseek(out, 0, SEEK_SET) == 0 && lseek(fd, 3, SEEK_SET) == 3);
  CHECK(copy_file_range(fd, NULL, out, NULL, 2 * size, 0) == size - 3 && lseek(fd, 0, SEEK_CUR) == size && lseek(out, 0, SEEK_CUR) == size - 3 && holds(out, 0, 3, size - 3));

  pthread_t reader;
  void *all;
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && pthread_create(&reader, NULL, drain, &ends[0]) == 0);
  from = 1;
  CHECK(sendfile(ends[1], fd, &from, size) == size - 1 && from == size && close(ends[1]) == 0);
  CHECK(pthread_join(reader, &all) == 0 && (long)all == size - 1 && close(ends[0]) == 0);

  CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0 && lseek(fd, 0, SEEK_SET) == 0);
  long sent = 0, once;
  while ((once = sendfile(ends[1], fd, NULL, size)) > 0) sent += once;
  CHECK((sent == size || (once == -1 && errno == EAGAIN && sent > 4096)) && lseek(fd, 0, SEEK_CUR) == sent && shutdown(ends[1], SHUT_WR) == 0);
  CHECK((long)drain(&ends[0]) == sent && close(ends[0]) == 0 && close(ends[1]) == 0);

  CHECK(pipe(ends) == 0 && lseek(fd, 0, SEEK_SET) == 0);
  const int room = fcntl(ends[1], F_GETPIPE_SZ);
  CHECK(room < size && room <= (int)sizeof b);
  alarm(60); /* nobody else reads it: to wait for more room is to wait for ever */
  once = sendfile(ends[1], fd, NULL, size);
  CHECK(once > 0 && once <= room && lseek(fd, 0, SEEK_CUR) == once && read(ends[0], b, once - 1) == once - 1 && memcmp(b, want, once < 4096 ? once - 1 : 4096) == 0);
  CHECK((sent = sendfile(ends[1], fd, NULL, size)) > 0 && lseek(fd, 0, SEEK_CUR) == once + sent && read(ends[0], b, sizeof b) == sent + 1);
  alarm(0);
  return close(ends[0]) | close(ends[1]) | close(out);
}
static int check_copy_all(void) { return both(copies_all); }

static int streams(int fd) { /* as NumPy's fromfile does it */
  char b[100];
  int copy = dup(fd);
  CHECK(lseek(fd, 30, SEEK_SET) == 30);
  FILE *f = fdopen(copy, "rb");
  CHECK(f != NULL && fileno(f) == copy && ftell(f) == 30);
  CHECK(fread(b, 1, 100, f) == 100 && memcmp(b, want + 30, 100) == 0 && ftell(f) == 130);
  CHECK(fseek(f, -10, SEEK_END) == 0 && fread(b, 1, 100, f) == 10 && feof(f));
  CHECK(fclose(f) == 0 && close(copy) == -1 && errno == EBADF);
  CHECK(fdopen(fd, "w") == NULL && errno == EINVAL);
  return 0;
}
static int check_fdopen(void) { return both(streams); }

static int check_fopen(void) {
  char b[100];
  FILE *f = fopen(cached, "rb");
  CHECK(f != NULL && fread(b, 1, 100, f) == 100 && memcmp(b, want, 100) == 0);
  CHECK((f = freopen(cached, "rb", f)) != NULL && fread(b, 1, 10, f) == 10 && memcmp(b, want, 10) == 0 && fclose(f) == 0);
  return 0;
}

static int check_openat(void) {
  char name[4096], b[16];
  const char *slash = strrchr(cached, '/');
  snprintf(name, sizeof name, "%.*s", (int)(slash - cached), cached);
  int d = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC), here = open(".", O_RDONLY | O_DIRECTORY);
  CHECK(d >= 0 && here >= 0);
  int fd = openat(d, slash + 1, O_RDONLY);
  CHECK(fd >= 0 && read(fd, b, 16) == 16 && memcmp(b, want, 16) == 0 && close(fd) == 0);
  CHECK(fchdir(d) == 0);
  fd = open(slash + 1, O_RDONLY);
  CHECK(fd >= 0 && read(fd, b, 16) == 16 && memcmp(b, want, 16) == 0 && close(fd) == 0);
  snprintf(name, sizeof name, "./%s", slash + 1);
  volatile int flags = O_RDONLY;
  fd = open64(name, flags);
  CHECK(fd >= 0 && read(fd, b, 16) == 16 && memcmp(b, want, 16) == 0 && close(fd) == 0);
  struct stat st;
  CHECK(fstatat(d, slash + 1, &st, 0) == 0 && st.st_size == size);
  CHECK(fchdir(here) == 0 && close(d) == 0 && close(here) == 0);
  CHECK(openat(999, "x", O_RDONLY) == -1 && errno == EBADF);
  fd = open(cached, O_RDONLY);
  CHECK(openat(fd, "x", O_RDONLY) == -1 && errno == ENOTDIR && close(fd) == 0);
  CHECK(open(cached, O_RDONLY | O_DIRECTORY) == -1 && errno == ENOTDIR);
  fd = open(cached, O_PATH);
  CHECK(fd >= 0 && read(fd, b, 1) == -1 && errno == EBADF && close(fd) == 0);
  return 0;
}

static int check_directory(void) {
  DIR *d = opendir(directory);
  CHECK(d != NULL);
  int names = 0, dots = 0;
  struct dirent *e;
  while ((e = readdir(d)) != NULL) {
    names += e->d_name[0] == 'n' && e->d_type == DT_REG;
    dots += strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
  }
  CHECK(names == 20 && dots == 2);
  rewinddir(d);
  CHECK((e = readdir(d)) != NULL && (e = readdir(d)) != NULL && (e = readdir(d)) != NULL);
  long at = telldir(d);
  char first[256];
  CHECK((e = readdir(d)) != NULL);
  strcpy(first, e->d_name);
  CHECK(readdir(d) != NULL);
  seekdir(d, at);
  CHECK((e = readdir(d)) != NULL && strcmp(e->d_name, first) == 0);
  struct stat st;
  CHECK(fstatat(dirfd(d), "n07", &st, 0) == 0 && S_ISREG(st.st_mode));
  CHECK(closedir(d) == 0);
  CHECK(opendir(cached) == NULL && errno == ENOTDIR);
  return 0;
}

static int check_close_range(void) {
  char c;
  int a = open(cached, O_RDONLY), b = open(cached, O_RDONLY);
  CHECK(close_range((unsigned)a, (unsigned)a, 0) == 0 && read(a, &c, 1) == -1 && errno == EBADF && read(b, &c, 1) == 1);
  closefrom(b);
  CHECK(read(b, &c, 1) == -1 && errno == EBADF);
  CHECK(close_range(3, ~0u, 0) == 0);
  a = open(cached, O_RDONLY);
  CHECK(a >= 0 && read(a, &c, 1) == 1 && c == want[0] && close(a) == 0);
  return 0;
}

static int check_syscall(void) {
  char c;
  int fd = open(cached, O_RDONLY);
  CHECK(syscall(SYS_close, fd) == 0 && read(fd, &c, 1) == -1 && errno == EBADF);
  fd = open(cached, O_RDONLY);
  int copy = (int)syscall(SYS_dup, fd);
  CHECK(copy >= 0 && read(copy, &c, 1) == 1 && c == want[0] && close(copy) == 0 && close(fd) == 0);
  return 0;
}

static int check_rights(void) { /* converts */
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  int fd = open(cached, O_RDONLY);
  CHECK(lseek(fd, 12, SEEK_SET) == 12);
  char byte = 'x';
  union {
    char room[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
  } control;
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(head), &fd, sizeof fd);
  CHECK(sendmsg(ends[0], &message, 0) == 1 && recvmsg(ends[1], &message, 0) == 1);
  int got;
  memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
  CHECK(read(got, &byte, 1) == 1 && byte == want[12]);
  return close(got) | close(fd) | close(ends[0]) | close(ends[1]);
}

static const struct check checks[] = {
    {"read", check_read},     {"seek", check_seek},   {"dup", check_dup},         {"dup2", check_dup2},         {"replaced", check_replaced},
    {"stat", check_stat},     {"ioctl", check_ioctl}, {"poll", check_poll},       {"lock", check_lock},         {"mmap", check_mmap},
    {"copy", check_copy},         {"copy_all", check_copy_all}, {"fdopen", check_fdopen}, {"fopen", check_fopen},   {"openat", check_openat},     {"directory", check_directory},
    {"close_range", check_close_range}, {"syscall", check_syscall}, {"rights", check_rights},
};

int main(int argc, char **argv) {
  if (argc < 4) return 64;
  cached = argv[1], plain = argv[2], directory = argv[3];
  int fd = open(plain, O_RDONLY);
  if (fd < 0 || read(fd, want, sizeof want) != sizeof want || (size = lseek(fd, 0, SEEK_END)) < 0 || close(fd) != 0) return 65;
  return RUN_CHECKS(checks, argc, argv, 4);
}
