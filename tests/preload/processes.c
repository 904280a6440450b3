/* Files that cached descriptors are handed to: programs that are executed or started, other processes, the kernel's and libraries' own readers; and what signals may not do.
 * usage: processes FILE check: 100,000 bytes of 32-bit numbers in a directory that may be written to. Exit 0 if all is as it is with any file. */
#define _GNU_SOURCE
#include <aio.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/preload/check.h"

extern char **environ;
static const char *path, *self;
static const long size = 100000;

static int reads(int fd, uint32_t number) {
  uint32_t got = 0;
  return read(fd, &got, 4) == 4 && got == number;
}
static int ends_well(pid_t child) {
  int status = -1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}
/* A descriptor at the second number. `flags`: O_CLOEXEC or 0. */
static int open_at_second(int flags) {
  int fd = open(path, O_RDONLY | flags);
  return fd >= 0 && reads(fd, 0) ? fd : -1;
}

/* ---- what the next program inherits ---- */

/* The program that is executed: `inherited FD` goes on where the first came to; of descriptors that exec closes there is none. */
static int inherited(int fd, int closed) {
  struct stat st, named;
  CHECK(fstat(fd, &st) == 0 && stat(path, &named) == 0 && st.st_ino == named.st_ino && st.st_size == size);
  CHECK(reads(fd, 1) && lseek(fd, -4, SEEK_END) == size - 4 && reads(fd, (uint32_t)size / 4 - 1));
  CHECK(closed < 0 || (fcntl(closed, F_GETFD) == -1 && errno == EBADF));
  return 0;
}
static char number_text[16], closed_text[16];
static char **arguments_for(int fd, int closed) {
  static char *arguments[6];
  snprintf(number_text, sizeof number_text, "%d", fd), snprintf(closed_text, sizeof closed_text, "%d", closed);
  char *all[] = {(char *)self, (char *)path, "inherited", number_text, closed_text, NULL};
  memcpy(arguments, all, sizeof all);
  return arguments;
}
static int check_exec(void) { /* converts what is inherited, and nothing else */
  int fd = open_at_second(0), closed = open_at_second(O_CLOEXEC);
  CHECK(fd >= 0 && closed >= 0);
  execve("/nothing/here", arguments_for(fd, closed), environ);
  CHECK(errno == ENOENT && reads(closed, 1)); /* nothing has happened */
  execve(self, arguments_for(fd, closed), environ);
  return 1;
}
static int check_fexec(void) {
  int fd = open_at_second(0), program = open(self, O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0 && program >= 0);
  fexecve(program, arguments_for(fd, -1), environ);
  return 1;
}
static int check_set_to_stay(void) { /* decided after the open */
  int fd = open_at_second(O_CLOEXEC);
  CHECK(fd >= 0 && fcntl(fd, F_SETFD, 0) == 0);
  execv(self, arguments_for(fd, -1));
  return 1;
}
static int check_spawn(void) { /* one that stays open, one that becomes the child's 0 */
  pid_t child;
  int kept = open_at_second(0), closed = open_at_second(O_CLOEXEC), moved = open_at_second(O_CLOEXEC);
  posix_spawn_file_actions_t actions;
  CHECK(kept >= 0 && closed >= 0 && moved >= 0);
  CHECK(posix_spawn(&child, self, NULL, NULL, arguments_for(kept, closed), environ) == 0 && ends_well(child));
  CHECK(posix_spawn_file_actions_init(&actions) == 0 && posix_spawn_file_actions_adddup2(&actions, moved, 0) == 0);
  CHECK(posix_spawnp(&child, self, &actions, NULL, arguments_for(0, closed), environ) == 0 && ends_well(child));
  CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
  CHECK(lseek(kept, 0, SEEK_CUR) == size && lseek(moved, 0, SEEK_CUR) == size); /* shared with the child */
  return !reads(closed, 1) | close(kept) | close(moved) | close(closed);
}
/* What file actions name is what it is when the child is made, however often they are used; a name of a descriptor, too. */
static int check_actions(void) { /* three */
  pid_t child;
  char name[32];
  posix_spawn_file_actions_t moves, opens;
  int first = open_at_second(O_CLOEXEC), number = first;
  CHECK(first >= 0 && posix_spawn_file_actions_init(&moves) == 0 && posix_spawn_file_actions_adddup2(&moves, first, 0) == 0);
  CHECK(posix_spawn(&child, self, &moves, NULL, arguments_for(0, -1), environ) == 0 && ends_well(child) && close(first) == 0);
  CHECK(open_at_second(O_CLOEXEC) == number);
  CHECK(posix_spawnp(&child, self, &moves, NULL, arguments_for(0, -1), environ) == 0 && ends_well(child) && close(number) == 0);
  int named = open_at_second(O_CLOEXEC);
  snprintf(name, sizeof name, "/dev/fd/%d", named);
  CHECK(named >= 0 && posix_spawn_file_actions_init(&opens) == 0 && posix_spawn_file_actions_addopen(&opens, 0, name, O_RDONLY, 0) == 0);
  CHECK(posix_spawnp(&child, "/usr/bin/cmp", &opens, NULL, (char *[]){"cmp", "-", (char *)path, NULL}, environ) == 0 && ends_well(child));
  return posix_spawn_file_actions_destroy(&moves) | posix_spawn_file_actions_destroy(&opens) | !reads(named, 1) | close(named);
}
static int check_vfork(void) { /* dup2 and exec in the child, as CPython's subprocess does */
  int fd = open_at_second(O_CLOEXEC);
  CHECK(fd >= 0);
  char **arguments = arguments_for(0, fd);
  pid_t child = vfork();
  if (child == 0) {
    if (dup2(fd, 0) == 0) execv(self, arguments);
    _exit(9);
  }
  CHECK(ends_well(child) && lseek(fd, 0, SEEK_CUR) == size);
  return close(fd);
}

