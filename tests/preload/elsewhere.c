/* Names that lead elsewhere than below a source, or may: how often the kernel is asked about them, and that what is below it is known by every spelling.
 * usage: elsewhere FILE OTHER [check...]: FILE is TOP/DIRECTORY/NAME, 100,000 bytes of 32-bit numbers; TOP/apart/file is there; OTHER a directory on another file system, or "" */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "tests/preload/by_hand.h"
#include "tests/preload/check.h"

static char top[4096], inside[4096], from_top[4096], apart[4200];
static const char *path, *other;

/* ---- how often ---- */

static volatile int asked;

/* As a kernel that does not know the call. */
static void count_call(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)info;
  ++asked;
#if defined(__x86_64__)
  ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = -ENOSYS;
#endif
}

/* From now on `calls`, up to a 0, are counted and not made. */
static int count_calls(const int *calls) {
  struct sock_filter filter[16] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
  struct sigaction action = {.sa_sigaction = count_call, .sa_flags = SA_SIGINFO | SA_NODEFER};
  unsigned short used = 1;
  for (; *calls != 0; ++calls) {
    filter[used++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)*calls, 0, 1);
    filter[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
  }
  filter[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog program = {used, filter};
  asked = 0;
  return sigaction(SIGSYS, &action, NULL) | prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) | by_hand(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (long)&program, 0, 0, 0);
}

/* A filter stays: each in a process of its own. */
static int in_child(int (*use)(void)) {
#if defined(__x86_64__)
  int status = 1;
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    int bad = use();
    fflush(stdout);
    _exit(bad);
  }
  return waitpid(child, &status, 0) != child || status != 0;
#else
  (void)use;
  return 0;
#endif
}

static int looks_apart(int directory) {
  struct stat st;
  int fd = openat(directory, "apart/file", O_RDONLY);
  FILE *stream = fopen("apart/file", "r");
  return fd >= 0 && close(fd) == 0 && stream != NULL && fclose(stream) == 0 && fstatat(directory, "apart/file", &st, 0) == 0 && faccessat(directory, "apart/file", R_OK, 0) == 0 &&
         fstatat(directory, "missing", &st, 0) == -1 && errno == ENOENT;
}

static int use_names_above(void) {
  static const int kCounted[] = {SYS_getcwd, SYS_readlinkat, SYS_statx, 0};
  int directory = open(top, O_RDONLY | O_DIRECTORY);
  CHECK(directory >= 0 && chdir(top) == 0 && looks_apart(directory) && looks_apart(AT_FDCWD) && count_calls(kCounted) == 0);
  for (int i = 0; i < 50; ++i) CHECK(looks_apart(directory) && looks_apart(AT_FDCWD));
  CHECK(asked == 0);
  return close(directory);
}
static int check_names_above(void) { return in_child(use_names_above); }

/* Whether a file may be executed is for the mount to say as well; a directory is searched. */
static int use_executables(void) {
  static const int kCounted[] = {SYS_access, SYS_faccessat, SYS_faccessat2, 0};
  struct stat st;
  CHECK(chmod(path, 0700) == 0 && stat(path, &st) == 0 && stat(inside, &st) == 0 && count_calls(kCounted) == 0);
  CHECK(access(path, X_OK) != 0 && asked == 1);
  CHECK(getenv("LD_PRELOAD") == NULL || (access(path, R_OK) == 0 && access(inside, R_OK | X_OK) == 0 && asked == 1));
  return 0;
}
static int check_executables(void) { return in_child(use_executables); }

/* Where no source is one question will do, and it is not what the name is. */
static int use_other_file_system(void) {
  static const int kCounted[] = {SYS_getcwd, SYS_readlinkat, 0};
  char a[4200], b[4200];
  if (*other == 0) return 0;
  snprintf(a, sizeof a, "%s/a", other), snprintf(b, sizeof b, "%s/b", other);
  CHECK(count_calls(kCounted) == 0);
  for (int i = 0; i < 50; ++i) {
    int fd = open(a, O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0 && close(fd) == 0 && rename(a, b) == 0 && truncate(b, 10) == 0 && unlink(b) == 0);
  }
  CHECK(asked == 0);
  return 0;
}
static int check_other_file_system(void) { return in_child(use_other_file_system); }

