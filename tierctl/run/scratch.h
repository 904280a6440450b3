// The private directory of one `tierctl run`: socket, SSD tier, logs, reports. Whoever uses it holds a lock on a file in it: the wrapper and the daemon share one. A
// directory whose lock nobody holds is left over (a wrapper that was killed), and the next start removes it.
#pragma once

#include <optional>
#include <string>

#include "tierd/base/status.h"
#include "tierd/base/unique_fd.h"
#include "tierd/config/config.h"

namespace tierctl::run {

class Scratch {
 public:
  // In $SLURM_TMPDIR, $TMPDIR, /var/tmp or /tmp: the first that can be used. `keep`: a directory that the next `run --keep` finds again, unless another one is using it.
  static tierd::Result<Scratch> Make(const tierd::config::GetEnvironment& environment, std::uint32_t uid, bool keep);

  const std::string& path() const { return path_; }
  // Of the daemon, in a directory of its own; short enough for an address.
  const std::string& socket() const { return socket_; }
  int lock_fd() const { return lock_.get(); }  // close-on-exec
  bool kept() const { return kept_; }
  // Removes it, if nobody else (a daemon still at work) holds the lock.
  void Remove();

 private:
  static std::optional<Scratch> Take(std::string path, bool kept);

  std::string path_;
  std::string socket_;
  std::string short_directory_;  // "" if the socket is below path_
  tierd::UniqueFd lock_;
  bool kept_ = false;
};

// Removes directories below `base` that earlier runs of this user left.
void RemoveLeftOvers(const std::string& base, std::uint32_t uid);

}  // namespace tierctl::run
