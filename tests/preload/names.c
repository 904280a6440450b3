/* Names of cached files: those by which a descriptor is opened once more, those that system calls made by hand use, those that change.
 * usage: names FILE [check...]: 100,000 bytes of 32-bit numbers, in a directory that may be written to. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <fts.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <linux/kcmp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

#include "tests/preload/by_hand.h"
#include "tests/preload/check.h"

static const char *path;
static const long size = 100000;

static int holds_all(int fd) {
  static char bytes[100001];
  uint32_t last;
  int good = read(fd, bytes, sizeof bytes) == size && (memcpy(&last, bytes + size - 4, 4), last == 24999);
  return close(fd) == 0 && good;
}

/* converts */
static int check_reopened(void) {
  static const char *const forms[] = {"/proc/self/fd/%d", "/dev/fd/%d", "/proc/thread-self/fd/%d", "/proc/%2$d/fd/%1$d"};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; ++i) {
    char name[64], link[4096], resolved[4096];
    struct stat st, real;
    int fd = open(path, O_RDONLY);
    snprintf(name, sizeof name, forms[i], fd, getpid());
    int again = open(name, O_RDONLY);
    CHECK(again >= 0 && holds_all(again) && close(fd) == 0);
    fd = open(path, O_RDONLY);
    snprintf(name, sizeof name, forms[i], fd, getpid());
    CHECK(stat(name, &st) == 0 && stat(path, &real) == 0 && st.st_ino == real.st_ino && st.st_size == size && close(fd) == 0);
    fd = open(path, O_RDONLY);
    snprintf(name, sizeof name, forms[i], fd, getpid());
    ssize_t bytes = readlink(name, link, sizeof link - 1);
    CHECK(bytes > 0 && (link[bytes] = 0, strstr(link, strrchr(path, '/')) != NULL) && close(fd) == 0);
    fd = open(path, O_RDONLY);
    snprintf(name, sizeof name, forms[i], fd, getpid());
    CHECK(realpath(name, resolved) != NULL && strcmp(strrchr(resolved, '/'), strrchr(path, '/')) == 0 && close(fd) == 0);
    fd = open(path, O_RDONLY);
    snprintf(name, sizeof name, forms[i], fd, getpid());
    FILE *stream = fopen(name, "r");
    CHECK(stream != NULL && fseek(stream, 0, SEEK_END) == 0 && ftell(stream) == size && fclose(stream) == 0 && close(fd) == 0);
  }
  return 0;
}

