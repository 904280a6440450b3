// Tells a signal that was sent to us alone from one that went to all of our process group (`kill -- -PGID`, timeout, scancel), which the command has got already: a process
// of the group that does nothing but keep what is sent to it pending. Ends with us, however we end.
#pragma once

#include <sys/types.h>

namespace tierctl::run {

class Witness {
 public:
  Witness() { Begin(); }
  ~Witness() { End(); }
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

  // Whether the signal that we just got was sent to the group (or to each process of it). Forgets it. False where nothing can be found out.
  bool Saw(int signal_number);

 private:
  void Begin();
  void End();

  pid_t pid_ = -1;
};

}  // namespace tierctl::run
