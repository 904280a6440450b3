/* A hooking library is loaded when the preload library has long started: it is named behind this
 * one, so its start comes first. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void load(void) {
  if (dlopen(getenv("HOOKS"), RTLD_NOW | RTLD_GLOBAL) == NULL) puts(dlerror());
}
