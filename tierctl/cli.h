// What the command line asks for. Parsing only: nothing is done here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tierctl/run/options.h"

namespace tierctl {

// What `simulate` is told. Sizes as text: bytes, or a share of the dataset ("25%").
struct SimulateOptions {
  std::string trace;                   // instead of a job
  std::vector<std::string> policies = {"lru", "freeze", "belady"};
  std::vector<std::string> ram = {"10%", "25%", "50%", "75%", "90%", "100%"};
  std::string ssd = "0%";
  std::uint64_t samples = 20'000;
  std::string size = "110 KB";
  double sigma = 0;                    // of the logarithm of the sizes
  std::string order = "distributed";
  std::uint32_t epochs = 12;
  std::uint32_t skip = 1;
  std::uint32_t nodes = 1;
  std::uint32_t node = 0;
  std::uint64_t seed = 1;
  std::uint32_t lookahead = 16;
  std::string mode = "seeded";
  double step_us = 0;
  double readers = 8;
  std::string ssd_bandwidth = "2 GB";  // per second, as below
  std::string source_bandwidth = "500 MB";
  double source_latency_ms = 1;
  double source_concurrency = 64;
  std::string goal;                    // percent of the best speed; "": not asked
  std::string svg;
  std::string html;
};

// What `bench` is told.
struct BenchOptions {
  std::size_t files = 512;
  unsigned readers = 4;
  double seconds = 2;  // for each way at most
};

// What `plan` is told.
struct PlanOptions {
  std::string list;                    // a list file, or a directory as ImageFolder takes it
  std::string document;                // tell: a file
  std::int64_t seed = 0;
  std::uint64_t world = 1;
  std::uint64_t rank = 0;
  std::uint64_t epoch = 0;             // the first one
  std::uint64_t epochs = 0;            // how many; 0: not known
  std::uint64_t position = 0;
  std::uint64_t batch_size = 0;
  bool batch_drop_last = false;
  bool drop_last = false;
  bool no_shuffle = false;
  bool no_set_epoch = false;
  bool keep = false;
  std::uint64_t process = 0;
};

// One struct for all verbs: each uses the members that its options fill.
struct Command {
  std::string verb;    // "status", "prefetch", "config get", ...
  std::string socket;  // --socket
  bool json = false;   // --json
  std::string color = "auto";  // --color

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
  std::vector<std::uint64_t> jobs; // wait, cancel; plan remove: plans
  std::string key;                 // config get, set; policy show, set, try, trace: the source
  std::string value;               // config set; policy set, try: the policy
  std::string parameters;          // policy try --parameters
  bool stop = false;               // policy try --stop
  std::string most;                // trace start --most: a size; "": the daemon's default
  std::string config_file;         // doctor --config
  std::string source;              // doctor --source
  std::string cache;               // doctor --cache
  bool no_speed = false;           // doctor --no-speed
  std::string output_file;         // metrics --output, debug bundle --output, trace start
  double interval_s = 1;           // top --delay
  std::uint64_t count = 0;         // top --count; 0: no end
  bool batch = false;              // top --batch
  std::vector<std::string> labels; // metrics --label: "name=value"
  std::string from;                // metrics --from
  RunOptions run;                  // run
  SimulateOptions simulate;        // simulate
  BenchOptions bench;              // bench
  PlanOptions plan;                // plan
};

struct Parsed {
  std::optional<Command> command;  // empty: print and leave with exit_code
  int exit_code = 0;
  std::string text;       // help, for stdout
  std::string complaint;  // usage error, for stderr: one line and how to get help
};

Parsed ParseCommandLine(int argc, const char* const* argv);


}  // namespace tierctl
