/* What the library adds to a process's memory stays within its budget, and comes back. The files
 * hold 32-bit words: the file's number in bits 24-31, the word's place in the others. usage: added
 * DIRECTORY [check...]: the directory holds `file0` ... `file7` (numbers 0-7, 1,000,000 bytes),
 * `small` (8, 60,000 bytes), `large` (9, 10,000,000 bytes) and `old0` ... `old31` (10-41, 1,000,000
 * bytes, not written to for an hour). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/preload/check.h"

enum { kMaps = 600, kFiles = 8, kSmall = 8, kLarge = 9, kOld = 10, kOldFiles = 32 };
static const char *directory;
static const size_t page = 4096, file_bytes = 1000000, small_bytes = 60000, large_bytes = 10000000;

static size_t bytes_of(int number) {
  return number == kSmall ? small_bytes : number == kLarge ? large_bytes : file_bytes;
}

static int open_file(int number) {
  char name[4096];
  if (number == kSmall) snprintf(name, sizeof name, "%s/small", directory);
  else if (number == kLarge) snprintf(name, sizeof name, "%s/large", directory);
  else if (number >= kOld) snprintf(name, sizeof name, "%s/old%d", directory, number - kOld);
  else snprintf(name, sizeof name, "%s/file%d", directory, number);
  return open(name, O_RDONLY | O_CLOEXEC);
}

static int shows(const char *map, int number, size_t begin, size_t end) {
  for (size_t at = begin; at < end; at += 4) {
    uint32_t word;
    memcpy(&word, map + at, 4);
    if (word != (((uint32_t)number << 24) | (uint32_t)(at / 4))) return 0;
  }
  return 1;
}

static char *map_file(int number, int protection, int sharing) {
  int fd = open_file(number);
  if (fd < 0) return MAP_FAILED;
  char *map = mmap(NULL, bytes_of(number), protection, sharing, fd, 0);
  close(fd);
  return map;
}

/* All of them at a time, and what they show. */
static int many(int first, int files, int maps, int protection, int sharing) {
  static char *map[kMaps * 5];
  for (int i = 0; i < maps; ++i) {
    map[i] = map_file(first + i % files, protection, sharing);
    CHECK(map[i] != MAP_FAILED);
    CHECK(shows(map[i], first + i % files, 0, bytes_of(first + i % files)));
  }
  for (int i = 0; i < maps; ++i) {
    CHECK(shows(map[i], first + i % files, 0, page));
    if ((protection & PROT_WRITE) != 0) map[i][1] = 'x';
  }
  if (getenv("ADDED_HOLD") != NULL) {
    printf("held\n");
    fflush(stdout);
    usleep(1000 * atoi(getenv("ADDED_HOLD")));
  }
  for (int i = 0; i < maps; ++i) CHECK(munmap(map[i], bytes_of(first + i % files)) == 0);
  return 0;
}
static int check_private(void) { return many(0, kFiles, kMaps, PROT_READ, MAP_PRIVATE); }
static int check_shared(void) { return many(0, kFiles, kMaps, PROT_READ, MAP_SHARED); }
static int check_writable(void) {
  return many(0, kFiles, kMaps, PROT_READ | PROT_WRITE, MAP_PRIVATE);
}
static int check_small(void) { return many(kSmall, 1, kMaps * 5, PROT_READ, MAP_PRIVATE); }
static int check_few(void) { return many(0, kFiles, 40, PROT_READ | PROT_WRITE, MAP_PRIVATE); }

/* One after the other, and in parts: each time all of it comes back. More than the budget would be
 * needed if anything stayed. */
