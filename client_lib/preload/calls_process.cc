// Where another process begins: everything of ours becomes real before, so that offsets are shared as the kernel shares them and no placeholder is inherited.
// fork itself (and forkpty, daemon) is caught by pthread_atfork (start.cc).
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "client_lib/preload/calls.h"
#include "client_lib/preload/counters.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/writers.h"

using namespace tierd::preload;

TIERD_NEXT(pid_t, _Fork, void)
TIERD_NEXT(int, posix_spawn, pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const*, char* const*)
TIERD_NEXT(int, posix_spawnp, pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const*, char* const*)
TIERD_NEXT(int, system, const char*)
TIERD_NEXT(FILE*, popen, const char*, const char*)
TIERD_NEXT(int, execve, const char*, char* const*, char* const*)
TIERD_NEXT(int, execvp, const char*, char* const*)
TIERD_NEXT(int, execvpe, const char*, char* const*, char* const*)
TIERD_NEXT(int, fexecve, int, char* const*, char* const*)
TIERD_NEXT(int, execveat, int, const char*, char* const*, char* const*, int)
TIERD_NEXT(int, clone, int (*)(void*), void*, int, void*, ...)
TIERD_NEXT(void, _exit, int)

extern char** environ;

namespace {

// Nothing new of ours is opened between the conversion and the call that makes the process.
class NewProcess {
 public:
  explicit NewProcess(Conversion why) : active_(Active()) {
    if (!active_) return;
    const tierd::client::KeepErrno keep;
    process.forking.fetch_add(1, std::memory_order_seq_cst);
    MaterialiseAll(why);
  }
  ~NewProcess() {
    if (active_) process.forking.fetch_sub(1, std::memory_order_seq_cst);
  }
  NewProcess(const NewProcess&) = delete;
  NewProcess& operator=(const NewProcess&) = delete;

 private:
  const bool active_;
};

}  // namespace

// ---- vfork (vfork.cc) -------------------------------------------------------------------------------------------------------

extern "C" {
__attribute__((visibility("hidden"))) void tierd_before_vfork() {
  if (process.active) {
    const tierd::client::KeepErrno keep;
    process.forking.fetch_add(1, std::memory_order_seq_cst);
    if (vfork_depth == 0) MaterialiseAll(Conversion::kSpawn);
  }
  ++vfork_depth;
}

// In the parent; `result` is what the kernel gave it.
__attribute__((visibility("hidden"))) long tierd_after_vfork(long result) {
  --vfork_depth;
  if (process.active) process.forking.fetch_sub(1, std::memory_order_seq_cst);
  return Result(result);
}
}

TIERD_EXPORT(pid_t, _Fork, void) {
  const NewProcess begins(Conversion::kFork);
  return Next__Fork()();
}

TIERD_EXPORT(int, clone, int (*run)(void*), void* stack, int flags, void* argument, ...) {
  va_list arguments;
  va_start(arguments, argument);
  void* more[3];
  for (void*& word : more) word = va_arg(arguments, void*);
  va_end(arguments);
  if ((flags & (CLONE_VM | CLONE_FILES)) != 0) return Next_clone()(run, stack, flags, argument, more[0], more[1], more[2]);
  const NewProcess begins(Conversion::kFork);
  return Next_clone()(run, stack, flags, argument, more[0], more[1], more[2]);
}

// ---- spawn -----------------------------------------------------------------------------------------------------------------

TIERD_EXPORT(int, posix_spawn, pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes, char* const* argv,
             char* const* environment) {
  const NewProcess begins(Conversion::kSpawn);
  return Next_posix_spawn()(pid, path, actions, attributes, argv, environment);
}

TIERD_EXPORT(int, posix_spawnp, pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes, char* const* argv,
             char* const* environment) {
  const NewProcess begins(Conversion::kSpawn);
  return Next_posix_spawnp()(pid, file, actions, attributes, argv, environment);
}

TIERD_EXPORT(int, system, const char* command) {
  if (command != nullptr) {
    const NewProcess begins(Conversion::kSpawn);
  }
  return Next_system()(command);
}

TIERD_EXPORT(FILE*, popen, const char* command, const char* mode) {
  const NewProcess begins(Conversion::kSpawn);
  return Next_popen()(command, mode);
}

// ---- exec ------------------------------------------------------------------------------------------------------------------

namespace {

// What is closed by exec may stay ours: it is gone, or exec has failed and nothing has changed.
void BeforeExec() {
  if (!Active()) return;
  const tierd::client::KeepErrno keep;
  for (int fd = 0; fd < kTable && OpenDescriptions() != 0; ++fd) {
    if (IsOurs(fd) && !CloseOnExec(fd)) (void)Materialise(fd, Conversion::kExec);
  }
  WriteReport();
}

int CountArguments(va_list arguments) {
  int count = 1;
  while (va_arg(arguments, char*) != nullptr) ++count;
  return count;
}

}  // namespace

TIERD_EXPORT(int, execve, const char* path, char* const* argv, char* const* environment) {
  BeforeExec();
  return Next_execve()(path, argv, environment);
}
TIERD_EXPORT(int, execv, const char* path, char* const* argv) {
  BeforeExec();
  return Next_execve()(path, argv, environ);
}
TIERD_EXPORT(int, execvp, const char* file, char* const* argv) {
  BeforeExec();
  return Next_execvp()(file, argv);
}
TIERD_EXPORT(int, execvpe, const char* file, char* const* argv, char* const* environment) {
  BeforeExec();
  return Next_execvpe()(file, argv, environment);
}
TIERD_EXPORT(int, execveat, int directory, const char* path, char* const* argv, char* const* environment, int flags) {
  if (Emulate(directory)) (void)Materialise(directory, Conversion::kExec);
  BeforeExec();
  return Next_execveat()(directory, path, argv, environment, flags);
}
TIERD_EXPORT(int, fexecve, int fd, char* const* argv, char* const* environment) {
  if (Emulate(fd)) (void)Materialise(fd, Conversion::kExec);
  BeforeExec();
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
  BeforeExec();
  return Next_execve()(path, argv, environ);
}
TIERD_EXPORT(int, execlp, const char* file, const char* first, ...) {
  TIERD_GATHER(first);
  va_end(arguments);
  BeforeExec();
  return Next_execvp()(file, argv);
}
TIERD_EXPORT(int, execle, const char* path, const char* first, ...) {
  TIERD_GATHER(first);
  char** const environment = va_arg(arguments, char**);
  va_end(arguments);
  BeforeExec();
  return Next_execve()(path, argv, environment);
}

// ---- the end ---------------------------------------------------------------------------------------------------------------

TIERD_EXPORT(void, _exit, int status) {
  if (Active()) {
    EndWriters(false);
    WriteReport();
  }
  Next__exit()(status);
}
TIERD_ALIAS(void, _Exit, _exit, int)
