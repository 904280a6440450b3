/* Descriptors that a fork has made copies in memory: what is not their bytes is the file's.
 * usage: copied PROGRAM [check...]: PROGRAM.CHECK, for each check, is a program that exits with 0, and was not written to of late */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/preload/check.h"

extern char **environ;
static const char *program, *self;
static char path[4096], other[4096];

static int ends_well(pid_t child) {
  int status = -1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}
/* At its fourth byte. */
static int open_and_fork(const char *check) {
  char bytes[4];
  snprintf(path, sizeof path, "%s.%s", program, check);
  snprintf(other, sizeof other, "%s.other", path);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || read(fd, bytes, 4) != 4) return -1;
  pid_t child = fork();
  if (child == 0) _exit(0);
  return ends_well(child) ? fd : -1;
}
static const char *name_of(int fd) {
  static char name[40];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  return name;
}

static int check_mode(void) {
  struct stat named, st;
  int fd = open_and_fork("mode");
  CHECK(fd >= 0 && fchmod(fd, 0710) == 0);
  CHECK(stat(path, &named) == 0 && (named.st_mode & 07777) == 0710 && fstat(fd, &st) == 0 && st.st_mode == named.st_mode);
  CHECK(lseek(fd, 0, SEEK_CUR) == 4 && (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  return close(fd);
}
static int check_times(void) {
  static const struct timespec times[2] = {{5, 0}, {1500000006, 7}};
  struct stat named, st;
  int fd = open_and_fork("times");
  CHECK(fd >= 0 && futimens(fd, times) == 0);
  CHECK(stat(path, &named) == 0 && named.st_mtim.tv_sec == times[1].tv_sec && named.st_mtim.tv_nsec == 7 && fstat(fd, &st) == 0 && st.st_mtim.tv_nsec == 7);
  return close(fd);
}
static int check_owner(void) {
  struct stat st;
  int fd = open_and_fork("owner");
  const uid_t owner = geteuid() == 0 ? 1234 : geteuid();
  CHECK(fd >= 0 && fchown(fd, owner, (gid_t)-1) == 0 && stat(path, &st) == 0 && st.st_uid == owner);
  return close(fd);
}
static int check_attribute(void) {
  char value[4] = "";
  int fd = open_and_fork("attribute");
  CHECK(fd >= 0);
  const int set = fsetxattr(fd, "user.tierd", "new", 3, 0), error = errno;
  CHECK(getxattr(path, "user.tierd", value, 3) == (set == 0 ? 3 : -1) && (set == 0 || error == ENOTSUP));
  return close(fd);
}
static int check_file_system(void) {
  struct statfs named, fs;
  struct statvfs vfs;
  int fd = open_and_fork("file_system"), hand = open_and_fork("file_system");
  CHECK(fd >= 0 && hand >= 0 && statfs(path, &named) == 0);
  CHECK(syscall(SYS_fstatfs, hand, &fs) == 0 && fs.f_type == named.f_type && fs.f_blocks == named.f_blocks);
  CHECK(fstatfs(fd, &fs) == 0 && fs.f_type == named.f_type && fs.f_blocks == named.f_blocks && fstatvfs(fd, &vfs) == 0 && vfs.f_blocks == named.f_blocks);
  return close(fd) | close(hand);
}
static int check_flags(void) {
  int named_flags = 0, flags = 0, fd = open_and_fork("flags"), named = open(path, O_RDONLY | O_DSYNC); /* a flag that is not served */
  CHECK(fd >= 0 && named >= 0 && ioctl(named, FS_IOC_GETFLAGS, &named_flags) == ioctl(fd, FS_IOC_GETFLAGS, &flags) && flags == named_flags);
  return close(fd) | close(named);
}
static int check_name(void) {
  struct stat named, st;
  char text[4096] = "";
  int fd = open_and_fork("name");
  unlink(other);
  CHECK(fd >= 0 && linkat(AT_FDCWD, name_of(fd), AT_FDCWD, other, AT_SYMLINK_FOLLOW) == 0);
  CHECK(stat(path, &named) == 0 && stat(other, &st) == 0 && st.st_ino == named.st_ino && unlink(other) == 0 && close(fd) == 0);
  fd = open_and_fork("name");
  CHECK(fd >= 0 && readlink(name_of(fd), text, sizeof text - 1) > 0 && strcmp(strrchr(text, '/'), strrchr(path, '/')) == 0);
  CHECK(chmod(name_of(fd), 0711) == 0 && stat(path, &named) == 0 && (named.st_mode & 07777) == 0711);
  return close(fd);
}
/* A child of fork, and one of vfork, which has numbers of its own but no memory. */
static int check_run(void) {
  char *const arguments[] = {path, NULL};
  for (int how = 0; how < 3; ++how) {
    int fd = open_and_fork("run");
    CHECK(fd >= 0);
    pid_t child = how == 0 ? vfork() : fork();
    if (child == 0) {
      if (how == 2) execveat(fd, "", arguments, environ, AT_EMPTY_PATH);
      else fexecve(fd, arguments, environ);
      _exit(9);
    }
    CHECK(ends_well(child) && lseek(fd, 0, SEEK_CUR) == 4 && fchmod(fd, 0700) == 0 && fchmod(fd, 0755) == 0 && close(fd) == 0);
  }
  return 0;
}
/* Of memory that is sealed against writing. */
static int is_copy(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);
  return seals > 0 && (seals & F_SEAL_WRITE) != 0;
}
static int check_sent(void) {
  for (int way = 0; way < 3; ++way) {
    int ends[2], got, fd = open_and_fork("sent");
    char byte = 0, control[CMSG_SPACE(sizeof fd)] __attribute__((aligned(8))) = "";
    struct iovec part = {&byte, 1};
    struct mmsghdr one = {{.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control}};
    struct cmsghdr *head = CMSG_FIRSTHDR(&one.msg_hdr);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    CHECK(fd >= 0 && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    CHECK((way == 0 ? sendmsg(ends[0], &one.msg_hdr, 0) : way == 1 ? sendmmsg(ends[0], &one, 1, 0) : syscall(SYS_sendmsg, ends[0], &one.msg_hdr, 0)) == 1);
    CHECK(recvmsg(ends[1], &one.msg_hdr, 0) == 1 && (memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&one.msg_hdr)), sizeof got), got != fd));
    CHECK(!is_copy(got) && lseek(got, 0, SEEK_CUR) == 4 && lseek(got, 6, SEEK_SET) == 6 && lseek(fd, 0, SEEK_CUR) == 6);
    close(got), close(fd), close(ends[0]), close(ends[1]);
  }
  return 0;
}
/* As from a descriptor that no fork has touched. */
static int check_cloned(void) {
  struct stat st;
  for (int way = 0; way < 4; ++way) {
    long done[2];
    int errors[2], fds[2] = {open_and_fork("cloned"), open(path, O_RDONLY | O_DSYNC)}; /* a flag that is not served */
    for (int i = 0; i < 2; ++i) {
      int out = open(other, O_WRONLY | O_CREAT | O_TRUNC, 0600);
      struct file_clone_range range = {.src_fd = fds[i]};
      CHECK(fds[i] >= 0 && out >= 0);
      off64_t at = 0;
      errno = 0;
      done[i] = way == 0   ? copy_file_range(fds[i], &at, out, NULL, 100, 0)
                : way == 1 ? syscall(SYS_copy_file_range, fds[i], &at, out, NULL, 100, 0)
                : way == 2 ? ioctl(out, FICLONE, fds[i])
                           : ioctl(out, FICLONERANGE, &range);
      errors[i] = errno;
      CHECK(close(out) == 0 && stat(other, &st) == 0 && close(fds[i]) == 0 && unlink(other) == 0);
    }
    if (done[0] != done[1] || errors[0] != errors[1]) printf("way %d: %ld (%d), of the file %ld (%d)\n", way, done[0], errors[0], done[1], errors[1]);
    CHECK(done[0] == done[1] && errors[0] == errors[1]);
  }
  return 0;
}
/* What this process changes, it sees at once: by a descriptor of before a fork too, at its offset. A child sees its own changes. */
static int puts_at(const char *name, const char *text, long at) {
  int fd = open(name, O_WRONLY);
  return fd >= 0 && pwrite(fd, text, strlen(text), at) == (ssize_t)strlen(text) && close(fd) == 0;
}
static int reads_on(int fd, const char *text) {
  char bytes[32];
  return read(fd, bytes, strlen(text)) == (ssize_t)strlen(text) && memcmp(bytes, text, strlen(text)) == 0;
}
static int open_old_and_fork(const char *check) {
  static const struct timespec times[2] = {{5, 0}, {1500000000, 0}};
  snprintf(path, sizeof path, "%s.%s", program, check);
  return utimensat(AT_FDCWD, path, times, 0) == 0 ? open_and_fork(check) : -1;
}
static int check_written(void) {
  struct stat st, open_st;
  int fd = open_old_and_fork("written"), again = dup(fd);
  CHECK(fd >= 0 && again >= 0 && puts_at(path, "new", 4) && reads_on(fd, "new") && lseek(again, 0, SEEK_CUR) == 7);
  CHECK(stat(path, &st) == 0 && puts_at(path, "more", st.st_size) && lseek(fd, -4, SEEK_END) == st.st_size && reads_on(again, "more") && close(fd) == 0 && close(again) == 0);
  fd = open_old_and_fork("written");
  CHECK(fd >= 0 && truncate(path, 7) == 0 && reads_on(fd, "new") && !reads_on(fd, "m") && fstat(fd, &st) == 0 && st.st_size == 7 && close(fd) == 0);
  fd = open_old_and_fork("written");
  pid_t child = fd < 0 ? -1 : fork();
  if (child == 0) _exit(!puts_at(path, "own", 4) || !reads_on(fd, "own"));
  CHECK(ends_well(child) && close(fd) == 0);
  return 0;
}
/* By another name than that by which it was opened, which leads nowhere by then. */
static int check_renamed(void) {
  char command[9000];
  struct stat st;
  int fd = open_and_fork("renamed");
  snprintf(command, sizeof command, "LD_PRELOAD= mv '%s' '%s'", path, other);
  CHECK(fd >= 0 && system(command) == 0 && puts_at(other, "new", 4) && reads_on(fd, "new") && unlink(other) == 0);
  return fstat(fd, &st) != 0 || st.st_nlink != 0 || close(fd) != 0;
}
/* There is another file where it was: that one is not changed, and nobody is told that something was. */
static int check_gone(void) {
  char command[9000];
  struct stat st;
  int fd = open_and_fork("gone");
  snprintf(command, sizeof command, "LD_PRELOAD= mv '%s' '%s'", path, other);
  CHECK(fd >= 0 && system(command) == 0);
  int made = open(path, O_CREAT | O_EXCL | O_WRONLY, 0640);
  CHECK(made >= 0 && close(made) == 0);
  const int result = fchmod(fd, 0711), error = errno;
  CHECK(stat(other, &st) == 0 && (st.st_mode & 07777) == (result == 0 ? 0711 : 0755) && (result == 0 || error == ESTALE));
  CHECK(stat(path, &st) == 0 && (st.st_mode & 07777) == 0640 && lseek(fd, 0, SEEK_CUR) == 4);
  return close(fd);
}

