/* Exported names that no program of this folder has the linker look up: found by name, each does what libc's does. (exports_test.py: there is no name without a call.)
 * usage: exports FILE DIRECTORY [check...]: 100,000 bytes of 32-bit numbers, beside it FILE.words; a directory of 20 names */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

#include "tests/preload/check.h"
#include "tests/preload/lookup.h"

static const char *path, *directory;

#define FUNCTION(name, result, ...) result (*const name)(__VA_ARGS__) = (result(*)(__VA_ARGS__))look_up(#name)
#define NAMED(name, suffix)  \
  char name[4096];           \
  snprintf(name, sizeof name, "%s." suffix, path)

static int check_listed(void) {
  FUNCTION(fdopendir, DIR *, int);
  DIR *all = fdopendir(open(directory, O_RDONLY | O_DIRECTORY));
  int names = 0;
  CHECK(all != NULL);
  while (readdir(all) != NULL) ++names;
  CHECK(names == 22);
  return closedir(all);
}

static int check_named(void) { /* converts one */
  FUNCTION(link, int, const char *, const char *);
  FUNCTION(utimensat, int, int, const char *, const struct timespec *, int);
  FUNCTION(__readlink_chk, ssize_t, const char *, char *, size_t, size_t);
  FUNCTION(__readlinkat_chk, ssize_t, int, const char *, char *, size_t, size_t);
  FUNCTION(__realpath_chk, char *, const char *, char *, size_t);
  FUNCTION(lockf, int, int, int, off_t);
  FUNCTION(open_by_handle_at, int, int, struct file_handle *, int);
  FUNCTION(__xmknod, int, int, const char *, mode_t, dev_t *);
  FUNCTION(__xmknodat, int, int, int, const char *, mode_t, dev_t *);
  NAMED(other, "other");
  NAMED(text, "text");
  char buffer[4096];
  struct stat st;
  const struct timespec times[2] = {{5, 6}, {7, 8}};
  unlink(other), unlink(text);
  int fd = open(path, O_RDONLY);
  CHECK(lockf(fd, F_TEST, 0) == 0 && close(fd) == 0);
  CHECK(stat(path, &st) == 0 && st.st_nlink == 1 && link(path, other) == 0 && stat(path, &st) == 0 && st.st_nlink == 2);
  CHECK(unlink(other) == 0 && stat(path, &st) == 0 && st.st_nlink == 1);
  CHECK(utimensat(AT_FDCWD, path, times, 0) == 0 && stat(path, &st) == 0 && st.st_mtim.tv_sec == 7 && st.st_mtim.tv_nsec == 8);
  dev_t none = 0;
  CHECK(__xmknod(0, other, S_IFIFO | 0600, &none) == 0 && stat(other, &st) == 0 && S_ISFIFO(st.st_mode) && unlink(other) == 0);
  CHECK(__xmknodat(0, AT_FDCWD, other, S_IFIFO | 0600, &none) == 0 && stat(other, &st) == 0 && S_ISFIFO(st.st_mode) && unlink(other) == 0);
  CHECK(symlink("text", text) == 0 && __readlink_chk(text, buffer, 100, sizeof buffer) == 4 && memcmp(buffer, "text", 4) == 0);
  CHECK(__readlinkat_chk(AT_FDCWD, text, buffer, 2, sizeof buffer) == 2 && unlink(text) == 0);
  CHECK(__realpath_chk(path, buffer, sizeof buffer) == buffer && strcmp(strrchr(buffer, '/'), strrchr(path, '/')) == 0);
  union {
    struct file_handle head;
    char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
  } handle = {.head = {.handle_bytes = MAX_HANDLE_SZ}};
  int mount;
  if (name_to_handle_at(AT_FDCWD, path, &handle.head, &mount, 0) != 0) return 0; /* not on this file system */
  mount = open(directory, O_RDONLY);
  uint32_t number = 1;
  fd = open_by_handle_at(mount, &handle.head, O_RDONLY);
  CHECK((fd == -1 && errno == EPERM) || (read(fd, &number, 4) == 4 && number == 0 && close(fd) == 0));
  return close(mount);
}

static int scan(int (*how)(FILE *, const wchar_t *, va_list), FILE *stream, const wchar_t *format, ...) {
  va_list list;
  va_start(list, format);
  int count = how(stream, format, list);
  va_end(list);
  return count;
}
static int check_wide(void) { /* converts five */
  typedef int Scan(FILE *, const wchar_t *, va_list);
  FUNCTION(fwscanf, int, FILE *, const wchar_t *, ...);
  FUNCTION(__fgetws_chk, wchar_t *, wchar_t *, size_t, int, FILE *);
  FUNCTION(__fgetws_unlocked_chk, wchar_t *, wchar_t *, size_t, int, FILE *);
  Scan *const scans[] = {(Scan *)look_up("vfwscanf"), (Scan *)look_up("__isoc99_vfwscanf")};
  NAMED(words, "words");
  wchar_t line[20];
  int one, two;
  for (int i = 0; i < 2; ++i) {
    FILE *f = fopen(words, "r");
    one = two = 0;
    CHECK(f != NULL && scan(scans[i], f, L"%d %d", &one, &two) == 2 && one == 12 && two == 34 && fclose(f) == 0);
  }
  FILE *f = fopen(words, "r");
  CHECK(f != NULL && fwscanf(f, L"%d", &one) == 1 && one == 12 && fclose(f) == 0);
  CHECK((f = fopen(words, "r")) != NULL && __fgetws_chk(line, 20, 20, f) == line && wcscmp(line, L"12 34\n") == 0 && fclose(f) == 0);
  CHECK((f = fopen(words, "r")) != NULL && __fgetws_unlocked_chk(line, 20, 20, f) == line && wcscmp(line, L"12 34\n") == 0 && fclose(f) == 0);
  return 0;
}