/* A number that somebody reopens behind the library's back is nobody's file, whatever rights he has. */
static int check_placeholder(void) {
  char name[64];
  int fd = open(path, O_RDONLY);
  if (fd < 500) return 0; /* a real one */
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  pid_t child = fork(); /* converts: look at one that is opened in the child, by a process that does not know */
  if (child == 0) {
    int mine = open(path, O_RDONLY);
    char command[100];
    snprintf(command, sizeof command, "/proc/%d/fd/%d", getpid(), mine);
    if (mine < 500) _exit(2);
    const long opened = by_hand(SYS_openat, AT_FDCWD, (long)command, O_RDONLY, 0, 0, 0);
    _exit(opened == -ENXIO ? 0 : 3);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  return close(fd);
}

/* A number that escapes gives no bytes, neither while it is a file's nor when it is kept for the next one. */
static int gives_nothing(int fd) {
  char bytes[16];
  return by_hand(SYS_read, fd, (long)bytes, sizeof bytes, 0, 0, 0) == -EBADF && by_hand(SYS_pread64, fd, (long)bytes, sizeof bytes, 0, 0, 0) == -EBADF &&
         by_hand(SYS_lseek, fd, 0, SEEK_END, 0, 0, 0) == -EBADF && by_hand(SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == -EBADF;
}
static int check_escaped(void) {
  int fd = open(path, O_RDONLY);
  if (fd < 500) return close(fd); /* a real one */
  CHECK(gives_nothing(fd) && holds_all(fd) && gives_nothing(fd));
  return 0;
}

/* As libuv, Boost and others do it. */
static int check_by_hand(void) {
  char a[8], b[8];
  struct iovec parts[2] = {{a, 8}, {b, 8}};
  struct stat st;
  struct statx sx;
  uint32_t number;
  int fd = open(path, O_RDONLY);
  CHECK(syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &sx) == 0 && sx.stx_size == (unsigned long)size && S_ISREG(sx.stx_mode));
  CHECK(syscall(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH) == 0 && st.st_size == size);
  CHECK(syscall(SYS_fstat, fd, &st) == 0 && st.st_size == size && st.st_ino == sx.stx_ino);
  CHECK(syscall(SYS_read, fd, &number, 4) == 4 && number == 0);
  CHECK(syscall(SYS_pread64, fd, &number, 4, 40) == 4 && number == 10);
  CHECK(syscall(SYS_readv, fd, parts, 2) == 16 && syscall(SYS_preadv, fd, parts, 2, 8, 0) == 16 && (memcpy(&number, b, 4), number == 4));
  CHECK(syscall(SYS_preadv2, fd, parts, 2, 80, 0, 0) == 16 && (memcpy(&number, a, 4), number == 20));
  CHECK(syscall(SYS_lseek, fd, 0, SEEK_CUR) == 20 && syscall(SYS_fcntl, fd, F_GETFL) >= 0);
  void *map = (void *)syscall(SYS_mmap, NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
  CHECK(map != MAP_FAILED && ((uint32_t *)map)[7] == 7 && syscall(SYS_munmap, map, 4096) == 0);
  CHECK(syscall(SYS_close, fd) == 0 && syscall(SYS_read, fd, &number, 4) == -1 && errno == EBADF);
  fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
  CHECK(fd >= 0 && holds_all(fd));
  CHECK(syscall(SYS_newfstatat, AT_FDCWD, path, &st, 0) == 0 && st.st_size == size);
  return 0;
}
static int check_by_hand_rare(void) { /* converts three */
  uint32_t number;
  int fd = open(path, O_RDONLY);
  CHECK(lseek(fd, 4, SEEK_SET) == 4 && syscall(SYS_fsync, fd) == 0 && syscall(SYS_read, fd, &number, 4) == 4 && number == 1);
  int first = open(path, O_RDONLY), second = open(path, O_RDONLY);
  const long same = syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, first, first), other = syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, first, second);
  CHECK((same == 0 && other > 0) || errno == EPERM || errno == ENOSYS);
  return close(fd) | close(first) | close(second);
}

/* What succeeds leaves errno alone, the call that looks for the daemon too: each in a process that has made none before. */
static int succeeds(int call) {
  char directory[4096];
  struct stat st;
  snprintf(directory, sizeof directory, "%.*s", (int)(strrchr(path, '/') - path), path);
  errno = 77;
  switch (call) {
    case 0: return open(path, O_RDONLY) >= 0;
    case 1: return stat(path, &st) == 0;
    case 2: return access(path, R_OK) == 0;
    case 3: return fopen(path, "r") != NULL;
    default: return opendir(directory) != NULL;
  }
}
static int check_errno(void) {
  for (int call = 0; call < 5; ++call) {
    int status;
    pid_t child = fork();
    if (child == 0) _exit(!succeeds(call) || errno != 77);
    CHECK(waitpid(child, &status, 0) == child);
    if (status != 0) printf("call %d\n", call);
    CHECK(status == 0);
  }
  return 0;
}

static int check_access(void) {
  char name[4096];
  CHECK(access(path, F_OK) == 0 && access(path, R_OK) == 0 && faccessat(AT_FDCWD, path, R_OK, 0) == 0 && euidaccess(path, R_OK) == 0);
  CHECK(access(path, X_OK) == -1 && errno == EACCES);
  snprintf(name, sizeof name, "%s.none", path);
  CHECK(access(name, F_OK) == -1 && errno == ENOENT && faccessat(AT_FDCWD, name, R_OK, AT_EACCESS) == -1 && errno == ENOENT);
  return 0;
}

static int check_links(void) {
  char name[4096];
  struct stat st;
  snprintf(name, sizeof name, "%s.link", path);
  CHECK(symlink(path, name) == 0);
  CHECK(open(name, O_RDONLY | O_NOFOLLOW) == -1 && errno == ELOOP);
  int fd = open(path, O_RDONLY | O_NOFOLLOW);
  CHECK(fd >= 0 && holds_all(fd));
  fd = open(path, O_RDONLY | O_NOATIME);
  CHECK(fd >= 0 && holds_all(fd));
  CHECK(lstat(name, &st) == 0 && S_ISLNK(st.st_mode) && unlink(name) == 0);
  return 0;
}

