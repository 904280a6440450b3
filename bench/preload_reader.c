/* What an unmodified C program does; run bare and under the preload library by bench/preload.cc. Prints one number.
 *   files LIST EPOCHS FORKED   open+fstat+read+close of every file in LIST, in a new order each epoch: files per second. FORKED 1: a child per epoch, as DataLoader
 *                              workers are; 0: after one pass that is not timed.
 *   map FILE TIMES             open, mmap, sum of all 64-bit words, munmap, close: bytes per second, after one time that is not counted
 *   mapped FILE TIMES          the sum alone, of what is mapped and was looked at before
 *   outside KIND DIRECTORY     ns per pair of open and close of DIRECTORY/outside: absolute, relative (after chdir), dirfd
 *   foreign KIND DIRECTORY     ns per call on a descriptor of DIRECTORY/outside (of 8 KiB): read and pread (of one byte), fstat, close
 *   named KIND DIRECTORY       ns per call by the name of DIRECTORY/outside: stat, access, fopen and fclose, open for writing and close (write), opendir and closedir of
 *                              DIRECTORY, unlink and rename of files there; above, above-dirfd: open and close by a name that begins two directories higher.
 *                              ask-entry, ask-descriptor: the system call alone that says on which file system DIRECTORY or a descriptor is */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kBuffer = 1 << 20, kMostFiles = 200000 };
static char buffer[kBuffer];
static char *paths[kMostFiles];
static uint32_t order[kMostFiles];
static uint32_t count;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void shuffle(uint64_t state) {
  for (uint32_t i = 0; i < count; ++i) order[i] = i;
  for (uint32_t i = count; i > 1; --i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    uint32_t other = (uint32_t)((state >> 33) % i), kept = order[i - 1];
    order[i - 1] = order[other], order[other] = kept;
  }
}

static int pass(void) {
  for (uint32_t i = 0; i < count; ++i) {
    struct stat st;
    int fd = open(paths[order[i]], O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) return 1;
    if (read(fd, buffer, kBuffer) != st.st_size || close(fd) != 0) return 1;
  }
  return 0;
}

static int files(char **argv) {
  FILE *list = fopen(argv[2], "r");
  static char line[4096];
  while (list != NULL && count < kMostFiles && fgets(line, sizeof line, list) != NULL) {
    line[strcspn(line, "\n")] = 0;
    paths[count++] = strdup(line);
  }
  if (list == NULL || fclose(list) != 0 || count == 0) return 1;
  int epochs = atoi(argv[3]), forked = atoi(argv[4]);
  double seconds = 0;
  shuffle(1);
  if (!forked && pass() != 0) return 1;
  if (forked) { /* the parent of workers has looked at the data set */
    struct stat st;
    int fd = open(paths[0], O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0 || close(fd) != 0) return 1;
  }
  for (int epoch = 0; epoch < epochs; ++epoch) {
    shuffle((uint64_t)epoch + 7);
    double begin = now();
    if (!forked) {
      if (pass() != 0) return 1;
    } else {
      int status = 1;
      pid_t child = fork();
      if (child == 0) _exit(pass());
      if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 1;
    }
    seconds += now() - begin;
  }
  printf("%.3f\n", (double)count * epochs / seconds);
  return 0;
}

static int mapped(char **argv) {
  struct stat st;
  int fd = open(argv[2], O_RDONLY | O_CLOEXEC), times = atoi(argv[3]);
  if (fd < 0 || fstat(fd, &st) != 0) return 1;
  volatile uint64_t *words = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
  if (words == MAP_FAILED) return 1;
  uint64_t sum = 0;
  double begin = 0;
  for (int i = -1; i < times; ++i) {
    if (i == 0) begin = now();
    for (size_t k = 0; k < (size_t)st.st_size / sizeof *words; ++k) sum += words[k];
  }
  printf("%.0f\n", (double)st.st_size * times / (now() - begin));
  return 0;
}

static int map(char **argv) {
  struct stat st;
  uint64_t first = 0;
  double seconds = 0;
  int times = atoi(argv[3]);
  for (int i = -1; i < times; ++i) {
    double begin = now();
    int fd = open(argv[2], O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) return 1;
    uint64_t *words = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0), sum = 0;
    if (words == MAP_FAILED) return 1;
    for (size_t k = 0; k < (size_t)st.st_size / sizeof *words; ++k) sum += words[k];
    if (munmap(words, (size_t)st.st_size) != 0 || close(fd) != 0) return 1;
    if (i >= 0) seconds += now() - begin;
    if (i < 0) first = sum;
    else if (sum != first) return 1;
  }
  printf("%.0f\n", (double)st.st_size * times / seconds);
  return 0;
}

static int outside(char **argv) {
  enum { kRounds = 20, kCalls = 2000 };
  char path[4096];
  snprintf(path, sizeof path, "%s/outside", argv[3]);
  int relative = strcmp(argv[2], "relative") == 0, at = strcmp(argv[2], "dirfd") == 0;
  if (relative && chdir(argv[3]) != 0) return 1;
  int directory = open(argv[3], O_RDONLY | O_DIRECTORY);
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    double begin = now();
    for (int i = 0; i < kCalls; ++i) {
      int fd = at ? openat(directory, "outside", O_RDONLY) : open(relative ? "outside" : path, O_RDONLY);
      if (fd < 0 || close(fd) != 0) return 1;
    }
    double ns = (now() - begin) * 1e9 / kCalls;
    if (ns < best) best = ns;
  }
  printf("%.2f\n", best);
  return 0;
}

