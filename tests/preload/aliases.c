/* The names that programs call one function by: with 64-bit offsets, fortified, of older versions of libc, looked up at run time. Each does what the plain one does, and converts
 * nothing. The file holds 32-bit numbers, one after the other.
 * usage: aliases FILE DIRECTORY */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/preload/check.h"
#include "tests/preload/lookup.h"

static const char *path, *directory;
enum { kBytes = 100000 };

static int called;
static void *find(const char *name) {
  void *found = look_up(name);
  called += found != NULL;
  return found;
}

static int has_word(const void *buffer, uint32_t wanted) {
  uint32_t word;
  memcpy(&word, buffer, 4);
  return word == wanted;
}
static int is_ours(int fd) {
  uint32_t word;
  return fd >= 0 && pread(fd, &word, 4, 40) == 4 && word == 10 && close(fd) == 0;
}

static int check_open(void) {
  static const char *const kPaths[] = {"open", "open64", "__open_2", "__open64_2"}, *const kAt[] = {"openat", "openat64", "__openat_2", "__openat64_2"};
  for (int i = 0; i < 4; ++i) {
    int (*open_path)(const char *, int) = (int (*)(const char *, int))find(kPaths[i]);
    int (*open_at)(int, const char *, int) = (int (*)(int, const char *, int))find(kAt[i]);
    CHECK(open_path == NULL || is_ours(open_path(path, O_RDONLY)));
    CHECK(open_at == NULL || is_ours(open_at(AT_FDCWD, path, O_RDONLY | O_CLOEXEC)));
  }
  struct {
    uint64_t flags, mode, resolve;
  } how = {O_RDONLY, 0, 0};
  long (*open_how)(int, const char *, void *, size_t) = (long (*)(int, const char *, void *, size_t))find("openat2");
  CHECK(open_how == NULL || is_ours((int)open_how(AT_FDCWD, path, &how, sizeof how)));
  for (int i = 0; i < 2; ++i) {
    FILE *(*open_stream)(const char *, const char *) = (FILE * (*)(const char *, const char *)) find(i == 0 ? "fopen" : "fopen64");
    char word[4];
    FILE *stream = open_stream(path, "r");
    CHECK(stream != NULL && fread(word, 1, 4, stream) == 4 && has_word(word, 0) && fclose(stream) == 0);
  }
  return 0;
}

static int check_temporary(void) {
  FILE *(*temporary)(void) = (FILE * (*)(void)) find("tmpfile64");
  FILE *stream = temporary();
  CHECK(stream != NULL && fputs("x", stream) >= 0 && fclose(stream) == 0);
  return 0;
}

