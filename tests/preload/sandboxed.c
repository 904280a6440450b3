/* Processes that shut themselves in. What they are refused from then on they are refused under the library, too, and what they have open stays open.
 * usage: sandboxed FILE WAY: 100,000 bytes of 32-bit numbers; a way of the table below. Ends with 77 where the kernel has no such thing. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/preload/check.h"

enum { SKIPPED = 77 };
static const char *path;

static int reads(int fd, uint32_t wanted) {
  uint32_t number = ~wanted;
  return read(fd, &number, 4) == 4 && number == wanted;
}

/* Without a right to read any file, or any directory. */
static int by_landlock(void) {
  char in[4096];
  const struct landlock_ruleset_attr attributes = {.handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR};
  snprintf(in, sizeof in, "%.*s", (int)(strrchr(path, '/') - path), path);
  int fd = open(path, O_RDONLY), rules = (int)syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0);
  if (rules < 0) return SKIPPED;
  CHECK(reads(fd, 0) && syscall(SYS_landlock_restrict_self, -1, 0) == -1); /* nothing has changed */
  int again = open(path, O_RDONLY);
  CHECK(reads(again, 0) && close(again) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(SYS_landlock_restrict_self, rules, 0) == 0);
  CHECK(open(path, O_RDONLY) == -1 && errno == EACCES && fopen(path, "r") == NULL && errno == EACCES && opendir(in) == NULL && errno == EACCES);
  CHECK(reads(fd, 1) && close(fd) == 0 && close(rules) == 0);
  return 0;
}

int main(int argc, char **argv) {
  static const struct check ways[] = {{"landlock", by_landlock}};
  if (argc != 3) return 64;
  path = argv[1];
  for (size_t i = 0; i < sizeof ways / sizeof *ways; ++i) {
    if (strcmp(argv[2], ways[i].name) == 0) return ways[i].run();
  }
  return 64;
}