static int in_parts(int number, int protection, int sharing) {
  char *map = map_file(number, protection, sharing);
  const size_t whole = (bytes_of(number) + page - 1) / page * page;
  CHECK(map != MAP_FAILED && shows(map, number, 0, bytes_of(number)));
  CHECK(munmap(map + 2 * page, page) == 0 && shows(map, number, 3 * page, bytes_of(number)));
  CHECK(munmap(map, 2 * page) == 0);
  CHECK(munmap(map + 3 * page, whole - 3 * page) == 0);
  return 0;
}
/* mremap moves it, lets it grow back to the file's end, and shrinks it. */
static int moved(int number, int protection, int sharing) {
  int fd = open_file(number);
  char *map = mmap(NULL, 4 * page, protection, sharing, fd, 0);
  CHECK(map != MAP_FAILED && close(fd) == 0);
  if ((protection & PROT_WRITE) != 0) map[page] = 'y';
  char *there = mmap(NULL, 16 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(there != MAP_FAILED);
  CHECK(mremap(map, 4 * page, 8 * page, MREMAP_MAYMOVE | MREMAP_FIXED, there) == there);
  CHECK(shows(there, number, 0, page) && shows(there, number, 2 * page, 8 * page));
  if ((protection & PROT_WRITE) != 0) CHECK(there[page] == 'y');
  CHECK(mremap(there, 8 * page, 3 * page, 0) == there && shows(there, number, 2 * page, 3 * page));
  CHECK(munmap(there, 16 * page) == 0);
  return 0;
}
/* MAP_FIXED takes its place. */
static int replaced(int number, int protection, int sharing) {
  char *map = map_file(number, protection, sharing);
  const size_t whole = (bytes_of(number) + page - 1) / page * page;
  CHECK(map != MAP_FAILED);
  CHECK(mmap(map, whole, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == map);
  CHECK(map[0] == 0 && map[whole - 1] == 0 && munmap(map, whole) == 0);
  return 0;
}
static int check_given_back(void) {
  for (int i = 0; i < 100; ++i) {
    for (int sharing = MAP_SHARED; sharing <= MAP_PRIVATE; ++sharing) {
      const int protection = sharing == MAP_PRIVATE ? PROT_READ | PROT_WRITE : PROT_READ;
      const int number = sharing == MAP_PRIVATE ? i % kFiles : kSmall;
      CHECK(in_parts(number, protection, sharing) == 0);
      CHECK(moved(number, protection, sharing) == 0);
      CHECK(replaced(number, protection, sharing) == 0);
    }
  }
  return 0;
}

/* Of a fork all that is open becomes copies, as far as there is room; parent and child read on. */
static int fork_with(int files) {
  int fd[kOldFiles], status;
  char *bytes = malloc(file_bytes);
  for (int i = 0; i < files; ++i) {
    fd[i] = open_file(kOld + i);
    CHECK(fd[i] >= 0 && read(fd[i], bytes, page) == (ssize_t)page);
  }
  pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < files; ++i) {
      if (pread(fd[i], bytes, file_bytes, 0) != (ssize_t)file_bytes ||
          !shows(bytes, kOld + i, 0, file_bytes))
        _exit(1);
    }
    exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  for (int i = 0; i < files; ++i) {
    CHECK(pread(fd[i], bytes, file_bytes, 0) == (ssize_t)file_bytes &&
          shows(bytes, kOld + i, 0, file_bytes));
    CHECK(close(fd[i]) == 0);
  }
  free(bytes);
  return 0;
}
static int check_forks(void) { return fork_with(kOldFiles); }
static int check_forks_again(void) {
  for (int i = 0; i < 30; ++i) CHECK(fork_with(2) == 0);
  return 0;
}

/* What is unmapped may be kept for the next mapping. */
static int check_kept(void) {
  for (int i = 0; i < 50; ++i) {
    char *map = map_file(i % 2 == 0 ? kLarge : i % kFiles, PROT_READ, MAP_SHARED);
    const int number = i % 2 == 0 ? kLarge : i % kFiles;
    CHECK(map != MAP_FAILED && shows(map, number, 0, bytes_of(number)) &&
          munmap(map, bytes_of(number)) == 0);
  }
  return 0;
}

/* A child changes what it inherited, and the parent keeps what it has. */
static int check_inherited(void) {
  char *map = map_file(0, PROT_READ | PROT_WRITE, MAP_PRIVATE);
  int status;
  CHECK(map != MAP_FAILED);
  pid_t child = fork();
  if (child == 0) {
    map[0] = 'z';
    exit(munmap(map, file_bytes) != 0 || check_few() != 0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(shows(map, 0, 0, file_bytes) && munmap(map, file_bytes) == 0);
  return 0;
}

int main(int argc, char **argv) {
  static const struct check checks[] = {
      {"private", check_private},   {"shared", check_shared},
      {"writable", check_writable}, {"small", check_small},
      {"few", check_few},           {"given_back", check_given_back},
      {"forks", check_forks},       {"forks_again", check_forks_again},
      {"kept", check_kept},         {"inherited", check_inherited}};
  if (argc < 2) return 64;
  directory = argv[1];
  return RUN_CHECKS(checks, argc, argv, 2);
}
