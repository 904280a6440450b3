// Runs a program bare or under the preload library, and reads what its processes reported.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace tierd::e2e {

struct JobResult {
  int code = 0;            // 128 + signal when killed
  std::string output;      // stdout and stderr
  nlohmann::json report;   // the lines of all processes, added up by name
  std::uint64_t Of(const char* part, const char* name) const;
  // All of a part: "conversions", "real_opens" ...
  std::uint64_t Sum(const char* part) const;
};

struct JobOptions {
  std::string work;     // a directory for output and reports
  std::string socket;   // of the daemon; "": bare
  std::string source;   // TIERD_PREFIX
  std::vector<std::pair<std::string, std::string>> environment;
  std::string directory;  // to start in; "": where we are
  bool preload = true;    // false: the program has the library by itself
  std::string before;     // libraries preloaded before ours,
  std::string beside;     // and after it; bare ones too. "": what TIERD_TEST_BESIDE says
};

JobResult RunJob(const std::vector<std::string>& arguments, const JobOptions& options);
// A line of shell.
JobResult RunShell(const std::string& line, const JobOptions& options);

}  // namespace tierd::e2e
