/* Processes that shut themselves in. What they are refused from then on they are refused under the library, too, and what they have open stays open.
 * usage: sandboxed FILE WAY: 100,000 bytes of 32-bit numbers, beside it FILE.cold; a way of the table below. Ends with 77 where the kernel has no such thing. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stddef.h>
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

/* ---- filters of system calls ---- */

/* What reading files takes; whatever else is called is the end. */
static const int kAllowed[] = {SYS_brk,   SYS_close,    SYS_exit,   SYS_exit_group, SYS_fcntl,  SYS_fstat, SYS_getdents64, SYS_ioctl,      SYS_lseek,        SYS_mmap,
                               SYS_mprotect, SYS_munmap, SYS_newfstatat, SYS_openat, SYS_pread64, SYS_read, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_write};
enum { kCount = sizeof kAllowed / sizeof *kAllowed };
static struct sock_filter filter[kCount + 3] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
static struct sock_fprog program = {kCount + 3, filter};

static int filtered(int (*install)(void)) {
  char name[4096];
  snprintf(name, sizeof name, "%s.cold", path);
  for (int i = 0; i < kCount; ++i) filter[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)kAllowed[i], (unsigned char)(kCount - i), 0);
  filter[kCount + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  filter[kCount + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  int fd = open(path, O_RDONLY);
  CHECK(reads(fd, 0) && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) == -1);
  int again = open(path, O_RDONLY);
  CHECK(reads(again, 0) && close(again) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  if (install() != 0) return SKIPPED; /* by a filter that is there */
  int cold = open(name, O_RDONLY);
  CHECK(reads(cold, 0) && close(cold) == 0 && (again = open(path, O_RDONLY)) >= 0 && again < 100 && reads(again, 0) && close(again) == 0);
  CHECK(reads(fd, 1) && close(fd) == 0);
  return 0;
}
static int install_by_prctl(void) { return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program); }
static int install_by_hand_prctl(void) { return (int)syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program); }
static int install_by_hand(void) { return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program); }
static int by_prctl(void) { return filtered(install_by_prctl); }
static int by_hand_prctl(void) { return filtered(install_by_hand_prctl); }
static int by_hand(void) { return filtered(install_by_hand); }

/* Nothing but read, write and the end. */
static int by_strict(void) {
  int fd = open(path, O_RDONLY);
  CHECK(reads(fd, 0) && syscall(SYS_prctl, PR_GET_SECCOMP) >= 0);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) return SKIPPED; /* under a filter there is no other mode */
  syscall(SYS_exit, reads(fd, 1) ? 0 : 1);
  return 1;
}

int main(int argc, char **argv) {
  static const struct check ways[] = {{"landlock", by_landlock}, {"prctl", by_prctl}, {"by_hand_prctl", by_hand_prctl}, {"by_hand", by_hand}, {"strict", by_strict}};
  if (argc != 3) return 64;
  path = argv[1];
  for (size_t i = 0; i < sizeof ways / sizeof *ways; ++i) {
    if (strcmp(argv[2], ways[i].name) == 0) return ways[i].run();
  }
  return 64;
}