/* By shells: the number stands in their line. */
static const char *shell_line(int fd, int closed) {
  static char line[9000];
  snprintf(line, sizeof line, "'%s' '%s' inherited %d %d", self, path, fd, closed);
  return line;
}
static int check_system(void) {
  int fd = open_at_second(0), closed = open_at_second(O_CLOEXEC);
  CHECK(fd >= 0 && closed >= 0 && system(shell_line(fd, closed)) == 0);
  CHECK(lseek(fd, 0, SEEK_CUR) == size); /* shared with the child */
  return !reads(closed, 1) | close(fd) | close(closed);
}
static int check_popen(void) {
  int fd = open_at_second(0), closed = open_at_second(O_CLOEXEC);
  FILE *pipe = popen(shell_line(fd, closed), "r");
  CHECK(fd >= 0 && closed >= 0 && pipe != NULL && pclose(pipe) == 0);
  CHECK(lseek(fd, 0, SEEK_CUR) == size);
  return !reads(closed, 1) | close(fd) | close(closed);
}

/* ---- what others are given ---- */

/* What a command has written is there when it has ended, through a descriptor from before, however short a while ago it was opened. */
static int check_command(void) {
  char name[4096], command[4200], bytes[16];
  struct stat st;
  snprintf(name, sizeof name, "%s.lines", path);
  int fd = open(name, O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0 && read(fd, bytes, sizeof bytes) == 3 && read(fd, bytes, sizeof bytes) == 0);
  snprintf(command, sizeof command, "echo l2 >> '%s'", name);
  CHECK(system(command) == 0);
  CHECK(fstat(fd, &st) == 0 && st.st_size == 6);
  CHECK(read(fd, bytes, sizeof bytes) == 3 && memcmp(bytes, "l2\n", 3) == 0);
  return close(fd);
}

/* Who is told of a change by the kernel sees it, though nobody who made it told the daemon. */
static int check_watched(void) {
  char name[4096], command[4300], bytes[16];
  struct inotify_event event;
  snprintf(name, sizeof name, "%s.lines", path);
  int fd = open(name, O_RDONLY | O_CLOEXEC), watch = inotify_init1(IN_CLOEXEC);
  CHECK(fd >= 0 && read(fd, bytes, sizeof bytes) == 3 && read(fd, bytes, sizeof bytes) == 0);
  CHECK(watch >= 0 && inotify_add_watch(watch, name, IN_MODIFY) >= 0 && inotify_add_watch(watch, "/none", IN_MODIFY) == -1 && errno == ENOENT);
  snprintf(command, sizeof command, "TIERD_DISABLE=1 /bin/sh -c \"echo l2 >> '%s'\"", name);
  CHECK(system(command) == 0);
  CHECK(read(watch, &event, sizeof event) == sizeof event);
  CHECK(read(fd, bytes, sizeof bytes) == 3 && memcmp(bytes, "l2\n", 3) == 0);
  int again = open(name, O_RDONLY | O_CLOEXEC);
  CHECK(again >= 0 && read(again, bytes, sizeof bytes) == 6);
  return close(fd) | close(watch) | close(again);
}

