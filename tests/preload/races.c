/* The races of HAZARDS 3, each on a file whose bytes say where they are: 32-bit numbers, one after the other. One word per race; exit 1 if one was lost.
 * usage: races CACHED-FILE OTHER-CACHED-FILE */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "tests/preload/by_hand.h"

extern char **environ;
static const char *path, *other_path;

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      printf("%s:%d: %s (errno %d)\n", __func__, __LINE__, #condition, errno);  \
      return 1;                                                                 \
    }                                                                           \
  } while (0)

/* A thread reads records while another makes the descriptor real: none is lost, none is read twice. */
static void *read_records(void *argument) {
  int fd = *(int *)argument;
  uint32_t last = 0, records = 0;
  for (uint32_t number; read(fd, &number, sizeof number) == sizeof number; ++records) {
    if (records != 0 && number != last + 1) return (void *)1;
    last = number;
  }
  return records == 25000 ? NULL : (void *)2;
}
static int race_materialise(void) {
  for (int round = 0; round < 60; ++round) {
    int fd = open(path, O_RDONLY);
    pthread_t thread;
    CHECK(fd >= 0 && pthread_create(&thread, NULL, read_records, &fd) == 0);
    for (int i = 0; i < round * 50; ++i) __asm__ volatile("" ::: "memory");
    CHECK(dup2(fd, 60) == 60);
    void *lost;
    CHECK(pthread_join(thread, &lost) == 0 && lost == NULL && close(fd) == 0 && close(60) == 0);
  }
  return 0;
}

