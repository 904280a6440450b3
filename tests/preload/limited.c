/* A process that limits the size of the files it writes reads on, and no signal comes that would not come bare. usage: limited FILE [check...]: 100,000 bytes of 32-bit numbers,
 * beside it FILE.large of 4 MiB and 128 bytes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/preload/check.h"

static const char *path;
static const long kBytes = 100000, kLargeBytes = (4 << 20) + 128;

/* The hard limit stays: what is printed needs room. */
static int limit(rlim_t bytes) {
  struct rlimit now;
  if (getrlimit(RLIMIT_FSIZE, &now) != 0) return 1;
  now.rlim_cur = bytes < now.rlim_max ? bytes : now.rlim_max;
  return setrlimit(RLIMIT_FSIZE, &now);
}

static int shows(const char *name, long bytes, int sharing) {
  int fd = open(name, O_RDONLY | O_CLOEXEC);
  const uint32_t *numbers = mmap(NULL, bytes, PROT_READ, sharing, fd, 0);
  CHECK(numbers != MAP_FAILED);
  for (long i = 0; i < bytes / 4; ++i) CHECK((numbers[i] & 0xffffff) == i);
  CHECK(munmap((void *)numbers, bytes) == 0);
  return close(fd);
}
static int shows_under(rlim_t bytes) {
  char large[4096];
  snprintf(large, sizeof large, "%s.large", path);
  CHECK(limit(bytes) == 0);
  int failed = shows(path, kBytes, MAP_SHARED) | shows(path, kBytes, MAP_PRIVATE) | shows(large, kLargeBytes, MAP_SHARED);
  CHECK(limit(RLIM_INFINITY) == 0);
  return failed;
}
static int check_none(void) { return shows_under(0); }          /* all three are the source's */
static int check_some(void) { return shows_under(1024); }       /* the last page of the large one fits */
static int check_enough(void) { return shows_under(kBytes); }

/* What a fork leaves to both, and where it has come to. */
static int forks(rlim_t bytes) {
  uint32_t number;
  int status, fd = open(path, O_RDONLY | O_CLOEXEC);
  CHECK(read(fd, &number, 4) == 4 && limit(bytes) == 0);
  pid_t child = fork();
  if (child == 0) _exit(read(fd, &number, 4) != 4 || number != 1);
  CHECK(limit(RLIM_INFINITY) == 0 && waitpid(child, &status, 0) == child && status == 0);
  CHECK(read(fd, &number, 4) == 4 && number == 2);
  return close(fd);
}
static int check_forked(void) { return forks(65536); }
static int check_forked_enough(void) { return forks(kBytes); }

/* The report of this process does not fit; what is said here has been by then. */
static rlim_t at_the_end;
static void limit_the_rest(void) { limit(at_the_end); }
static int ends_under(rlim_t bytes) {
  at_the_end = bytes;
  char byte;
  int fd = open(path, O_RDONLY);
  CHECK(read(fd, &byte, 1) == 1 && close(fd) == 0);
  return atexit(limit_the_rest);
}
static int check_ends(void) { return ends_under(0); }
static int check_ends_near(void) { return ends_under(200); }
static int check_ends_enough(void) { return ends_under(1 << 20); }

int main(int argc, char **argv) {
  static const struct check checks[] = {{"none", check_none}, {"some", check_some}, {"enough", check_enough}, {"forked", check_forked}, {"forked_enough", check_forked_enough},
                                        {"ends", check_ends}, {"ends_near", check_ends_near}, {"ends_enough", check_ends_enough}};
  if (argc < 2) return 64;
  path = argv[1];
  return RUN_CHECKS(checks, argc, argv, 2);
}