static int check_sent(void) { /* four: by sendmmsg to a process that knows nothing of us, in two messages, and by sendmsg */
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  pid_t child = fork();
  if (child == 0) {
    for (int got = 0; got < 4;) {
      char byte, control[CMSG_SPACE(2 * sizeof(int))];
      struct iovec part = {&byte, 1};
      struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
      if (recvmsg(ends[1], &message, 0) != 1) _exit(2);
      struct cmsghdr *head = CMSG_FIRSTHDR(&message);
      for (size_t i = 0; i < (head->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i, ++got) {
        int fd;
        struct stat st;
        memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
        if (fstat(fd, &st) != 0 || st.st_size != size || !reads(fd, 1)) _exit(3);
      }
    }
    _exit(0);
  }
  char byte = 0;
  struct iovec part = {&byte, 1};
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(2 * sizeof(int))];
  } control[3] = {0};
  struct mmsghdr messages[3] = {0};
  static const int counts[] = {2, 1, 1};
  for (int i = 0; i < 3; ++i) {
    control[i].head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN((size_t)counts[i] * sizeof(int))};
    for (int k = 0; k < counts[i]; ++k) {
      int fd = open_at_second(O_CLOEXEC);
      CHECK(fd >= 0);
      memcpy(CMSG_DATA(&control[i].head) + (size_t)k * sizeof fd, &fd, sizeof fd);
    }
    messages[i].msg_hdr = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control[i], .msg_controllen = CMSG_SPACE((size_t)counts[i] * sizeof(int))};
  }
  int apart = open_at_second(O_CLOEXEC); /* not sent: stays */
  CHECK(sendmmsg(ends[0], messages, 2, 0) == 2 && sendmsg(ends[0], &messages[2].msg_hdr, 0) == 1 && ends_well(child));
  return !reads(apart, 1);
}

static int check_aio(void) { /* two */
  uint32_t numbers[3] = {9, 9, 9};
  int fd = open(path, O_RDONLY), other = open(path, O_RDONLY);
  struct aiocb one = {.aio_fildes = fd, .aio_buf = &numbers[0], .aio_nbytes = 4, .aio_offset = 400};
  struct aiocb two = {.aio_fildes = other, .aio_buf = &numbers[1], .aio_nbytes = 4, .aio_offset = 800, .aio_lio_opcode = LIO_READ};
  struct aiocb three = {.aio_fildes = other, .aio_buf = &numbers[2], .aio_nbytes = 4, .aio_offset = size - 4, .aio_lio_opcode = LIO_READ};
  struct aiocb *list[] = {&two, NULL, &three};
  const struct aiocb *wait[] = {&one};
  CHECK(aio_read(&one) == 0);
  while (aio_error(&one) == EINPROGRESS) CHECK(aio_suspend(wait, 1, NULL) == 0);
  CHECK(aio_return(&one) == 4 && numbers[0] == 100);
  CHECK(lio_listio(LIO_WAIT, list, 3, NULL) == 0 && aio_return(&two) == 4 && aio_return(&three) == 4 && numbers[1] == 200 && numbers[2] == (uint32_t)size / 4 - 1);
  return close(fd) | close(other);
}

/* A library that gives descriptors to the kernel by itself: what is open when it is entered becomes real, and what is opened from then on is. */
#ifdef WITH_CUFILE
uint64_t cuFileDriverOpen(void);
uint64_t cuFileHandleRegister(void **handle, void *descriptor);
static int check_cufile(void) {
  void *handle = NULL;
  int fd = open_at_second(O_CLOEXEC);
  CHECK(fd >= 0 && cuFileDriverOpen() == 0);
  CHECK(cuFileHandleRegister(&handle, &fd) == 0 && handle != NULL && *(uint32_t *)handle == 1); /* the library has read on through it by itself */
  int next = open_at_second(O_CLOEXEC);
  CHECK(cuFileHandleRegister(&handle, &next) == 0 && *(uint32_t *)handle == 1);
  return close(fd) | close(next);
}
#endif

