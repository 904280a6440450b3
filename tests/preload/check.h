/* What the programs of this folder share: CHECK says where and ends the check with 1; RUN_CHECKS runs those named on the command line, or all. */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      printf("%s:%d: %s (errno %d)\n", __func__, __LINE__, #condition, errno);       \
      return 1;                                                                      \
    }                                                                                \
  } while (0)

struct check {
  const char *name;
  int (*run)(void);
};

static int run_checks(const struct check *checks, size_t count, int argc, char **argv, int first) {
  int failed = 0;
  for (size_t i = 0; i < count; ++i) {
    int wanted = argc == first;
    for (int a = first; a < argc; ++a) wanted |= strcmp(argv[a], checks[i].name) == 0;
    if (!wanted) continue;
    int bad = checks[i].run();
    printf("%s %s\n", checks[i].name, bad ? "FAILED" : "ok");
    fflush(stdout);
    failed |= bad;
  }
  return failed;
}
#define RUN_CHECKS(checks, argc, argv, first) run_checks(checks, sizeof checks / sizeof *checks, argc, argv, first)
