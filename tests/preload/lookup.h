/* Functions by their names, as the dynamic linker finds them for a program that calls them. */
#pragma once

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Null where this libc has none by that name. Under the library it must be the library's, or the program ends. */
static void *look_up(const char *name) {
  void *const found = dlsym(RTLD_DEFAULT, name);
  const char *const preloads = getenv("LD_PRELOAD");
  Dl_info info;
  if (preloads == NULL || strstr(preloads, "libtier_preload") == NULL) return found;
  if (found == NULL || dladdr(found, &info) == 0 || strstr(info.dli_fname, "libtier_preload") == NULL) {
    printf("%s is not the library's\n", name);
    exit(1);
  }
  return found;
}