static int check_read(void) {
  char buffer[64];
  struct iovec part = {buffer, 8};
  int fd = open(path, O_RDONLY);
  ssize_t (*read_it)(int, void *, size_t) = (ssize_t (*)(int, void *, size_t))find("read");
  ssize_t (*read_checked)(int, void *, size_t, size_t) = (ssize_t (*)(int, void *, size_t, size_t))find("__read_chk");
  ssize_t (*read_parts)(int, const struct iovec *, int) = (ssize_t (*)(int, const struct iovec *, int))find("readv");
  CHECK(read_it(fd, buffer, 8) == 8 && has_word(buffer, 0) && read_checked(fd, buffer, 8, sizeof buffer) == 8 && has_word(buffer, 2));
  CHECK(read_parts(fd, &part, 1) == 8 && has_word(buffer, 4));
  for (int i = 0; i < 2; ++i) {
    ssize_t (*at)(int, void *, size_t, off64_t) = (ssize_t (*)(int, void *, size_t, off64_t))find(i == 0 ? "pread" : "pread64");
    ssize_t (*checked_at)(int, void *, size_t, off64_t, size_t) = (ssize_t (*)(int, void *, size_t, off64_t, size_t))find(i == 0 ? "__pread_chk" : "__pread64_chk");
    ssize_t (*parts_at)(int, const struct iovec *, int, off64_t) = (ssize_t (*)(int, const struct iovec *, int, off64_t))find(i == 0 ? "preadv" : "preadv64");
    ssize_t (*parts_with)(int, const struct iovec *, int, off64_t, int) = (ssize_t (*)(int, const struct iovec *, int, off64_t, int))find(i == 0 ? "preadv2" : "preadv64v2");
    CHECK(at(fd, buffer, 8, 80) == 8 && has_word(buffer, 20) && checked_at(fd, buffer, 8, 120, sizeof buffer) == 8 && has_word(buffer, 30));
    CHECK(parts_at(fd, &part, 1, 160) == 8 && has_word(buffer, 40) && parts_with(fd, &part, 1, 200, 0) == 8 && has_word(buffer, 50));
    off64_t (*seek)(int, off64_t, int) = (off64_t(*)(int, off64_t, int))find(i == 0 ? "lseek" : "lseek64");
    CHECK(seek(fd, 0, SEEK_CUR) == 24 && seek(fd, -4, SEEK_END) == kBytes - 4 && seek(fd, 24, SEEK_SET) == 24);
    void *(*map)(void *, size_t, int, int, int, off64_t) = (void *(*)(void *, size_t, int, int, int, off64_t))find(i == 0 ? "mmap" : "mmap64");
    char *mapped = map(NULL, kBytes, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(mapped != MAP_FAILED && has_word(mapped + 4000, 1000) && munmap(mapped, kBytes) == 0);
    int (*advise)(int, off64_t, off64_t, int) = (int (*)(int, off64_t, off64_t, int))find(i == 0 ? "posix_fadvise" : "posix_fadvise64");
    CHECK(advise(fd, 0, 0, POSIX_FADV_SEQUENTIAL) == 0);
    int (*control)(int, int, ...) = (int (*)(int, int, ...))find(i == 0 ? "fcntl" : "fcntl64");
    int copy = control(fd, F_DUPFD_CLOEXEC, 3);
    CHECK(control(fd, F_GETFD) == 0 && control(fd, F_SETFD, FD_CLOEXEC) == 0 && control(fd, F_GETFD) == FD_CLOEXEC && control(fd, F_SETFD, 0) == 0 && is_ours(copy));
  }
  off64_t (*seek)(int, off64_t, int) = (off64_t(*)(int, off64_t, int))find("llseek");
  CHECK(seek == NULL || seek(fd, 0, SEEK_CUR) == 24);
  return close(fd);
}

static int is_file(int result, const struct stat *st) { return result == 0 && st->st_size == kBytes && S_ISREG(st->st_mode) && st->st_ino != 0; }

static int check_stat(void) {
  static const char *const kOfPath[] = {"stat", "stat64", "lstat", "lstat64"}, *const kOld[] = {"__xstat", "__xstat64", "__lxstat", "__lxstat64"};
  struct stat st;
  int fd = open(path, O_RDONLY);
  for (int i = 0; i < 4; ++i) {
    int (*of_path)(const char *, struct stat *) = (int (*)(const char *, struct stat *))find(kOfPath[i]);
    int (*old)(int, const char *, struct stat *) = (int (*)(int, const char *, struct stat *))find(kOld[i]);
    CHECK(of_path == NULL || is_file(of_path(path, &st), &st));
    CHECK(old == NULL || is_file(old(1, path, &st), &st));
  }
  for (int i = 0; i < 2; ++i) {
    int (*of)(int, struct stat *) = (int (*)(int, struct stat *))find(i == 0 ? "fstat" : "fstat64");
    int (*old_of)(int, int, struct stat *) = (int (*)(int, int, struct stat *))find(i == 0 ? "__fxstat" : "__fxstat64");
    int (*at)(int, const char *, struct stat *, int) = (int (*)(int, const char *, struct stat *, int))find(i == 0 ? "fstatat" : "fstatat64");
    int (*old_at)(int, int, const char *, struct stat *, int) = (int (*)(int, int, const char *, struct stat *, int))find(i == 0 ? "__fxstatat" : "__fxstatat64");
    CHECK(of == NULL || is_file(of(fd, &st), &st));
    CHECK(old_of == NULL || is_file(old_of(1, fd, &st), &st));
    CHECK(at == NULL || (is_file(at(fd, "", &st, AT_EMPTY_PATH), &st) && is_file(at(AT_FDCWD, path, &st, 0), &st)));
    CHECK(old_at == NULL || (is_file(old_at(1, fd, "", &st, AT_EMPTY_PATH), &st) && is_file(old_at(1, AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW), &st)));
  }
  static const char *const kAccess[] = {"access", "euidaccess", "eaccess"};
  for (int i = 0; i < 3; ++i) {
    int (*may)(const char *, int) = (int (*)(const char *, int))find(kAccess[i]);
    CHECK(may(path, R_OK) == 0);
  }
  int (*may_at)(int, const char *, int, int) = (int (*)(int, const char *, int, int))find("faccessat");
  CHECK(may_at(AT_FDCWD, path, R_OK, 0) == 0);
  return close(fd);
}

static int check_list(void) {
  for (int i = 0; i < 2; ++i) {
    struct dirent64 *(*next)(DIR *) = (struct dirent64 * (*)(DIR *)) find(i == 0 ? "readdir" : "readdir64");
    int (*next_into)(DIR *, struct dirent64 *, struct dirent64 **) = (int (*)(DIR *, struct dirent64 *, struct dirent64 **))find(i == 0 ? "readdir_r" : "readdir64_r");
    int (*scan)(const char *, struct dirent64 ***, void *, void *) = (int (*)(const char *, struct dirent64 ***, void *, void *))find(i == 0 ? "scandir" : "scandir64");
    struct dirent64 **list, entry, *found;
    int names = 0, count = scan(directory, &list, NULL, NULL);
    DIR *open_one = opendir(directory);
    while ((names % 2 == 0 ? (found = next(open_one)) : (next_into(open_one, &entry, &found), found)) != NULL) ++names;
    CHECK(count == names && names > 2 && closedir(open_one) == 0);
    for (int k = 0; k < count; ++k) free(list[k]);
    free(list);
  }
  return 0;
}

int main(int argc, char **argv) {
  static const struct check checks[] = {{"open", check_open}, {"read", check_read}, {"stat", check_stat}, {"list", check_list}, {"temporary", check_temporary}};
  if (argc < 3) return 64;
  path = argv[1], directory = argv[2];
  int failed = RUN_CHECKS(checks, argc, argv, 3);
  printf("%d names\n", called);
  return failed;
}