/* On the smallest of stacks: a handler's, and a thread's. */
static volatile sig_atomic_t handled;
static char small_path[4096], small_other[4096];
static int use_little(void) {
  struct stat st;
  int fd = open(small_path, O_RDONLY | O_CREAT, 0600);
  if (fd < 0 || close(fd) != 0 || rename(small_path, small_other) != 0 || stat(small_other, &st) != 0 || unlink(small_other) != 0) return 1;
  fd = open(path, O_RDONLY);
  uint32_t number;
  return fd < 0 || read(fd, &number, 4) != 4 || number != 0 || close(fd) != 0;
}
static void on_signal(int number) { handled = use_little() == 0 ? 1 : 2; (void)number; }
static void *in_thread(void *argument) {
  (void)argument;
  return (void *)(size_t)use_little();
}
static int check_small_stacks(void) {
  size_t page = 4096, room = 8192 + 4 * page;
  char *memory = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); /* anything beyond is a fault */
  CHECK(memory != MAP_FAILED && mprotect(memory + 2 * page, 8192 + page, PROT_READ | PROT_WRITE) == 0);
  stack_t stack = {.ss_sp = memory + 2 * page, .ss_size = 8192 + page}; /* of which the kernel takes 3.5 KiB on new processors */
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
  CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
  snprintf(small_path, sizeof small_path, "%s.a", path), snprintf(small_other, sizeof small_other, "%s.b", path);
  for (int i = 0; i < 3; ++i) {
    CHECK(raise(SIGUSR1) == 0 && handled == 1);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && holds_all(fd));
  }
  pthread_attr_t attributes;
  pthread_t thread;
  void *bad;
  CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, 16384) == 0);
  CHECK(pthread_create(&thread, &attributes, in_thread, NULL) == 0 && pthread_join(thread, &bad) == 0 && bad == NULL);
  return 0;
}

/* No number is free: what is changed is known all the same. */
static int check_changes_without_numbers(void) {
  char name[4096];
  struct stat st;
  int fds[5000], count = 0;
  snprintf(name, sizeof name, "%s.new", path);
  int fd = open(name, O_WRONLY | O_CREAT, 0600);
  CHECK(fd >= 0 && write(fd, "old", 3) == 3 && close(fd) == 0);
  CHECK(stat(name, &st) == 0 && st.st_size == 3);
  while (count < 5000 && (fds[count] = open("/dev/null", O_RDONLY)) >= 0) ++count;
  CHECK(errno == EMFILE);
  CHECK(truncate(name, 1) == 0 && stat(name, &st) == 0 && st.st_size == 1);
  CHECK(chmod(name, 0640) == 0 && stat(name, &st) == 0 && (st.st_mode & 0777) == 0640);
  CHECK(unlink(name) == 0 && stat(name, &st) == -1 && errno == ENOENT);
  while (count > 0) close(fds[--count]);
  return 0;
}