/* Two names in one directory: it is asked about once. One more, of the roots, may come each second. */
static int use_renames(void) {
  static const int kCounted[] = {SYS_statx, 0};
  char a[4300], b[4300];
  snprintf(a, sizeof a, "%s/a", apart), snprintf(b, sizeof b, "%s/b", apart);
  int fd = open(a, O_WRONLY | O_CREAT, 0600);
  CHECK(fd >= 0 && close(fd) == 0 && count_calls(kCounted) == 0);
  for (int i = 0; i < 50; ++i) CHECK(rename(a, b) == 0 && rename(b, a) == 0);
  const int renames = asked;
  CHECK(unlink(a) == 0 && (getenv("LD_PRELOAD") == NULL ? renames == 0 : renames >= 100 && renames < 150));
  return 0;
}
static int check_renames(void) { return in_child(use_renames); }

/* A directory that is open already is not opened once more for its name; the roots are, at the first change. */
static int makes_and_moves(int directory) {
  return mkdir("made", 0700) == 0 && renameat(directory, "made", directory, "moved") == 0 && unlinkat(directory, "moved", AT_REMOVEDIR) == 0;
}
static int use_open_directories(void) {
  static const int kCounted[] = {SYS_openat, 0};
  int directory = open(apart, O_RDONLY | O_DIRECTORY);
  CHECK(directory >= 0 && chdir(apart) == 0 && makes_and_moves(directory) && count_calls(kCounted) == 0);
  for (int i = 0; i < 50; ++i) CHECK(makes_and_moves(directory));
  CHECK(asked == 0);
  return close(directory);
}
static int check_open_directories(void) { return in_child(use_open_directories); }

/* ---- what is there ---- */

