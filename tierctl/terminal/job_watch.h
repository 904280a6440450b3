// Waits for jobs of the daemon and shows how they get on. Blocking.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tierctl/client/control_client.h"
#include "tierctl/terminal/output.h"
#include "tierctl/terminal/time_to_go.h"

namespace tierctl {

bool IsFinal(const nlohmann::json& job);
// Its bytes: "20.0 MiB", or "20.0 MiB/300 MiB" while it is known that more are to come.
std::string BytesOf(const nlohmann::json& job);

// What several jobs come to.
struct JobSum {
  std::uint64_t files_total = 0, files_done = 0, files_failed = 0, files_no_room = 0;
  std::uint64_t bytes_done = 0;
  std::uint64_t bytes_known = 0, files_sized = 0;  // as CONTROL.md says
  bool has_sizes = true;    // each job says them
  std::uint64_t files_expected = 0, files_verified = 0, bytes_verified = 0;
  double elapsed_s = 0;     // the longest
  bool walking = false;
  bool all_done = true;     // each ended in state "done"
  bool cut_short = false;   // one did not come to its end
  std::string first_error;  // "" if none

  void Add(const nlohmann::json& job);
  std::uint64_t files_ended() const { return files_done + files_failed + files_no_room; }
  // Files whose size bytes_known does not have yet.
  std::uint64_t files_unsized() const {
    const std::uint64_t others = files_sized + files_failed + files_no_room;
    return files_total > others ? files_total - others : 0;
  }
  bool sizes_known() const { return has_sizes && !walking && files_total != 0 && files_unsized() == 0; }
  // All that the sources hold of what was asked for was found in a tier.
  bool complete() const { return all_done && files_failed == 0 && files_no_room == 0 && files_verified >= files_expected; }
};

// What is left of them for `pace` to estimate; nothing while a directory is still being listed.
std::optional<TimeToGo::Estimate> LeftOf(const JobSum& sum, const TimeToGo& pace);
// One line: files, bytes (of so many, once that is known), rates over `seconds`, and how long it will
// still take at that pace.
std::string ProgressLine(const JobSum& sum, double seconds, const TimeToGo& pace);

// Asks for each job until it has ended; `jobs` gets their last state, in the order of `ids`. Draws progress if the output allows it.
Answer WatchJobs(ControlClient& client, Output& output, const std::vector<std::uint64_t>& ids, std::vector<nlohmann::json>* jobs);

}  // namespace tierctl
