// The private directory of one `tierctl run`: socket, SSD tier, logs, reports. Whoever uses it holds a lock on a file in it: the wrapper and the daemon share one. A
// directory whose lock nobody holds is left over (a wrapper that was killed), and the next start removes it.
//
// flock is no sign of life across machines (many shared file systems keep it to a node), so the lock file says on which host it was taken, and a start leaves the
// directories of other hosts alone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tierd/base/status.h"
#include "tierd/base/unique_fd.h"
#include "tierd/config/config.h"

namespace tierctl::run {

// A directory with a lock held on the file `lock` in it.
struct LockedDirectory {
  std::string path;
  tierd::UniqueFd lock;  // close-on-exec
};

class Scratch {
 public:
  // In $SLURM_TMPDIR, $TMPDIR, /var/tmp or /tmp: the first that can be used, one on a network file system last, one with a control character in its name never, nor one that others may write and that is not sticky. `keep`: a directory that the next `run --keep` finds again, unless another one is using it.
  // Removes what earlier runs left in any of these. Nothing is made in or below one of `sources`: a cache there would cache itself.
  static tierd::Result<Scratch> Make(const tierd::config::GetEnvironment& environment, std::uint32_t uid, bool keep, const std::vector<std::string>& sources = {});

  const std::string& path() const { return main_.path; }
  // For the processes' reports (client_lib/preload/PRELOAD.md); not made.
  std::string reads() const { return main_.path + "/reads.jsonl"; }
  // Their table of processes that change files without the library; not made.
  std::string children() const { return main_.path + "/children"; }
  // Of the daemon, in a directory of its own; short enough for an address.
  const std::string& socket() const { return socket_; }
  // The directory of its own that the socket is in; "": path().
  const std::string& short_path() const { return short_.path; }
  // What a daemon holds as long as it lives; close-on-exec.
  std::vector<int> lock_fds() const;
  bool kept() const { return kept_; }
  // Removes it, if nobody else (a daemon still at work) holds the lock.
  void Remove();

 private:
  static std::optional<Scratch> Take(LockedDirectory directory, bool kept);

  LockedDirectory main_;
  LockedDirectory short_;  // for the socket, if the path of the other one is too long for an address; else empty
  std::string socket_;
  bool kept_ = false;
};

// Which of the user's directories are no place for one, as their names hold a newline or another control character: "$TMPDIR"; "": none. (Make does without them.)
std::string PassedOver(const tierd::config::GetEnvironment& environment);

// The first of them that Make passes over because others may rename what is made in it: "$TMPDIR
// (/shared/tmp)"; "": none.
std::string OpenToOthers(const tierd::config::GetEnvironment& environment);

// What was removed: directories, and the disk space of their files.
struct LeftOvers {
  std::uint64_t directories = 0;
  std::uint64_t bytes = 0;
};
// Removes directories below `base` that earlier runs of this user on this host left: of exactly the names that a run makes, with the lock file of a run. `host`: who we
// are (HostName).
LeftOvers RemoveLeftOvers(const std::string& base, std::uint32_t uid, const std::string& host);
// In every place where a run of this user may have been.
LeftOvers RemoveAllLeftOvers(const tierd::config::GetEnvironment& environment, std::uint32_t uid);
// One of them, if nobody holds it any more.
void RemoveLeftOver(const std::string& path);
// Node name and machine id.
std::string HostName();

}  // namespace tierctl::run
