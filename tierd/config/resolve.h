// From settings and facts about the machine to what the daemon is built from: "auto" and percentages become numbers. Pure functions, so that
// every rule of sizing has a test. Nothing is opened, created or checked here (check.h, the tiers themselves).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tierd/base/status.h"
#include "tierd/config/config.h"
#include "tierd/config/host.h"
#include "tierd/engine/options.h"

namespace tierd::config {

struct Resolved {
  std::string runtime_dir;
  std::string socket;
  std::string control_socket;
  std::string metrics_address;   // "" = off
  bool metrics_anywhere = false; // nobody named that address: where it is taken, any port of loopback will do
  LogLevel log_level = LogLevel::kInfo;
  std::string policy_directory;  // "" = none; need not exist if `policy.directory` is "auto"
  LimitSettings limits;
  engine::EngineOptions engine;
  // What "auto" and percentages came out as, by key: for PrintToml and the log.
  std::map<std::string, std::string> here;
  // Sentences worth a log line at the start: directories passed over, and why there is no SSD tier.
  std::vector<std::string> notes;
  // What to say about options (option_notes.h): a warning each.
  std::vector<std::string> option_notes;
  // There is no SSD tier, and a directory that would have been ours is somebody else's: a warning.
  bool ssd_taken = false;
};

// Adds nothing to config.settings().sources: AdoptMounts first. kInvalid or kNoSpace: a named SSD directory cannot be used (one line, with its place).
Result<Resolved> Resolve(const Config& config, const HostFacts& host);

// Where policies of the user's own lie; "": nowhere. Of `host` only the directories of the user are looked at.
std::string PolicyDirectory(const Config& config, const HostFacts& host);

// 512 MiB, or an eighth of memory (or of the cgroup's limit) where that is less: of a job with 400 MB, that many were never free. `memory` 0 means unknown.
std::uint64_t AutoMinAvailableBytes(std::uint64_t memory);

// A quarter of memory, half of what is free, and never so much that less than `min_available` would be left; in steps of 2 MiB; 64 MiB at least, or half of what is free
// where that is less, but not below 16 MiB. `room` 0 means unknown: 256 MiB at most.
// `returns`: memory comes back when others need it; of memory that may not, half as much is taken.
std::uint64_t AutoRamBytes(std::uint64_t memory, std::uint64_t room, std::uint64_t min_available, bool returns = true);

// What may be used of a file system with `free_bytes` free of which the tier itself holds `held_bytes` already: 90 % in a directory somebody named, half in one that
// was found, and `min_free` is left. 0 if there is not even that.
std::uint64_t AutoSsdBytes(std::uint64_t free_bytes, std::uint64_t held_bytes, std::uint64_t min_free, bool named);

}  // namespace tierd::config
