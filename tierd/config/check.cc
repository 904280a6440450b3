#include "tierd/config/check.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <future>
#include <iterator>
#include <optional>
#include <span>

#include "tierd/base/directory_identity.h"
#include "tierd/base/real_path.h"
#include "tierd/base/unique_fd.h"
#include "tierd/config/ask_beside.h"
#include "tierd/config/edit_distance.h"
#include "tierd/config/path_text.h"

namespace tierd::config {
namespace {

struct CheckedSource {
  std::string path;       // as configured
  std::string canonical;  // "" if it cannot be had
  DirectoryIdentity identity;
};

// The path with the symbolic links of its existing part resolved.
std::string Canonical(const std::string& path) {
  std::string head = path;
  std::string tail;
  for (;;) {
    const Result<std::string> resolved = RealPath(head);
    if (resolved.ok()) return (*resolved == "/" && !tail.empty() ? "" : *resolved) + tail;
    const std::size_t slash = head.rfind('/');
    if (resolved.status().sys_errno() != ENOENT || slash == std::string::npos || head.size() <= 1) return path;
    tail = head.substr(slash) + tail;
    head.resize(std::max<std::size_t>(slash, 1));
  }
}

// What is wrong with a source, as "problem: remedy"; "" if nothing.
std::string SourceProblem(const std::string& path, CheckedSource* checked) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return "no such directory: mount or create it, or remove this source";
    if (errno == EACCES) return "permission denied: tierd needs to read it as the user it runs as";
    return std::string(std::strerror(errno)) + ": is the file system mounted and alive?";
  }
  if (!S_ISDIR(info.st_mode)) return "not a directory: name the directory that holds the data";
  checked->identity = {info.st_dev, info.st_ino};
  checked->canonical = Canonical(path);
  for (const char* kernel : {"/proc", "/sys", "/dev"}) {
    if (IsAtOrBelow(checked->canonical, kernel)) return std::string("below ") + kernel + ": nothing there can be cached";
  }
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return std::string(std::strerror(errno)) + ": tierd needs to read it as the user it runs as";
  return "";
}

// How two sources are in each other's way: ends the sentence "A and B ..."; "" if they are not.
std::string Overlap(const CheckedSource& a, const CheckedSource& b) {
  if (a.identity == b.identity && a.identity != DirectoryIdentity()) return "are the same directory";
  return IsAtOrBelow(a.canonical, b.canonical) || IsAtOrBelow(b.canonical, a.canonical) ? "lie inside one another" : "";
}

struct Answer {
  CheckedSource source;
  std::string problem;
};

std::future<Answer> Ask(const std::string& path) {
  return AskBeside([path] {
    Answer answer{{path, "", {}}, ""};
    answer.problem = SourceProblem(path, &answer.source);
    return answer;
  });
}

// In the order of the sources; waits for ever if `running` is null.
std::vector<Answer> AskAll(const std::vector<engine::SourceOptions>& sources, const Running* running) {
  std::vector<std::future<Answer>> coming;
  for (const auto& source : sources) coming.push_back(Ask(source.path));
  const auto begin = std::chrono::steady_clock::now();
  std::vector<Answer> answers;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const bool came = running == nullptr || coming[i].wait_until(begin + running->patience) == std::future_status::ready;
    answers.push_back(came ? coming[i].get() : Answer{{sources[i].path, "", {}}, "its file system does not answer: is it mounted and alive?"});
    if (running == nullptr || std::find(running->served.begin(), running->served.end(), sources[i].path) == running->served.end()) continue;
    answers.back().problem.clear();
    if (answers.back().source.canonical.empty()) answers.back().source.canonical = sources[i].path;
  }
  return answers;
}

void CheckSources(const Config& config, const Running* running, std::vector<CheckedSource>& sources, std::vector<std::string>& problems) {
  const auto& configured = config.settings().sources;
  std::vector<Answer> answers = AskAll(configured, running);
  for (std::size_t i = 0; i < configured.size(); ++i) {
    const std::string where = config.Where("source." + configured[i].name + ".path");
    CheckedSource& checked = answers[i].source;
    if (!answers[i].problem.empty()) {
      problems.push_back(where + "source " + checked.path + ": " + answers[i].problem);
      continue;
    }
    for (const CheckedSource& other : sources) {
      const std::string how = Overlap(checked, other);
      if (!how.empty()) problems.push_back(where + "source " + checked.path + " and source " + other.path + " " + how + ": keep one of them");
    }
    sources.push_back(std::move(checked));
  }
  if (configured.empty()) {
    problems.emplace_back(config.settings().automatic_sources
                              ? "no source: no network file system that can be used is mounted here; name a directory: tierd --source DIR"
                              : "no source: add a [[source]] with a path, or start tierd --source DIR");
  }
}

