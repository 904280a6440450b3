// Calls that wait for children. What a child has changed that is foreign (foreign.h) is doubted before
// they return.
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client_lib/preload/calls.h"
#include "client_lib/preload/foreign.h"

using namespace tierd::preload;

TIERD_NEXT(pid_t, wait, int*)
TIERD_NEXT(pid_t, waitpid, pid_t, int*, int)
TIERD_NEXT(pid_t, wait3, int*, int, rusage*)
TIERD_NEXT(pid_t, wait4, pid_t, int*, int, rusage*)
TIERD_NEXT(int, waitid, idtype_t, id_t, siginfo_t*, int)
TIERD_NEXT(int, pclose, FILE*)

namespace {

// ECHILD: where SIGCHLD is ignored children end without being waited for.
template <typename Wait>
pid_t Waited(int* status, Wait wait) {
  if (!Active()) return wait(status);
  int here = 0;
  int* const given = status != nullptr ? status : &here;
  const pid_t child = wait(given);
  const bool ended = child > 0 && (WIFEXITED(*given) || WIFSIGNALED(*given));
  if (ended || (child < 0 && errno == ECHILD)) AfterWait(ended ? child : kNoneLeft);
  return child;
}

}  // namespace

TIERD_EXPORT(pid_t, wait, int* status) {
  return Waited(status, [](int* given) { return Next_wait()(given); });
}
TIERD_EXPORT(pid_t, waitpid, pid_t pid, int* status, int options) {
  return Waited(status, [=](int* given) { return Next_waitpid()(pid, given, options); });
}
TIERD_EXPORT(pid_t, wait3, int* status, int options, rusage* usage) {
  return Waited(status, [=](int* given) { return Next_wait3()(given, options, usage); });
}
TIERD_EXPORT(pid_t, wait4, pid_t pid, int* status, int options, rusage* usage) {
  return Waited(status, [=](int* given) { return Next_wait4()(pid, given, options, usage); });
}
TIERD_EXPORT(int, waitid, idtype_t type, id_t id, siginfo_t* info, int options) {
  if (!Active()) return Next_waitid()(type, id, info, options);
  siginfo_t here{};
  siginfo_t* const given = info != nullptr ? info : &here;
  given->si_pid = 0;
  const int result = Next_waitid()(type, id, given, options);
  const bool ended = result == 0 && given->si_pid != 0 && (given->si_code == CLD_EXITED || given->si_code == CLD_KILLED || given->si_code == CLD_DUMPED);
  if (ended || (result < 0 && errno == ECHILD)) AfterWait(ended ? given->si_pid : kNoneLeft);
  return result;
}

// libc waits for the shell inside.
TIERD_EXPORT(int, pclose, FILE* stream) {
  const int status = Next_pclose()(stream);
  AfterShell();
  return status;
}
