/* Every system call that the preload library knows, by the function `syscall`, on a cached file and
 * on its twin outside. What it says, result for result, is to be the same bare and served.
 * usage: doors FILE TWIN SCRATCH: two files of the same 100,000 bytes and an empty folder */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/preload/check.h"

/* Newer than the headers of the oldest system that this is built on. */
enum { kFchmodat2 = 452, kSetxattrat = 463, kRemovexattrat = 466 };

/* Numbers, addresses and ids of processes differ from run to run. */
enum shown { RESULT, SUCCESS };
static long say(const char *name, long result, enum shown shown) {
  int error = errno;
  printf("%s %ld %s\n", name, shown == SUCCESS && result >= 0 ? 0 : result,
         result == -1 ? strerrorname_np(error) : "");
  fflush(stdout);
  errno = error;
  return result;
}
static long six(const long *w) { return syscall(w[0], w[1], w[2], w[3], w[4], w[5], w[6]); }
#define CALL(number, ...) say(#number, six((long[7]){number, __VA_ARGS__}), RESULT)
#define MAKE(number, ...) say(#number, six((long[7]){number, __VA_ARGS__}), SUCCESS)

static unsigned sum(const void *bytes, long count) {
  unsigned total = 0;
  for (long i = 0; i < count; ++i) total = total * 31 + ((const unsigned char *)bytes)[i];
  return total;
}
static void show(const char *name, const void *bytes, long count) {
  printf("%s: %ld bytes %08x\n", name, count, count > 0 ? sum(bytes, count) : 0);
}

static char buffer[200000];

