// What a job read, and from where: the lines that its processes left (client_lib/preload/PRELOAD.md, "Report"), added up, and what the daemon says. One JSON document
// (tierctl/schema/run.json), which six lines for people say in short. Pure, but for AddUpReports.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tierctl::run {

// The sum of all lines of a report file: numbers are added by name; "processes" counts lines of those that were served. An unreadable line is skipped.
nlohmann::json AddUpReports(const std::string& path);

struct JobFacts {
  nlohmann::json reports;    // AddUpReports
  nlohmann::json before;     // the daemon's status at the start
  nlohmann::json after;      // and at the end; null: it could not be asked
  std::string without;       // why there is no cache; "": there is one, or it cannot be said
  bool own_daemon = false;   // it serves this job alone
  bool limited_space = false;  // of addresses: `ulimit -v`
  bool preload = true;       // the library was used
  double seconds = 0;
  int exit_code = 0;
  int signal_number = 0;     // that ended the command; else 0
  std::vector<std::string> option_notes;  // OptionNotes: for the advice
  int daemon_signal = 0;     // that ended the job's own daemon; else 0
};

nlohmann::json Summary(const JobFacts& facts);
// Six lines, each ended; one where nothing was read.
std::string SummaryText(const nlohmann::json& summary);

}  // namespace tierctl::run
