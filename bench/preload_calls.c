/* What a preload library adds to calls on files outside any source; bench/preload.cc runs it behind libtier_preload.so, behind a library that only passes calls on, and bare.
 *   preload_calls KIND DIRECTORY   of DIRECTORY/outside, a file of 8 KiB
 * Prints two numbers: the ns that the library adds to a call (or the pair of calls that KIND is), and the ns of the same call of libc alone. Both are taken in turns in one
 * process, a hundred calls each, and of each side the tenth of its turns that was faster is taken: neither another process's memory nor a machine that is slower for a while
 * goes into the difference.
 *
 * KIND:  absolute relative dirfd above above-dirfd   open and close by an absolute name, from the working directory, by a descriptor of DIRECTORY, by a name that begins two
 *                                                    directories higher, in the working directory or of a descriptor
 *        stat access fopen opendir write unlink rename   by an absolute name; fopen, opendir and write (open for writing) with what closes them
 *        read pread fstat close                          on a descriptor
 *        ask-entry ask-descriptor                    nothing is added: the system call alone that says on which file system DIRECTORY or a descriptor is */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct functions {
  int (*open)(const char *, int, ...);
  int (*openat)(int, const char *, int, ...);
  int (*close)(int);
  int (*stat)(const char *, struct stat *);
  int (*fstat)(int, struct stat *);
  int (*access)(const char *, int);
  int (*unlink)(const char *);
  int (*rename)(const char *, const char *);
  ssize_t (*read)(int, void *, size_t);
  ssize_t (*pread)(int, void *, size_t, off_t);
  FILE *(*fopen)(const char *, const char *);
  int (*fclose)(FILE *);
  DIR *(*opendir)(const char *);
  int (*closedir)(DIR *);
};

static int find(struct functions *f, void *where) {
  const struct {
    void **to;
    const char *name;
  } all[] = {{(void **)&f->open, "open"},     {(void **)&f->openat, "openat"}, {(void **)&f->close, "close"},   {(void **)&f->stat, "stat"},
             {(void **)&f->fstat, "fstat"},   {(void **)&f->access, "access"}, {(void **)&f->unlink, "unlink"}, {(void **)&f->rename, "rename"},
             {(void **)&f->read, "read"},     {(void **)&f->pread, "pread"},   {(void **)&f->fopen, "fopen"},   {(void **)&f->fclose, "fclose"},
             {(void **)&f->opendir, "opendir"}, {(void **)&f->closedir, "closedir"}};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    if ((*all[i].to = dlsym(where, all[i].name)) == NULL) return 1;
  }
  return 0;
}

enum { kCalls = 100 };
static const char *directory, *outside, *from_above;
static int directory_fd, above_fd, file_fd, copies[kCalls];
static char names[kCalls + 1][4096];

#define CALL(name) static int call_##name(const struct functions *f, int i)
#define UNUSED (void)i

static int closed(const struct functions *f, int fd) { return fd < 0 || f->close(fd) != 0; }
CALL(absolute) { UNUSED; return closed(f, f->open(outside, O_RDONLY)); }
CALL(relative) { UNUSED; return closed(f, f->open("outside", O_RDONLY)); }
CALL(dirfd) { UNUSED; return closed(f, f->openat(directory_fd, "outside", O_RDONLY)); }
CALL(above) { UNUSED; return closed(f, f->open(from_above, O_RDONLY)); }
CALL(above_dirfd) { UNUSED; return closed(f, f->openat(above_fd, from_above, O_RDONLY)); }
CALL(write) { UNUSED; return closed(f, f->open(outside, O_WRONLY | O_CREAT, 0600)); }
CALL(stat) { struct stat st; UNUSED; return f->stat(outside, &st); }
CALL(access) { UNUSED; return f->access(outside, R_OK); }
CALL(fopen) { FILE *stream = f->fopen(outside, "r"); UNUSED; return stream == NULL || f->fclose(stream) != 0; }
CALL(opendir) { DIR *listing = f->opendir(directory); UNUSED; return listing == NULL || f->closedir(listing) != 0; }
CALL(unlink) { return f->unlink(names[i]); }
CALL(rename) { return f->rename(names[i], names[i + 1]); }
CALL(read) { char byte; UNUSED; return f->read(file_fd, &byte, 1) != 1; }
CALL(pread) { char byte; UNUSED; return f->pread(file_fd, &byte, 1, 0) != 1; }
CALL(fstat) { struct stat st; UNUSED; return f->fstat(file_fd, &st); }
CALL(close) { return f->close(copies[i]); }
CALL(ask_entry) { struct stat st; UNUSED; (void)f; return (int)syscall(SYS_newfstatat, AT_FDCWD, directory, &st, 0); }
CALL(ask_descriptor) { struct statx st; UNUSED; (void)f; return (int)syscall(SYS_statx, above_fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st); }