/* Two threads, one of which stops writing to another file just now. */
static volatile int stop;
static void *write_other(void *argument) {
  while (!stop) {
    int fd = open(argument, O_WRONLY);
    if (fd < 0 || close(fd) != 0) return (void *)1;
  }
  return NULL;
}
static int check_writers(void) {
  char mine[4096], theirs[4096];
  pthread_t thread;
  void *bad;
  snprintf(mine, sizeof mine, "%s.mine", path), snprintf(theirs, sizeof theirs, "%s.theirs", path);
  int fd = open(theirs, O_WRONLY | O_CREAT, 0600);
  CHECK(fd >= 0 && close(fd) == 0 && pthread_create(&thread, NULL, write_other, theirs) == 0);
  int wrong = 0;
  for (int round = 0; round < 400 && !wrong; ++round) {
    char byte = (char)('a' + round % 26), seen = 0;
    fd = open(mine, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int before = open(mine, O_RDONLY);
    wrong |= fd < 0 || before < 0 || close(before) != 0 || write(fd, &byte, 1) != 1;
    int again = open(mine, O_RDONLY);
    wrong |= again < 0 || read(again, &seen, 1) != 1 || seen != byte || close(again) != 0 || close(fd) != 0;
  }
  stop = 1;
  CHECK(pthread_join(thread, &bad) == 0 && bad == NULL && !wrong && unlink(mine) == 0 && unlink(theirs) == 0);
  return 0;
}

/* Other roots, other files. */
static int check_roots(void) {
  char root[4096], inside[8192];
  if (geteuid() != 0) return 0;
  pid_t child = fork();
  if (child == 0) {
    struct stat st;
    snprintf(root, sizeof root, "%s.root", path);
    char *slash;
    snprintf(inside, sizeof inside, "%s%s", root, path);
    for (slash = strchr(inside + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
      *slash = 0;
      mkdir(inside, 0700);
      *slash = '/';
    }
    int fd = open(inside, O_WRONLY | O_CREAT, 0600);
    if (fd < 0 || write(fd, "!", 1) != 1 || close(fd) != 0) _exit(2);
    fd = open(path, O_RDONLY);
    uint32_t number;
    if (chroot(root) != 0) _exit(0); /* not allowed here */
    if (stat(path, &st) != 0 || st.st_size != 1) _exit(4);
    int other = open(path, O_RDONLY);
    if (read(other, &number, 4) != 1) _exit(5);
    _exit(read(fd, &number, 4) == 4 && number == 0 ? 0 : 6);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  return 0;
}

static void *wait_for_input(void *argument) {
  (void)argument;
  getchar();
  return NULL;
}
static int check_ends(void) { /* a thread that waits in a stream does not keep the process from ending */
  char name[4096];
  int ends[2];
  pthread_t thread;
  CHECK(pipe(ends) == 0 && dup2(ends[0], 0) == 0);
  snprintf(name, sizeof name, "%s.out", path);
  FILE *out = fopen(name, "w");
  CHECK(out != NULL && fputs("kept", out) >= 0 && pthread_create(&thread, NULL, wait_for_input, NULL) == 0);
  usleep(50000);
  printf("ends ok\n");
  fflush(stdout);
  alarm(5);
  exit(0);
}

static int select_all(const struct dirent *entry) { return entry->d_name[0] != '.'; }
static int check_listings(void) {
  char name[4096];
  snprintf(name, sizeof name, "%.*s/names", (int)(strrchr(path, '/') - path), path);
  struct dirent **found;
  int n = scandir(name, &found, select_all, alphasort);
  CHECK(n == 20 && strcmp(found[0]->d_name, "n00") == 0 && strcmp(found[19]->d_name, "n19") == 0);
  while (n > 0) free(found[--n]);
  free(found);
  char *paths[] = {name, NULL};
  FTS *tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
  int files = 0;
  for (FTSENT *entry; (entry = fts_read(tree)) != NULL;) files += entry->fts_info == FTS_F && entry->fts_statp->st_size == 1;
  CHECK(files == 20 && fts_close(tree) == 0);
  return 0;
}

/* Begun anew, a listing shows what there is by then, also while the daemon (DAEMON: its number) says nothing. */
static int count_entries(DIR *directory) {
  int count = 0;
  while (readdir(directory) != NULL) ++count;
  return count;
}
static int check_rewound(void) {
  char in[4096], name[8192], sixth[256];
  const char *const daemon = getenv("DAEMON");
  snprintf(in, sizeof in, "%.*s/names", (int)(strrchr(path, '/') - path), path);
  snprintf(name, sizeof name, "%s/new", in);
  DIR *directory = opendir(in);
  CHECK(directory != NULL && count_entries(directory) == 22);
  if (daemon != NULL) CHECK(kill(atoi(daemon), SIGSTOP) == 0);
  int fd = open(name, O_CREAT | O_WRONLY, 0600);
  CHECK(fd >= 0 && close(fd) == 0);
  rewinddir(directory);
  const int count = count_entries(directory);
  rewinddir(directory);
  for (int i = 0; i < 5; ++i) CHECK(readdir(directory) != NULL);
  const long at = telldir(directory);
  snprintf(sixth, sizeof sixth, "%s", readdir(directory)->d_name);
  const int left = count_entries(directory);
  seekdir(directory, at);
  CHECK(strcmp(readdir(directory)->d_name, sixth) == 0 && count_entries(directory) == left);
  CHECK(unlink(name) == 0);
  if (daemon != NULL) CHECK(kill(atoi(daemon), SIGCONT) == 0);
  CHECK(count == 23 && left == 17);
  rewinddir(directory);
  CHECK(count_entries(directory) == 22);
  return closedir(directory);
}

/* What is said of descriptors and offsets that hardly anybody asks about is what the kernel says of any file. */
static int check_exact(void) {
  char name[4200], byte;
  struct iovec part = {&byte, 1};
  struct stat st;
  int fd = open(path, O_RDONLY), more = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), other;
#if defined(__x86_64__)
  CHECK(fcntl(fd, F_GETFL) == 0100000 && fcntl(more, F_GETFL) == (0100000 | O_NOFOLLOW | O_NONBLOCK));
#endif
  CHECK(lseek(fd, INT64_MAX, SEEK_END) == -1 && errno == EINVAL && lseek(fd, 4, SEEK_SET) == 4 && lseek(fd, INT64_MAX, SEEK_CUR) == -1 && errno == EINVAL);
  CHECK(pread(fd, &byte, 1, INT64_MAX) == -1 && errno == EINVAL && preadv(fd, &part, 1, INT64_MAX) == -1 && errno == EINVAL);
  CHECK(pread(fd, &byte, 1, INT64_MAX - 1) == 0 && preadv(fd, &part, 1, INT64_MAX - 1) == 0 && pread(fd, &byte, 0, INT64_MAX) == 0);
  int shown = fcntl(more, F_GETFL), left = 0;
  CHECK(dup2(more, 60) == 60 && fcntl(60, F_GETFL) == shown && fcntl(more, F_GETFL) == shown && close(60) == 0); /* converts */
  CHECK(lseek(fd, size + 10, SEEK_SET) == size + 10 && ioctl(fd, FIONREAD, &left) == 0 && left == -10 && lseek(fd, 4, SEEK_SET) == 4 && ioctl(fd, FIONREAD, &left) == 0 && left == size - 4);
  snprintf(name, sizeof name, "%s.out", path);
  off_t before = -1, far = -100, begin = 4;
  int out = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  CHECK(out >= 0 && copy_file_range(fd, &before, out, NULL, 10, 0) == -1 && errno == EOVERFLOW && copy_file_range(fd, &begin, out, &before, 10, 0) == -1 && errno == EOVERFLOW);
  CHECK(copy_file_range(fd, &far, out, NULL, 10, 0) == -1 && errno == EINVAL && copy_file_range(fd, &begin, out, NULL, SIZE_MAX, 0) == -1 && errno == EOVERFLOW);
  CHECK(copy_file_range(fd, &begin, out, NULL, 8, 0) == 8 && begin == 12 && close(out) == 0 && unlink(name) == 0 && lseek(fd, 0, SEEK_SET) == 0);
  snprintf(name, sizeof name, "//proc/self/fd/%d", fd); /* converts */
  CHECK((other = open(name, O_RDONLY)) >= 0 && holds_all(other) && fstat(fd, &st) == 0 && S_ISREG(st.st_mode));
  snprintf(name, sizeof name, "%.*s/device", (int)(strrchr(path, '/') - path), path);
  if (lstat(name, &st) == 0) CHECK(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3));
  return close(fd) | close(more);
}

/* Whatever makes a name, it is in the next listing. */
static int count_names(const char *name) {
  struct dirent **found;
  int n = scandir(name, &found, select_all, alphasort), count = n;
  while (n > 0) free(found[--n]);
  if (count >= 0) free(found);
  return count;
}
static int check_made(void) {
  char in[4096], name[8192];
  snprintf(in, sizeof in, "%.*s/made", (int)(strrchr(path, '/') - path), path);
  CHECK(mkdir(in, 0700) == 0 && count_names(in) == 0);
  snprintf(name, sizeof name, "%s/dXXXXXX", in);
  CHECK(mkdtemp(name) != NULL && count_names(in) == 1);
  snprintf(name, sizeof name, "%s/sXXXXXX.x", in);
  int fd = mkstemps(name, 2);
  CHECK(fd >= 0 && close(fd) == 0 && count_names(in) == 2);
  snprintf(name, sizeof name, "%s/fifo", in);
  CHECK(mkfifo(name, 0600) == 0 && count_names(in) == 3);
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int here = open(".", O_RDONLY | O_DIRECTORY), s = socket(AF_UNIX, SOCK_STREAM, 0);
  strcpy(address.sun_path, "socket");
  CHECK(chdir(in) == 0 && bind(s, (struct sockaddr *)&address, sizeof address) == 0 && fchdir(here) == 0 && count_names(in) == 4);
  CHECK(syscall(SYS_unlinkat, AT_FDCWD, name, 0) == 0 && count_names(in) == 3);
  return close(s) | close(here);
}

/* What system calls made by hand change is seen by the next look: an entry more or less in the directory, another mode, time or size of the file. */
static struct stat before, after;
static int looks_new(const char *name) { return stat(name, &after) == 0 && memcmp(&before.st_ctim, &after.st_ctim, sizeof after.st_ctim) != 0; }
static void look(const char *name) {
  usleep(20000); /* the kernel's clock of files has coarse steps */
  stat(name, &before);
}
#define CHANGES(...)                                                               \
  do {                                                                             \
    look("file");                                                                  \
    CHECK(syscall(__VA_ARGS__) == 0 || errno == ENOTSUP);                          \
    CHECK(errno == ENOTSUP || looks_new("file"));                                  \
    errno = 0;                                                                     \
  } while (0)
#define MAKES(difference, ...)                                                     \
  do {                                                                             \
    int count = count_names(".");                                                  \
    CHECK(syscall(__VA_ARGS__) == 0 && count_names(".") == count + (difference));  \
  } while (0)
static int check_changes_by_hand(void) {
  char in[4096];
  struct timespec times[2] = {{1000000000, 0}, {1000000000, 0}};
  const int start = open(".", O_RDONLY | O_DIRECTORY);
  snprintf(in, sizeof in, "%.*s/by_hand", (int)(strrchr(path, '/') - path), path);
  CHECK(mkdir(in, 0700) == 0 && chdir(in) == 0 && count_names(".") == 0);
  int fd = open("file", O_WRONLY | O_CREAT, 0600);
  CHECK(write(fd, "one", 3) == 3 && close(fd) == 0);
  errno = 0;
  MAKES(1, SYS_mkdirat, AT_FDCWD, "a", 0700);
  MAKES(1, SYS_mknodat, AT_FDCWD, "b", S_IFIFO | 0600, 0);
  MAKES(1, SYS_symlinkat, "file", AT_FDCWD, "c");
  MAKES(-1, SYS_renameat, AT_FDCWD, "c", AT_FDCWD, "b");
  fd = open("file", O_RDWR);
  CHANGES(SYS_fchmod, fd, 0640);
  CHANGES(SYS_fchown, fd, getuid(), getgid());
  CHANGES(SYS_fsetxattr, fd, "user.a", "b", 1, 0);
  CHANGES(SYS_fremovexattr, fd, "user.a");
  CHANGES(SYS_utimensat, fd, NULL, times, 0);
  CHECK(after.st_mtime == 1000000000 && close(fd) == 0);
  CHANGES(SYS_fchmodat, AT_FDCWD, "file", 0600);
  CHANGES(SYS_fchownat, AT_FDCWD, "file", getuid(), getgid(), 0);
  CHANGES(SYS_utimensat, AT_FDCWD, "file", NULL, 0);
  CHANGES(SYS_setxattr, "file", "user.a", "b", 1, 0);
  CHANGES(SYS_removexattr, "file", "user.a");
  CHANGES(SYS_lsetxattr, "file", "user.a", "b", 1, 0);
  CHANGES(SYS_lremovexattr, "file", "user.a");
  struct {
    struct file_handle head;
    char bytes[MAX_HANDLE_SZ];
  } handle = {.head = {.handle_bytes = MAX_HANDLE_SZ}};
  int mount_id, mount = open(".", O_RDONLY | O_DIRECTORY);
  look("file");
  if (name_to_handle_at(AT_FDCWD, "file", &handle.head, &mount_id, 0) == 0 && (fd = (int)syscall(SYS_open_by_handle_at, mount, &handle, O_WRONLY)) >= 0)
    CHECK(write(fd, "longer", 6) == 6 && close(fd) == 0 && stat("file", &after) == 0 && after.st_size == 6);
#ifdef SYS_open
  MAKES(1, SYS_mkdir, "d", 0700);
  MAKES(-1, SYS_rmdir, "d");
  MAKES(1, SYS_mknod, "d", S_IFIFO | 0600, 0);
  MAKES(1, SYS_symlink, "file", "e");
  MAKES(1, SYS_link, "file", "f");
  CHECK(stat("file", &after) == 0 && after.st_nlink == 2);
  CHANGES(SYS_chmod, "file", 0644);
  CHANGES(SYS_chown, "file", getuid(), getgid());
  CHANGES(SYS_lchown, "file", getuid(), getgid());
  CHANGES(SYS_utime, "file", NULL);
  CHANGES(SYS_utimes, "file", NULL);
  CHANGES(SYS_futimesat, AT_FDCWD, "file", NULL);
  int count = count_names(".");
  fd = (int)syscall(SYS_creat, "g", 0600);
  CHECK(fd >= 0 && count_names(".") == count + 1 && write(fd, "four", 4) == 4 && close(fd) == 0 && stat("g", &after) == 0 && after.st_size == 4);
  fd = (int)syscall(SYS_creat, "g", 0600);
  CHECK(fd >= 0 && stat("g", &after) == 0 && after.st_size == 0 && close(fd) == 0);
#endif
  return fchdir(start) | close(start) | close(mount);
}

static int writes(const char *name, const char *text) {
  int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0;
}
/* What is there, by its bytes and by its size. */
static int holds(const char *name, const char *text) {
  char bytes[100];
  struct stat st;
  int fd = open(name, O_RDONLY);
  ssize_t got = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);
  return fd >= 0 && close(fd) == 0 && got == (ssize_t)strlen(text) && memcmp(bytes, text, (size_t)got) == 0 && stat(name, &st) == 0 && st.st_size == got;
}
static int is_no_directory(const char *name) {
  struct stat st;
  return stat(name, &st) == -1 && errno == ENOTDIR && open(name, O_RDONLY) == -1 && errno == ENOTDIR;
}