static void read_it(const char *path) {
  long fd = MAKE(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
  struct stat st = {0};
  struct statx stx = {0};
  struct iovec parts[2] = {{buffer, 10}, {buffer + 10, 50}};
  show("read", buffer, CALL(SYS_read, fd, buffer, 1000));
  show("pread", buffer, CALL(SYS_pread64, fd, buffer, 100, 4000));
  show("readv", buffer, CALL(SYS_readv, fd, parts, 2));
  show("preadv", buffer, CALL(SYS_preadv, fd, parts, 2, 70, 0));
  show("preadv2", buffer, CALL(SYS_preadv2, fd, parts, 2, 90, 0, 0));
  show("preadv2 as readv", buffer, CALL(SYS_preadv2, fd, parts, 2, -1, 0, 0));
  CALL(SYS_preadv2, fd, parts, 2, 0, 0, 1 << 30);
  CALL(SYS_lseek, fd, 0, SEEK_CUR);
  CALL(SYS_lseek, fd, -1, SEEK_SET);
  CALL(SYS_fstat, fd, &st);
  printf("size %ld mode %o\n", (long)st.st_size, st.st_mode);
  CALL(SYS_newfstatat, AT_FDCWD, path, &st, 0);
  printf("size %ld\n", (long)st.st_size);
  CALL(SYS_statx, AT_FDCWD, path, 0, STATX_SIZE, &stx);
  printf("size %ld\n", (long)stx.stx_size);
  struct statfs fs;
  CALL(SYS_fstatfs, fd, &fs);
  CALL(SYS_fgetxattr, fd, "user.none", buffer, 10);
  CALL(SYS_flistxattr, fd, NULL, 0);
  long copy = MAKE(SYS_dup, fd);
  show("copy", buffer, CALL(SYS_read, copy, buffer, 10));
  CALL(SYS_fcntl, copy, F_GETFD);
  CALL(SYS_close, copy);
  copy = MAKE(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3);
  CALL(SYS_close, copy);
  int left = 0;
  CALL(SYS_ioctl, fd, FIONREAD, &left);
  printf("left %d\n", left);
  CALL(SYS_flock, fd, LOCK_SH | LOCK_NB);
  CALL(SYS_flock, fd, LOCK_UN);
  CALL(SYS_fchdir, fd);
  long map = MAKE(SYS_mmap, 0, 8192, PROT_READ, MAP_PRIVATE, fd, 4096);
  show("map", (void *)map, 8192);
  CALL(SYS_mprotect, map, 4096, PROT_READ);
  CALL(SYS_pkey_mprotect, map, 4096, PROT_READ, -1);
  map = MAKE(SYS_mremap, map, 8192, 4096, 0, 0);
  show("moved", (void *)map, 4096);
  CALL(SYS_munmap, map, 4096);
  CALL(SYS_mmap, 0, 0, PROT_READ, MAP_PRIVATE, fd, 0);
  int ends[2];
  if (pipe2(ends, O_NONBLOCK) != 0) exit(3);
  CALL(SYS_splice, fd, NULL, ends[1], NULL, 100, 0);
  show("spliced", buffer, read(ends[0], buffer, 100));
  struct iovec given = {buffer, 10};
  CALL(SYS_vmsplice, ends[1], &given, 1, 0);
  show("vmspliced", buffer + 100, read(ends[0], buffer + 100, 10));
  off_t at = 50;
  CALL(SYS_sendfile, ends[1], fd, &at, 100);
  show("sent", buffer, read(ends[0], buffer, 100));
  close(ends[0]), close(ends[1]);
#ifdef SYS_dup2
  CALL(SYS_dup2, fd, 40);
  show("dup2", buffer, CALL(SYS_read, 40, buffer, 10));
#endif
  CALL(SYS_dup3, fd, 41, O_CLOEXEC);
  CALL(SYS_dup3, fd, fd, 0);
  long second = MAKE(SYS_openat, AT_FDCWD, path, O_RDONLY, 0);
  if (second >= 0) {
    say("SYS_dup3 onto it", syscall(SYS_dup3, fd, second, 0), SUCCESS);
    CALL(SYS_lseek, second, 0, SEEK_CUR);
    CALL(SYS_close, second);
  }
  CALL(SYS_close_range, 40, 41, 0);
  CALL(SYS_lseek, 41, 0, SEEK_CUR);
  CALL(SYS_close, fd);
  CALL(SYS_close, fd);
  struct open_how how = {.flags = O_RDONLY};
  fd = MAKE(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
  show("openat2", buffer, CALL(SYS_read, fd, buffer, 10));
  CALL(SYS_close, fd);
#ifdef SYS_open
  fd = MAKE(SYS_open, path, O_RDONLY, 0);
  show("open", buffer, CALL(SYS_read, fd, buffer, 10));
  CALL(SYS_close, fd);
#endif
  struct pollfd polled = {(int)MAKE(SYS_openat, AT_FDCWD, path, O_RDONLY, 0), POLLIN, 0};
  struct timespec none = {0, 0};
  CALL(SYS_ppoll, &polled, 1, &none, NULL, 8);
  struct epoll_event event = {EPOLLIN};
  int poller = epoll_create1(EPOLL_CLOEXEC);
  CALL(SYS_epoll_ctl, poller, EPOLL_CTL_ADD, polled.fd, &event);
  close(poller);
  CALL(SYS_kcmp, getpid(), getpid(), 0, polled.fd, polled.fd);
  CALL(SYS_close, polled.fd);
#ifdef SYS_poll
  polled.fd = (int)MAKE(SYS_open, path, O_RDONLY, 0);
  CALL(SYS_poll, &polled, 1, 0);
  CALL(SYS_close, polled.fd);
#endif
}

/* Names in the scratch folder. */
static void change_names(void) {
  long fd = MAKE(SYS_openat, AT_FDCWD, "a", O_RDWR | O_CREAT, 0644);
  CALL(SYS_ftruncate, fd, 5000);
  CALL(SYS_fchmod, fd, 0600);
  CALL(SYS_fchown, fd, -1, -1);
  CALL(SYS_fsetxattr, fd, "user.a", "1", 1, 0);
  CALL(SYS_fremovexattr, fd, "user.a");
  long other = MAKE(SYS_openat, AT_FDCWD, "b", O_RDWR | O_CREAT, 0644);
  CALL(SYS_copy_file_range, fd, NULL, other, NULL, 1000, 0);
  CALL(SYS_close, other);
  CALL(SYS_close, fd);
  CALL(SYS_truncate, "a", 100);
  CALL(SYS_linkat, AT_FDCWD, "a", AT_FDCWD, "c", 0);
  CALL(SYS_renameat, AT_FDCWD, "c", AT_FDCWD, "d");
  CALL(SYS_renameat2, AT_FDCWD, "d", AT_FDCWD, "b", RENAME_NOREPLACE);
  CALL(SYS_unlinkat, AT_FDCWD, "d", 0);
  CALL(SYS_mkdirat, AT_FDCWD, "e", 0755);
  CALL(SYS_mknodat, AT_FDCWD, "e/fifo", S_IFIFO | 0600, 0);
  CALL(SYS_symlinkat, "a", AT_FDCWD, "e/link");
  CALL(SYS_readlinkat, AT_FDCWD, "e/link", buffer, 10);
  CALL(SYS_fchmodat, AT_FDCWD, "a", 0644);
  CALL(kFchmodat2, AT_FDCWD, "a", 0640, 0);
  CALL(SYS_fchownat, AT_FDCWD, "a", -1, -1, 0);
  CALL(SYS_utimensat, AT_FDCWD, "a", NULL, 0);
  CALL(SYS_setxattr, "a", "user.a", "1", 1, 0);
  CALL(SYS_removexattr, "a", "user.a");
  CALL(SYS_lsetxattr, "e/link", "user.a", "1", 1, 0);
  CALL(SYS_lremovexattr, "e/link", "user.a");
  CALL(kSetxattrat, AT_FDCWD, "a", 0, "user.a", NULL, 0);
  CALL(kRemovexattrat, AT_FDCWD, "a", 0, "user.a");
  CALL(SYS_chdir, "e");
  CALL(SYS_unlinkat, AT_FDCWD, "fifo", 0);
  CALL(SYS_unlinkat, AT_FDCWD, "link", 0);
  CALL(SYS_chdir, "..");
  long folder = MAKE(SYS_openat, AT_FDCWD, "e", O_RDONLY | O_DIRECTORY, 0);
  CALL(SYS_fchdir, folder);
  CALL(SYS_close, folder);
  CALL(SYS_chdir, "..");
  CALL(SYS_unlinkat, AT_FDCWD, "e", AT_REMOVEDIR);
  struct {
    unsigned bytes, type;
    char handle[128];
  } handle = {0};
  CALL(SYS_open_by_handle_at, AT_FDCWD, &handle, O_RDONLY);
#ifdef SYS_open
  CALL(SYS_link, "a", "c");
  CALL(SYS_rename, "c", "d");
  CALL(SYS_unlink, "d");
  fd = MAKE(SYS_creat, "d", 0644);
  CALL(SYS_close, fd);
  CALL(SYS_chmod, "d", 0600);
  CALL(SYS_chown, "d", -1, -1);
  CALL(SYS_lchown, "d", -1, -1);
  CALL(SYS_utime, "d", NULL);
  CALL(SYS_utimes, "d", NULL);
  CALL(SYS_futimesat, AT_FDCWD, "d", NULL);
  CALL(SYS_mkdir, "e", 0755);
  CALL(SYS_rmdir, "e");
  CALL(SYS_symlink, "a", "e");
  CALL(SYS_unlink, "e");
  CALL(SYS_mknod, "e", S_IFIFO | 0600, 0);
  CALL(SYS_unlink, "e");
  CALL(SYS_unlink, "d");
#endif
  CALL(SYS_unlinkat, AT_FDCWD, "a", 0);
  CALL(SYS_unlinkat, AT_FDCWD, "b", 0);
}

static void send_it(void) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, ends) != 0) exit(3);
  struct iovec part = {"0123456789", 10};
  struct mmsghdr message = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
  CALL(SYS_sendto, ends[0], "0123456789", 10, 0, NULL, 0);
  CALL(SYS_sendmsg, ends[0], &message.msg_hdr, 0);
  CALL(SYS_sendmmsg, ends[0], &message, 1, 0);
  for (int i = 0; i < 3; ++i) show("received", buffer, read(ends[1], buffer, 100));
  close(ends[0]), close(ends[1]);
}