enum needs { kNothing, kOneFile, kAllFiles, kCopies, kBegin };
static const struct {
  const char *kind;
  int (*call)(const struct functions *, int);
  enum needs needs; /* before each turn */
} kinds[] = {{"absolute", call_absolute, kNothing}, {"relative", call_relative, kNothing}, {"dirfd", call_dirfd, kNothing},
             {"above", call_above, kNothing},       {"above-dirfd", call_above_dirfd, kNothing}, {"write", call_write, kNothing},
             {"stat", call_stat, kNothing},         {"access", call_access, kNothing},     {"fopen", call_fopen, kNothing},
             {"opendir", call_opendir, kNothing},   {"unlink", call_unlink, kAllFiles},    {"rename", call_rename, kOneFile},
             {"read", call_read, kBegin},           {"pread", call_pread, kNothing},       {"fstat", call_fstat, kNothing},
             {"close", call_close, kCopies},        {"ask-entry", call_ask_entry, kNothing}, {"ask-descriptor", call_ask_descriptor, kNothing}};

static int prepare(enum needs needs) {
  for (int i = 0; i < (needs == kAllFiles ? kCalls : needs == kOneFile ? 1 : 0); ++i) {
    int fd = open(names[i], O_WRONLY | O_CREAT, 0600);
    if (fd < 0 || close(fd) != 0) return 1;
  }
  for (int i = 0; needs == kCopies && i < kCalls; ++i) {
    if ((copies[i] = dup(file_fd)) < 0) return 1;
  }
  return needs == kBegin && lseek(file_fd, 0, SEEK_SET) != 0;
}

static int clean(enum needs needs) { return needs == kOneFile ? unlink(names[kCalls]) : 0; }

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) { return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b); }
/* A tenth of the turns was faster: what others take from this processor, and from its caches, is in the slower ones. */
static double quick(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, by_value);
  return values[count / 10];
}

static int measure(int (*call)(const struct functions *, int), enum needs needs, const struct functions *sides) {
  enum { kRounds = 1500 };
  static double ns[2][kRounds];
  int rounds = needs == kOneFile || needs == kAllFiles ? kRounds / 10 : kRounds; /* changes of names take long enough */
  for (int round = -1; round < rounds; ++round) {
    for (int turn = 0; turn < 2; ++turn) {
      int side = (round + turn) & 1;
      if (prepare(needs) != 0) return 1;
      double begin = now_ns();
      for (int i = 0; i < kCalls; ++i) {
        if (call(&sides[side], i) != 0) return 1;
      }
      if (round >= 0) ns[side][round] = (now_ns() - begin) / kCalls; /* the first is for first touches */
      if (clean(needs) != 0) return 1;
    }
  }
  double bare = quick(ns[1], rounds);
  printf("%.2f %.2f\n", quick(ns[0], rounds) - bare, bare);
  return 0;
}

int main(int argc, char **argv) {
  static char path[4096], above[4096];
  static struct functions sides[2]; /* as programs call them; libc's own */
  if (argc != 3) return 64;
  void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  if (libc == NULL || find(&sides[0], RTLD_DEFAULT) != 0 || find(&sides[1], libc) != 0) return 1;
  directory = argv[2];
  snprintf(path, sizeof path, "%s/outside", directory);
  outside = path;
  for (int i = 0; i <= kCalls; ++i) snprintf(names[i], sizeof names[i], "%s/made-%d", directory, i);
  snprintf(above, sizeof above, "%s", directory);
  for (int up = 0; up < 2; ++up) {
    char *slash = strrchr(above, '/');
    if (slash == NULL || slash == above) return 1;
    *slash = 0;
  }
  from_above = path + strlen(above) + 1;
  directory_fd = open(directory, O_RDONLY | O_DIRECTORY);
  above_fd = open(above, O_RDONLY | O_DIRECTORY);
  file_fd = open(outside, O_RDONLY);
  if (directory_fd < 0 || above_fd < 0 || file_fd < 0 || chdir(strcmp(argv[1], "above") == 0 ? above : directory) != 0) return 1;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
    if (strcmp(argv[1], kinds[i].kind) == 0) return measure(kinds[i].call, kinds[i].needs, sides);
  }
  return 64;
}