/* What another program is started with is the file: its locks are there for others, and they and the offset are shared. What a child of fork executes shares the offset alone. */
static int start(int way, int fd, char *const arguments[]) {
  posix_spawn_file_actions_t actions;
  pid_t child = -1;
  char line[9000];
  snprintf(line, sizeof line, "'%s' lock <&9", self);
  switch (way) {
    case 0:
      if (posix_spawn_file_actions_init(&actions) != 0 || posix_spawn_file_actions_adddup2(&actions, fd, 0) != 0) return 0;
      return posix_spawn(&child, self, &actions, NULL, arguments, environ) == 0 && ends_well(child);
    case 1:
    case 2:
      child = way == 1 ? vfork() : fork();
      if (child == 0) {
        if (dup2(fd, 0) == 0) execv(self, arguments);
        _exit(9);
      }
      return ends_well(child);
    default: break;
  }
  if (dup2(fd, 9) != 9) return 0;
  FILE *pipe = way == 3 ? NULL : popen(line, "r");
  const int good = way == 3 ? system(line) == 0 : pipe != NULL && pclose(pipe) == 0;
  return close(9) == 0 && good;
}
static int check_started(void) {
  char *const arguments[] = {(char *)self, "lock", NULL};
  for (int way = 0; way < 5; ++way) {
    int fd = open_and_fork("started"), other_open = open(path, O_RDONLY | O_DSYNC); /* a flag that is not served */
    CHECK(fd >= 0 && other_open >= 0);
    const int good = start(way, fd, arguments) && (is_copy(fd) || flock(other_open, LOCK_EX | LOCK_NB) == -1);
    if (!good) printf("way %d\n", way);
    CHECK(good && (way == 2 || !is_copy(fd)) && lseek(fd, 0, SEEK_CUR) == 6 && flock(fd, LOCK_UN) == 0 && flock(other_open, LOCK_EX | LOCK_NB) == 0);
    close(fd), close(other_open);
  }
  return 0;
}
static int lock_stdin(void) {
  return flock(0, LOCK_EX | LOCK_NB) != 0 || lseek(0, 2, SEEK_CUR) != 6;
}

