/* Built with another C library than glibc (musl): calls what the preload library stands in front of, in this process and in children, and prints what it gets.
   usage: other_libc DIRECTORY [child]: a directory with a file `file`, and room for others */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
int io_uring_queue_init(unsigned, void *, unsigned); /* other_libc_ring.c */
/* musl may lack them: what is found must work. */
int close_range(unsigned, unsigned, int) __attribute__((weak));
ssize_t preadv2(int, const struct iovec *, int, off_t, int) __attribute__((weak));
int statx(int, const char *, int, unsigned, void *) __attribute__((weak));
int renameat2(int, const char *, int, const char *, unsigned) __attribute__((weak));

static void say(const char *what, long result) { printf("%s: %ld%s%s\n", what, result, result < 0 ? " " : "", result < 0 ? strerror(errno) : ""); }
static long sum(const char *bytes, long n) {
  long all = 0;
  for (long i = 0; i < n; ++i) all = all * 31 % 1000003 + (unsigned char)bytes[i];
  return all;
}
static char bytes[200000];

static void *in_thread(void *path) {
  const int fd = open(path, O_RDONLY);
  long n = pread(fd, bytes, 1000, 17);
  close(fd);
  return (void *)sum(bytes, n);
}
static int in_clone(void *path) { return in_thread(path) != NULL ? 3 : 4; }
static void wait_for(const char *what, pid_t child) {
  int status = -1;
  say(what, child > 0 && waitpid(child, &status, 0) == child ? status : -1);
}

int main(int count, char **arguments) {
  char path[4096], other[4096];
  struct stat st;
  if (count < 2) return 64;
  say("ring", io_uring_queue_init(41, NULL, 0)); /* before any other call that the library exports */
  snprintf(path, sizeof path, "%s/file", arguments[1]);
  snprintf(other, sizeof other, "%s/other", arguments[1]);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  say("read", sum(bytes, read(fd, bytes, sizeof bytes)));
  say("lseek", lseek(fd, 5, SEEK_SET));
  struct iovec parts[2] = {{bytes, 10}, {bytes + 10, 20}};
  say("readv", readv(fd, parts, 2));
  say("fstat", fstat(fd, &st) == 0 ? (long)st.st_size : -1);
  say("stat", stat(path, &st) == 0 ? (long)st.st_size : -1);
  say("access", access(path, R_OK));
  if (count > 2) return fflush(stdout), 11;

  say("preadv2", preadv2 ? preadv2(fd, parts, 2, 7, 0) : preadv(fd, parts, 2, 7));
  char facts[256];
  say("statx", statx ? statx(AT_FDCWD, path, 0, 0x7ff, facts) : 0);
  const int dup_fd = dup(fd), high = fcntl(fd, F_DUPFD_CLOEXEC, 20);
  say("dup", dup_fd > fd && high >= 20 ? read(dup_fd, bytes, 10) : -1);
  say("close_range", close_range ? close_range(20, ~0u, 0) : close(high));
  say("closed", fcntl(high, F_GETFD));
  char *map = mmap(NULL, 50000, PROT_READ, MAP_PRIVATE, fd, 0);
  say("mmap", map != MAP_FAILED ? sum(map, 50000) : -1);
  munmap(map, 50000);
  struct pollfd one = {fd, POLLIN, 0};
  say("poll", poll(&one, 1, 0));
  fd_set set;
  FD_ZERO(&set);
  FD_SET(fd, &set);
  struct timeval now = {0, 0};
  say("select", select(fd + 1, &set, NULL, NULL, &now));
  int left = -1;
  say("ioctl", ioctl(fd, FIONREAD, &left) == 0 ? left : -1);
  say("isatty", isatty(fd));
  int pair[2];
  socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
  off_t at = 3;
  say("sendfile", sendfile(pair[0], fd, &at, 1000));
  say("recv", recv(pair[1], bytes, 1000, MSG_WAITALL));
  close(pair[0]), close(pair[1]);

  FILE *stream = fopen(path, "r");
  say("fread", stream ? (long)fread(bytes, 1, 3000, stream) : -1);
  say("fclose", stream ? fclose(stream) : -1);
  DIR *directory = opendir(arguments[1]);
  long names = 0;
  for (struct dirent *entry; directory && (entry = readdir(directory)) != NULL;) names += (long)strlen(entry->d_name);
  say("readdir", names);
  closedir(directory);
  char *real = realpath(path, NULL);
  say("realpath", real ? (long)strlen(real) : -1);
  free(real);

  const int out = open(other, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  say("write", write(out, "words", 5));
  say("fchmod", fchmod(out, 0600));
  say("ftruncate", ftruncate(out, 3));
  close(out);
  char third[4096];
  snprintf(third, sizeof third, "%s/third", arguments[1]);
  say("rename", renameat2 ? renameat2(AT_FDCWD, other, AT_FDCWD, third, 0) : rename(other, third));
  say("link", link(third, other));
  say("symlink", symlink("third", strcat(strcpy(bytes, other), "s")));
  say("readlink", readlink(bytes, bytes + 5000, 100));
  say("unlink", unlink(bytes) + unlink(other) + unlink(third));
  say("missing", open(other, O_RDONLY));

  pthread_t thread;
  void *got = NULL;
  say("pthread_create", pthread_create(&thread, NULL, in_thread, path));
  pthread_join(thread, &got);
  say("thread", (long)got);
  struct rlimit limit;
  say("getrlimit", getrlimit(RLIMIT_NOFILE, &limit));
  say("setrlimit", setrlimit(RLIMIT_NOFILE, &limit));
  say("setuid", setuid(getuid()));
  say("syscall", syscall(SYS_pread64, fd, bytes, 100L, 1L));

  fflush(stdout);
  pid_t child = fork();
  if (child == 0) _exit(read(fd, bytes, 100) == 100 ? 5 : 6);
  wait_for("fork", child);
  child = vfork();
  if (child == 0) {
    execl(arguments[0], arguments[0], arguments[1], "child", (char *)NULL);
    _exit(9);
  }
  wait_for("vfork", child);
  char *child_arguments[] = {arguments[0], arguments[1], "child", NULL};
  say("posix_spawn", posix_spawn(&child, arguments[0], NULL, NULL, child_arguments, environ));
  wait_for("spawned", child);
  static char stack[65536];
  child = clone(in_clone, stack + sizeof stack, SIGCHLD, path);
  wait_for("clone", child);
  snprintf(bytes, sizeof bytes, "'%s' '%s' child", arguments[0], arguments[1]);
  say("system", system(bytes));
  FILE *pipe = popen(bytes, "r");
  long lines = 0;
  for (int c; pipe && (c = getc(pipe)) != EOF;) lines += c == '\n';
  say("lines", lines);
  say("popen", pipe ? pclose(pipe) : -1);
  fflush(stdout);
  execv(arguments[0], child_arguments);
  return 12;
}
