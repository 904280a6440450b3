// Where another process begins: everything of ours becomes real before, so that offsets are shared as the kernel shares them and no placeholder is inherited.
// fork itself (and forkpty, daemon) is caught by pthread_atfork (start.cc).
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "client_lib/preload/calls.h"
#include "client_lib/preload/counters.h"
#include "client_lib/preload/foreign.h"
#include "client_lib/preload/leaving.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/memory_copies.h"
#include "client_lib/preload/new_process.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/reopened.h"
#include "client_lib/preload/takes_library.h"
#include "client_lib/preload/writers.h"

using namespace tierd::preload;

TIERD_NEXT(pid_t, _Fork, void)
TIERD_NEXT(int, posix_spawn, pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const*, char* const*)
TIERD_NEXT(int, posix_spawnp, pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const*, char* const*)
TIERD_NEXT(int, posix_spawn_file_actions_adddup2, posix_spawn_file_actions_t*, int, int)
TIERD_NEXT(int, posix_spawn_file_actions_addopen, posix_spawn_file_actions_t*, int, const char*, int, mode_t)
TIERD_NEXT(int, system, const char*)
TIERD_NEXT(FILE*, popen, const char*, const char*)
TIERD_NEXT(int, clone, int (*)(void*), void*, int, void*, ...)
TIERD_NEXT_CALL(int, chroot, SYS_chroot, const char*)
TIERD_NEXT_CALL(int, mount, SYS_mount, const char*, const char*, const char*, unsigned long, const void*)
TIERD_NEXT_CALL(int, setns, SYS_setns, int, int)
TIERD_NEXT_CALL(int, unshare, SYS_unshare, int)

// ---- vfork (vfork.cc) -------------------------------------------------------------------------------------------------------

