/* Processes that change their rights, by every call there is. What the source would refuse them from then on, it refuses.
 * usage: credentials FILE SECRET WAY: 100,000 bytes of 32-bit numbers; a file that only its owner, 1234, may read, and who may read all; "same" or a way of the table below */
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <stdint.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/preload/check.h"

int capset(cap_user_header_t, const cap_user_data_t);

enum { NOBODY = 65534 };
static const char *path, *secret;
static const gid_t groups[] = {7, 8};

/* Without those by which root reads everything. */
static int lower(int by_hand) {
  struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct sets[2];
  if (syscall(SYS_capget, &head, sets) != 0) return -1;
  sets[0].effective &= ~(1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH);
  return by_hand ? syscall(SYS_capset, &head, sets) : capset(&head, sets);
}

static int by_setuid(void) { return setuid(NOBODY); }
static int by_seteuid(void) { return seteuid(NOBODY); }
static int by_setreuid(void) { return setreuid(-1, NOBODY); }
static int by_setresuid(void) { return setresuid(-1, NOBODY, -1); }
static int by_setfsuid(void) { return setfsuid(NOBODY) != 0; }
static int by_setgid(void) { return setgid(NOBODY); }
static int by_setegid(void) { return setegid(NOBODY); }
static int by_setregid(void) { return setregid(-1, NOBODY); }
static int by_setresgid(void) { return setresgid(-1, NOBODY, -1); }
static int by_setfsgid(void) { return setfsgid(NOBODY) != 0; }
static int by_setgroups(void) { return setgroups(2, groups); }
static int by_initgroups(void) { return initgroups("nobody", 4321); }
static int by_capset(void) { return lower(0); }
static int by_hand_setresuid(void) { return syscall(SYS_setresuid, -1, NOBODY, -1); }
static int by_hand_setfsuid(void) { return syscall(SYS_setfsuid, NOBODY) != 0; }
static int by_hand_setgroups(void) { return syscall(SYS_setgroups, 2, groups); }
static int by_hand_capset(void) { return lower(1); }

static const struct way {
  const char *name;
  int (*change)(void);
  int refused; /* what is secret */
} ways[] = {{"setuid", by_setuid, 1},       {"seteuid", by_seteuid, 1},     {"setreuid", by_setreuid, 1},
            {"setresuid", by_setresuid, 1}, {"setfsuid", by_setfsuid, 1},   {"setgid", by_setgid, 0},
            {"setegid", by_setegid, 0},     {"setregid", by_setregid, 0},   {"setresgid", by_setresgid, 0},
            {"setfsgid", by_setfsgid, 0},   {"setgroups", by_setgroups, 0}, {"initgroups", by_initgroups, 0},
            {"capset", by_capset, 1},       {"by_hand_setresuid", by_hand_setresuid, 1}, {"by_hand_setfsuid", by_hand_setfsuid, 1},
            {"by_hand_setgroups", by_hand_setgroups, 0}, {"by_hand_capset", by_hand_capset, 1}};

static int changed(const struct way *way) {
  uint32_t number = 1;
  int fd = open(path, O_RDONLY), known = open(secret, O_RDONLY);
  CHECK(fd >= 0 && known >= 0 && read(fd, &number, 4) == 4 && number == 0 && close(known) == 0);
  CHECK(way->change() == 0);
  CHECK(read(fd, &number, 4) == 4 && number == 1 && close(fd) == 0); /* what is open stays open */
  errno = 0;
  known = open(secret, O_RDONLY);
  CHECK(way->refused ? known == -1 && errno == EACCES : known >= 0 && close(known) == 0);
  if (geteuid() == NOBODY) CHECK(euidaccess(secret, R_OK) == -1 && errno == EACCES);
  fd = open(path, O_RDONLY);
  CHECK(fd >= 0 && fd < 100 && pread(fd, &number, 4, 8) == 4 && number == 2); /* a real one */
  return close(fd);
}

/* What changes nothing, or fails, is no reason to leave the cache. */
static int same(void) {
  int fd = open(path, O_RDONLY);
  uid_t user = getuid();
  gid_t group = getgid();
  CHECK(setuid(user) == 0 && seteuid(user) == 0 && setreuid(-1, user) == 0 && setresuid(user, -1, user) == 0 && setfsuid(user) == (int)user);
  CHECK(setgid(group) == 0 && setegid(group) == 0 && setregid(group, -1) == 0 && setresgid(group, group, group) == 0 && setfsgid(group) == (int)group);
  CHECK(setresuid(-1, -1, -1) == 0 && close(fd) == 0 && (fd = open(path, O_RDONLY)) >= 0);
  gid_t list[64];
  int count = getgroups(64, list);
  CHECK(count >= 0 && (setgroups((size_t)count, list) == 0 || errno == EPERM));
  struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct sets[2];
  CHECK(syscall(SYS_capget, &head, sets) == 0 && capset(&head, sets) == 0 && setuid(-1) == -1 && errno == EINVAL);
  CHECK(close(fd) == 0 && (fd = open(path, O_RDONLY)) >= 0);
  return close(fd);
}

int main(int argc, char **argv) {
  if (argc != 4) return 64;
  path = argv[1], secret = argv[2];
  if (strcmp(argv[3], "same") == 0) return same();
  for (size_t i = 0; i < sizeof ways / sizeof *ways; ++i) {
    if (strcmp(argv[3], ways[i].name) == 0) return changed(&ways[i]);
  }
  return 64;
}
