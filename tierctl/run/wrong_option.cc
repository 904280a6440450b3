#include "tierctl/run/wrong_option.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "policies/registry.h"
#include "tierd/config/resolve.h"

namespace tierctl::run {
namespace {

namespace fs = std::filesystem;
using tierd::config::Config;
using tierd::config::GetEnvironment;

std::optional<std::string> Given(const std::string& text) { return text.empty() ? std::nullopt : std::optional(text); }

// True also where the configuration cannot be read: what is wrong there the daemon says.
bool MayHaveOwnPolicies(const GetEnvironment& environment) {
  const std::string file = Config::FindFile(environment);
  auto config = file.empty() ? tierd::Result<Config>(Config::Defaults()) : Config::Load(file);
  if (!config.ok()) return true;
  tierd::config::HostFacts host;
  host.home = environment("HOME").value_or("");
  host.xdg_config_home = environment("XDG_CONFIG_HOME").value_or("");
  std::error_code error;
  const std::string directory = tierd::config::PolicyDirectory(*config, host);
  return !directory.empty() && !fs::is_empty(directory, error) && !error;
}

}  // namespace

std::string WrongOption(const DaemonOptions& options, const GetEnvironment& environment) {
  tierd::config::Overrides overrides;
  overrides.ram = Given(options.ram);
  overrides.ssd = Given(options.ssd);
  overrides.policy = Given(options.policy);
  Config config = Config::Defaults();
  if (const tierd::Status status = config.Apply(overrides, "/"); !status.ok()) return status.message().substr(0, status.message().find('\n'));
  std::error_code error;
  if (options.ssd.starts_with('/') && fs::exists(options.ssd, error) && !fs::is_directory(options.ssd, error)) return "--ssd: " + options.ssd + " is no directory";
  if (options.policy.empty()) return "";
  const auto known = tierd::policies::Registry().Find(options.policy);
  return known.ok() || MayHaveOwnPolicies(environment) ? "" : "--policy: " + known.status().message();
}

std::string WrongReport(const std::string& path) {
  if (path.empty()) return "";
  struct stat there {};
  if (::stat(path.c_str(), &there) == 0) return S_ISDIR(there.st_mode) ? path + " is a directory" : ::access(path.c_str(), W_OK) == 0 ? "" : path + ": " + std::strerror(errno);
  const std::string parent = fs::path(path).parent_path().string();
  if (::stat(parent.c_str(), &there) != 0) return parent + ": " + std::strerror(errno);
  if (!S_ISDIR(there.st_mode)) return parent + " is no directory";
  return ::access(parent.c_str(), W_OK | X_OK) == 0 ? "" : parent + ": " + std::strerror(errno);
}

}  // namespace tierctl::run