/* Many threads share one descriptor: each record is read by exactly one. */
static int shared_fd;
static unsigned char seen[25000];
static void *read_share(void *argument) {
  (void)argument;
  for (uint32_t number; read(shared_fd, &number, sizeof number) == sizeof number;) __atomic_fetch_add(&seen[number], 1, __ATOMIC_RELAXED);
  return NULL;
}
static int race_shared(void) {
  pthread_t threads[4];
  shared_fd = open(path, O_RDONLY);
  for (int i = 0; i < 4; ++i) CHECK(pthread_create(&threads[i], NULL, read_share, NULL) == 0);
  for (int i = 0; i < 4; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  for (int i = 0; i < 25000; ++i) CHECK(seen[i] == 1);
  return close(shared_fd);
}

/* A number is closed and opened again while others convert and read: never the bytes of the other file. */
static volatile int stop;
static void *churn(void *argument) {
  int odd = *(int *)argument;
  while (!stop) {
    int fd = open(odd ? other_path : path, O_RDONLY);
    uint32_t number;
    if (fd < 0) return (void *)1;
    for (int i = 0; i < 3; ++i) {
      if (read(fd, &number, sizeof number) != sizeof number) return (void *)2;
      if (number != (odd ? 0x80000000u : 0) + (uint32_t)i) return (void *)3;
      if (i == 1) {
        int copy = dup2(fd, 70 + odd);
        if (copy < 0 || close(copy) != 0) return (void *)4;
      }
    }
    if (close(fd) != 0) return (void *)5;
  }
  return NULL;
}
static int race_reopen(void) {
  pthread_t threads[2];
  int odds[2] = {0, 1};
  stop = 0;
  for (int i = 0; i < 2; ++i) CHECK(pthread_create(&threads[i], NULL, churn, &odds[i]) == 0);
  usleep(500000);
  stop = 1;
  for (int i = 0; i < 2; ++i) {
    void *wrong;
    CHECK(pthread_join(threads[i], &wrong) == 0 && wrong == NULL);
  }
  return 0;
}

/* The offset is shared over fork, vfork and spawn. */
static int offset_after_child(pid_t child, int fd) {
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  uint32_t number;
  CHECK(read(fd, &number, sizeof number) == sizeof number && number == 2);
  return close(fd);
}
static int race_fork(void) {
  uint32_t number;
  int fd = open(path, O_RDONLY);
  CHECK(read(fd, &number, 4) == 4 && number == 0);
  pid_t child = fork();
  if (child == 0) _exit(read(fd, &number, 4) == 4 && number == 1 ? 0 : 1);
  return offset_after_child(child, fd);
}
static int race_vfork(void) {
  int fd = open(path, O_RDONLY);
  uint32_t number;
  CHECK(read(fd, &number, 4) == 4);
  char name[16];
  snprintf(name, sizeof name, "%d", fd);
  volatile pid_t child = vfork();
  if (child == 0) { /* what CPython's subprocess does in there */
    dup2(fd, 0);
    execl("/usr/bin/head", "head", "-c4", (char *)NULL);
    _exit(1);
  }
  CHECK(child > 0);
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  char byte;
  CHECK(read(0, &byte, 1) == 0); /* our stdin is what it was */
  CHECK(lseek(fd, 0, SEEK_CUR) >= 4 && close(fd) == 0);
  fd = open(path, O_RDONLY);
  CHECK(read(fd, &number, 4) == 4 && number == 0);
  return close(fd);
}
static int race_spawn(void) {
  int fd = open(path, O_RDONLY);
  uint32_t number;
  CHECK(read(fd, &number, 4) == 4);
  posix_spawn_file_actions_t actions;
  CHECK(posix_spawn_file_actions_init(&actions) == 0 && posix_spawn_file_actions_adddup2(&actions, fd, 0) == 0);
  CHECK(posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0) == 0);
  char *arguments[] = {"dd", "bs=4", "count=1", "status=none", NULL};
  pid_t child;
  CHECK(posix_spawn(&child, "/bin/dd", &actions, NULL, arguments, environ) == 0);
  return offset_after_child(child, fd);
}
static int race_system(void) {
  int fd = open(path, O_RDONLY);
  uint32_t number;
  char command[80];
  CHECK(read(fd, &number, 4) == 4 && lseek(fd, 8, SEEK_SET) == 8);
  snprintf(command, sizeof command, "test $(head -c 4 <&%d | od -An -tu4) = 2", fd > 9 ? 9 : fd);
  CHECK(fd > 9 ? dup2(fd, 9) == 9 : 1);
  CHECK(system(command) == 0);
  FILE *pipe = popen("echo done", "r");
  char line[16];
  CHECK(pipe != NULL && fgets(line, sizeof line, pipe) != NULL && strcmp(line, "done\n") == 0 && pclose(pipe) == 0);
  if (fd > 9) close(9);
  return close(fd);
}

/* A raw clone runs no handler: the child reads what it inherited, and opens anew. */
static int race_clone(void) {
  int fd = open(path, O_RDONLY);
  uint32_t number;
  CHECK(read(fd, &number, 4) == 4);
  pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (child == 0) {
    int mine = open(path, O_RDONLY);
    _exit(read(fd, &number, 4) == 4 && number == 1 && read(mine, &number, 4) == 4 && number == 0 ? 0 : 1);
  }
  return offset_after_child(child, fd);
}