static int foreign(char **argv) {
  enum { kRounds = 200, kCalls = 1000, kCloses = 200 };
  char path[4096], byte;
  struct stat st;
  int copies[kCloses];
  snprintf(path, sizeof path, "%s/outside", argv[3]);
  int fd = open(path, O_RDONLY), stats = strcmp(argv[2], "fstat") == 0, closes = strcmp(argv[2], "close") == 0, at = strcmp(argv[2], "pread") == 0;
  if (fd < 0) return 1;
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    int calls = closes ? kCloses : kCalls;
    for (int i = 0; closes && i < kCloses; ++i) copies[i] = dup(fd);
    if (lseek(fd, 0, SEEK_SET) != 0) return 1;
    double begin = now();
    for (int i = 0; i < calls; ++i) {
      if (closes ? close(copies[i]) != 0 : stats ? fstat(fd, &st) != 0 : (at ? pread(fd, &byte, 1, 0) : read(fd, &byte, 1)) != 1) return 1;
    }
    double ns = (now() - begin) * 1e9 / calls;
    if (ns < best) best = ns;
  }
  printf("%.2f\n", best);
  return 0;
}

static const char *directory, *outside_path, *from_above;
static int above_fd;
static char names[200][4096];

static int call_stat(int i) {
  struct stat st;
  (void)i;
  return stat(outside_path, &st);
}
static int call_access(int i) {
  (void)i;
  return access(outside_path, R_OK);
}
static int call_fopen(int i) {
  FILE *stream = fopen(outside_path, "r");
  (void)i;
  return stream == NULL || fclose(stream) != 0;
}
static int call_write(int i) {
  int fd = open(outside_path, O_WRONLY | O_CREAT, 0600);
  (void)i;
  return fd < 0 || close(fd) != 0;
}
static int call_opendir(int i) {
  DIR *listing = opendir(directory);
  (void)i;
  return listing == NULL || closedir(listing) != 0;
}
static int call_above(int i) {
  int fd = open(from_above, O_RDONLY);
  (void)i;
  return fd < 0 || close(fd) != 0;
}
static int call_above_dirfd(int i) {
  int fd = openat(above_fd, from_above, O_RDONLY);
  (void)i;
  return fd < 0 || close(fd) != 0;
}
static int call_unlink(int i) { return unlink(names[i]); }
static int call_rename(int i) { return rename(names[i], names[i + 1]); }
static int call_ask_entry(int i) {
  struct stat st;
  (void)i;
  return (int)syscall(SYS_newfstatat, AT_FDCWD, directory, &st, 0);
}
static int call_ask_descriptor(int i) {
  struct statx st;
  (void)i;
  return (int)syscall(SYS_statx, above_fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st);
}

enum { kNoFile, kOneFile, kAllFiles };  /* of `names`, made before each round */
static const struct {
  const char *kind;
  int (*call)(int);
  int files;
} calls[] = {{"stat", call_stat, kNoFile},           {"access", call_access, kNoFile},       {"fopen", call_fopen, kNoFile},
             {"write", call_write, kNoFile},         {"opendir", call_opendir, kNoFile},     {"above", call_above, kNoFile},
             {"above-dirfd", call_above_dirfd, kNoFile}, {"unlink", call_unlink, kAllFiles}, {"rename", call_rename, kOneFile},
             {"ask-entry", call_ask_entry, kNoFile}, {"ask-descriptor", call_ask_descriptor, kNoFile}};

static int make_files(int how_many) {
  for (int i = 0; i < how_many; ++i) {
    int fd = open(names[i], O_WRONLY | O_CREAT, 0600);
    if (fd < 0 || close(fd) != 0) return 1;
  }
  return 0;
}

/* One round is as long as there are names; where nothing is made before, as many rounds more. */
static int time_calls(int (*call)(int), int files) {
  enum { kCalls = sizeof names / sizeof *names - 1 };
  double best = 1e9;
  for (int round = 0; round < (files == kNoFile ? 300 : 100); ++round) {
    if (files != kNoFile && make_files(files == kOneFile ? 1 : kCalls) != 0) return 1;
    double begin = now();
    for (int i = 0; i < kCalls; ++i) {
      if (call(i) != 0) return 1;
    }
    double ns = (now() - begin) * 1e9 / kCalls;
    if (ns < best) best = ns;
    if (files == kOneFile && unlink(names[kCalls]) != 0) return 1;
  }
  printf("%.2f\n", best);
  return 0;
}

static int named(char **argv) {
  static char path[4096], above[4096];
  directory = argv[3];
  snprintf(path, sizeof path, "%s/outside", directory);
  outside_path = path;
  for (int i = 0; i < (int)(sizeof names / sizeof *names); ++i) snprintf(names[i], sizeof names[i], "%s/made-%d", directory, i);
  snprintf(above, sizeof above, "%s", directory);
  for (int up = 0; up < 2; ++up) {
    char *slash = strrchr(above, '/');
    if (slash == NULL || slash == above) return 1;
    *slash = 0;
  }
  from_above = path + strlen(above) + 1;
  above_fd = open(above, O_RDONLY | O_DIRECTORY);
  if (above_fd < 0 || chdir(above) != 0) return 1;
  for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i) {
    if (strcmp(argv[2], calls[i].kind) == 0) return time_calls(calls[i].call, calls[i].files);
  }
  return 64;
}

int main(int argc, char **argv) {
  if (argc == 5 && strcmp(argv[1], "files") == 0) return files(argv);
  if (argc == 4 && strcmp(argv[1], "map") == 0) return map(argv);
  if (argc == 4 && strcmp(argv[1], "mapped") == 0) return mapped(argv);
  if (argc == 4 && strcmp(argv[1], "outside") == 0) return outside(argv);
  if (argc == 4 && strcmp(argv[1], "foreign") == 0) return foreign(argv);
  if (argc == 4 && strcmp(argv[1], "named") == 0) return named(argv);
  return 64;
}