/* A directory and a file change places, named in either order. */
static int check_exchanged(void) {
  char in[4096];
  const int start = open(".", O_RDONLY | O_DIRECTORY);
  snprintf(in, sizeof in, "%.*s/exchanged", (int)(strrchr(path, '/') - path), path);
  CHECK(mkdir(in, 0700) == 0 && chdir(in) == 0 && mkdir("a", 0700) == 0 && writes("a/file", "below") && writes("b", "file"));
  CHECK(holds("a/file", "below") && holds("b", "file"));
  CHECK(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_EXCHANGE) == 0);
  CHECK(holds("a", "file") && holds("b/file", "below") && is_no_directory("a/file"));
  CHECK(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_EXCHANGE) == 0);
  CHECK(holds("b", "file") && holds("a/file", "below") && is_no_directory("b/file"));
  CHECK(renameat2(AT_FDCWD, "b", AT_FDCWD, "a", RENAME_EXCHANGE) == 0);
  CHECK(holds("a", "file") && holds("b/file", "below") && is_no_directory("a/file"));
  return fchdir(start) | close(start);
}

/* Names that end as the kernel marks those of files that are gone. */
static int check_deleted(void) {
  char in[4096];
  snprintf(in, sizeof in, "%.*s/d (deleted)", (int)(strrchr(path, '/') - path), path);
  CHECK(mkdir(in, 0700) == 0);
  const int start = open(".", O_RDONLY | O_DIRECTORY), directory = open(in, O_RDONLY | O_DIRECTORY);
  CHECK(directory >= 0 && chdir(in) == 0 && writes("x (deleted)", "one") && holds("x (deleted)", "one"));
  CHECK(writes("x (deleted)", "other") && holds("x (deleted)", "other"));
  int fd = openat(directory, "x (deleted)", O_WRONLY | O_TRUNC);
  CHECK(fd >= 0 && write(fd, "third!", 6) == 6 && close(fd) == 0 && holds("x (deleted)", "third!"));
  /* One that is gone is nobody's name. */
  CHECK(writes("x", "gone") && holds("x", "gone") && (fd = open("x", O_WRONLY)) >= 0 && unlink("x") == 0 && write(fd, "!", 1) == 1 && close(fd) == 0);
  CHECK(holds("x (deleted)", "third!") && access("x", F_OK) == -1 && errno == ENOENT);
  return fchdir(start) | close(start) | close(directory);
}