/* Signal handlers open, read, convert and close in the middle of everything. */
static volatile sig_atomic_t handled, handler_wrong, current = -1;
static void on_alarm(int number) {
  (void)number;
  int saved = errno;
  uint32_t value = 1;
  int fd = open(other_path, O_RDONLY);
  if (fd < 0 || read(fd, &value, 4) != 4 || value != 0x80000000u) handler_wrong = 1;
  if (handled % 16 == 0 && dup2(fd, 80) == 80) close(80);
  close(fd);
  /* What the program is reading, or converting, just now; it goes on where it was. */
  if (current >= 0) {
    const off_t at = lseek(current, 0, SEEK_CUR);
    if (pread(current, &value, 4, 400) != 4 || value != 100) handler_wrong = 1;
    if (at < 0 || read(current, &value, 4) != 4 || value != at / 4 || lseek(current, at, SEEK_SET) != at) handler_wrong = 1;
  }
  ++handled;
  errno = saved;
}
static int race_signals(void) {
  char stack[32768];
  stack_t alternative = {.ss_sp = stack, .ss_size = sizeof stack};
  struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART | SA_ONSTACK};
  struct itimerval every = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
  CHECK(sigaltstack(&alternative, NULL) == 0 && sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &every, NULL) == 0);
  int wrong = 0;
  for (int round = 0; round < 3000 && !wrong; ++round) {
    int fd = open(path, O_RDONLY);
    current = fd;
    uint32_t numbers[64];
    wrong = fd < 0 || read(fd, numbers, sizeof numbers) != sizeof numbers || numbers[63] != 63;
    if (round % 7 == 0) {
      int copy = dup(fd);
      wrong |= read(copy, numbers, 4) != 4 || numbers[0] != 64 || close(copy) != 0;
    }
    if (round % 11 == 0) wrong |= dup2(fd, 81) != 81 || close(81) != 0;
    void *p = malloc((size_t)round * 16);
    free(p);
    current = -1;
    wrong |= close(fd) != 0;
  }
  setitimer(ITIMER_REAL, &never, NULL);
  alternative.ss_flags = SS_DISABLE;
  sigaltstack(&alternative, NULL);
  CHECK(!wrong && !handler_wrong && handled > 0);
  return 0;
}

/* Descriptors run out: opens fail as they would, what is open can still be converted and read. */
static int race_exhausted(void) {
  int fd = open(path, O_RDONLY), fds[5000], count = 0;
  uint32_t number;
  CHECK(read(fd, &number, 4) == 4);
  while (count < 5000 && (fds[count] = open("/dev/null", O_RDONLY)) >= 0) ++count;
  CHECK(count < 5000 && errno == EMFILE);
  CHECK(open(path, O_RDONLY) == -1 && errno == EMFILE);
  pid_t child = fork(); /* converts */
  if (child == 0) _exit(read(fd, &number, 4) == 4 && number == 1 ? 0 : 1);
  while (count > 0) close(fds[--count]);
  return offset_after_child(child, fd);
}

/* Threads are cancelled wherever they wait on a cached descriptor: nothing stays behind. One description or lease more each time would soon be the last: 256 files are cached at once. */
static int waiting_fd, waiting_socket;
static void *sends(void *argument) {
  while (sendfile(waiting_socket, waiting_fd, NULL, 65536) >= 0) lseek(waiting_fd, 0, SEEK_SET);
  for (;;) pthread_testcancel();
  return argument;
}
static void *locks(void *argument) {
  struct flock all = {.l_type = F_RDLCK};
  fcntl(waiting_fd, F_SETLKW, &all);
  for (;;) pthread_testcancel();
  return argument;
}
static void *reads(void *argument) {
  char buffer[5000];
  for (;;) {
    if (read(waiting_fd, buffer, sizeof buffer) <= 0) lseek(waiting_fd, 0, SEEK_SET);
    struct stat st;
    fstat(waiting_fd, &st);
    pthread_testcancel();
  }
  return argument;
}
/* A real descriptor leads to the file, ours to something of the library. */
static int is_cached(int fd) {
  char link[32], target[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  long bytes = syscall(SYS_readlink, link, target, sizeof target - 1);
  if (bytes < 0) return 0;
  target[bytes] = 0;
  return strcmp(target, path) != 0;
}
static int race_cancel(void) {
  signal(SIGPIPE, SIG_IGN);
  int held[2], go;
  CHECK(pipe(held) == 0);
  pid_t holder = fork(); /* has the lock that the others wait for */
  if (holder == 0) {
    struct flock all = {.l_type = F_WRLCK};
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR);
    char ready = syscall(SYS_fcntl, fd, F_SETLK, &all) == 0;
    if (write(held[1], &ready, 1) != 1) _exit(1);
    for (;;) pause();
  }
  char ready = 0;
  go = read(held[0], &ready, 1) == 1 && ready;
  void *(*const bodies[])(void *) = {sends, locks, reads};
  for (int round = 0; go && round < 900; ++round) {
    int sockets[2];
    pthread_t thread;
    void *ended;
    go = socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0;
    waiting_socket = sockets[0];
    for (int tries = 0; tries < 100; ++tries) { /* a busy daemon is given up for a while */
      waiting_fd = open(path, O_RDONLY);
      if (waiting_fd < 0 || is_cached(waiting_fd)) break;
      close(waiting_fd);
      waiting_fd = -1;
      usleep(100000);
    }
    go = go && waiting_fd >= 0;
    if (!go) printf("round %d: not cached\n", round);
    go = go && pthread_create(&thread, NULL, bodies[round % 3], NULL) == 0;
    if (!go) break;
    usleep(round % 5 * 200);
    pthread_cancel(thread);
    close(sockets[1]);
    go = pthread_join(thread, &ended) == 0 && ended == PTHREAD_CANCELED;
    close(sockets[0]);
    close(waiting_fd);
  }
  kill(holder, SIGKILL);
  waitpid(holder, NULL, 0);
  close(held[0]), close(held[1]);
  CHECK(go);
  return 0;
}

