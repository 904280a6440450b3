/* Calls that readers of data hardly ever make, by every name they have. usage: rare FILE check: 100,000 bytes in a directory that may be written to. */
#define _GNU_SOURCE
#include <aio.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>
#include <utime.h>
#include <wchar.h>

#include "tests/preload/by_hand.h"
#include "tests/preload/check.h"

extern char **environ;
static const char *path, *self;
static const long size = 100000;

static int open_one(void) { return open(path, O_RDONLY | O_CLOEXEC); }

/* Asked of the source's file, by a descriptor that stays what it is. */
static int check_asked(void) {
  struct statfs fs;
  struct statfs64 fs64;
  struct statvfs vfs;
  struct statvfs64 vfs64;
  char names[100], value[10];
  int fd = open_one();
  CHECK(fstatfs(fd, &fs) == 0 && fs.f_bsize > 0 && fstatfs64(fd, &fs64) == 0 && fs64.f_type == fs.f_type);
  CHECK(fstatvfs(fd, &vfs) == 0 && vfs.f_namemax > 0 && fstatvfs64(fd, &vfs64) == 0 && vfs64.f_namemax == vfs.f_namemax);
  CHECK(fpathconf(fd, _PC_NAME_MAX) > 100);
  CHECK(fgetxattr(fd, "user.none", value, sizeof value) == -1 && (errno == ENODATA || errno == ENOTSUP) && flistxattr(fd, names, sizeof names) >= 0);
  return close(fd);
}

/* A file is no socket, terminal or timer, and is told so. */
#define REFUSED(error, expression) CHECK((errno = 0, (expression)) == -1 && errno == (error))
static int check_refused(void) { /* converts it at last */
  struct sockaddr_un address = {.sun_family = AF_UNIX}, named = {.sun_family = AF_UNIX, .sun_path = "no/such/directory/name"};
  struct sockaddr_storage from;
  socklen_t bytes = sizeof from;
  struct termios terminal = {0};
  struct itimerspec time = {{0}};
  struct epoll_event event = {.events = EPOLLIN};
  struct timespec now = {0};
  struct mmsghdr many = {{0}};
  struct msghdr message = {0};
  sigset_t none;
  char buffer[16];
  int one = 1, pipe_ends[2], fd = open_one();
  struct sockaddr *to = (struct sockaddr *)&address;
  sigemptyset(&none);
  REFUSED(ENOTSOCK, send(fd, buffer, 1, 0));
  REFUSED(ENOTSOCK, sendto(fd, buffer, 1, 0, to, sizeof address));
  REFUSED(ENOTSOCK, sendmsg(fd, &message, 0));
  REFUSED(ENOTSOCK, sendmmsg(fd, &many, 1, 0));
  REFUSED(ENOTSOCK, recv(fd, buffer, 1, 0));
  REFUSED(ENOTSOCK, recvfrom(fd, buffer, 1, 0, (struct sockaddr *)&from, &bytes));
  REFUSED(ENOTSOCK, recvmsg(fd, &message, 0));
  REFUSED(ENOTSOCK, recvmmsg(fd, &many, 1, 0, &now));
  REFUSED(ENOTSOCK, setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &one, sizeof one));
  REFUSED(ENOTSOCK, getsockname(fd, (struct sockaddr *)&from, &bytes));
  REFUSED(ENOTSOCK, getpeername(fd, (struct sockaddr *)&from, &bytes));
  REFUSED(ENOTSOCK, shutdown(fd, SHUT_RD));
  REFUSED(ENOTSOCK, listen(fd, 1));
  REFUSED(ENOTSOCK, accept(fd, NULL, NULL));
  REFUSED(ENOTSOCK, accept4(fd, NULL, NULL, SOCK_CLOEXEC));
  REFUSED(ENOTSOCK, connect(fd, to, sizeof address));
  REFUSED(ENOTSOCK, bind(fd, to, sizeof address));
  REFUSED(ENOTSOCK, bind(fd, (struct sockaddr *)&named, sizeof named));
  REFUSED(ENOTTY, tcgetattr(fd, &terminal));
  REFUSED(ENOTTY, tcsetattr(fd, TCSANOW, &terminal));
  REFUSED(EINVAL, tcsetattr(fd, 77, &terminal));
  REFUSED(ENOTTY, tcflush(fd, TCIFLUSH));
  REFUSED(ENOTTY, tcdrain(fd));
  REFUSED(ENOTTY, tcflow(fd, TCOON));
  REFUSED(ENOTTY, tcsendbreak(fd, 0));
  REFUSED(ENOTTY, tcgetsid(fd));
  REFUSED(ENOTTY, tcsetpgrp(fd, getpgrp()));
  REFUSED(ENOTTY, sockatmark(fd));
  REFUSED(EINVAL, epoll_wait(fd, &event, 1, 0));
  REFUSED(EINVAL, epoll_pwait(fd, &event, 1, 0, &none));
  REFUSED(EINVAL, timerfd_settime(fd, 0, &time, NULL));
  REFUSED(EINVAL, timerfd_gettime(fd, &time));
  REFUSED(EINVAL, signalfd(fd, &none, 0));
  REFUSED(EINVAL, inotify_add_watch(fd, "/", IN_MODIFY));
  REFUSED(EINVAL, inotify_rm_watch(fd, 1));
  REFUSED(EINVAL, fanotify_mark(fd, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, "/"));
  CHECK(isfdtype(fd, S_IFREG) == 1 && isfdtype(fd, S_IFSOCK) == 0);
  REFUSED(EBADF, recv(-1, buffer, 1, 0));
  REFUSED(EBADF, tcdrain(-1));
  CHECK(isfdtype(-1, S_IFREG) == -1);
  CHECK(read(fd, buffer, 4) == 4 && lseek(fd, 0, SEEK_CUR) == 4);
  REFUSED(EBADF, epoll_ctl(fd, EPOLL_CTL_ADD, -1, &event));
  CHECK(pipe(pipe_ends) == 0);
  REFUSED(EINVAL, epoll_ctl(fd, EPOLL_CTL_ADD, pipe_ends[0], &event));
  CHECK(read(fd, buffer, 4) == 4 && lseek(fd, 0, SEEK_CUR) == 8);
  return close(pipe_ends[0]) | close(pipe_ends[1]) | close(fd);
}

