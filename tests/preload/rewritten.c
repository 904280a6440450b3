/* A file is written to in place by another process while this one has it open: once its new size or
 * time was seen, descriptors show its new bytes. A file that was replaced or unlinked stays what it
 * was to those who have it open. usage: rewritten DIRECTORY [check...]: the directory holds, for
 * each check, a file of its name (100,000 bytes of 'a'; for `chunked` 9,000,000), and for `watched`
 * and `created` a directory with `file`. `rewritten write FILE OFFSET BYTES CHARACTER CUT` is that
 * other process: CUT is the new size, or -1. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/preload/check.h"

extern char **environ;
static const char *self, *directory;
enum { kBytes = 100000, kLarge = 9000000 };
static char buffer[kLarge + 1];

static const char *path_of(const char *name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return path;
}

static int write_file(const char *path, long offset, long bytes, char character, long cut) {
  int fd = open(path, O_WRONLY | O_CREAT, 0600);
  CHECK(fd >= 0);
  memset(buffer, character, bytes);
  CHECK(pwrite(fd, buffer, bytes, offset) == bytes);
  if (cut >= 0) CHECK(ftruncate(fd, cut) == 0);
  return close(fd);
}
/* By another process of the job, and until it has ended. */
static int other_writes(const char *path, long offset, long bytes, char character, long cut) {
  char numbers[3][32], text[2] = {character, 0};
  snprintf(numbers[0], 32, "%ld", offset);
  snprintf(numbers[1], 32, "%ld", bytes);
  snprintf(numbers[2], 32, "%ld", cut);
  char *arguments[] = {(char *)self, "write", (char *)path, numbers[0],
                       numbers[1],   text,    numbers[2],   NULL};
  pid_t child;
  int status;
  CHECK(posix_spawn(&child, self, NULL, NULL, arguments, environ) == 0);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  return 0;
}

static int all_are(char character, long bytes) {
  for (long i = 0; i < bytes; ++i) {
    if (buffer[i] != character) return 0;
  }
  return 1;
}
static int reads(int fd, char character, long bytes) {
  memset(buffer, 0, bytes + 1);
  return pread(fd, buffer, bytes + 1, 0) == bytes && all_are(character, bytes);
}

/* The same size: only the time tells. Each way of reading by a descriptor of its own, and two
 * numbers of one. */