static int check_received(void) {
  FUNCTION(__recv_chk, ssize_t, int, void *, size_t, size_t, int);
  FUNCTION(__recvfrom_chk, ssize_t, int, void *, size_t, size_t, int, void *, void *);
  char text[4];
  int ends[2], fd = open(path, O_RDONLY);
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && send(ends[0], "ab", 2, 0) == 2);
  CHECK(__recv_chk(ends[1], text, 1, sizeof text, 0) == 1 && text[0] == 'a' && __recvfrom_chk(ends[1], text, 1, sizeof text, 0, NULL, NULL) == 1 && text[0] == 'b');
  CHECK(__recv_chk(fd, text, 1, sizeof text, 0) == -1 && errno == ENOTSOCK && __recvfrom_chk(fd, text, 1, sizeof text, 0, NULL, NULL) == -1 && errno == ENOTSOCK);
  return close(ends[0]) | close(ends[1]) | close(fd);
}

/* Which libc 2.38 and later has. */
static int check_wide_c23(void) { /* converts two, if there are such names */
  int major = 0, minor = 0, one = 0;
  NAMED(words, "words");
  if (sscanf(gnu_get_libc_version(), "%d.%d", &major, &minor) == 2 && major == 2 && minor < 38) return 0;
  FUNCTION(__isoc23_fwscanf, int, FILE *, const wchar_t *, ...);
  FUNCTION(__isoc23_vfwscanf, int, FILE *, const wchar_t *, va_list);
  FILE *f = fopen(words, "r");
  CHECK(f != NULL && __isoc23_fwscanf(f, L"%i", &one) == 1 && one == 12 && fclose(f) == 0);
  CHECK((f = fopen(words, "r")) != NULL && scan(__isoc23_vfwscanf, f, L"%i", &one) == 1 && one == 12 && fclose(f) == 0);
  return 0;
}

static int check_loaded(void) {
  FUNCTION(dlmopen, void *, Lmid_t, const char *, int);
  CHECK(dlmopen(LM_ID_BASE, "libm.so.6", RTLD_NOW) != NULL);
  return 0;
}

/* In a child each: once a ring, or another view of the file system, is there, nothing is as before. What was open is read on. */
static int in_child(int (*call)(const char *), const char *name) {
  int status;
  pid_t child = fork();
  if (child == 0) {
    uint32_t number = 0;
    int fd = open(path, O_RDONLY);
    _exit(read(fd, &number, 4) != 4 || call(name) != 0 || read(fd, &number, 4) != 4 || number != 1 || close(fd) != 0);
  }
  return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
static int enters(const char *name) {
  int (*const enter)(long, void *, void *, void *, size_t) = (int (*)(long, void *, void *, void *, size_t))look_up(name);
  return enter != NULL && enter(0, NULL, NULL, NULL, 0) >= 0; /* of none: an error */
}
static int check_entered(void) { /* converts one each */
  static const char *const kNames[] = {"io_uring_queue_init_params", "io_uring_queue_init_mem", "io_uring_setup", "io_setup", "io_queue_init"};
  for (int i = 0; i < 5; ++i) CHECK(in_child(enters, kNames[i]) == 0);
  return 0;
}

static int views(const char *name) {
  if (name[0] == 'm') {
    FUNCTION(mount, int, const char *, const char *, const char *, unsigned long, const void *);
    CHECK(mount("none", "/none/at/all", "tmpfs", 0, NULL) == -1 && (errno == ENOENT || errno == EPERM));
  } else if (name[0] == 'p') {
    FUNCTION(pivot_root, int, const char *, const char *);
    CHECK(pivot_root("/none/at/all", "/none/at/all/old") == -1 && (errno == ENOENT || errno == EPERM));
  } else if (name[0] == 'c') {
    FUNCTION(move_mount, int, int, const char *, int, const char *, unsigned);
    FUNCTION(mount_setattr, int, int, const char *, unsigned, void *, size_t);
    CHECK(move_mount == NULL || (move_mount(-1, "none", -1, "none", 0) == -1 && (errno == EBADF || errno == EPERM)));
    CHECK(mount_setattr == NULL || (mount_setattr(-1, "none", 0, NULL, 0) == -1 && (errno == EINVAL || errno == EPERM)));
  } else if (name[0] == 't') {
    FUNCTION(umount, int, const char *);
    FUNCTION(umount2, int, const char *, int);
    CHECK(umount("/none/at/all") == -1 && (errno == ENOENT || errno == EPERM) && umount2("/none/at/all", 0) == -1 && (errno == ENOENT || errno == EPERM));
  } else if (name[0] == 's') {
    FUNCTION(setns, int, int, int);
    CHECK(setns(-1, 0) == -1 && errno == EBADF);
  } else {
    FUNCTION(unshare, int, int);
    CHECK(unshare(CLONE_FS) == 0);
  }
  return 0;
}
static int check_viewed(void) { /* converts five */
  CHECK(in_child(views, "mount") == 0 && in_child(views, "changed mounts") == 0 && in_child(views, "taken mounts") == 0 && in_child(views, "pivot_root") == 0 && in_child(views, "setns") == 0 && in_child(views, "unshare") == 0);
  return 0;
}

int main(int argc, char **argv) {
  static const struct check checks[] = {{"listed", check_listed}, {"named", check_named}, {"wide", check_wide}, {"wide_c23", check_wide_c23}, {"received", check_received}, {"loaded", check_loaded}, {"entered", check_entered}, {"viewed", check_viewed}};
  if (argc < 3) return 64;
  path = argv[1], directory = argv[2];
  return RUN_CHECKS(checks, argc, argv, 3);
}
