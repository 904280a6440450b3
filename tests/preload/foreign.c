/* What a program that no library sees has changed is seen as soon as its parent has waited for it, by
 * the parent and by other processes of the job.
 * usage: foreign ROOT WAY,... COMMAND...: the command is given an action and a directory. Of each way
 * and action there is one, ROOT/WAY-ACTION, with a file of 1,000 times 'a' */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/preload/check.h"

extern char **environ;
static char **command; /* its last two words are the action and the directory */
static int words;

static int ended(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

static void line(char *text, size_t room) {
  for (size_t i = 0, at = 0; i < (size_t)words; ++i) at += (size_t)snprintf(text + at, room - at, "%s%s", i == 0 ? "" : " ", command[i]);
}

/* Whether the command has ended well. */
static int run(const char *way) {
  char text[8192];
  int status = -1;
  pid_t child;
  siginfo_t info;
  line(text, sizeof text);
  if (strcmp(way, "system") == 0) return ended(system(text));
  if (strcmp(way, "popen") == 0) {
    FILE *stream = popen(text, "r");
    return stream != NULL && ended(pclose(stream));
  }
  if (strcmp(way, "spawn") == 0) {
    return posix_spawn(&child, command[0], NULL, NULL, command, environ) == 0 && waitpid(child, &status, 0) == child && ended(status);
  }
  if (strcmp(way, "spawnp") == 0) {
    return posix_spawnp(&child, command[0], NULL, NULL, command, environ) == 0 && wait4(child, &status, 0, NULL) == child && ended(status);
  }
  if (strcmp(way, "vfork") == 0) {
    child = vfork();
    if (child == 0) {
      execv(command[0], command);
      _exit(9);
    }
    return wait3(&status, 0, NULL) == child && ended(status);
  }
  if (strcmp(way, "ignored") == 0) signal(SIGCHLD, SIG_IGN);
  child = fork();
  if (child == 0) {
    if (strcmp(way, "chain") == 0) execl("/bin/bash", "bash", "-c", "exec \"$@\"", "bash", command[0], command[1], command[2], words > 3 ? command[3] : NULL, words > 4 ? command[4] : NULL, words > 5 ? command[5] : NULL, words > 6 ? command[6] : NULL, NULL);
    else if (strcmp(way, "execvp") == 0) execvp(command[0], command);
    else if (strcmp(way, "fexecve") == 0) fexecve(open(command[0], O_RDONLY | O_CLOEXEC), command, environ);
    else if (strcmp(way, "syscall") == 0) syscall(SYS_execve, command[0], command, environ);
    else execve(command[0], command, environ);
    _exit(9);
  }
  if (strcmp(way, "ignored") == 0) {
    int error = wait(&status) == -1 ? errno : 0;
    signal(SIGCHLD, SIG_DFL);
    return error == ECHILD;
  }
  if (strcmp(way, "syscall") == 0) return syscall(SYS_wait4, child, &status, 0, NULL) == child && ended(status);
  if (strcmp(way, "waitid") == 0) {
    if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) != 0) return 0;
    return info.si_code == CLD_EXITED && info.si_status == 0;
  }
  return wait(&status) == child && ended(status);
}

static int shows(int fd, char byte) {
  char bytes[1001];
  if (fd < 0 || pread(fd, bytes, sizeof bytes, 0) != 1000) return 0;
  for (int i = 0; i < 1000; ++i) {
    if (bytes[i] != byte) return 0;
  }
  return 1;
}
static int has(const char *directory, const char *name) {
  DIR *all = opendir(directory);
  int found = 0;
  for (struct dirent *entry; all != NULL && (entry = readdir(all)) != NULL;) found |= strcmp(entry->d_name, name) == 0;
  return all != NULL && closedir(all) == 0 && found;
}
/* By a process of its own. */
static int others_see(const char *file, char byte) {
  char text[8192], bytes[1001];
  snprintf(text, sizeof text, "exec cat %s", file);
  FILE *stream = popen(text, "r");
  const size_t got = stream == NULL ? 0 : fread(bytes, 1, sizeof bytes, stream);
  return pclose(stream) == 0 && got == 1000 && bytes[0] == byte && bytes[999] == byte;
}

static int try(const char *root, const char *way, const char *action) {
  char directory[4096], file[4200];
  struct stat st;
  snprintf(directory, sizeof directory, "%s/%s-%s", root, way, action);
  snprintf(file, sizeof file, "%s/file", directory);
  command[words - 2] = (char *)action;
  command[words - 1] = directory;
  while (waitpid(-1, NULL, WNOHANG) > 0) continue; /* WNOWAIT has left it */
  const int fd = open(file, O_RDONLY);
  CHECK(shows(fd, 'a') && stat(file, &st) == 0 && st.st_size == 1000 && has(directory, "file") && !has(directory, "made"));
  CHECK(others_see(file, 'a') && run(way));
  if (strcmp(action, "rewrite") == 0) {
    CHECK(shows(open(file, O_RDONLY), 'b') && others_see(file, 'b') && shows(fd, 'b'));
  } else if (strcmp(action, "replace") == 0) {
    CHECK(shows(open(file, O_RDONLY), 'c') && others_see(file, 'c') && shows(fd, 'a'));
  } else if (strcmp(action, "unlink") == 0) {
    CHECK(stat(file, &st) == -1 && errno == ENOENT && open(file, O_RDONLY) == -1 && errno == ENOENT);
    CHECK(!has(directory, "file") && shows(fd, 'a'));
  } else {
    CHECK(has(directory, "made") && has(directory, "file"));
  }
  return close(fd);
}

int main(int argc, char **argv) {
  static const char *const kActions[] = {"rewrite", "replace", "unlink", "create"};
  char *list[64], *rest = argv[2];
  int failed = 0;
  if (argc < 4 || argc > 50) return 2;
  words = argc - 3 + 2;
  for (int i = 3; i < argc; ++i) list[i - 3] = argv[i];
  list[words] = NULL;
  command = list;
  for (char *way; (way = strsep(&rest, ",")) != NULL;) {
    for (int i = 0; i < 4; ++i) {
      const int bad = try(argv[1], way, kActions[i]);
      printf("%s %s %s\n", way, kActions[i], bad ? "FAILED" : "ok");
      fflush(stdout);
      failed |= bad;
    }
  }
  return failed;
}
