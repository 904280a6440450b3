// How a file becomes a Config: reading it, and saying what is wrong with it line by line.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tierd/base/trusted_path.h"
#include "tierd/base/unique_fd.h"
#include "tierd/config/config.h"
#include "tierd/config/edit_distance.h"
#include "tierd/config/toml_reader.h"

namespace tierd::config {
namespace {

constexpr std::size_t kMaxProblems = 20;

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (std::size_t i = 0; i < lines.size() && i < kMaxProblems; ++i) text += (i == 0 ? "" : "\n") + lines[i];
  if (lines.size() > kMaxProblems) text += "\n... and " + std::to_string(lines.size() - kMaxProblems) + " more";
  return text;
}

std::vector<std::string> KeysOfSection(std::string_view section) {
  std::vector<std::string> names;
  for (const KeyInfo& info : AllKeys()) {
    if (section.empty()) {
      if (info.key.find('.') == std::string::npos) names.push_back(info.key);
    } else if (info.key.starts_with(std::string(section) + ".")) {
      names.push_back(info.key.substr(section.size() + 1));
    }
  }
  return names;
}

std::string List(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// The section whose key it is, when the key stands in the wrong one: "ram", or "".
std::string SectionWithKey(std::string_view name) {
  for (const std::string& section : Sections()) {
    if (FindKey(section + "." + std::string(name)) != nullptr) return section;
  }
  return "";
}

Status ReadAll(int fd, const std::string& file, std::string* text) {
  char buffer[16384];
  for (;;) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::FromErrno(errno, file);
    if (got == 0) return Status::Ok();
    text->append(buffer, static_cast<std::size_t>(got));
    if (text->size() > Config::kMaxFileBytes) return Status(Code::kInvalid, file + ": larger than 1 MiB: not a configuration");
  }
}

}  // namespace

// Goes through the items of one file and puts them into a Config.
class FileInterpreter {
 public:
  FileInterpreter(const TomlFile& toml, Config& config) : toml_(toml), config_(config) {}

  void Run() {
    SortByLine();
    for (std::size_t t = 1; t < toml_.tables.size(); ++t) CheckTable(t);
    for (const TomlItem* item : items_) Interpret(*item);
    for (std::size_t t = 1; t < toml_.tables.size(); ++t) {
      if (IsSource(t) && source_path_line_[t] == 0) Problem(toml_.tables[t].line, "[[source]] has no path: add path = \"/the/directory\"");
    }
    if (!sources_given_) config_.settings_.automatic_sources = config_.settings_.sources.empty();
    if (problems.empty()) RecordOrigins();
    if (problems.empty()) config_.Finish(problems);
  }

  std::vector<std::string> problems;

 private:
  void Problem(unsigned line, const std::string& text) { problems.push_back(config_.file_ + ":" + std::to_string(line) + ": " + text); }
  bool IsSource(std::size_t table) const { return toml_.tables[table].name == "source" && toml_.tables[table].is_array_element; }

  void SortByLine() {
    for (const TomlItem& item : toml_.items) items_.push_back(&item);
    std::stable_sort(items_.begin(), items_.end(), [](const TomlItem* a, const TomlItem* b) { return a->line < b->line; });
    source_of_table_.assign(toml_.tables.size(), kNone);
    source_path_line_.assign(toml_.tables.size(), 0);
    known_.assign(toml_.tables.size(), true);
  }

  void CheckTable(std::size_t t) {
    const TomlTable& table = toml_.tables[t];
    const auto& sections = Sections();
    if (std::find(sections.begin(), sections.end(), table.name) == sections.end()) {
      known_[t] = false;
      const std::string near = Nearest(table.name, sections);
      Problem(table.line, "unknown section [" + table.name + "]" + (near.empty() ? "; there are source, daemon, ram, ssd, policy, limits" : "; did you mean " + (near == "source" ? "[[source]]" : "[" + near + "]") + "?"));
    } else if (table.name == "source" && !table.is_array_element) {
      known_[t] = false;
      Problem(table.line, "a source is written [[source]], with two brackets: there may be several");
    } else if (table.name != "source" && table.is_array_element) {
      known_[t] = false;
      Problem(table.line, "write [" + table.name + "], with one bracket: there is only one");
    } else if (table.name == "source") {
      source_of_table_[t] = config_.settings_.sources.size();
      config_.settings_.sources.push_back(config_.settings_.source_defaults);
    }
  }

  void Interpret(const TomlItem& item) {
    if (!known_[item.table]) return;  // its section is the problem
    const std::string& section = toml_.tables[item.table].name;
    const std::string key = section.empty() ? item.key : section + "." + item.key;
    if (FindKey(key) == nullptr) {
      Problem(item.line, UnknownText(section, item.key));
      return;
    }
    engine::SourceOptions* source = IsSource(item.table) ? &config_.settings_.sources[source_of_table_[item.table]] : nullptr;
    if (Status status = SetKey(config_.settings_, source, key, item.value); !status.ok()) {
      Problem(item.line, key + " " + status.message());
    }
    if (key == "sources") sources_given_ = true;
    if (key == "source.path") source_path_line_[item.table] = item.line;
  }