/* Another thread is in the dynamic linker when a child is made: that lock is never free again in there, and bare nobody needs it to open a file. */
static int inside[2], leave[2];
static int wait_inside(struct dl_phdr_info *info, size_t bytes, void *argument) {
  char byte = 0;
  return write(inside[1], &byte, 1) != 1 || read(leave[0], &byte, 1) != 1 || 1;
}
static void *iterates(void *argument) {
  dl_iterate_phdr(wait_inside, argument);
  return NULL;
}
static int reads_first(const char *name) {
  uint32_t number = 1;
  int fd = open(name, O_RDONLY);
  return read(fd, &number, 4) == 4 && number == (name == path ? 0 : 0x80000000u) && close(fd) == 0;
}
static int race_linker(void) {
  pthread_t thread;
  char byte = 0;
  int status;
  CHECK(pipe(inside) == 0 && pipe(leave) == 0 && pthread_create(&thread, NULL, iterates, NULL) == 0 && read(inside[0], &byte, 1) == 1);
  pid_t child = fork();
  if (child == 0) {
    alarm(10);
    _exit(!reads_first(path) || !reads_first(other_path));
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(write(leave[1], &byte, 1) == 1 && pthread_join(thread, NULL) == 0);
  return close(inside[0]) | close(inside[1]) | close(leave[0]) | close(leave[1]);
}

/* Threads open files, and libraries that are there already: no child finds the dynamic linker in use. */
static int first_one(struct dl_phdr_info *info, size_t bytes, void *argument) { return 1; }
static void *opens(void *argument) {
  while (!stop) {
    dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    for (int i = 0; i < 60; ++i) {
      if (!reads_first(path)) return (void *)1;
    }
  }
  return NULL;
}
static int race_children(void) {
  pthread_t threads[3];
  int status = 0;
  stop = 0;
  for (int i = 0; i < 3; ++i) CHECK(pthread_create(&threads[i], NULL, opens, NULL) == 0);
  for (int i = 0; i < 300 && status == 0; ++i) {
    pid_t child = fork();
    if (child == 0) {
      alarm(10);
      _exit(dl_iterate_phdr(first_one, NULL) != 1 || !reads_first(other_path));
    }
    if (waitpid(child, &status, 0) != child) status = -1;
    if (status != 0) printf("child %d: %x\n", i, status);
  }
  stop = 1;
  for (int i = 0; i < 3; ++i) {
    void *wrong;
    CHECK(pthread_join(threads[i], &wrong) == 0 && wrong == NULL);
  }
  CHECK(status == 0);
  return 0;
}

/* One call, one instruction after the other, with something in between behind the `at`th: once for each. */
#if defined(__x86_64__)
static volatile long step_count, step_at;
static void (*volatile in_between)(void);
static void on_step(int number, siginfo_t *info, void *context) {
  if (step_count++ != step_at) return;
  ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~0x100l;
  in_between();
}
static void walk(long at, void (*between)(void)) {
  struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
  sigaction(SIGTRAP, &action, NULL);
  step_count = 0, step_at = at, in_between = between;
  __asm__ volatile("" ::: "memory");
  __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | 0x100);
}
static int walked(void) { /* whether it came so far */
  __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() & ~0x100ull);
  __asm__ volatile("" ::: "memory");
  return step_count > step_at;
}