void CheckOwnPath(const Config& config, const char* key, const std::string& path, const std::vector<CheckedSource>& sources, std::vector<std::string>& problems) {
  const std::string canonical = Canonical(path);
  for (const CheckedSource& source : sources) {
    const auto inside = RootOf(path, std::span(&source.identity, source.identity == DirectoryIdentity() ? 0u : 1u));
    if (IsAtOrBelow(canonical, source.canonical) || (inside.ok() && inside->has_value())) {
      problems.push_back(config.Where(key) + std::string(key) + " " + path + " lies inside the source " + source.path + ": tierd never writes there; name a local directory");
    } else if (std::strcmp(key, "ssd.directory") == 0 && IsAtOrBelow(source.canonical, canonical)) {
      problems.push_back(config.Where(key) + std::string(key) + " " + path + " contains the source " + source.path + ": name a directory of its own");
    }
  }
}

void CheckPolicies(const Config& config, const policies::Registry& policies, std::vector<std::string>& problems) {
  std::vector<std::string> names;
  for (const auto& entry : policies.entries()) names.emplace_back(entry.ops->name);
  for (const auto& source : config.settings().sources) {
    if (std::find(names.begin(), names.end(), source.policy) != names.end()) continue;
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
    const std::string near = Nearest(source.policy, names);
    problems.push_back(config.Where("source." + source.name + ".policy") + "source.policy: there is no policy \"" + source.policy + "\"; " +
                       (near.empty() ? "there are: " : "did you mean \"" + near + "\"? There are: ") + all);
  }
}

}  // namespace

Mounts ChooseMounts(const std::vector<std::string>& mount_points, const Config& config, std::chrono::milliseconds patience) {
  const auto& sources = config.settings().sources;
  std::vector<std::string> points;  // what a source speaks for already is none of its own
  std::copy_if(mount_points.begin(), mount_points.end(), std::back_inserter(points), [&](const std::string& point) {
    return std::none_of(sources.begin(), sources.end(), [&](const auto& source) { return IsAtOrBelow(point, source.path) || IsAtOrBelow(source.path, point); });
  });
  if (points.empty()) return {};
  const auto until = std::chrono::steady_clock::now() + patience;
  std::vector<std::pair<std::string, std::future<Answer>>> asked;
  for (const auto& source : sources) asked.emplace_back(source.path, Ask(source.path));
  for (const std::string& point : points) asked.emplace_back(point, Ask(point));
  Mounts mounts;
  std::vector<CheckedSource> chosen;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    auto& [path, coming] = asked[i];
    std::string why = "its file system does not answer";
    if (coming.wait_until(until) == std::future_status::ready) {
      Answer answer = coming.get();
      why = answer.problem;
      for (const CheckedSource& other : chosen) {
        if (const std::string how = Overlap(answer.source, other); why.empty() && !how.empty()) why = "it and " + other.path + " " + how;
      }
      if (why.empty()) chosen.push_back(std::move(answer.source));
    }
    if (i < sources.size()) continue;  // Check says what is wrong with those
    if (why.empty()) mounts.usable.push_back(path);
    else mounts.notes.push_back("network mount " + path + " is left out: " + why);
  }
  return mounts;
}

Status Check(const Config& config, const policies::Registry* policies, const Running* running) {
  std::vector<std::string> problems;
  std::vector<CheckedSource> sources;
  CheckSources(config, running, sources, problems);
  const Settings& settings = config.settings();
  const auto own = [&](const char* key, const std::string& path) {
    if (path.starts_with('/')) CheckOwnPath(config, key, path, sources, problems);
  };
  own("ssd.directory", settings.ssd.directory);
  own("daemon.runtime_dir", settings.daemon.runtime_dir);
  own("daemon.socket", settings.daemon.socket);
  own("daemon.control_socket", settings.daemon.control_socket);
  if (settings.policy.directory.starts_with('/')) {
    struct stat info {};
    if (::stat(settings.policy.directory.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
      problems.push_back(config.Where("policy.directory") + "policy.directory " + settings.policy.directory + ": no such directory: create it, or remove this line");
    }
  }
  if (policies != nullptr) CheckPolicies(config, *policies, problems);
  if (problems.empty()) return Status::Ok();
  std::string message;
  for (const std::string& line : problems) message += (message.empty() ? "" : "\n") + line;
  return Status(Code::kInvalid, message);
}

Status CheckRuntimePlace(const Config& config, const Resolved& resolved) {
  if (config.settings().daemon.socket != "auto") return Status::Ok();  // then nothing is made there, and Check has seen where it is
  std::vector<CheckedSource> sources;
  for (const auto& source : config.settings().sources) {
    sources.push_back({source.path, Canonical(source.path), IdentityOf(source.path).value_or(DirectoryIdentity())});
  }
  std::vector<std::string> problems;
  CheckOwnPath(config, "daemon.runtime_dir", resolved.runtime_dir, sources, problems);
  return problems.empty() ? Status::Ok() : Status(Code::kInvalid, problems.front());
}

}  // namespace tierd::config