/* The same calls of what they are made for. */
static int check_used(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "\0tierd rare.c"};
  socklen_t bytes = offsetof(struct sockaddr_un, sun_path) + sizeof "tierd rare.c", room = sizeof address;
  struct itimerspec time = {.it_value = {.tv_nsec = 1}};
  struct epoll_event event = {.events = EPOLLIN, .data = {.u32 = 7}};
  struct termios settings;
  char buffer[16] = "";
  struct iovec part = {buffer, sizeof buffer};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  struct mmsghdr many = {.msg_hdr = message};
  uint64_t ticks = 0;
  sigset_t signals;
  int one = 1, terminal, side, heard = socket(AF_UNIX, SOCK_STREAM, 0), near = socket(AF_UNIX, SOCK_STREAM, 0), far;
  struct sockaddr *name = (struct sockaddr *)&address;
  snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "tierd %d", (int)getpid());
  CHECK(bind(heard, name, bytes) == 0 && listen(heard, 2) == 0 && connect(near, name, bytes) == 0 && isfdtype(near, S_IFSOCK) == 1);
  CHECK((far = accept4(heard, NULL, NULL, SOCK_CLOEXEC)) >= 0 && setsockopt(far, SOL_SOCKET, SO_PASSCRED, &one, sizeof one) == 0);
  CHECK(getsockname(far, name, &room) == 0 && room == bytes && (room = sizeof address, getpeername(near, name, &room)) == 0 && room == bytes);
  CHECK(send(near, "12345", 5, 0) == 5 && sockatmark(far) == 0);
  CHECK(recv(far, buffer, 1, 0) == 1 && buffer[0] == '1' && recvfrom(far, buffer, 1, 0, NULL, NULL) == 1 && buffer[0] == '2');
  part.iov_len = 1;
  CHECK(recvmsg(far, &message, 0) == 1 && buffer[0] == '3' && recvmmsg(far, &many, 1, MSG_DONTWAIT, NULL) == 1 && many.msg_len == 1 && buffer[0] == '4');
  CHECK(shutdown(near, SHUT_WR) == 0 && recv(far, buffer, 9, 0) == 1 && recv(far, buffer, 9, 0) == 0 && close(near) == 0 && close(far) == 0);
  CHECK((near = socket(AF_UNIX, SOCK_STREAM, 0)) >= 0 && connect(near, (getsockname(heard, name, &bytes), name), bytes) == 0 && (far = accept(heard, NULL, NULL)) >= 0);
  CHECK(close(near) == 0 && close(far) == 0 && close(heard) == 0);
  int timer = timerfd_create(CLOCK_MONOTONIC, 0), waits = epoll_create1(0), watch = inotify_init1(IN_NONBLOCK), number;
  CHECK(epoll_ctl(waits, EPOLL_CTL_ADD, timer, &event) == 0 && epoll_wait(waits, &event, 1, 0) == 0);
  CHECK(timerfd_settime(timer, 0, &time, NULL) == 0 && epoll_wait(waits, &event, 1, -1) == 1 && event.data.u32 == 7 && epoll_pwait(waits, &event, 1, -1, NULL) == 1);
  CHECK(read(timer, &ticks, 8) == 8 && ticks == 1 && timerfd_gettime(timer, &time) == 0 && time.it_value.tv_nsec == 0 && close(timer) == 0 && close(waits) == 0);
  CHECK((number = inotify_add_watch(watch, "/", IN_MODIFY)) >= 0 && inotify_rm_watch(watch, number) == 0 && inotify_rm_watch(watch, number) == -1 && close(watch) == 0);
  sigemptyset(&signals);
  CHECK((number = signalfd(-1, &signals, 0)) >= 0 && signalfd(number, &signals, 0) == number && close(number) == 0);
  CHECK(openpty(&terminal, &side, NULL, NULL, NULL) == 0 && tcgetattr(side, &settings) == 0 && tcsetattr(side, TCSANOW, &settings) == 0 && tcflush(side, TCIFLUSH) == 0);
  CHECK(tcdrain(side) == 0 && tcflow(side, TCOON) == 0 && tcsendbreak(side, 0) == 0 && tcsetpgrp(side, getpgrp()) == -1 && errno == ENOTTY);
  return close(terminal) | close(side);
}