static int check_same_size(void) {
  int fd[6];
  const char *path = path_of("same_size");
  for (int i = 0; i < 5; ++i)
    CHECK((fd[i] = open(path, O_RDONLY | O_CLOEXEC)) >= 0 && reads(fd[i], 'a', kBytes));
  fd[5] = fcntl(fd[4], F_DUPFD_CLOEXEC, 3);
  struct stat before, after;
  CHECK(fstat(fd[0], &before) == 0);
  CHECK(other_writes(path, 0, kBytes, 'b', -1) == 0);
  CHECK(stat(path, &after) == 0 && after.st_ino == before.st_ino && after.st_size == kBytes);
  CHECK(after.st_mtim.tv_sec != before.st_mtim.tv_sec ||
        after.st_mtim.tv_nsec != before.st_mtim.tv_nsec);
  CHECK(reads(fd[0], 'b', kBytes));
  CHECK(read(fd[1], buffer, kBytes) == kBytes && all_are('b', kBytes));
  struct iovec parts[2] = {{buffer, 10}, {buffer + 10, kBytes - 10}};
  CHECK(readv(fd[2], parts, 2) == kBytes && all_are('b', kBytes));
  int pipes[2];
  CHECK(pipe2(pipes, O_CLOEXEC) == 0 && sendfile(pipes[1], fd[3], NULL, 4096) == 4096 &&
        read(pipes[0], buffer, 4096) == 4096 && all_are('b', 4096));
  CHECK(reads(fd[5], 'b', kBytes) && reads(fd[4], 'b', kBytes));
  struct stat shown;
  CHECK(fstat(fd[0], &shown) == 0 && shown.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
  return 0;
}

static int check_longer(void) {
  const char *path = path_of("longer");
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0 && reads(fd, 'a', kBytes));
  CHECK(other_writes(path, 0, 2 * kBytes, 'b', -1) == 0);
  struct stat st;
  CHECK(stat(path, &st) == 0 && st.st_size == 2 * kBytes);
  CHECK(reads(fd, 'b', 2 * kBytes));
  return close(fd);
}
static int check_shorter(void) {
  const char *path = path_of("shorter");
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0 && reads(fd, 'a', kBytes));
  CHECK(other_writes(path, 0, 1000, 'b', 1000) == 0);
  struct stat st;
  CHECK(stat(path, &st) == 0 && st.st_size == 1000);
  CHECK(reads(fd, 'b', 1000) && lseek(fd, 0, SEEK_END) == 1000);
  return close(fd);
}
/* The offset goes on where it was. */
static int check_offset(void) {
  const char *path = path_of("offset");
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0 && read(fd, buffer, 5000) == 5000);
  CHECK(other_writes(path, 0, kBytes, 'b', -1) == 0);
  CHECK(read(fd, buffer, kBytes) == kBytes - 5000 && all_are('b', kBytes - 5000));
  return close(fd);
}
static int check_chunked(void) {
  const char *path = path_of("chunked");
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0 && reads(fd, 'a', kLarge));
  CHECK(other_writes(path, 0, kLarge, 'b', -1) == 0);
  struct stat st;
  CHECK(stat(path, &st) == 0);
  CHECK(reads(fd, 'b', kLarge));
  return close(fd);
}
static int check_mapped(void) {
  const char *path = path_of("mapped");
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0 && reads(fd, 'a', kBytes));
  CHECK(other_writes(path, 0, kBytes, 'b', -1) == 0);
  const char *map = mmap(NULL, kBytes, PROT_READ, MAP_SHARED, fd, 0);
  CHECK(map != MAP_FAILED && map[0] == 'b' && map[kBytes - 1] == 'b');
  CHECK(munmap((void *)map, kBytes) == 0);
  return close(fd);
}
static int check_forked(void) {
  const char *path = path_of("forked");
  int status, fd = open(path, O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0 && reads(fd, 'a', kBytes));
  CHECK(other_writes(path, 0, kBytes, 'b', -1) == 0);
  pid_t child = fork();
  if (child == 0) _exit(!reads(fd, 'b', kBytes));
  CHECK(waitpid(child, &status, 0) == child && status == 0 && reads(fd, 'b', kBytes));
  return close(fd);
}
/* Seen by one process and read by another, which saw nothing. */
static int check_told(void) {
  const char *path = path_of("told");
  int ask[2], answer[2], status;
  char byte = 0;
  CHECK(pipe(ask) == 0 && pipe(answer) == 0);
  pid_t child = fork();
  if (child == 0) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || !reads(fd, 'a', kBytes) || write(answer[1], "r", 1) != 1 ||
        read(ask[0], &byte, 1) != 1)
      _exit(1);
    exit(!reads(fd, 'b', 2 * kBytes));
  }
  CHECK(read(answer[0], &byte, 1) == 1);
  CHECK(other_writes(path, 0, 2 * kBytes, 'b', -1) == 0);
  struct stat st;
  CHECK(stat(path, &st) == 0 && st.st_size == 2 * kBytes);
  CHECK(write(ask[1], "r", 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
  return 0;
}
/* Another file has the name now: this is the old one. */
static int check_replaced(void) {
  char next[4096];
  const char *path = path_of("replaced");
  snprintf(next, sizeof next, "%s.next", path);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0 && reads(fd, 'a', kBytes));
  int made = open(next, O_WRONLY | O_CREAT, 0600);
  CHECK(made >= 0 && close(made) == 0 && other_writes(next, 0, 2 * kBytes, 'b', -1) == 0 &&
        rename(next, path) == 0);
  struct stat st;
  CHECK(stat(path, &st) == 0 && st.st_size == 2 * kBytes);
  CHECK(reads(fd, 'a', kBytes));
  return close(fd);
}
static int check_unlinked(void) {
  const char *path = path_of("unlinked");
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0 && reads(fd, 'a', kBytes) && unlink(path) == 0);
  struct stat st;
  CHECK(stat(path, &st) != 0);
  CHECK(reads(fd, 'a', kBytes));
  return close(fd);
}
/* Nobody has written to it: it stays the cache's, whatever was written beside it. */
static int check_beside(void) {
  const char *path = path_of("beside");
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0 && reads(fd, 'a', kBytes));
  CHECK(other_writes(path_of("beside.other"), 0, kBytes, 'b', -1) == 0);
  for (int i = 0; i < 10; ++i) CHECK(reads(fd, 'a', kBytes));
  return close(fd);
}
/* Who is told of a change in a directory reads what was changed. */
static int check_watched(void) {
  int watch = inotify_init1(IN_CLOEXEC);
  char events[4096];
  CHECK(inotify_add_watch(watch, path_of("watched"), IN_CLOSE_WRITE | IN_MODIFY) >= 0);
  for (int i = 0; i < 20; ++i) {
    const char *path = path_of("watched/file");
    char numbers[3][32] = {"0", "", "-1"}, text[2] = {(char)('b' + i), 0};
    snprintf(numbers[1], 32, "%d", kBytes);
    char *arguments[] = {(char *)self, "write", (char *)path, numbers[0],
                         numbers[1],   text,    numbers[2],   NULL};
    pid_t child;
    int status, closed = 0;
    CHECK(posix_spawn(&child, self, NULL, NULL, arguments, environ) == 0);
    while (!closed) {
      const ssize_t got = read(watch, events, sizeof events);
      CHECK(got > 0);
      for (ssize_t at = 0; at < got; at += (ssize_t)(sizeof(struct inotify_event) +
                                                     ((struct inotify_event *)(events + at))->len))
        closed |= (((struct inotify_event *)(events + at))->mask & IN_CLOSE_WRITE) != 0;
      int fd = open(path, O_RDONLY | O_CLOEXEC);
      CHECK(fd >= 0 && reads(fd, text[0], kBytes) && close(fd) == 0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
  return close(watch);
}
/* Who is told of a new name finds it in the directory. */
static int lists(const char *path, const char *name) {
  DIR *listed = opendir(path);
  int found = 0;
  for (struct dirent *entry; listed != NULL && (entry = readdir(listed)) != NULL;)
    found |= strcmp(entry->d_name, name) == 0;
  if (listed != NULL) closedir(listed);
  return found;
}
static int check_created(void) {
  int watch = inotify_init1(IN_CLOEXEC);
  char events[4096], created[4096], name[32];
  const char *path = path_of("created");
  CHECK(lists(path, "file") && inotify_add_watch(watch, path, IN_CREATE) >= 0);
  for (int i = 0; i < 20; ++i) {
    snprintf(name, sizeof name, "new%d", i);
    snprintf(created, sizeof created, "%s/%s", path, name);
    char *arguments[] = {(char *)self, "write", created, "0", "10", "b", "-1", NULL};
    pid_t child;
    int status;
    CHECK(posix_spawn(&child, self, NULL, NULL, arguments, environ) == 0);
    CHECK(read(watch, events, sizeof events) > 0 && lists(path, name));
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
  return close(watch);
}
/* The flags of HDF5's superblock: open for writing, and to readers meanwhile. */
static int check_hdf5(void) {
  int fd = open(path_of("hdf5"), O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0 && pread(fd, buffer, 12, 0) == 12 && buffer[1] == 'H');
  return close(fd);
}

int main(int argc, char **argv) {
  static const struct check checks[] = {
      {"same_size", check_same_size}, {"longer", check_longer},   {"shorter", check_shorter},
      {"offset", check_offset},       {"chunked", check_chunked}, {"mapped", check_mapped},
      {"forked", check_forked},       {"told", check_told},       {"replaced", check_replaced},
      {"unlinked", check_unlinked},   {"beside", check_beside},   {"watched", check_watched},
      {"created", check_created},     {"hdf5", check_hdf5}};
  if (argc == 7 && strcmp(argv[1], "write") == 0)
    return write_file(argv[2], atol(argv[3]), atol(argv[4]), argv[5][0], atol(argv[6]));
  if (argc < 2) return 64;
  self = argv[0];
  directory = argv[1];
  return RUN_CHECKS(checks, argc, argv, 2);
}