/* By its number, which exec closes: a served file's, and a copy's. */
static int check_spawned(void) {
  char *const arguments[] = {path, NULL};
  for (int way = 0; way < 4; ++way) {
    pid_t child;
    int fd = open_and_fork("spawned");
    if (way < 2) close(fd), fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && (way % 2 ? posix_spawnp : posix_spawn)(&child, name_of(fd), NULL, NULL, arguments, environ) == 0 && ends_well(child) && close(fd) == 0);
  }
  return 0;
}

/* By whatever name its facts are asked for. */
static int check_asked(void) {
  int (*const old_fstatat)(int, int, const char *, struct stat *, int) = (int (*)(int, int, const char *, struct stat *, int))dlsym(RTLD_DEFAULT, "__fxstatat");
  struct stat named, st;
  struct statx sx;
  int fd = open_and_fork("asked");
  CHECK(fd >= 0 && stat(path, &named) == 0);
  CHECK(fstatat(fd, "", &st, AT_EMPTY_PATH) == 0 && st.st_ino == named.st_ino && st.st_size == named.st_size);
  CHECK(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &sx) == 0 && sx.stx_ino == named.st_ino);
#if defined(__x86_64__)
  CHECK(old_fstatat == NULL || (old_fstatat(1, fd, "", &st, AT_EMPTY_PATH) == 0 && st.st_ino == named.st_ino && st.st_mode == named.st_mode));
#endif
  int waits_not = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  pid_t child = fork();
  if (child == 0) _exit((fcntl(waits_not, F_GETFL) & O_NONBLOCK) == 0);
  CHECK(ends_well(child) && (fcntl(waits_not, F_GETFL) & O_NONBLOCK) != 0 && close(waits_not) == 0);
  return close(fd);
}

int main(int argc, char **argv) {
  static const struct check checks[] = {{"mode", check_mode}, {"times", check_times}, {"owner", check_owner}, {"attribute", check_attribute}, {"file_system", check_file_system},
                                        {"flags", check_flags}, {"name", check_name}, {"run", check_run}, {"sent", check_sent}, {"cloned", check_cloned}, {"written", check_written}, {"renamed", check_renamed}, {"gone", check_gone}, {"started", check_started}, {"spawned", check_spawned}, {"asked", check_asked}};
  if (argc < 2) return 64;
  if (argc == 2 && strcmp(argv[1], "lock") == 0) return lock_stdin();
  umask(0);
  self = argv[0];
  program = argv[1];
  return RUN_CHECKS(checks, argc, argv, 2);
}
