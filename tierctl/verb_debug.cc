// debug bundle: all that a report of a problem needs, as one JSON file, without a path, a name or a byte of data in it.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <set>
#include <string_view>

#include "tierctl/verbs.h"

namespace tierctl {
namespace {

using nlohmann::json;

// Replaces what the user named: paths, and sources, which by default have names of directories. The same one becomes the same word, so that what belongs together can be seen.
class Scrubber {
 public:
  void AddSource(const std::string& name) {
    if (!name.empty()) sources_.emplace(name, "source" + std::to_string(sources_.size() + 1));
  }
  // Every value of a document that is a path: sources, directories, files. Other texts of the daemon speak of these, and only who knows them knows where they end.
  void AddPaths(const json& value) {
    if (value.is_string() && IsPath(value.get_ref<const std::string&>())) known_.insert(value.get<std::string>());
    if (value.is_structured())
      for (const json& member : value) AddPaths(member);
  }
  // Everything in a document: keys as well, since those of the configuration hold names.
  json Scrubbed(const json& value) {
    if (value.is_string()) return IsPath(value.get_ref<const std::string&>()) ? json(PathWord(value.get<std::string>())) : json(Text(value.get<std::string>()));
    json out = value;
    if (value.is_array()) {
      for (json& member : out) member = Scrubbed(member);
    } else if (value.is_object()) {
      out = json::object();
      for (const auto& [key, member] : value.items()) out[key == "path_b64" ? key : Text(key)] = key == "path_b64" || key == "relative" ? json("<removed>") : Scrubbed(member);
    }
    return out;
  }
  std::string Text(const std::string& text) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const bool starts = text[at] == '/' && (at == 0 || !IsWord(text[at - 1])) && at + 1 < text.size() && !EndsPath(text[at + 1]);
      if (starts) {
        const std::size_t end = EndOfPath(text, at);
        out += PathWord(text.substr(at, end - at));
        at = end;
      } else if (const auto source = SourceAt(text, at); source != sources_.end()) {
        out += source->second;
        at += source->first.size();
      } else {
        out += text[at++];
      }
    }
    return out;
  }

 private:
  struct LongestFirst {
    bool operator()(const std::string& a, const std::string& b) const { return a.size() != b.size() ? a.size() > b.size() : a < b; }
  };
  static bool EndsPath(char c) { return std::string_view(" \"'=:,;()<>\n\t").find(c) != std::string_view::npos; }
  static bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; }
  // What every system has says something and names nobody.
  static bool IsCommon(std::string_view path) { return path.starts_with("/proc/") || path.starts_with("/sys/") || path.starts_with("/v1/"); }
  static bool IsPath(const std::string& text) { return text.size() > 1 && text[0] == '/' && !IsCommon(text); }

  std::size_t EndOfPath(const std::string& text, std::size_t at) const {
    for (const std::string& path : known_) {
      const std::size_t end = at + path.size();
      if (text.compare(at, path.size(), path) == 0 && (end == text.size() || EndsPath(text[end]))) return end;
    }
    std::size_t end = at;
    if (IsCommon(std::string_view(text).substr(at))) {
      while (end < text.size() && !EndsPath(text[end])) ++end;
      return end;
    }
    // A name may hold any sign: the rest of the line goes with it.
    end = text.find('\n', at);
    return end == std::string::npos ? text.size() : end;
  }
  std::map<std::string, std::string>::const_iterator SourceAt(const std::string& text, std::size_t at) const {
    if (at > 0 && IsWord(text[at - 1])) return sources_.end();
    for (auto it = sources_.begin(); it != sources_.end(); ++it) {
      const std::size_t end = at + it->first.size();
      if (text.compare(at, it->first.size(), it->first) == 0 && (end == text.size() || !IsWord(text[end]))) return it;
    }
    return sources_.end();
  }
  std::string PathWord(const std::string& path) {
    if (IsCommon(path)) return path;
    return paths_.emplace(path, "<path" + std::to_string(paths_.size() + 1) + ">").first->second;
  }

  std::map<std::string, std::string> sources_, paths_;
  std::set<std::string, LongestFirst> known_;
};

