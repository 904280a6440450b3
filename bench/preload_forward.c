/* What any library in front of libc adds to a call: this one only passes some on. B5 gives it beside what libtier_preload.so adds. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>

struct stat;

#define EXPORT __attribute__((visibility("default")))

static int (*next_open)(const char *, int, ...);
static int (*next_openat)(int, const char *, int, ...);
static int (*next_close)(int);
static int (*next_stat)(const char *, struct stat *);
static int (*next_access)(const char *, int);
static int (*next_unlink)(const char *);
static int (*next_rename)(const char *, const char *);
static FILE *(*next_fopen)(const char *, const char *);
static int (*next_fclose)(FILE *);
static DIR *(*next_opendir)(const char *);
static int (*next_closedir)(DIR *);

__attribute__((constructor)) static void resolve(void) {
  next_open = dlsym(RTLD_NEXT, "open");
  next_openat = dlsym(RTLD_NEXT, "openat");
  next_close = dlsym(RTLD_NEXT, "close");
  next_stat = dlsym(RTLD_NEXT, "stat");
  next_access = dlsym(RTLD_NEXT, "access");
  next_unlink = dlsym(RTLD_NEXT, "unlink");
  next_rename = dlsym(RTLD_NEXT, "rename");
  next_fopen = dlsym(RTLD_NEXT, "fopen");
  next_fclose = dlsym(RTLD_NEXT, "fclose");
  next_opendir = dlsym(RTLD_NEXT, "opendir");
  next_closedir = dlsym(RTLD_NEXT, "closedir");
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
EXPORT int stat(const char *path, struct stat *st) { return seen(next_stat(path, st)); }
EXPORT int access(const char *path, int mode) { return seen(next_access(path, mode)); }
EXPORT int unlink(const char *path) { return seen(next_unlink(path)); }
EXPORT int rename(const char *from, const char *to) { return seen(next_rename(from, to)); }
EXPORT FILE *fopen(const char *path, const char *mode) {
  FILE *stream = next_fopen(path, mode);
  __asm__ volatile("" : "+r"(stream));
  return stream;
}
EXPORT int fclose(FILE *stream) { return seen(next_fclose(stream)); }
EXPORT DIR *opendir(const char *path) {
  DIR *directory = next_opendir(path);
  __asm__ volatile("" : "+r"(directory));
  return directory;
}
EXPORT int closedir(DIR *directory) { return seen(next_closedir(directory)); }
