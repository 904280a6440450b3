// What the runs of one user on one node know of each other: which daemons `tierctl run` has started
// here, for which job, with which options. Runs of one job join; others divide what is free
// (share.h).
//
// It is a directory in /tmp (LedgerBase), the user's alone, with a record per daemon. A daemon
// holds the lock of its record as long as it lives, however it ends. Who looks or writes holds the
// door: one run at a time starts a daemon.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tierctl/run/job_daemon.h"
#include "tierd/base/unique_fd.h"
#include "tierd/config/config.h"

namespace tierctl::run {

// What must be the same for two runs to share a daemon.
struct JobIdentity {
  std::string job;      // "Slurm job 17"; "": no batch job, and nothing is shared
  std::string cgroup;   // of memory; all tasks of a Slurm step have one
  std::uint64_t mounts = 0;  // the mount namespace
  bool operator==(const JobIdentity&) const = default;
};
// By SLURM_JOB_ID, PBS_JOBID, or LSB_JOBID and LSB_JOBINDEX. `cgroups`: the text of
// /proc/self/cgroup.
JobIdentity IdentityOfJob(const tierd::config::GetEnvironment& environment, const std::string& cgroups, std::uint64_t mounts);
JobIdentity OwnIdentity(const tierd::config::GetEnvironment& environment);

struct DaemonRecord {
  JobIdentity identity;
  std::string binary;
  DaemonOptions options;  // as the run was told them
  bool keep = false;
  bool ram_auto = true, ssd_auto = true;  // sizes that nobody named: may become smaller
  std::string scratch;                    // its directory
  std::string short_scratch;              // where its socket is, if not there; else ""
  std::string socket, control, lifeline;
};

// Why a run cannot use the daemon of the same job: "--ram is 4GB there"; "": it can.
std::string Difference(const DaemonRecord& there, const DaemonRecord& wanted);

// The directory that the ledger is in: $TIERD_LEDGER, else /tmp, which all see that see the same
// mounts.
std::string LedgerBase(const tierd::config::GetEnvironment& environment);

class Ledger {
 public:
  // Waits for its turn, `patience_ms` at most. Nothing: not in that time, or there can be none.
  static std::optional<Ledger> Open(const std::string& base, uid_t uid, int patience_ms);

  struct Entry {
    std::string name;
    DaemonRecord record;
  };
  // Of the daemons that live. Records of others are removed.
  std::vector<Entry> Live() const;
  // Adds a record. The descriptor is for the daemon to inherit, and for nobody else to keep;
  // close-on-exec. Not valid: it could not be written.
  tierd::UniqueFd Add(const std::string& name, const DaemonRecord& record) const;
  void Remove(const std::string& name) const;
  // Another run uses it from now on.
  void MarkJoined(const std::string& name) const;
  // Removes the directory if no daemon is in it. Then this is of no further use.
  void RemoveIfEmpty();

  // Whether another run has used the daemon. Needs no turn.
  static bool WasJoined(const std::string& base, uid_t uid, const std::string& name);

 private:
  std::string path_;
  tierd::UniqueFd directory_, door_;
};

}  // namespace tierctl::run