static int puts_into(int directory, const char *name, const char *text) {
  int fd = openat(directory, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0;
}
static int holds(const char *name, const char *text) {
  char bytes[64] = "";
  struct stat st;
  int fd = open(name, O_RDONLY);
  return fd >= 0 && read(fd, bytes, sizeof bytes - 1) == (ssize_t)strlen(text) && strcmp(bytes, text) == 0 && close(fd) == 0 && stat(name, &st) == 0 && st.st_size == (off_t)strlen(text);
}
static int is_missing(const char *name) {
  struct stat st;
  return open(name, O_RDONLY) == -1 && errno == ENOENT && stat(name, &st) == -1 && errno == ENOENT;
}

/* a and b are changed by names that begin in `directory` with `before`; seen by the whole ones. */
static int changes_by(int directory, const char *before) {
  char a[4300], b[4300], whole_a[4300], whole_b[4300];
  snprintf(a, sizeof a, "%sa", before), snprintf(b, sizeof b, "%sb", before);
  snprintf(whole_a, sizeof whole_a, "%s/a", inside), snprintf(whole_b, sizeof whole_b, "%s/b", inside);
  for (int i = 0; i < 2; ++i) {
    CHECK(puts_into(directory, a, "first") && puts_into(directory, b, "the second") && holds(whole_a, "first") && holds(whole_b, "the second") && holds(whole_b, "the second"));
    CHECK(renameat(directory, a, directory, b) == 0 && is_missing(whole_a) && holds(whole_b, "first"));
    CHECK(puts_into(directory, b, "something else") && holds(whole_b, "something else"));
    CHECK(renameat2(directory, b, directory, a, RENAME_NOREPLACE) == 0 && is_missing(whole_b) && holds(whole_a, "something else"));
    CHECK(unlinkat(directory, a, 0) == 0 && is_missing(whole_a));
  }
  return 0;
}
static int check_changes(void) {
  char before[4200];
  int in = open(inside, O_RDONLY | O_DIRECTORY), above = open(top, O_RDONLY | O_DIRECTORY);
  snprintf(before, sizeof before, "%s/", inside);
  CHECK(in >= 0 && above >= 0 && changes_by(AT_FDCWD, before) == 0 && changes_by(in, "") == 0 && changes_by(in, "./") == 0);
  CHECK(chdir(inside) == 0 && changes_by(AT_FDCWD, "") == 0 && changes_by(AT_FDCWD, "./") == 0);
  snprintf(before, sizeof before, "%s/", inside + strlen(top) + 1);
  CHECK(chdir(top) == 0 && changes_by(AT_FDCWD, before) == 0 && changes_by(above, before) == 0);
  return close(in) | close(above);
}

/* Out of the source and back: two directories. */
static int check_moves(void) {
  char mine[4300], theirs[4300];
  snprintf(mine, sizeof mine, "%s/moved", inside), snprintf(theirs, sizeof theirs, "%s/moved", apart);
  for (int i = 0; i < 3; ++i) {
    CHECK(puts_into(AT_FDCWD, mine, "mine") && holds(mine, "mine") && rename(mine, theirs) == 0 && is_missing(mine) && holds(theirs, "mine"));
    CHECK(puts_into(AT_FDCWD, mine, "not yet") && holds(mine, "not yet") && rename(theirs, mine) == 0 && holds(mine, "mine") && unlink(mine) == 0 && is_missing(mine));
  }
  return 0;
}

static int opened_right(int directory, const char *name) {
  uint32_t number = 0;
  int fd = openat(directory, name, O_RDONLY);
  return fd >= 0 && pread(fd, &number, 4, 4000) == 4 && number == 1000 && close(fd) == 0;
}

/* tells 2: the source's own root gets another name, next to one that is outside, and its name back. */
static int check_root(void) {
  char away[4300];
  snprintf(away, sizeof away, "%s/away", top);
  CHECK(opened_right(AT_FDCWD, path) && rename(inside, away) == 0 && rename(away, inside) == 0 && opened_right(AT_FDCWD, path));
  return 0;
}

/* ---- directories that are being listed ---- */

/* A new one of one name, in the cache. */
static DIR *lists_new(const char *directory, mode_t mode) {
  char name[4300];
  snprintf(name, sizeof name, "%s/f", directory);
  if (mkdir(directory, 0700) != 0 || !puts_into(AT_FDCWD, name, "f") || chmod(directory, mode) != 0) return NULL;
  DIR *first = opendir(directory);
  return first != NULL && closedir(first) == 0 ? opendir(directory) : NULL;
}
static int count_names(DIR *directory) {
  int count = 0;
  errno = 0;
  rewinddir(directory);
  while (readdir(directory) != NULL) ++count;
  return errno == 0 ? count : -1;
}
/* The directory that was opened, whatever has become of its name. */
static int is_listed(DIR *directory, int names) {
  struct stat st;
  CHECK(fstat(dirfd(directory), &st) == 0);
  for (int i = 0; i < 2; ++i) CHECK(count_names(directory) == names);
  return closedir(directory);
}

static int check_listings(void) {
  char a[4200], b[4200], below[4300], f[4300];
  struct stat st;
  snprintf(a, sizeof a, "%s/dirA", inside), snprintf(b, sizeof b, "%s/dirB", inside), snprintf(below, sizeof below, "%s/below", a);
  DIR *all = lists_new(a, 0755), *lower = lists_new(below, 0755);
  CHECK(all != NULL && lower != NULL && rename(a, b) == 0 && mkdir(a, 0755) == 0 && mkdir(below, 0755) == 0);
  CHECK(fstatat(dirfd(all), "f", &st, 0) == 0 && fstatat(dirfd(lower), "f", &st, 0) == 0 && is_listed(all, 4) == 0 && is_listed(lower, 3) == 0);
  CHECK(rmdir(below) == 0 && (all = opendir(a)) != NULL && rmdir(a) == 0 && is_listed(all, 0) == 0);
  /* Renamed by somebody else: the other one that is there, of four names, is not taken for it. */
  CHECK((all = lists_new(a, 0755)) != NULL && by_hand(SYS_renameat2, AT_FDCWD, (long)a, AT_FDCWD, (long)b, RENAME_EXCHANGE, 0) == 0);
  int fd = dirfd(all);
  if (fd >= 0) return is_listed(all, 3);
  CHECK(getenv("LD_PRELOAD") != NULL && errno == ESTALE);
  CHECK(count_names(all) == 3 || errno == ESTALE); /* as long as the cache may not know */
  return closedir(all);
}

static int as_nobody(void) { return setgid(65534) | setuid(65534); }
static int in_another_root(void) { return chroot(apart) | chdir("/"); }
static int (*changes_to)(void);
static int use_listing(void) {
  char name[4200];
  snprintf(name, sizeof name, "%s/private%d", inside, getpid());
  DIR *all = lists_new(name, 0700);
  CHECK(all != NULL);
  if (changes_to() != 0) return closedir(all); /* not for everybody */
  return is_listed(all, 3);
}
static int check_kept_listings(void) {
  changes_to = as_nobody;
  CHECK(in_child(use_listing) == 0);
  changes_to = in_another_root;
  return in_child(use_listing);
}

/* ---- mounts ---- */

/* Made by hand are those that are no matter here. */
static int mount_by_hand(const char *from, const char *to, unsigned long flags) { return (int)by_hand(SYS_mount, (long)from, (long)to, 0, (long)flags, 0, 0); }
static int in_own_mounts(void) { return by_hand(SYS_unshare, CLONE_NEWNS, 0, 0, 0, 0, 0) == 0 && mount_by_hand(NULL, "/", MS_REC | MS_PRIVATE) == 0; }

static int covers_by_mount(void) { return syscall(SYS_mount, apart, inside, NULL, MS_BIND, NULL); }
static int covers_by_move(void) {
  const int tree = (int)by_hand(SYS_open_tree, AT_FDCWD, (long)apart, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC, 0, 0, 0);
  return syscall(SYS_move_mount, tree, "", AT_FDCWD, inside, MOVE_MOUNT_F_EMPTY_PATH) | close(tree);
}
static int (*covers)(void);
static int use_covered(void) {
  char file[4200];
  snprintf(file, sizeof file, "%s/file", inside);
  if (!in_own_mounts()) return 0; /* not for everybody */
  CHECK(opened_right(AT_FDCWD, path) && covers() == 0 && holds(file, "apart") && is_missing(path));
  return 0;
}

static int uncovers_by_hand(void) { return syscall(SYS_umount2, apart, MNT_DETACH); }
static int uncovers(void) { return umount2(apart, MNT_DETACH); }
static int changes_by_hand(void) {
  struct mount_attr attributes = {.attr_set = MOUNT_ATTR_NODEV};
  return syscall(SYS_mount_setattr, AT_FDCWD, apart, 0, &attributes, sizeof attributes);
}
static int use_uncovered(void) {
  if (!in_own_mounts()) return 0;
  CHECK(mount_by_hand(apart, apart, MS_BIND) == 0 && opened_right(AT_FDCWD, path) && covers() == 0 && opened_right(AT_FDCWD, path));
  int fd = open(path, O_RDONLY);
  CHECK(fd >= 0 && fd < 100); /* a real one */
  return close(fd);
}

static int check_mounts(void) {
  int (*const over[])(void) = {covers_by_mount, covers_by_move};
  int (*const beside[])(void) = {uncovers_by_hand, uncovers, changes_by_hand};
  for (int i = 0; i < 2; ++i) {
    covers = over[i];
    CHECK(in_child(use_covered) == 0);
  }
  for (int i = 0; i < 3; ++i) {
    covers = beside[i];
    CHECK(in_child(use_uncovered) == 0);
  }
  return 0;
}

/* ---- names from above that lead inside ---- */

/* opens 12 */
static int check_from_above(void) {
  char spelled[4200], link[4200];
  int above = open(top, O_RDONLY | O_DIRECTORY);
  CHECK(above >= 0 && chdir(top) == 0);
  for (int i = 0; i < 2; ++i) {
    const int directory = i == 0 ? AT_FDCWD : above;
    snprintf(spelled, sizeof spelled, "./%s", from_top);
    CHECK(opened_right(directory, from_top) && looks_apart(directory) && opened_right(directory, from_top) && opened_right(directory, spelled));
    snprintf(spelled, sizeof spelled, "%s//%s", inside + strlen(top) + 1, path + strlen(inside) + 1);
    CHECK(opened_right(directory, spelled) && chdir(apart) == 0 && chdir(top) == 0 && opened_right(directory, from_top));
    snprintf(link, sizeof link, "%s/%s", "leads", path + strlen(inside) + 1);
    CHECK(symlink(inside, "leads") == 0 && opened_right(directory, link) && unlink("leads") == 0);
  }
  return close(above);
}

/* opens 0: ".." is the kernel's, whatever the name begins with */
static int check_dots(void) {
  char spelled[4200];
  snprintf(spelled, sizeof spelled, "apart/../%s", from_top);
  CHECK(chdir(top) == 0 && opened_right(AT_FDCWD, spelled));
  return 0;
}

int main(int argc, char **argv) {
  static const struct check checks[] = {{"names_above", check_names_above}, {"other_file_system", check_other_file_system}, {"renames", check_renames}, {"executables", check_executables},
                                        {"open_directories", check_open_directories}, {"changes", check_changes}, {"moves", check_moves}, {"root", check_root}, {"mounts", check_mounts}, {"listings", check_listings}, {"kept_listings", check_kept_listings},
                                        {"from_above", check_from_above}, {"dots", check_dots}};
  if (argc < 3) return 64;
  path = argv[1], other = argv[2];
  snprintf(inside, sizeof inside, "%s", path), *strrchr(inside, '/') = 0;
  snprintf(top, sizeof top, "%s", inside), *strrchr(top, '/') = 0;
  snprintf(from_top, sizeof from_top, "%s", path + strlen(top) + 1);
  snprintf(apart, sizeof apart, "%s/apart", top);
  return RUN_CHECKS(checks, argc, argv, 3);
}
