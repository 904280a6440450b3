// The options of `tierctl run`. A plain struct.
#pragma once

#include <string>
#include <vector>

namespace tierctl {

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

}  // namespace tierctl