/* So does a library with Go's runtime, which is seen as soon as a file is opened after its loading. */
#ifdef WITH_GO
static int check_go(void) {
  char bytes[4];
  int fd = open_at_second(O_CLOEXEC);
  void *library = dlopen(WITH_GO, RTLD_NOW);
  CHECK(fd >= 0 && library != NULL);
  long (*const go_read)(int, void *, long) = (long (*)(int, void *, long))dlsym(library, "go_read");
  int next = open_at_second(O_CLOEXEC);
  CHECK(go_read != NULL && next >= 0);
  CHECK(go_read(fd, bytes, 4) == 4 && *(uint32_t *)bytes == 1 && go_read(next, bytes, 4) == 4 && *(uint32_t *)bytes == 1);
  return close(fd) | close(next);
}
#endif

/* What a program leaves itself of the address space is its own, whatever else was mapped before; a limit that is none of its own it cannot raise. */
static int check_space(void) {
  unsigned long pages = 0;
  FILE *statm = fopen("/proc/self/statm", "r");
  CHECK(statm != NULL && fscanf(statm, "%lu", &pages) == 1 && fclose(statm) == 0);
  const rlim_t space = pages * (rlim_t)getpagesize() + (64 << 20);
  const struct rlimit limit = {space, space}, more = {4 * space, 4 * space};
  int fd = open(path, O_RDONLY);
  CHECK(fd >= 0 && reads(fd, 0) && close(fd) == 0);
  CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
  char *memory = malloc(58 << 20);
  CHECK(memory != NULL);
  memory[0] = 1;
  free(memory);
  CHECK(malloc(600 << 20) == NULL);
  CHECK(geteuid() == 0 || setrlimit(RLIMIT_AS, &more) != 0);
  fd = open(path, O_RDONLY);
  CHECK(fd >= 0 && reads(fd, 0) && close(fd) == 0);
  return 0;
}

/* ---- names and flags ---- */

/* Appending: the flag is there, and what is appended is read at once. */
static int check_append(void) {
  char name[4096], bytes[32];
  snprintf(name, sizeof name, "%s.log", path);
  int fd = open(name, O_WRONLY | O_CREAT | O_APPEND, 0600);
  CHECK(fd >= 0 && write(fd, "one", 3) == 3 && close(fd) == 0);
  int reader = open(name, O_RDONLY | O_APPEND);
  CHECK(reader >= 0 && (fcntl(reader, F_GETFL) & (O_ACCMODE | O_APPEND)) == (O_RDONLY | O_APPEND) && read(reader, bytes, sizeof bytes) == 3);
  CHECK(write(reader, "x", 1) == -1 && errno == EBADF);
  fd = open(name, O_RDWR | O_APPEND);
  CHECK(fd >= 0 && pwrite(fd, "two", 3, 0) == 3 && lseek(fd, 0, SEEK_SET) == 0 && read(fd, bytes, sizeof bytes) == 6 && memcmp(bytes, "onetwo", 6) == 0 && close(fd) == 0);
  CHECK(read(reader, bytes, sizeof bytes) == 3 && memcmp(bytes, "two", 3) == 0 && close(reader) == 0);
  fd = open(name, O_RDONLY);
  CHECK(fd >= 0 && read(fd, bytes, sizeof bytes) == 6 && memcmp(bytes, "onetwo", 6) == 0 && close(fd) == 0);
  return unlink(name);
}