/* Nothing can be read through these. */
static int check_looked_at(void) {
  char directory[4096];
  snprintf(directory, sizeof directory, "%.*s", (int)(strrchr(path, '/') - path), path);
  return close(open(path, O_PATH)) | close(open(directory, O_PATH | O_DIRECTORY)) | close(open(directory, O_RDONLY | O_DIRECTORY));
}

/* Each converts a descriptor. */
#define ON_ONE(expression)                                     \
  do {                                                         \
    int fd = open_one();                                       \
    CHECK(fd >= 0 && (expression));                            \
    char byte;                                                 \
    CHECK(read(fd, &byte, 1) == 1 && byte == 0 && close(fd) == 0); \
  } while (0)
static int check_real_first(void) { /* ten */
  char name[100];
  int value;
  socklen_t bytes = sizeof value;
  struct {
    struct file_handle head;
    char bytes[MAX_HANDLE_SZ];
  } handle = {.head = {.handle_bytes = MAX_HANDLE_SZ}};
  ON_ONE(fsync(fd) == 0);
  ON_ONE(fdatasync(fd) == 0);
  ON_ONE(syncfs(fd) == 0);
  ON_ONE(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE) == 0);
  ON_ONE(getdents64(fd, name, sizeof name) == -1 && errno == ENOTDIR);
  ON_ONE(ttyname(fd) == NULL && errno == ENOTTY);
  ON_ONE(ttyname_r(fd, name, sizeof name) == ENOTTY);
  ON_ONE(tcgetpgrp(fd) == -1 && errno == ENOTTY);
  ON_ONE(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &bytes) == -1 && errno == ENOTSOCK);
  ON_ONE(name_to_handle_at(fd, "", &handle.head, &value, AT_EMPTY_PATH) == 0 || errno == EOPNOTSUPP);
  return 0;
}