extern "C" {
__attribute__((visibility("hidden"))) void tierd_before_vfork() {
  if (process.active) {
    const tierd::client::KeepErrno keep;
    process.forking.fetch_add(1, std::memory_order_seq_cst);
    ShareForeign();
    if (vfork_depth == 0) {
      MaterialiseAll(Conversion::kSpawn);
      MakeInheritedFile(Inherited::kAll);
    }
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
  const NewMemory inherited;
  const pid_t child = Next__Fork()();
  if (child == 0 && Active()) BeginInChild();
  return child;
}

namespace {

struct Child {
  int (*run)(void*);
  void* argument;
};

// On our memory, with descriptors of its own.
int RunMarked(void* argument) {
  const Child child = *static_cast<Child*>(argument);
  ++vfork_depth;
  return child.run(child.argument);
}

// On a copy of our memory. libc ends it with a system call when it returns.
int RunAsProcess(void* argument) {
  const Child child = *static_cast<Child*>(argument);
  if (Active()) {
    process.forking.store(0, std::memory_order_relaxed);  // the parent's
    BeginInChild();
  }
  const int status = child.run(child.argument);
  if (Active()) {
    EndWriters(Streams::kLeave);
    WriteReport();
  }
  return status;
}

}  // namespace

TIERD_EXPORT(int, clone, int (*run)(void*), void* stack, int flags, void* argument, ...) {
  va_list arguments;
  va_start(arguments, argument);
  void* more[3];
  for (void*& word : more) word = va_arg(arguments, void*);
  va_end(arguments);
  NoteClone(static_cast<unsigned long>(flags));
  Child child{run, argument};
  if ((flags & CLONE_VM) == 0) {
    const NewProcess begins(Conversion::kFork);
    const NewMemory inherited;
    return Next_clone()(&RunAsProcess, stack, flags, &child, more[0], more[1], more[2]);
  }
  if ((flags & CLONE_FILES) != 0) return Next_clone()(run, stack, flags, argument, more[0], more[1], more[2]);
  const NewProcess begins(Conversion::kFork);
  MakeInheritedFile(Inherited::kAll);
  // Its own descriptors, our memory: the tables are not its own, as in a vfork child. While the parent waits a mark will do; if both run on, we keep out of it.
  if ((flags & CLONE_VFORK) == 0) {
    Foreign(IsForeign::kYes).Stay();
    process.active.store(false, std::memory_order_seq_cst);
  } else if ((flags & CLONE_SETTLS) != 0) {
    return Next_clone()(&RunMarked, stack, flags, &child, more[0], more[1], more[2]);
  }
  ++vfork_depth;
  const int result = Next_clone()(run, stack, flags, argument, more[0], more[1], more[2]);
  --vfork_depth;
  return result;
}

// ---- spawn -----------------------------------------------------------------------------------------------------------------

namespace {

// Numbers that file actions have ever named: the child would be given the placeholder. What they are counts when it is made, and actions may be used many times.
constinit std::atomic<std::uint64_t> named[raw::kWatched / 64] = {};
constinit std::atomic<bool> any_named{false};

void NameForChild(int fd) {
  if (static_cast<unsigned>(fd) >= raw::kWatched) return;
  named[fd / 64].fetch_or(std::uint64_t{1} << (fd % 64), std::memory_order_relaxed);
  any_named.store(true, std::memory_order_release);
}

void MakeNamedReal(const posix_spawn_file_actions_t* actions) {
  if (actions == nullptr || !any_named.load(std::memory_order_acquire)) return;
  const tierd::client::KeepErrno keep;
  for (int word = 0; word < static_cast<int>(raw::kWatched) / 64; ++word) {
    for (std::uint64_t bits = named[word].load(std::memory_order_relaxed); bits != 0; bits &= bits - 1) {
      const int fd = word * 64 + __builtin_ctzll(bits);
      if (Emulate(fd)) (void)Materialise(fd, Conversion::kSpawn);
      (void)MakeFile(fd);
    }
  }
}

}  // namespace

namespace {

template <typename Make>
int Spawn(bool takes_library, pid_t* pid, Make make) {
  if (!Active()) return make(pid);
  Spawning spawning(takes_library);
  pid_t child = 0;
  const int error = make(&child);
  if (error != 0) return error;
  spawning.Made(child);
  if (pid != nullptr) *pid = child;
  return 0;
}

}  // namespace

TIERD_EXPORT(int, posix_spawn_file_actions_adddup2, posix_spawn_file_actions_t* actions, int from, int to) {
  NameForChild(from);
  return Next_posix_spawn_file_actions_adddup2()(actions, from, to);
}

TIERD_EXPORT(int, posix_spawn_file_actions_addopen, posix_spawn_file_actions_t* actions, int fd, const char* path, int flags, mode_t mode) {
  if (path != nullptr) NameForChild(NumberNamed(path));
  return Next_posix_spawn_file_actions_addopen()(actions, fd, path, flags, mode);
}

TIERD_EXPORT(int, posix_spawn, pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes, char* const* argv,
             char* const* environment) {
  RealIfNamed(path);
  const NewProcess begins(Conversion::kSpawn, NewProcess::Which::kInherited);
  MakeNamedReal(actions);
  return Spawn(TakesLibrary(AT_FDCWD, path, environment), pid, [&](pid_t* child) { return Next_posix_spawn()(child, path, actions, attributes, argv, environment); });
}

TIERD_EXPORT(int, posix_spawnp, pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes, char* const* argv,
             char* const* environment) {
  RealIfNamed(file);
  const NewProcess begins(Conversion::kSpawn, NewProcess::Which::kInherited);
  MakeNamedReal(actions);
  return Spawn(FoundTakesLibrary(file, environment), pid, [&](pid_t* child) { return Next_posix_spawnp()(child, file, actions, attributes, argv, environment); });
}

TIERD_EXPORT(int, system, const char* command) {
  if (command != nullptr) {
    // Not until its child has ended: what another thread opens meanwhile is at worst a number that the child cannot read.
    const NewProcess begins(Conversion::kSpawn, NewProcess::Which::kInherited);
  }
  const int status = Next_system()(command);
  if (command != nullptr) AfterShell();
  return status;
}

TIERD_EXPORT(FILE*, popen, const char* command, const char* mode) {
  const NewProcess begins(Conversion::kSpawn, NewProcess::Which::kInherited);
  return Active() ? WithAllNumbers([=] { return Next_popen()(command, mode); }) : Next_popen()(command, mode);
}

// ---- another view of the file system, or of the descriptors --------------------------------------------------------------------

// Names mean other files from then on (HAZARDS 2.14), or our rights are those of another user namespace.
TIERD_EXPORT(int, chroot, const char* path) {
  return Leave([&] { return Next_chroot()(path); });
}
TIERD_EXPORT(int, pivot_root, const char* root, const char* old) {
  return Leave([&] { return static_cast<int>(Result(raw::Call(SYS_pivot_root, raw::Address(root), raw::Address(old)))); });
}
TIERD_EXPORT(int, mount, const char* source, const char* target, const char* type, unsigned long flags, const void* data) {
  return Leave([&] { return Next_mount()(source, target, type, flags, data); });
}
TIERD_EXPORT(int, setns, int fd, int type) {
  if (type != 0 && (type & (CLONE_NEWNS | CLONE_NEWUSER)) == 0) return Next_setns()(fd, type);
  return Leave([&] { return Next_setns()(fd, type); });
}
TIERD_EXPORT(int, unshare, int flags) {
  if ((flags & CLONE_FILES) != 0 && Active()) {
    process.real_from_now.store(true, std::memory_order_seq_cst);
    MaterialiseAll(Conversion::kFork);
  }
  if ((flags & (CLONE_NEWNS | CLONE_NEWUSER)) == 0) return Next_unshare()(flags);
  return Leave([&] { return Next_unshare()(flags); });
}