json HostFacts() {
  utsname names{};
  ::uname(&names);
  json host = {{"kernel", names.release}, {"machine", names.machine}};
  for (const char* file : {"/proc/sys/kernel/io_uring_disabled", "/sys/kernel/mm/transparent_hugepage/shmem_enabled", "/proc/loadavg", "/proc/pressure/memory", "/proc/pressure/io"}) {
    std::ifstream in(file);
    std::string line;
    if (std::getline(in, line)) host[file] = line;
  }
  std::ifstream release("/etc/os-release");
  for (std::string line; std::getline(release, line);)
    if (line.starts_with("PRETTY_NAME=")) host["system"] = line.substr(12);
  return host;
}

// For its owner alone, whatever the file was before. `anew`: never over another one, nor through a link.
// 0, or errno.
int WritePrivately(const std::string& path, const std::string& text, bool anew) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (anew ? O_EXCL : O_TRUNC), 0600);
  if (fd < 0) return errno;
  struct stat info {};
  int error = ::fstat(fd, &info) != 0 || (S_ISREG(info.st_mode) && ::fchmod(fd, 0600) != 0) ? errno : 0;
  for (std::size_t at = 0; error == 0 && at < text.size();) {
    const ssize_t wrote = ::write(fd, text.data() + at, text.size() - at);
    if (wrote >= 0) at += static_cast<std::size_t>(wrote);
    else if (errno != EINTR) error = errno;
  }
  if (::close(fd) != 0 && error == 0) error = errno;
  return error;
}

// An answer, or why there is none.
json Part(const Answer& answer) { return answer.ok() ? answer.body : json{{"unavailable", answer.message}}; }

}  // namespace

int DebugBundle(Context& context) {
  const Answer status = context.client.Get("/v1/status");
  if (status.exit == kExitUnreachable) context.output.Message(status.message + "; the bundle is of this machine alone");
  Scrubber scrubber;
  for (const json& source : ListOf(status.body, "sources")) scrubber.AddSource(TextOf(source, "name"));
  json bundle = {{"tierctl", TIERD_VERSION}, {"made_s", static_cast<std::int64_t>(std::time(nullptr))}, {"host", HostFacts()}};
  const json parts = {{"status", Part(status)},
                      {"version", Part(context.client.Get("/v1/version"))},
                      {"config", Part(context.client.Get("/v1/config"))},
                      {"doctor", Part(context.client.Get("/v1/doctor"))},
                      {"jobs", Part(context.client.Get("/v1/jobs"))},
                      {"policies", Part(context.client.Get("/v1/policies"))}};
  scrubber.AddPaths(parts);
  for (const auto& [name, part] : parts.items()) bundle[name] = scrubber.Scrubbed(part);
  const Answer metrics = context.client.GetText("/v1/metrics");
  bundle["metrics"] = json::array();
  std::string page = metrics.text;
  for (std::size_t at = 0, end = 0; (end = page.find('\n', at)) != std::string::npos; at = end + 1)
    if (page[at] != '#') bundle["metrics"].push_back(scrubber.Text(page.substr(at, end - at)));
  const std::string text = bundle.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
  if (context.command.output_file == "-") {
    context.output.Print(text);
    return kExitOk;
  }
  std::string file = context.command.output_file;
  if (file.empty()) {
    char name[64];
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    std::strftime(name, sizeof name, "tierd-debug-%Y%m%dT%H%M%SZ.json", ::gmtime_r(&now, &utc));
    file = name;
  }
  if (const int error = WritePrivately(file, text, context.command.output_file.empty()); error != 0) return context.output.Fail(kExitError, file + ": " + std::strerror(error));
  context.output.Print(file + "\n");
  return kExitOk;
}

}  // namespace tierctl