/* What is changed is seen by the next look. */
static struct stat before, after;
static int looks_new(const char *name) { return lstat(name, &after) == 0 && memcmp(&before.st_ctim, &after.st_ctim, sizeof after.st_ctim) != 0; }
#define CHANGES(name, call)                                           \
  do {                                                                \
    usleep(8000); /* the kernel's clock of files has coarse steps */  \
    CHECK(lstat(name, &before) == 0);                                 \
    CHECK((call) == 0 || errno == ENOTSUP);                           \
    CHECK(errno == ENOTSUP || looks_new(name));                       \
    errno = 0;                                                        \
  } while (0)
static int count_names(void) {
  DIR *all = opendir(".");
  int count = 0;
  while (all != NULL && readdir(all) != NULL) ++count;
  return all != NULL && closedir(all) == 0 ? count : -1;
}
#define MAKES(difference, call)                   \
  do {                                            \
    int names = count_names();                    \
    CHECK((call) >= 0);                           \
    CHECK(count_names() == names + (difference)); \
  } while (0)
static int check_changes(void) {
  char in[4096], pattern[32];
  struct stat st;
  struct timeval times[2] = {{1000000000, 0}, {1000000000, 0}};
  struct timespec stamps[2] = {{1000000001, 0}, {1000000001, 0}};
  struct utimbuf old = {5, 6};
  const int start = open(".", O_RDONLY | O_DIRECTORY);
  snprintf(in, sizeof in, "%.*s/changes", (int)(strrchr(path, '/') - path), path);
  CHECK(mkdir(in, 0700) == 0 && chdir(in) == 0);
  const int here = open(".", O_RDONLY | O_DIRECTORY);
  int fd;
  MAKES(1, fd = creat("file", 0600));
  CHECK(write(fd, "longer", 6) == 6 && close(fd) == 0 && stat("file", &st) == 0 && st.st_size == 6);
  CHECK((fd = creat64("file", 0600)) >= 0 && stat("file", &st) == 0 && st.st_size == 0 && write(fd, "longer", 6) == 6 && close(fd) == 0);
  CHECK(truncate64("file", 5) == 0 && stat("file", &st) == 0 && st.st_size == 5);
  CHECK((fd = open("file", O_RDWR)) >= 0 && ftruncate(fd, 4) == 0 && stat("file", &st) == 0 && st.st_size == 4);
  CHECK(ftruncate64(fd, 3) == 0 && stat("file", &st) == 0 && st.st_size == 3);
  CHANGES("file", fchmod(fd, 0640));
  CHANGES("file", fchown(fd, getuid(), getgid()));
  CHANGES("file", futimes(fd, times));
  CHANGES("file", futimens(fd, stamps));
  CHANGES("file", fsetxattr(fd, "user.a", "b", 1, 0));
  CHANGES("file", fremovexattr(fd, "user.a"));
  CHECK(close(fd) == 0);
  CHANGES("file", fchmodat(here, "file", 0600, 0));
  CHANGES("file", lchmod("file", 0640));
  CHANGES("file", chown("file", getuid(), getgid()));
  CHANGES("file", fchownat(here, "file", getuid(), getgid(), 0));
  CHANGES("file", utime("file", &old));
  CHANGES("file", utimes("file", times));
  CHANGES("file", futimesat(here, "file", times));
  CHANGES("file", setxattr("file", "user.a", "b", 1, 0));
  CHANGES("file", removexattr("file", "user.a"));
  CHANGES("file", lsetxattr("file", "user.a", "b", 1, 0));
  CHANGES("file", lremovexattr("file", "user.a"));
  MAKES(1, symlinkat("file", here, "link"));
  CHANGES("link", lchown("link", getuid(), getgid()));
  CHANGES("link", lutimes("link", times));
  MAKES(1, linkat(here, "file", here, "second", 0));
  CHECK(stat("file", &st) == 0 && st.st_nlink == 2);
  MAKES(0, renameat(here, "second", here, "third"));
  CHECK(stat("second", &st) == -1 && errno == ENOENT && stat("third", &st) == 0);
  MAKES(-1, unlinkat(here, "third", 0));
  CHECK(stat("file", &st) == 0 && st.st_nlink == 1);
  MAKES(1, mkdirat(here, "d", 0700));
  MAKES(-1, rmdir("d"));
  MAKES(1, mknod("pipe", S_IFIFO | 0600, 0));
  MAKES(1, mknodat(here, "pipe2", S_IFIFO | 0600, 0));
  MAKES(1, mkfifoat(here, "pipe3", 0600));
  MAKES(-1, remove("pipe3"));
  CHECK(stat("pipe3", &st) == -1 && errno == ENOENT);
  strcpy(pattern, "tXXXXXX");
  MAKES(1, fd = mkstemp64(pattern));
  CHECK(close(fd) == 0);
  strcpy(pattern, "tXXXXXX");
  MAKES(1, fd = mkostemp(pattern, O_CLOEXEC));
  CHECK(close(fd) == 0);
  strcpy(pattern, "tXXXXXX");
  MAKES(1, fd = mkostemp64(pattern, O_CLOEXEC));
  CHECK(close(fd) == 0);
  strcpy(pattern, "tXXXXXX.x");
  MAKES(1, fd = mkstemps64(pattern, 2));
  CHECK(close(fd) == 0);
  strcpy(pattern, "tXXXXXX.x");
  MAKES(1, fd = mkostemps(pattern, 2, O_CLOEXEC));
  CHECK(close(fd) == 0);
  strcpy(pattern, "tXXXXXX.x");
  MAKES(1, fd = mkostemps64(pattern, 2, O_CLOEXEC));
  CHECK(close(fd) == 0);
  return fchdir(start) | close(start) | close(here);
}

