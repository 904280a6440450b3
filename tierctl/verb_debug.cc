// debug bundle: all that a report of a problem needs, as one JSON file, without a path, a name or a byte of data in it.
#include <sys/utsname.h>

#include <cctype>
#include <ctime>
#include <fstream>
#include <map>

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
  // Everything in a document: keys as well, since those of the configuration hold names.
  json Scrubbed(const json& value) {
    if (value.is_string()) return Text(value.get<std::string>());
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
      const bool starts = text[at] == '/' && (at == 0 || IsSeparator(text[at - 1])) && at + 1 < text.size() && !IsSeparator(text[at + 1]);
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
  static bool IsSeparator(char c) { return c == ' ' || c == '"' || c == '\'' || c == '=' || c == ':' || c == ',' || c == ';' || c == '(' || c == ')' || c == '\n' || c == '\t' || c == '<'; }
  static bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; }

  // A path with blanks in it cannot be told from a sentence: the rest of the text goes with it, up to what closes a quotation or a list.
  static std::size_t EndOfPath(const std::string& text, std::size_t at) {
    const std::size_t end = text.find_first_of("\"'\n\t,;()<", at);
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
    // What every system has says something and names nobody.
    for (const char* common : {"/proc/", "/sys/", "/v1/"})
      if (path.starts_with(common)) return path;
    return paths_.emplace(path, "<path" + std::to_string(paths_.size() + 1) + ">").first->second;
  }

  std::map<std::string, std::string> sources_, paths_;
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
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << text << std::flush;
  if (!out) return context.output.Fail(kExitError, file + ": cannot be written");
  context.output.Print(file + "\n");
  return kExitOk;
}

}  // namespace tierctl