static int check_fdopen(void) { /* of the modes it takes, the one that is open's alone changes nothing */
  int fd = open(path, O_RDONLY);
  FILE *stream = fdopen(fd, "rbe");
  CHECK(stream != NULL && fileno(stream) == fd && fcntl(fd, F_GETFD) == 0 && getc(stream) == 0 && fclose(stream) == 0);
  fd = open(path, O_RDONLY | O_CLOEXEC);
  CHECK((stream = fdopen(fd, "r")) != NULL && fcntl(fd, F_GETFD) == FD_CLOEXEC && fclose(stream) == 0);
  return 0;
}
static int check_streams(void) { /* the wide one and the one that is opened anew convert */
  char name[4096];
  uint32_t numbers[3000];
  FILE *stream = fopen(path, "rbe");
  CHECK(stream != NULL && fread(numbers, 4, 3000, stream) == 3000 && numbers[2999] == 2999 && ftell(stream) == 12000);
  CHECK(fseek(stream, -4, SEEK_END) == 0 && fread(numbers, 4, 2, stream) == 1 && numbers[0] == 24999 && feof(stream));
  rewind(stream);
  CHECK(getc(stream) == 0 && ungetc(0, stream) == 0 && fread(numbers, 4, 2, stream) == 2 && numbers[1] == 1);
  CHECK(fcntl(fileno(stream), F_GETFD) == FD_CLOEXEC && fputc('x', stream) == EOF && fclose(stream) == 0);
  CHECK((stream = fopen(path, "re")) != NULL && freopen(NULL, "r", stream) == stream && fcntl(fileno(stream), F_GETFD) == FD_CLOEXEC && fclose(stream) == 0);
  CHECK(fopen(path, "r,ccs=none-such") == NULL);
  snprintf(name, sizeof name, "%.*s/names/n07", (int)(strrchr(path, '/') - path), path);
  stream = fopen(name, "r");
  CHECK(stream != NULL && getc(stream) == 'x' && getc(stream) == EOF && fclose(stream) == 0);
  stream = fopen(name, "r");
  CHECK(stream != NULL && fwide(stream, 0) <= 0 && fgetwc(stream) == L'x' && fgetwc(stream) == WEOF && fwide(stream, 0) > 0);
  CHECK(fseek(stream, 0, SEEK_SET) == 0 && fgetwc(stream) == L'x' && fclose(stream) == 0);
  return 0;
}

