// Waits for jobs of the daemon and shows how they get on. Blocking.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tierctl/control_client.h"
#include "tierctl/output.h"

namespace tierctl {

bool IsFinal(const nlohmann::json& job);

// What several jobs come to.
struct JobSum {
  std::uint64_t files_total = 0, files_done = 0, files_failed = 0, files_no_room = 0;
  std::uint64_t bytes_done = 0;
  std::uint64_t files_expected = 0, files_verified = 0, bytes_verified = 0;
  double elapsed_s = 0;     // the longest
  bool walking = false;
  bool all_done = true;     // each ended in state "done"
  bool cut_short = false;   // one did not come to its end
  std::string first_error;  // "" if none

  void Add(const nlohmann::json& job);
  // All that the sources hold of what was asked for was found in a tier.
  bool complete() const { return all_done && files_failed == 0 && files_no_room == 0 && files_verified >= files_expected; }
};

// One line: files, rates, and how long it will still take. `seconds`: since the watch began, in which done_files and done_bytes were done.
std::string ProgressLine(const JobSum& sum, double seconds);

// Asks for each job until it has ended; `jobs` gets their last state, in the order of `ids`. Draws progress if the output allows it.
Answer WatchJobs(ControlClient& client, Output& output, const std::vector<std::uint64_t>& ids, std::vector<nlohmann::json>* jobs);

}  // namespace tierctl