/* Numbers read as wide characters: a stream becomes libc's before the first (one each). */
static FILE *wide(void) {
  char name[4096];
  snprintf(name, sizeof name, "%s.words", path);
  return fopen(name, "r");
}
static int check_wide(void) { /* nine */
  wchar_t line[20];
  int number = 0;
  FILE *f;
  CHECK((f = wide()) != NULL && getwc(f) == L'1' && ungetwc(L'1', f) == L'1' && fclose(f) == 0);
  CHECK((f = wide()) != NULL && ungetwc(L'7', f) == L'7' && fgetwc(f) == L'7' && fclose(f) == 0);
  CHECK((f = wide()) != NULL && fgetwc_unlocked(f) == L'1' && fclose(f) == 0);
  CHECK((f = wide()) != NULL && getwc_unlocked(f) == L'1' && fclose(f) == 0);
  CHECK((f = wide()) != NULL && fgetws(line, 20, f) != NULL && wcscmp(line, L"12 34\n") == 0 && fclose(f) == 0);
  CHECK((f = wide()) != NULL && fgetws_unlocked(line, 20, f) != NULL && wcscmp(line, L"12 34\n") == 0 && fclose(f) == 0);
  CHECK((f = wide()) != NULL && fwscanf(f, L"%d", &number) == 1 && number == 12 && fclose(f) == 0);
  CHECK((f = wide()) != NULL && fwide(f, 1) > 0 && fgetwc(f) == L'1' && fclose(f) == 0);
  CHECK((f = wide()) != NULL && (f = freopen64(path, "r", f)) != NULL && getc(f) == 0 && fclose(f) == 0);
  return 0;
}

