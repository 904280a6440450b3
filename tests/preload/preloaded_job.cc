#include "tests/preload/preloaded_job.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace tierd::e2e {
namespace {

using nlohmann::json;

void Add(json& sum, const json& line) {
  for (const auto& [name, value] : line.items()) {
    if (value.is_object()) Add(sum[name], value);
    else if (value.is_number_unsigned()) sum[name] = (sum.contains(name) ? sum[name].get<std::uint64_t>() : 0) + value.get<std::uint64_t>();
  }
}

std::string PreloadedLibraries(const JobOptions& options) {
  const char* const everywhere = std::getenv("TIERD_TEST_BESIDE");
  const std::string beside =
      options.beside.empty() && everywhere != nullptr ? everywhere : options.beside;
  std::string libraries;
  const bool ours = !options.socket.empty() && options.preload;
  for (const std::string& library : {options.before, std::string(ours ? TIERD_PRELOAD_LIBRARY : ""), beside}) {
    if (!library.empty()) libraries += (libraries.empty() ? "" : ":") + library;
  }
  return libraries;
}

[[noreturn]] void Become(std::vector<std::string> arguments, const JobOptions& options, const std::string& output, const std::string& report) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int out = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(null, 0);
  ::dup2(out, 1);
  ::dup2(out, 2);
  if (!options.directory.empty() && ::chdir(options.directory.c_str()) != 0) ::_exit(126);
  if (!options.socket.empty()) {
    ::setenv("TIERD_SOCKET", options.socket.c_str(), 1);
    ::setenv("TIERD_PREFIX", options.source.c_str(), 1);
    ::setenv("TIERD_REPORT", report.c_str(), 1);
  }
  const std::string libraries = PreloadedLibraries(options);
  if (!libraries.empty()) ::setenv("LD_PRELOAD", libraries.c_str(), 1);
  for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  ::_exit(127);
}

}  // namespace

std::uint64_t JobResult::Of(const char* part, const char* name) const {
  const auto at = report.find(part);
  if (at == report.end() || !at->is_object() || !at->contains(name)) return 0;
  return (*at)[name].get<std::uint64_t>();
}

std::uint64_t JobResult::Sum(const char* part) const {
  std::uint64_t sum = 0;
  const auto at = report.find(part);
  if (at == report.end()) return 0;
  for (const auto& [name, value] : at->items()) sum += value.get<std::uint64_t>();
  return sum;
}

JobResult RunJob(const std::vector<std::string>& arguments, const JobOptions& options) {
  const std::string output = options.work + "/job.out";
  const std::string report = options.work + "/job.report";
  ::unlink(report.c_str());
  const pid_t pid = ::fork();
  if (pid == 0) Become(arguments, options, output, report);
  int status = 0;
  ::waitpid(pid, &status, 0);
  JobResult result;
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  std::ostringstream text;
  text << std::ifstream(output, std::ios::binary).rdbuf();
  result.output = text.str();
  result.report = json::object();
  std::ifstream lines(report);
  for (std::string line; std::getline(lines, line);) Add(result.report, json::parse(line, nullptr, false));
  return result;
}

JobResult RunShell(const std::string& line, const JobOptions& options) { return RunJob({"/bin/bash", "-c", line}, options); }

}  // namespace tierd::e2e