  static std::string UnknownText(const std::string& section, const std::string& name) {
    const std::string shown = section.empty() ? name : section + "." + name;
    if (const std::string_view hint = ForeignKeyHint(name); !hint.empty()) return "unknown key " + shown + ": " + std::string(hint);
    const auto& sections = Sections();
    if (section.empty() && std::find(sections.begin(), sections.end(), name) != sections.end()) {
      return name + " is a section: write " + (name == "source" ? "[[source]]" : "[" + name + "]") + " on a line of its own, and its keys (" + List(KeysOfSection(name)) + ") below";
    }
    const std::vector<std::string> keys = KeysOfSection(section);
    if (const std::string near = Nearest(name, keys); !near.empty()) return "unknown key " + shown + "; did you mean " + (section.empty() ? near : section + "." + near) + "?";
    if (const std::string home = SectionWithKey(name); !home.empty()) {
      return "unknown key " + shown + "; " + name + " belongs into " + (home == "source" ? "[[source]]" : "[" + home + "]");
    }
    return "unknown key " + shown + "; " + (section.empty() ? "outside of sections there is " : "there are ") + List(keys);
  }

  // Names of sources are final only now.
  void RecordOrigins() {
    for (std::size_t t = 1; t < toml_.tables.size(); ++t) {
      if (source_of_table_[t] == kNone) continue;
      engine::SourceOptions& source = config_.settings_.sources[source_of_table_[t]];
      if (source.name.empty()) source.name = config_.FreeName(source.path);
    }
    for (const TomlItem* item : items_) {
      const std::size_t source = source_of_table_[item->table];
      if (source != kNone && item->key == "name") CheckName(source, item->line);
    }
    for (const TomlItem* item : items_) {
      const std::string& section = toml_.tables[item->table].name;
      const std::size_t source = source_of_table_[item->table];
      std::string key = section.empty() ? item->key : section + "." + item->key;
      if (source != kNone) key = "source." + config_.settings_.sources[source].name + "." + item->key;
      config_.origins_[key] = {Origin::Kind::kFile, config_.file_, item->line};
    }
  }

  void CheckName(std::size_t source, unsigned line) {
    const auto& sources = config_.settings_.sources;
    const auto same = [&](const auto& other) { return other.name == sources[source].name; };
    if (std::count_if(sources.begin(), sources.end(), same) == 1) return;
    Problem(line, "another source is called \"" + sources[source].name + "\" too: names must differ");
  }

  static constexpr std::size_t kNone = ~std::size_t{0};

  const TomlFile& toml_;
  Config& config_;
  std::vector<const TomlItem*> items_;
  std::vector<std::size_t> source_of_table_;
  std::vector<unsigned> source_path_line_;
  std::vector<bool> known_;
  bool sources_given_ = false;
};

Result<Config> Config::Parse(std::string_view text, const std::string& file) {
  Result<TomlFile> toml = ReadToml(text, file);
  if (!toml.ok()) return toml.status();
  Config config;
  config.file_ = file;
  FileInterpreter interpreter(*toml, config);
  interpreter.Run();
  if (!interpreter.problems.empty()) return Status(Code::kInvalid, Joined(interpreter.problems));
  return config;
}

Result<Config> Config::Load(const std::string& file) {
  const Result<UniqueFd> fd = OpenTrusted(file, O_RDONLY | O_NOCTTY | O_NONBLOCK, "configuration");
  if (!fd.ok()) return fd.status();
  struct stat info {};
  if (::fstat(fd->get(), &info) != 0) return Status::FromErrno(errno, "configuration " + file);
  if (!S_ISREG(info.st_mode)) return Status(Code::kInvalid, "configuration " + file + ": not a regular file");
  std::string text;
  if (Status status = ReadAll(fd->get(), file, &text); !status.ok()) return status;
  return Parse(text, file);
}

std::string Config::FindFile(const GetEnvironment& environment) {
  std::vector<std::string> candidates;
  if (const auto config_home = environment("XDG_CONFIG_HOME"); config_home && config_home->starts_with('/')) {
    candidates.push_back(*config_home + "/tierd/tierd.toml");
  } else if (const auto home = environment("HOME"); home && home->starts_with('/')) {
    candidates.push_back(*home + "/.config/tierd/tierd.toml");
  }
  candidates.emplace_back("/etc/tierd/tierd.toml");
  const auto found = std::find_if(candidates.begin(), candidates.end(), [](const std::string& path) { return ::access(path.c_str(), F_OK) == 0; });
  return found == candidates.end() ? "" : *found;
}

}  // namespace tierd::config