/* Programs that are executed by other names go on reading where we came to. */
static int goes_on(int fd) {
  uint32_t number;
  return read(fd, &number, 4) == 4 && number == 1 ? 0 : 1;
}
#define EXECUTED(call)                                                                        \
  do {                                                                                        \
    pid_t child = fork();                                                                     \
    if (child == 0) {                                                                         \
      uint32_t number;                                                                        \
      char text[16];                                                                          \
      int fd = open(path, O_RDONLY);                                                          \
      char *argv[] = {(char *)self, (char *)path, "goes_on", text, NULL};                     \
      snprintf(text, sizeof text, "%d", fd);                                                  \
      if (read(fd, &number, 4) == 4) call;                                                    \
      _Exit(9);                                                                               \
    }                                                                                         \
    int status;                                                                               \
    CHECK(waitpid(child, &status, 0) == child && status == 0);                                \
  } while (0)
static int check_executed(void) { /* six */
  EXECUTED(execvpe(self, argv, environ));
  EXECUTED(execvp(self, argv));
  EXECUTED(execveat(AT_FDCWD, self, argv, environ, 0));
  EXECUTED(execl(self, self, path, "goes_on", text, NULL));
  EXECUTED(execlp(self, self, path, "goes_on", text, NULL));
  EXECUTED(execle(self, self, path, "goes_on", text, NULL, environ));
  return 0;
}

/* Other names of what aliases.c has: by a number's name in /proc (one each), large-file names, what forks. */
static int check_other_names(void) { /* eight */
  char name[64], link[4096], *real;
  int fd = open_one(), status, terminal;
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  CHECK(readlinkat(AT_FDCWD, name, link, sizeof link) > 0 && close(fd) == 0);
  fd = open_one();
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  CHECK((real = canonicalize_file_name(name)) != NULL && strcmp(strrchr(real, '/'), strrchr(path, '/')) == 0 && close(fd) == 0);
  free(real);
  fd = open_one();
  CHECK(lockf64(fd, F_TEST, 0) == 0 && close(fd) == 0);
  uint32_t number = 9, second = 9;
  fd = open_one();
  struct aiocb64 one = {.aio_fildes = fd, .aio_buf = &number, .aio_nbytes = 4, .aio_offset = 400};
  const struct aiocb64 *wait[] = {&one};
  CHECK(aio_read64(&one) == 0 && aio_suspend64(wait, 1, NULL) == 0 && aio_return64(&one) == 4 && number == 100 && close(fd) == 0);
  fd = open_one();
  struct aiocb64 two = {.aio_fildes = fd, .aio_buf = &second, .aio_nbytes = 4, .aio_offset = 800, .aio_lio_opcode = LIO_READ}, *list[] = {&two};
  CHECK(lio_listio64(LIO_WAIT, list, 1, NULL) == 0 && aio_return64(&two) == 4 && second == 200 && close(fd) == 0);
  int ends[2];
  off64_t at = 4;
  fd = open_one();
  CHECK(pipe(ends) == 0 && sendfile64(ends[1], fd, &at, 4) == 4 && at == 8 && read(ends[0], &number, 4) == 4 && number == 1 && close(fd) == 0); /* converts nothing */
  fd = open_one();
  pid_t child = _Fork();
  if (child == 0) _exit(read(fd, &number, 4) != 4);
  CHECK(waitpid(child, &status, 0) == child && status == 0 && lseek(fd, 0, SEEK_CUR) == 4 && close(fd) == 0);
  fd = open_one();
  child = forkpty(&terminal, NULL, NULL, NULL);
  if (child == 0) _exit(read(fd, &number, 4) != 4);
  CHECK(waitpid(child, &status, 0) == child && status == 0 && lseek(fd, 0, SEEK_CUR) == 4 && close(fd) == 0 && close(terminal) == 0);
  fd = open_one();
  child = fork();
  if (child == 0) _exit(daemon(1, 1) != 0 || read(fd, &number, 4) != 4);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  for (int tries = 0; lseek(fd, 0, SEEK_CUR) != 4 && tries < 1000; ++tries) usleep(10000);
  return lseek(fd, 0, SEEK_CUR) != 4 || close(fd) != 0;
}

