// The tierd of one job: started in a session of its own, so that the terminal's signals do not reach it, with the read end of a pipe (its lifeline) whose other end
// the job's processes inherit. It ends by itself when all of them are gone, however they went. The pipe has a name in the scratch directory: other runs of the job
// take an end of it, too.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "tierctl/run/scratch.h"
#include "tierd/base/status.h"
#include "tierd/base/unique_fd.h"

namespace tierctl::run {

struct DaemonOptions {
  std::vector<std::string> sources;  // empty: the network mounts
  std::string ram;                   // "": tierd's default
  std::string ssd;                   // "": in the scratch directory, if that is on a disk
  std::string policy;                // "": tierd's default
  std::string ssd_capacity;          // "": tierd's default
};

// Where the SSD tier of a run will be: a directory, or "off".
std::string SsdPlace(const DaemonOptions& options, const Scratch& scratch);
// The lifeline of the daemon in that scratch directory.
std::string LifelineIn(const Scratch& scratch);

class JobDaemon {
 public:
  // Starts it and waits until it is ready. Else the message says in one line why it could not. It inherits
  // `held` (-1: nothing) and keeps it as long as it lives. `waiting` is called now and then meanwhile.
  static tierd::Result<JobDaemon> Start(const std::string& binary, const DaemonOptions& options, const Scratch& scratch, int held = -1,
                                        const std::function<void()>& waiting = {});
  // Holds one that another run has started in the scratch directory `scratch`, by its lifeline.
  static tierd::Result<JobDaemon> Join(const std::string& lifeline, const std::string& scratch);
  // Which process that is, once it has said so.
  void IsProcess(pid_t pid) { pid_ = pid; }

  // To be inherited by the command: not close-on-exec, at a number that programs do not use themselves.
  int lifeline() const { return lifeline_.get(); }
  // The signal that has ended it; 0: none, or another run has started it.
  int KilledBy();
  // Lets go of our end, and waits a little for it to end. False: processes of the job are still there.
  bool LetGo();

 private:
  // Whether it has ended; its wait status is in wait_status_ then.
  bool HasEnded();

  pid_t pid_ = -1;
  bool is_child_ = true;  // else another run's
  bool ended_ = false;
  int wait_status_ = 0;
  std::string log_;
  tierd::UniqueFd lifeline_;
};

}  // namespace tierctl::run