static void child(const char *name, long pid) {
  int status = 0;
  if (pid == 0) {
    syscall(SYS_exit_group, syscall(SYS_close, syscall(SYS_dup, 1)) == 0 ? 0 : 4);
  }
  printf("%s: %s\n", name, waitpid((pid_t)pid, &status, 0) == pid && status == 0 ? "ended" : "lost");
}

static void make_processes(const char *path) {
  fflush(stdout);
#ifdef SYS_fork
  child("SYS_fork", syscall(SYS_fork));
  /* Bare it works only where its caller has no frame. */
  const char *libraries = getenv("LD_PRELOAD");
  if (libraries != NULL && strcmp(libraries + strlen(libraries) - strlen("libtier_preload.so"), "libtier_preload.so") == 0) {
    long pid = syscall(SYS_vfork);
    if (pid == 0) _exit(0);
    if (waitpid((pid_t)pid, NULL, 0) != pid) exit(5);
  }
#endif
  child("SYS_clone", syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  struct clone_args {
    uint64_t word[8];
  } clone3 = {{[4] = SIGCHLD}};
  child("SYS_clone3", syscall(SYS_clone3, &clone3, sizeof clone3));
  pid_t pid = fork();
  char *arguments[] = {"false", NULL}, *environment[] = {NULL};
  if (pid == 0) {
    syscall(SYS_execveat, AT_FDCWD, "/none/at/all", arguments, environment, 0);
    syscall(SYS_execve, "/bin/false", arguments, environment);
    _exit(9);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  printf("SYS_execve: %d\n", WEXITSTATUS(status));
  (void)path;
}

/* What a process may not take back: each in one of its own, asked for what changes nothing. */
static void change_rights(void) {
  struct rlimit limit;
  getrlimit(RLIMIT_CORE, &limit);
  CALL(SYS_setrlimit, RLIMIT_CORE, &limit);
  CALL(SYS_prlimit64, 0, RLIMIT_CORE, &limit, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  CALL(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, NULL);
  CALL(SYS_prctl, PR_GET_DUMPABLE, 0, 0, 0, 0);
  CALL(SYS_prctl, PR_SET_SECCOMP, 99, 0, 0, 0);
  CALL(SYS_seccomp, 99, 0, NULL);
  CALL(SYS_seccomp, 1, 1u << 31, NULL);
  CALL(SYS_landlock_restrict_self, -1, 0);
  CALL(SYS_setns, -1, 0);
  CALL(SYS_unshare, 0);
  CALL(SYS_chroot, "/none/at/all");
  CALL(SYS_pivot_root, "/none/at/all", "/none/at/all");
  CALL(SYS_mount, "none", "/none/at/all", "tmpfs", 0, NULL);
  CALL(SYS_umount2, "/none/at/all", 0);
  CALL(SYS_move_mount, -1, "/none/at/all", AT_FDCWD, "/none/at/all", 0);
  CALL(SYS_mount_setattr, AT_FDCWD, "/none/at/all", 0, buffer, 32);
  gid_t group = getgid();
  uint32_t header[2] = {0x20080522, 0}, rights[6];
  CALL(SYS_capget, header, rights);
  CALL(SYS_capset, header, rights);
  CALL(SYS_setfsuid, getuid());
  CALL(SYS_setfsgid, group);
  CALL(SYS_setresuid, -1, -1, -1);
  CALL(SYS_setresgid, -1, -1, -1);
  CALL(SYS_setreuid, -1, -1);
  CALL(SYS_setregid, -1, -1);
  CALL(SYS_setuid, getuid());
  CALL(SYS_setgid, group);
  gid_t groups[64];
  int count = getgroups(64, groups);
  CALL(SYS_setgroups, count, groups);
}

/* Last: rings make everything real. */
static void use_rings(const char *path) {
  char parameters[128] = {0};
  unsigned long context = 0;
  MAKE(SYS_io_uring_setup, 0, parameters);
  CALL(SYS_io_setup, 0, &context);
  read_it(path);
}

int main(int argc, char **argv) {
  CHECK(argc == 4 && chdir(argv[3]) == 0);
  umask(022);
  for (int i = 1; i <= 2; ++i) read_it(argv[i]);
  change_names();
  send_it();
  make_processes(argv[1]);
  change_rights();
  read_it(argv[1]);
  use_rings(argv[1]);
  return 0;
}