/* Each child reads one file by itself, and once what it has inherited; what is reported of it is that. */
static int reads_one(void *argument) {
  char byte;
  int inherited = *(int *)argument, fd = open_one();
  return read(inherited, &byte, 1) != 1 || read(fd, &byte, 1) != 1 || close(fd) != 0;
}
static int reads_one_and_ends(void *argument) { _exit(reads_one(argument)); }
static int check_counted(void) { /* two */
  static char stack[262144] __attribute__((aligned(16)));
  int (*const runs[])(void *) = {reads_one, reads_one_and_ends};
  for (int i = 0; i < 2; ++i) {
    char byte;
    int status, fd = open_one();
    CHECK(read(fd, &byte, 1) == 1);
    pid_t child = clone(runs[i], stack + sizeof stack, SIGCHLD, &fd);
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0 && lseek(fd, 0, SEEK_CUR) == 2 && close(fd) == 0);
  }
  return 0;
}

/* A child with our descriptors and a memory of its own knows nothing of what becomes of our numbers: from then on all are real. */
static int looks_again(void *argument) {
  int *ends = argument;
  char byte;
  if (read(ends[0], &byte, 1) != 1) return 1; /* the parent has another file under that number by now */
  return read(ends[2], &byte, 1) != 1 || byte != '1';
}
static int check_shared_numbers(void) { /* one */
  static char stack[262144] __attribute__((aligned(16)));
  char text[4096];
  int ends[3], status;
  snprintf(text, sizeof text, "%s.words", path);
  CHECK(pipe(ends) == 0 && (ends[2] = open_one()) >= 0);
  pid_t child = clone(looks_again, stack + sizeof stack, CLONE_FILES | SIGCHLD, ends);
  CHECK(child > 0 && close(ends[2]) == 0);
  int other = open(text, O_RDONLY);
  CHECK(other >= 0 && (other == ends[2] || dup2(other, ends[2]) == ends[2]) && write(ends[1], "x", 1) == 1);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  return 0;
}

/* What lies behind a loop device is named by its number: the kernel is to find the file there, whatever it says of this device. */
static int check_looped(void) { /* three */
  int other = open("/dev/null", O_RDWR);
  for (int way = 0; way < 3; ++way) {
    char bytes[4];
    struct loop_config config = {0};
    int fd = open_one(), request[] = {LOOP_SET_FD, LOOP_CHANGE_FD, LOOP_CONFIGURE};
    config.fd = (unsigned)fd;
    CHECK(other >= 0 && fd >= 0 && (way == 2 ? ioctl(other, LOOP_CONFIGURE, &config) : ioctl(other, request[way], fd)) == -1 && errno == ENOTTY);
    CHECK(by_hand(SYS_pread64, fd, (long)bytes, sizeof bytes, 0, 0, 0) == sizeof bytes && close(fd) == 0);
  }
  CHECK(ioctl(other, LOOP_CONFIGURE, NULL) == -1);
  return close(other);
}

int main(int argc, char **argv) {
  static const struct check checks[] = {{"asked", check_asked}, {"looped", check_looped}, {"refused", check_refused}, {"used", check_used}, {"looked_at", check_looked_at}, {"real_first", check_real_first}, {"changes", check_changes}, {"wide", check_wide},
                                        {"executed", check_executed}, {"other_names", check_other_names}, {"counted", check_counted}, {"shared_numbers", check_shared_numbers}};
  if (argc < 3) return 64;
  self = argv[0], path = argv[1];
  if (argc == 4 && strcmp(argv[2], "goes_on") == 0) return goes_on(atoi(argv[3]));
  return RUN_CHECKS(checks, argc, argv, 2);
}
