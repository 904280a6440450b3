// What a job read, and from where: the lines that its processes left (client_lib/preload/PRELOAD.md, "Report"), added up, and what the daemon says. As six lines for
// people or one JSON document. Pure, but for ReadReports.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tierctl::run {

// The sum of all lines of a report file: numbers are added by name; "processes" counts lines. An unreadable line is skipped.
nlohmann::json AddUpReports(const std::string& path);

struct JobFacts {
  nlohmann::json reports;    // AddUpReports
  nlohmann::json status;     // the daemon's at the end; null: it could not be asked
  double seconds = 0;
  int exit_code = 0;
  bool preload = true;       // the library was used
};

nlohmann::json SummaryJson(const JobFacts& facts);
// Six lines, each ended.
std::string SummaryText(const JobFacts& facts);

}  // namespace tierctl::run
