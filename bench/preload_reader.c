/* What an unmodified C program does; run bare and under the preload library by bench/preload.cc. Prints one number.
 *   files LIST EPOCHS FORKED   open+fstat+read+close of every file in LIST, in a new order each epoch: files per second. FORKED 1: a child per epoch, as DataLoader
 *                              workers are; 0: after one pass that is not timed.
 *   map FILE TIMES             open, mmap, sum of all 64-bit words, munmap, close: bytes per second, after one time that is not counted
 *   mapped FILE TIMES          the sum alone, of what is mapped and was looked at before */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

int main(int argc, char **argv) {
  if (argc == 5 && strcmp(argv[1], "files") == 0) return files(argv);
  if (argc == 4 && strcmp(argv[1], "map") == 0) return map(argv);
  if (argc == 4 && strcmp(argv[1], "mapped") == 0) return mapped(argv);
  return 64;
}