/* A child that is made in the middle of a close may put what it likes onto that number. */
static int closed_fd, closing_status;
static void fork_in_between(void) {
  pid_t child = fork();
  if (child == 0) _exit(dup2(0, closed_fd) != closed_fd);
  for (int i = 0; i < 5000 && waitpid(child, &closing_status, WNOHANG) == 0; ++i) {
    closing_status = -1;
    usleep(1000);
  }
  if (closing_status == -1) kill(child, SIGKILL), waitpid(child, NULL, 0); /* who waits for ever does so with signals held off */
}
static int race_closing(void) {
  int more = 1;
  for (long at = 0; more; ++at) {
    CHECK((closed_fd = open(path, O_RDONLY)) >= 0);
    walk(at, fork_in_between);
    const int result = close(closed_fd);
    more = walked();
    CHECK(result == 0 && closing_status == 0);
  }
  return 0;
}

/* While another thread makes a child nothing is opened as ours, however far the open had come by then. */
static volatile int wanted, made;
static void *makes_children(void *argument) {
  while (!stop) {
    if (!wanted) {
      sched_yield();
      continue;
    }
    pid_t child = vfork();
    if (child == 0) {
      for (made = 1; wanted;) sched_yield();
      _exit(0);
    }
    waitpid(child, NULL, 0);
    made = 0;
  }
  return NULL;
}
static void child_in_between(void) {
  wanted = 1;
  while (!made) sched_yield();
}
static int race_opening(void) {
  pthread_t thread;
  int more = 1, bad = 0;
  char bytes[4];
  stop = 0;
  CHECK(pthread_create(&thread, NULL, makes_children, NULL) == 0 && close(open(path, O_RDONLY)) == 0);
  for (long at = 0; more && !bad; at += 5) {
    walk(at, child_in_between);
    const int fd = open(path, O_RDONLY);
    more = walked();
    bad = more && by_hand(SYS_pread64, fd, (long)bytes, 4, 0, 0, 0) != 4;
    if (bad) printf("step %ld\n", at);
    wanted = 0;
    while (made) sched_yield();
    CHECK(close(fd) == 0);
  }
  stop = 1;
  CHECK(pthread_join(thread, NULL) == 0 && !bad);
  return 0;
}
#else
static int race_closing(void) { return 0; }
static int race_opening(void) { return 0; }
#endif

int main(int argc, char **argv) {
  if (argc < 3) return 64;
  path = argv[1], other_path = argv[2];
  struct {
    const char *name;
    int (*run)(void);
  } races[] = {{"materialise", race_materialise}, {"shared", race_shared}, {"reopen", race_reopen}, {"fork", race_fork}, {"vfork", race_vfork},
               {"spawn", race_spawn}, {"system", race_system}, {"clone", race_clone}, {"linker", race_linker}, {"children", race_children}, {"closing", race_closing}, {"opening", race_opening}, {"signals", race_signals}, {"cancel", race_cancel}, {"exhausted", race_exhausted}};
  int failed = 0;
  for (size_t i = 0; i < sizeof races / sizeof *races; ++i) {
    if (argc > 3 && strcmp(argv[3], races[i].name) != 0) continue;
    int bad = races[i].run();
    printf("%s %s\n", races[i].name, bad ? "FAILED" : "ok");
    fflush(stdout);
    failed |= bad;
  }
  return failed;
}
