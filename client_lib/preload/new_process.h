// Around a call that makes a process: what is ours becomes real before, and nothing is opened as ours until it is over.
#pragma once

#include <sched.h>

#include "client_lib/preload/materialise.h"
#include "client_lib/preload/memory_copies.h"
#include "client_lib/preload/process.h"
#include "client_lib/src/fork_mark.h"
#include "client_lib/src/process.h"
#include "client_lib/src/thread_state.h"

namespace tierd::preload {

// Before a clone with these flags: the child may run on our memory beside us, without libc's knowing; or have our descriptors and a table of its own of what they are.
inline void NoteClone(unsigned long flags) {
  if ((flags & (CLONE_VM | CLONE_VFORK)) == CLONE_VM) client::foreign_threads.store(true, std::memory_order_seq_cst);
  if ((flags & (CLONE_VM | CLONE_FILES)) == CLONE_FILES) process.real_from_now.store(true, std::memory_order_seq_cst);
}

class NewProcess {
 public:
  // What its child can reach: of posix_spawn's only what exec leaves open (and what its file actions name, calls_process.cc).
  enum class Which { kAll, kInherited };
  explicit NewProcess(Conversion why, Which which = Which::kAll) : active_(Active()) {
    if (!active_) return;
    const client::KeepErrno keep;
    BeginForking();
    if (which == Which::kAll) {
      MaterialiseAll(why);
    } else {
      MaterialiseInherited(why);
      MakeInheritedFile(Inherited::kOpenAfterExec);
    }
  }
  ~NewProcess() {
    if (active_) process.forking.fetch_sub(1, std::memory_order_seq_cst);
  }
  NewProcess(const NewProcess&) = delete;
  NewProcess& operator=(const NewProcess&) = delete;

 private:
  const bool active_;
};

// Around a call that gives a child a copy of our memory without libc's handlers: what it inherits of the cache stays leased (HAZARDS 2.6).
class NewMemory {
 public:
  NewMemory() { client::ForkBegins(); }
  ~NewMemory() { client::ForkIsOver(); }
  NewMemory(const NewMemory&) = delete;
  NewMemory& operator=(const NewMemory&) = delete;
};

// In that child, as soon as it is one: what was the parent's threads' and counts is not here. (start.cc)
void BeginInChild();

}  // namespace tierd::preload
