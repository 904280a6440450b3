// Processes of the job that change files without this library: programs that do not load it
// (takes_library.h) and processes that it keeps out of (leaving.h). Nobody tells the daemon what they
// change. When one has ended, what lies below the sources is doubted before its parent's `wait`
// returns. While it runs, the staleness bound holds.
//
// They are known by their process ids in a table that the processes of the job share: the file that
// TIERD_CHILDREN names (`tierctl run` makes it), or else memory that forks inherit and exec loses. The
// process marks itself before it executes the program. Any thread, a vfork child too; errno is left
// alone.
#pragma once

#include <sys/types.h>

#include <atomic>

namespace tierd::preload {

// Makes the table, before a child is made that is to share it.
void ShareForeign();

enum class IsForeign : bool { kNo, kYes };

// This process is foreign while an object of it lives: around an exec, which returns only if it has
// failed, and other calls after which it may be.
class Foreign {
 public:
  explicit Foreign(IsForeign is);
  ~Foreign();
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;
  // For good.
  void Stay() { marked_ = -1; }

 private:
  int marked_ = -1;
  pid_t self_ = 0;
};
inline IsForeign ForeignUnless(bool takes_library) { return takes_library ? IsForeign::kNo : IsForeign::kYes; }

// Around a call that makes a child and has it execute a program.
class Spawning {
 public:
  explicit Spawning(bool takes_library);
  ~Spawning();
  Spawning(const Spawning&) = delete;
  Spawning& operator=(const Spawning&) = delete;
  void Made(pid_t child);

 private:
  const bool foreign_;
};

// After a call that waits for children: `ended` is the one that it has seen the end of; 0: it does not
// say; kNoneLeft: there is none left to wait for, and what has ended just now may still look alive.
// Foreign processes of the job that have ended since are found, too. One load while there are none.
inline constexpr pid_t kNoneLeft = -1;
void AfterWait(pid_t ended);
// The same after a call that has run a shell and does not say which process that was.
void AfterShell();

}  // namespace tierd::preload
