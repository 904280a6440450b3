// What the command line asks for. Parsing only: nothing is done here.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tierctl {

// What `run` is told.
struct RunOptions {
  std::vector<std::string> sources;    // --source
  std::string ram;                     // --ram; "": tierd's default, as of all below
  std::string ssd;                     // --ssd
  std::string policy;                  // --policy
  std::string report;                  // --report: a file for the summary as JSON
  bool keep = false;                   // --keep
  bool no_preload = false;             // --no-preload
  bool real_fds = false;               // --real-fds
  bool quiet = false;                  // --quiet
  std::vector<std::string> arguments;  // the command
};

// One struct for all verbs: each uses the members that its options fill.
struct Command {
  std::string verb;    // "status", "prefetch", "config get", ...
  std::string socket;  // --socket
  bool json = false;   // --json

  std::vector<std::string> paths;  // as given
  std::string list_file;           // prefetch -f: "-" is stdin
  bool null_separated = false;     // -0
  std::string tier = "ram";        // prefetch --tier
  bool wait = false;               // prefetch --wait
  bool pin = false;                // prefetch --pin
  bool keep = false;               // prefetch --no-evict
  bool invalidate = false;         // evict --invalidate
  bool recursive = false;          // ls -r
  bool no_walk = false;            // du --no-walk
  std::vector<std::uint64_t> jobs; // wait, cancel
  std::string key;                 // config get, set; policy show, set: the source
  std::string value;               // config set; policy set: the policy
  std::string config_file;         // doctor --config
  std::string source;              // doctor --source
  std::string cache;               // doctor --cache
  bool no_speed = false;           // doctor --no-speed
  std::string output_file;         // metrics --output, debug bundle --output
  double interval_s = 1;           // top --delay
  std::uint64_t count = 0;         // top --count; 0: no end
  bool batch = false;              // top --batch
  std::vector<std::string> labels; // metrics --label: "name=value"
  RunOptions run;                  // run
};

struct Parsed {
  std::optional<Command> command;  // empty: print and leave with exit_code
  int exit_code = 0;
  std::string text;       // help, for stdout
  std::string complaint;  // usage error, for stderr: one line and how to get help
};

Parsed ParseCommandLine(int argc, const char* const* argv);


}  // namespace tierctl