static int holds(const char *directory, const char *name, const char *text) {
  char full[8192], bytes[32] = "";
  struct stat st, opened;
  snprintf(full, sizeof full, "%s/%s", directory, name);
  int fd = open(full, O_RDONLY);
  return fd >= 0 && fstat(fd, &opened) == 0 && stat(full, &st) == 0 && st.st_ino == opened.st_ino && read(fd, bytes, sizeof bytes) == (ssize_t)strlen(text) &&
         strcmp(bytes, text) == 0 && close(fd) == 0;
}
static int puts_into(const char *directory, const char *name, const char *text) {
  char full[8192];
  snprintf(full, sizeof full, "%s/%s", directory, name);
  int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0;
}
/* Links to directories: within the source, out of it and into it. What is changed by one name is seen by the other at once. */
static int check_links(void) {
  char in[4096], real[8192], within[8192], out[8192], outside[4096], into[4096];
  snprintf(in, sizeof in, "%.*s/links", (int)(strrchr(path, '/') - path), path);
  snprintf(outside, sizeof outside, "%.*s.outside", (int)(strrchr(path, '/') - path), path), snprintf(into, sizeof into, "%s.link", outside);
  snprintf(real, sizeof real, "%s/real", in), snprintf(within, sizeof within, "%s/within", in), snprintf(out, sizeof out, "%s/out", in);
  CHECK(mkdir(in, 0700) == 0 && mkdir(real, 0700) == 0 && mkdir(outside, 0700) == 0);
  CHECK(symlink("real", within) == 0 && symlink(outside, out) == 0 && symlink(real, into) == 0);
  CHECK(puts_into(real, "a", "first") && puts_into(outside, "b", "other"));
  for (int round = 0; round < 3; ++round) CHECK(holds(real, "a", "first") && holds(within, "a", "first") && holds(into, "a", "first") && holds(out, "b", "other"));
  CHECK(puts_into(within, "a", "second") && holds(real, "a", "second") && holds(within, "a", "second") && holds(into, "a", "second"));
  CHECK(puts_into(into, "a", "third") && holds(real, "a", "third") && holds(within, "a", "third"));
  CHECK(puts_into(real, "a", "4th") && holds(within, "a", "4th") && holds(into, "a", "4th"));
  CHECK(puts_into(outside, "b", "new") && holds(out, "b", "new") && puts_into(out, "b", "newer") && holds(outside, "b", "newer") && holds(out, "b", "newer"));
  /* Led elsewhere, a link leads there. */
  CHECK(unlink(within) == 0 && symlink(outside, within) == 0 && holds(within, "b", "newer"));
  CHECK(unlink(out) == 0 && symlink("real", out) == 0 && holds(out, "a", "4th"));
  int directory = open(within, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  return directory != -1 || errno != ENOTDIR;
}

/* A link, and one that leads through it, to a directory; then to another with a file of that name, by whatever call: read anew at once. */
static int remove_unseen(const char *name) {
  char command[8192];
  snprintf(command, sizeof command, "LD_PRELOAD= rm '%s'", name);
  return system(command);
}
static int lead_elsewhere(const char *link, const char *next, int way) {
  switch (way) {
    case 0: return unlink(link) | symlink("two", link);
    case 1: return symlink("two", next) | rename(next, link);
    case 2: return symlink("two", next) | renameat2(AT_FDCWD, next, AT_FDCWD, link, 2 /* RENAME_EXCHANGE */) | unlink(next);
    case 3: return remove_unseen(link) | symlink("two", link);
    case 4: return remove_unseen(link) | symlinkat("two", AT_FDCWD, link);
    case 5: return remove_unseen(link) | (int)syscall(SYS_symlinkat, "two", AT_FDCWD, link);
    case 6: return (int)syscall(SYS_unlinkat, AT_FDCWD, link, 0) | symlink("two", link);
    case 7: return rename(link, next) | unlink(next) | mkdir(link, 0700) | !puts_into(link, "a", "second");
    default: return remove(link) | rename("two", link); /* the directory itself */
  }
}
static int check_relinked(void) {
  char in[4096], link[8192], next[8192], chain[8192];
  snprintf(in, sizeof in, "%.*s/relinked", (int)(strrchr(path, '/') - path), path);
  snprintf(link, sizeof link, "%s/link", in), snprintf(next, sizeof next, "%s/next", in), snprintf(chain, sizeof chain, "%s/chain", in);
  for (int way = 0; way < 9; ++way) {
    CHECK(mkdir(in, 0700) == 0 && chdir(in) == 0 && mkdir("one", 0700) == 0 && mkdir("two", 0700) == 0 && puts_into("one", "a", "first") && puts_into("two", "a", "second"));
    CHECK(symlink("one", link) == 0 && symlink("link", chain) == 0);
    for (int round = 0; round < 3; ++round) CHECK(holds(link, "a", "first") && holds(chain, "a", "first"));
    CHECK(lead_elsewhere(link, next, way) == 0);
    for (int round = 0; round < 3; ++round) {
      const int good = holds(link, "a", "second") && holds(chain, "a", "second");
      if (!good) printf("way %d, round %d\n", way, round);
      CHECK(good);
    }
    snprintf(next, sizeof next, "%s.%d", in, way);
    CHECK(rename(in, next) == 0);
    snprintf(next, sizeof next, "%s/next", in);
  }
  return 0;
}

/* ---- signals ---- */

static volatile sig_atomic_t signals;
static void on_alarm(int number) { ++signals, (void)number; }

/* No call on a regular file ends with EINTR, however many signals come, whatever it takes to answer it: cold files (1 MB each), changes, children. */
static int check_storm(void) {
  static char bytes[1 << 20];
  char name[4096], directory[4096];
  struct stat st;
  struct sigaction action = {.sa_handler = on_alarm}; /* without SA_RESTART */
  struct itimerval often = {{0, 150}, {0, 150}}, never = {{0, 0}, {0, 0}};
  snprintf(directory, sizeof directory, "%.*s", (int)(strrchr(path, '/') - path), path);
  CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
  for (int round = 0; round < 24; ++round) {
    snprintf(name, sizeof name, "%s/cold%d", directory, round);
    CHECK(access(name, R_OK) >= 0);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    uint32_t last;
    CHECK(fstat(fd, &st) >= 0);
    CHECK(read(fd, bytes, sizeof bytes) == st.st_size && pread(fd, bytes, 4096, 4096) == 4096 && lseek(fd, -4, SEEK_END) == st.st_size - 4 && read(fd, &last, 4) == 4);
    CHECK(last == (uint32_t)(st.st_size / 4 - 1));
    struct flock lock = {.l_type = F_RDLCK};
    CHECK(fcntl(fd, F_SETLK, &lock) >= 0);
    void *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && munmap(map, 4096) == 0);
    CHECK(fcntl(fd, F_GETFL) >= 0);
    CHECK(dup2(fd, 60) >= 0); /* converts */
    CHECK(close(60) >= 0);
    CHECK(close(fd) >= 0);
    snprintf(name, sizeof name, "%s.%d", path, round);
    CHECK((fd = open(name, O_WRONLY | O_CREAT, 0600)) >= 0);
    CHECK(write(fd, "one", 3) == 3);
    CHECK(close(fd) >= 0);
    CHECK(stat(name, &st) >= 0);
    CHECK(st.st_size == 3);
    CHECK(truncate(name, 1) >= 0);
    CHECK((fd = open(name, O_RDONLY | O_CLOEXEC)) >= 0);
    CHECK(read(fd, bytes, 10) == 1);
    CHECK(close(fd) >= 0);
    CHECK(unlink(name) >= 0);
    DIR *all = opendir(directory);
    CHECK(all != NULL);
    for (errno = 0; readdir(all) != NULL;) CHECK(errno != EINTR);
    CHECK(errno != EINTR && closedir(all) == 0);
  }
  CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0 && signals > 20);
  return 0;
}

int main(int argc, char **argv) {
  static const struct check checks[] = {{"exec", check_exec}, {"fexec", check_fexec}, {"set_to_stay", check_set_to_stay}, {"spawn", check_spawn}, {"actions", check_actions}, {"vfork", check_vfork},
                                        {"system", check_system}, {"popen", check_popen}, {"command", check_command}, {"watched", check_watched}, {"space", check_space},
                                        {"sent", check_sent}, {"aio", check_aio}, {"append", check_append}, {"links", check_links}, {"relinked", check_relinked}, {"storm", check_storm},
#ifdef WITH_CUFILE
                                        {"cufile", check_cufile},
#endif
#ifdef WITH_GO
                                        {"go", check_go},
#endif
  };
  if (argc < 3) return 64;
  self = argv[0], path = argv[1];
  if (argc == 5 && strcmp(argv[2], "inherited") == 0) return inherited(atoi(argv[3]), atoi(argv[4]));
  return RUN_CHECKS(checks, argc, argv, 2);
}
