// How Slurm counts the memory of a job. Resident memory (RSS) added up over processes has the RAM
// tier in it once for each process that maps it.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>

#include "tierctl/doctor/check.h"

namespace tierctl::doctor {
namespace {

constexpr int kMostIncludes = 16;  // files within files

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string Trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" \t\r"), end = text.find_last_not_of(" \t\r");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

// A line, with those that a backslash continues, and without its comment.
bool NextLine(std::ifstream& in, std::string* line) {
  line->clear();
  for (std::string part; std::getline(in, part);) {
    *line += part.substr(0, part.find('#'));
    if (line->empty() || line->back() != '\\') return true;
    line->pop_back();
  }
  return !line->empty();
}

// Names in lower case; the last value of a name counts. False: the file cannot be read.
bool ReadConfig(const std::filesystem::path& path, int depth,
                std::map<std::string, std::string>* values) {
  std::ifstream in(path);
  if (!in.is_open() || depth > kMostIncludes) return false;
  for (std::string line; NextLine(in, &line);) {
    line = Trimmed(line);
    if (Lower(line.substr(0, 8)) == "include ") {
      (void)ReadConfig(path.parent_path() / Trimmed(line.substr(8)), depth + 1, values);
    } else if (const auto equals = line.find('='); equals != std::string::npos) {
      (*values)[Lower(Trimmed(line.substr(0, equals)))] = Lower(Trimmed(line.substr(equals + 1)));
    }
  }
  return true;
}

}  // namespace

std::vector<std::string> SlurmConfigFiles(const char* named) {
  if (named != nullptr && named[0] != '\0') return {named};
  return {"/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf",
          "/var/spool/slurmd/conf-cache/slurm.conf", "/var/spool/slurm/conf-cache/slurm.conf"};
}

std::optional<Check> SlurmAccounting(const std::vector<std::string>& files) {
  std::map<std::string, std::string> values;
  const auto file = std::find_if(files.begin(), files.end(), [&](const std::string& path) {
    return ReadConfig(path, 0, &values);
  });
  if (file == files.end()) return std::nullopt;
  const std::string type = values["jobacctgathertype"], parameters = values["jobacctgatherparams"];
  const auto has = [&](const char* word) {
    return ("," + parameters + ",").find(std::string(",") + word + ",") != std::string::npos;
  };
  Check check{"slurm.memory", Verdict::kOk, "", ""};
  if (type != "jobacct_gather/linux") {
    check.detail = *file + ": JobAcctGatherType=" + (type.empty() ? "(default)" : type) +
                   " does not add up the resident memory of processes";
    return check;
  }
  if (has("usepss") || has("noshared")) {
    check.detail =
        *file + ": JobAcctGatherParams=" + parameters + " counts shared memory once or not at all";
    return check;
  }
  check.verdict = Verdict::kWarn;
  check.detail = *file + ": JobAcctGatherType=" + type +
                 " adds up the resident memory (RSS) of processes, which has the RAM tier in it "
                 "once for each process";
  if (has("overmemorykill"))
    check.detail += "; OverMemoryKill ends jobs by that sum, though the memory exists once";
  check.remedy =
      "JobAcctGatherParams=UsePss (or NoShared) in slurm.conf, or "
      "JobAcctGatherType=jobacct_gather/cgroup; until then tierctl run --ram SIZE, small enough "
      "for SIZE x processes";
  return check;
}

}  // namespace tierctl::doctor
