// exec and the end of a process: what the next program inherits is real, what it closes is told, and the report is written.
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "client_lib/preload/calls.h"
#include "client_lib/preload/counters.h"
#include "client_lib/preload/foreign.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/memory_copies.h"
#include "client_lib/preload/reopened.h"
#include "client_lib/preload/takes_library.h"
#include "client_lib/preload/writers.h"

using namespace tierd::preload;

TIERD_NEXT(int, execve, const char*, char* const*, char* const*)
TIERD_NEXT(int, execvp, const char*, char* const*)
TIERD_NEXT(int, execvpe, const char*, char* const*, char* const*)
TIERD_NEXT(int, fexecve, int, char* const*, char* const*)
TIERD_NEXT(int, execveat, int, const char*, char* const*, char* const*, int)
TIERD_NEXT(void, _exit, int)

extern char** environ;

namespace {

// What is closed by exec may stay ours: it is gone, or exec has failed and nothing has changed.
void BeforeExec(const char* path) {
  if (!Active()) return;
  RealIfNamed(path);
  const tierd::client::KeepErrno keep;
  MaterialiseInherited(Conversion::kExec);
  TellClosedByExec();
  WriteReport();
}

// In a vfork child, too. What this library does nothing for has told nobody of its changes before.
bool TakesAt(int directory, const char* path, char* const* environment) {
  return !process.active.load(std::memory_order_relaxed) || TakesLibrary(directory, path, environment);
}
bool Takes(const char* path, char* const* environment) { return TakesAt(AT_FDCWD, path, environment); }
bool NumberTakes(int fd, char* const* environment) {
  char path[32];
  ::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  return Takes(path, environment);
}
bool FoundTakes(const char* file, char* const* environment) { return !process.active.load(std::memory_order_relaxed) || FoundTakesLibrary(file, environment); }

int CountArguments(va_list arguments) {
  int count = 1;
  while (va_arg(arguments, char*) != nullptr) ++count;
  return count;
}

}  // namespace

TIERD_EXPORT(int, execve, const char* path, char* const* argv, char* const* environment) {
  BeforeExec(path);
  const Foreign foreign(ForeignUnless(Takes(path, environment)));
  return Next_execve()(path, argv, environment);
}
TIERD_EXPORT(int, execv, const char* path, char* const* argv) {
  BeforeExec(path);
  const Foreign foreign(ForeignUnless(Takes(path, environ)));
  return Next_execve()(path, argv, environ);
}
TIERD_EXPORT(int, execvp, const char* file, char* const* argv) {
  BeforeExec(file);
  const Foreign foreign(ForeignUnless(FoundTakes(file, environ)));
  return Next_execvp()(file, argv);
}
TIERD_EXPORT(int, execvpe, const char* file, char* const* argv, char* const* environment) {
  BeforeExec(file);
  const Foreign foreign(ForeignUnless(FoundTakes(file, environment)));
  return Next_execvpe()(file, argv, environment);
}
TIERD_EXPORT(int, execveat, int directory, const char* path, char* const* argv, char* const* environment, int flags) {
  if (Emulate(directory)) (void)Materialise(directory, Conversion::kExec);
  if (const int error = MakeFile(directory); error != 0) return Result(error);
  BeforeExec(path);
  const bool by_number = path != nullptr && path[0] == '\0';
  const Foreign foreign(ForeignUnless(by_number ? NumberTakes(directory, environment) : TakesAt(directory, path, environment)));
  return Next_execveat()(directory, path, argv, environment, flags);
}
TIERD_EXPORT(int, fexecve, int fd, char* const* argv, char* const* environment) {
  if (Emulate(fd)) (void)Materialise(fd, Conversion::kExec);
  if (const int error = MakeFile(fd); error != 0) return Result(error);
  BeforeExec(nullptr);
  const Foreign foreign(ForeignUnless(NumberTakes(fd, environment)));
  return Next_fexecve()(fd, argv, environment);
}

// The list as a vector on this stack: nothing may be allocated in a vfork child.
#define TIERD_GATHER(first)                                                                 \
  va_list arguments;                                                                        \
  va_start(arguments, first);                                                               \
  const int count = CountArguments(arguments);                                              \
  va_end(arguments);                                                                        \
  auto** const argv = static_cast<char**>(__builtin_alloca((static_cast<unsigned>(count) + 1) * sizeof(char*))); \
  va_start(arguments, first);                                                               \
  argv[0] = const_cast<char*>(first);                                                       \
  for (int i = 1; i <= count; ++i) argv[i] = va_arg(arguments, char*)

TIERD_EXPORT(int, execl, const char* path, const char* first, ...) {
  TIERD_GATHER(first);
  va_end(arguments);
  BeforeExec(path);
  const Foreign foreign(ForeignUnless(Takes(path, environ)));
  return Next_execve()(path, argv, environ);
}
TIERD_EXPORT(int, execlp, const char* file, const char* first, ...) {
  TIERD_GATHER(first);
  va_end(arguments);
  BeforeExec(file);
  const Foreign foreign(ForeignUnless(FoundTakes(file, environ)));
  return Next_execvp()(file, argv);
}
TIERD_EXPORT(int, execle, const char* path, const char* first, ...) {
  TIERD_GATHER(first);
  char** const environment = va_arg(arguments, char**);
  va_end(arguments);
  BeforeExec(path);
  const Foreign foreign(ForeignUnless(Takes(path, environment)));
  return Next_execve()(path, argv, environment);
}

// ---- the end ---------------------------------------------------------------------------------------------------------------

TIERD_EXPORT(void, _exit, int status) {
  if (Active()) {
    EndWriters(Streams::kLeave);
    WriteReport();
  }
  Next__exit()(status);
}
TIERD_ALIAS(void, _Exit, _exit, int)