/* A last "." asks for a directory, and for what a link leads to. `path` is in a directory with a directory of one name, and a link to either. */
static int check_dots(void) {
  static const char *const dots[] = {"/.", "/./", "/./.", "//.//."};
  char directory[4096], name[8192];
  struct stat st, self;
  snprintf(directory, sizeof directory, "%s", path);
  *strrchr(directory, '/') = '\0';
  int in = open(directory, O_RDONLY | O_DIRECTORY), fd;
  CHECK(in >= 0 && fstat(in, &self) == 0 && fstatat(in, ".", &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == self.st_ino);
  for (int i = 0; i < 4; ++i) {
    snprintf(name, sizeof name, "%s%s", path, dots[i]);
    CHECK(open(name, O_RDONLY) == -1 && errno == ENOTDIR && stat(name, &st) == -1 && errno == ENOTDIR && access(name, R_OK) == -1 && errno == ENOTDIR);
    CHECK(opendir(name) == NULL && errno == ENOTDIR && unlink(name) == -1);
    snprintf(name, sizeof name, "%s/to_file%s", directory, dots[i]);
    CHECK(open(name, O_RDONLY) == -1 && errno == ENOTDIR && lstat(name, &st) == -1 && errno == ENOTDIR);
    snprintf(name, sizeof name, "%s/to_directory%s", directory, dots[i]);
    CHECK(lstat(name, &st) == 0 && S_ISDIR(st.st_mode) && stat(name, &st) == 0 && S_ISDIR(st.st_mode) && count_names(name) == 1);
    snprintf(name, sizeof name, "%s/directory%s", directory, dots[i]);
    CHECK(count_names(name) == 1);
    snprintf(name, sizeof name, "to_directory%s", dots[i]);
    CHECK(fstatat(in, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode));
    CHECK(chdir(directory) == 0 && lstat(name, &st) == 0 && S_ISDIR(st.st_mode) && (fd = openat(AT_FDCWD, "./file", O_RDONLY)) >= 0 && close(fd) == 0);
  }
  return close(in);
}

int main(int argc, char **argv) {
  static const struct check checks[] = {{"reopened", check_reopened}, {"placeholder", check_placeholder}, {"escaped", check_escaped}, {"by_hand", check_by_hand},
                                        {"by_hand_rare", check_by_hand_rare}, {"access", check_access}, {"links", check_links},
                                        {"small_stacks", check_small_stacks}, {"changes_without_numbers", check_changes_without_numbers},
                                        {"writers", check_writers}, {"roots", check_roots}, {"listings", check_listings}, {"fdopen", check_fdopen}, {"streams", check_streams}, {"made", check_made},
                                        {"changes_by_hand", check_changes_by_hand}, {"exchanged", check_exchanged}, {"deleted", check_deleted}, {"ends", check_ends}, {"dots", check_dots}, {"rewound", check_rewound}, {"exact", check_exact}, {"errno", check_errno}};
  if (argc < 2) return 64;
  path = argv[1];
  return RUN_CHECKS(checks, argc, argv, 2);
}
