/* What any library in front of libc adds to a call: this one only passes open, openat and close on. B5 gives it beside what libtier_preload.so adds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>

#define EXPORT __attribute__((visibility("default")))

static int (*next_open)(const char *, int, ...);
static int (*next_openat)(int, const char *, int, ...);
static int (*next_close)(int);

__attribute__((constructor)) static void resolve(void) {
  next_open = dlsym(RTLD_NEXT, "open");
  next_openat = dlsym(RTLD_NEXT, "openat");
  next_close = dlsym(RTLD_NEXT, "close");
}

/* Not as the last thing that a wrapper does: who only jumps on does not get the result to look at, as a cache must. */
static inline int seen(int result) {
  __asm__ volatile("" : "+r"(result));
  return result;
}

#define MODE_OF(flags)        \
  va_list arguments;          \
  va_start(arguments, flags); \
  unsigned mode = va_arg(arguments, unsigned); \
  va_end(arguments)

EXPORT int open(const char *path, int flags, ...) {
  MODE_OF(flags);
  return seen(next_open(path, flags, mode));
}
EXPORT int open64(const char *path, int flags, ...) {
  MODE_OF(flags);
  return seen(next_open(path, flags, mode));
}
EXPORT int openat(int directory, const char *path, int flags, ...) {
  MODE_OF(flags);
  return seen(next_openat(directory, path, flags, mode));
}
EXPORT int openat64(int directory, const char *path, int flags, ...) {
  MODE_OF(flags);
  return seen(next_openat(directory, path, flags, mode));
}
EXPORT int close(int fd) { return seen(next_close(fd)); }
