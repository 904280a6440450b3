#include "tierd/config/config.h"

#include <algorithm>
#include <cstdlib>

#include "tierd/base/check.h"
#include "tierd/config/edit_distance.h"

namespace tierd::config {
namespace {

// "/a/b" is below "/a", "/ab" is not; a path is not below itself.
bool IsBelow(std::string_view path, std::string_view above) {
  if (above == "/") return path.size() > 1;
  return path.size() > above.size() && path.starts_with(above) && path[above.size()] == '/';
}

std::string MadeAbsolute(const std::string& path, const std::string& working_directory) {
  return path.starts_with('/') ? path : working_directory + (working_directory.ends_with('/') ? "" : "/") + path;
}

// Without "//", "/./", trailing slashes. ".." is kept: what it means is the file system's business.
std::string Tidied(const std::string& path) {
  std::string out;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = std::string_view(path).substr(at, end - at);
    if (!part.empty() && part != ".") out.append("/").append(part);
    at = end + 1;
  }
  return out.empty() ? "/" : out;
}

Value TextValue(std::string_view text) { return {Value::Type::kString, std::string(text), true}; }

// "source.NAME.ttl" -> NAME and "source.ttl"; false for keys of no one source.
bool SplitSourceKey(std::string_view key, std::string_view* name, std::string* table_key) {
  if (!key.starts_with("source.")) return false;
  const std::size_t last = key.rfind('.');
  if (last == 6) return false;
  *name = key.substr(7, last - 7);
  *table_key = "source." + std::string(key.substr(last + 1));
  return true;
}

}  // namespace

std::string NameFromPath(std::string_view path) {
  std::string name(path.substr(path.rfind('/') + 1));
  if (name.size() > 64) name.resize(64);
  for (char& c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
    if (!plain) c = '_';
  }
  if (name.empty()) return "root";
  if (name[0] == '.') name[0] = '_';
  return name;
}

std::string Origin::Text() const {
  switch (kind) {
    case Kind::kDefault: return "default";
    case Kind::kMounted: return "mounted";
    case Kind::kFile: return file + ":" + std::to_string(line);
    case Kind::kEnvironment: return "environment";
    case Kind::kCommandLine: return "command line";
    case Kind::kControl: return "control";
  }
  return "";
}

GetEnvironment ProcessEnvironment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
  };
}

engine::SourceOptions* Config::FindSource(std::string_view name) {
  const auto found = std::find_if(settings_.sources.begin(), settings_.sources.end(), [&](const auto& source) { return source.name == name; });
  return found == settings_.sources.end() ? nullptr : &*found;
}

std::string Config::FreeName(std::string_view path) {
  const std::string base = NameFromPath(path);
  std::string name = base;
  for (int n = 2; FindSource(name) != nullptr; ++n) name = base.substr(0, 60) + "-" + std::to_string(n);
  return name;
}

void Config::Finish(std::vector<std::string>& problems) {
  auto& sources = settings_.sources;
  if (sources.size() > kMaxSources) problems.push_back(file_ + ": " + std::to_string(sources.size()) + " sources; there may be " + std::to_string(kMaxSources));
  for (auto& source : sources) source.path = Tidied(source.path);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const std::string where = Where("source." + sources[i].name + ".path");
      const std::string other = OriginOf("source." + sources[j].name + ".path").Text();
      if (sources[i].path == sources[j].path) {
        problems.push_back(where + "source " + sources[i].path + " is listed twice (" + other + "): remove one");
      } else if (IsBelow(sources[i].path, sources[j].path) || IsBelow(sources[j].path, sources[i].path)) {
        problems.push_back(where + "source " + sources[i].path + " and source " + sources[j].path + " (" + other + ") lie inside one another: keep one of them");
      }
    }
    if (sources[i].offline_ok && sources[i].staleness != abi::Staleness::kImmutable) {
      problems.push_back(Where("source." + sources[i].name + ".offline_ok") + "source.offline_ok needs staleness = \"immutable\"");
    }
  }
  std::uint64_t largest = settings_.source_defaults.chunk_bytes;
  for (const auto& source : sources) largest = std::max(largest, source.chunk_bytes);
  if (settings_.ssd.directory != "off" && largest + (16 << 10) > settings_.ssd.region_bytes) {
    problems.push_back(Where("ssd.region_size") + "ssd.region_size must exceed the largest source.chunk_size by 16 KiB: use the next power of two");
  }
}

Status Config::UnknownKey(std::string_view key) const {
  std::string_view name;
  std::string table_key;
  std::vector<std::string> names;
  if (SplitSourceKey(key, &name, &table_key)) {
    for (const auto& source : settings_.sources) names.push_back(source.name);
    const bool source_known = std::find(names.begin(), names.end(), name) != names.end();
    if (!source_known && FindKey(table_key) != nullptr) {
      const std::string near = Nearest(name, names);
      return Status(Code::kNotFound, "no source is called \"" + std::string(name) + "\"" + (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
    }
    names.clear();
    for (const KeyInfo& info : AllKeys()) {
      if (info.key.starts_with("source.")) names.push_back("source." + std::string(name) + info.key.substr(6));
    }
  } else {
    for (const KeyInfo& info : AllKeys()) names.push_back(info.key);
  }
  const std::string last(key.substr(key.rfind('.') + 1));
  if (const std::string_view hint = ForeignKeyHint(last); !hint.empty()) return Status(Code::kNotFound, "unknown key " + std::string(key) + ": " + std::string(hint));
  const std::string near = Nearest(key, names);
  return Status(Code::kNotFound, "unknown key " + std::string(key) + (near.empty() ? "; tierctl config get lists them" : "; did you mean " + near + "?"));
}

Status Config::SetEverySource(std::string_view key, const Value& value, const Origin& origin) {
  const std::string last(key.substr(7));
  if (last == "path" || last == "name") return Status(Code::kInvalid, std::string(key) + " cannot be the same for every source: write source.NAME." + last);
  if (Status status = SetKey(settings_, &settings_.source_defaults, key, value); !status.ok()) return Status(status.code(), std::string(key) + " " + status.message());
  for (auto& source : settings_.sources) {
    if (Status status = SetKey(settings_, &source, key, value); !status.ok()) return Status(status.code(), std::string(key) + " " + status.message());
    origins_["source." + source.name + "." + last] = origin;
  }
  origins_[std::string(key)] = origin;
  return Status::Ok();
}

Status Config::SetText(std::string_view key, const Value& value, const Origin& origin) {
  std::string_view name;
  std::string table_key;
  if (key.starts_with("source.") && FindKey(key) != nullptr) return SetEverySource(key, value, origin);
  engine::SourceOptions* source = nullptr;
  if (SplitSourceKey(key, &name, &table_key)) {
    source = FindSource(name);
    if (source == nullptr || FindKey(table_key) == nullptr) return UnknownKey(key);
    if (table_key == "source.name") return Status(Code::kInvalid, "source.NAME.name can be set in a file only");
  } else {
    table_key = std::string(key);
    if (FindKey(table_key) == nullptr) return UnknownKey(key);
  }
  if (Status status = SetKey(settings_, source, table_key, value); !status.ok()) return Status(status.code(), std::string(key) + " " + status.message());
  origins_[std::string(key)] = origin;
  return Status::Ok();
}

Status Config::ApplyEnvironment(const GetEnvironment& environment) {
  const auto socket = environment("TIERD_SOCKET");
  if (!socket) return Status::Ok();
  Status status = SetText("daemon.socket", TextValue(*socket), {Origin::Kind::kEnvironment, "", 0});
  return status.ok() ? status : Status(status.code(), "TIERD_SOCKET: " + status.message());
}

Status Config::Apply(const Overrides& overrides, const std::string& working_directory) {
  Config next = *this;
  const Origin origin{Origin::Kind::kCommandLine, "", 0};
  std::vector<std::string> problems;
  for (const std::string& path : overrides.sources) {
    engine::SourceOptions source = next.settings_.source_defaults;
    source.path = Tidied(MadeAbsolute(path, working_directory));
    source.name = next.FreeName(source.path);
    const bool listed = std::any_of(next.settings_.sources.begin(), next.settings_.sources.end(), [&](const auto& other) { return other.path == source.path; });
    if (listed) continue;
    if (next.origins_.find("sources") == next.origins_.end()) next.settings_.automatic_sources = false;
    next.origins_["source." + source.name + ".path"] = origin;
    next.settings_.sources.push_back(std::move(source));
  }
  const auto set = [&](const char* option, const char* key, const std::optional<std::string>& text, bool is_path) {
    if (!text) return;
    const bool word = *text == "off" || *text == "auto";
    const std::string value = is_path && !word ? MadeAbsolute(*text, working_directory) : *text;
    if (Status status = next.SetText(key, TextValue(value), origin); !status.ok()) problems.push_back(std::string(option) + ": " + status.message());
  };
  set("--ram", "ram.capacity", overrides.ram, false);
  set("--ssd", "ssd.directory", overrides.ssd, true);
  set("--ssd-capacity", "ssd.capacity", overrides.ssd_capacity, false);
  set("--policy", "source.policy", overrides.policy, false);
  set("--socket", "daemon.socket", overrides.socket, true);
  set("--metrics", "daemon.metrics_address", overrides.metrics, false);
  for (const std::string& text : overrides.sets) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      problems.push_back("--set " + text + ": write --set KEY=VALUE");
      continue;
    }
    set(("--set " + text).c_str(), text.substr(0, equals).c_str(), text.substr(equals + 1), false);
  }
  if (problems.empty()) next.Finish(problems);
  if (!problems.empty()) {
    std::string message;
    for (const std::string& line : problems) message += (message.empty() ? "" : "\n") + line;
    return Status(Code::kInvalid, message);
  }
  *this = std::move(next);
  return Status::Ok();
}

Status Config::Set(std::string_view key, std::string_view value) {
  std::string_view name;
  std::string table_key;
  const KeyInfo* info = FindKey(SplitSourceKey(key, &name, &table_key) ? std::string_view(table_key) : key);
  if (info == nullptr) return UnknownKey(key);
  Config next = *this;
  if (Status status = next.SetText(key, TextValue(value), {Origin::Kind::kControl, "", 0}); !status.ok()) return status;
  if (!info->reloadable) return Status(Code::kUnsupported, std::string(key) + " takes effect at the next start only: change it in the configuration file and restart tierd");
  std::vector<std::string> problems;
  next.Finish(problems);
  if (!problems.empty()) return Status(Code::kInvalid, problems.front());
  *this = std::move(next);
  return Status::Ok();
}

std::size_t Config::AdoptMounts(const std::vector<std::string>& mount_points) {
  if (!settings_.automatic_sources) return 0;
  std::size_t added = 0;
  for (const std::string& mount_point : mount_points) {
    const std::string path = Tidied(mount_point);
    const bool taken = std::any_of(settings_.sources.begin(), settings_.sources.end(),
                                   [&](const auto& other) { return other.path == path || IsBelow(other.path, path) || IsBelow(path, other.path); });
    if (taken || settings_.sources.size() >= kMaxSources) continue;
    engine::SourceOptions source = settings_.source_defaults;
    source.path = path;
    source.name = FreeName(path);
    origins_["source." + source.name + ".path"] = {Origin::Kind::kMounted, "", 0};
    settings_.sources.push_back(std::move(source));
    ++added;
  }
  return added;
}

Config Config::InEffectSince(const Config& started) const {
  Config now = started;
  const auto here = [this](const engine::SourceOptions& source) {
    const auto found = std::find_if(settings_.sources.begin(), settings_.sources.end(), [&](const auto& other) { return other.path == source.path; });
    return found == settings_.sources.end() ? nullptr : &*found;
  };
  std::erase_if(now.settings_.sources, [&](const auto& source) { return here(source) == nullptr; });
  for (const KeyInfo& info : AllKeys()) {
    if (!info.reloadable) continue;
    const auto take = [&](engine::SourceOptions* to, const engine::SourceOptions* from) {
      const Value value{Value::Type::kString, GetKey(settings_, from, info.key), true};
      TIERD_CHECK(SetKey(now.settings_, to, info.key, value).ok());
    };
    if (!info.key.starts_with("source.")) take(nullptr, nullptr);
    else for (auto& source : now.settings_.sources) take(&source, here(source));
  }
  return now;
}

std::vector<EffectiveValue> Config::Values() const {
  std::vector<EffectiveValue> values;
  const auto add = [&](const KeyInfo& info, const engine::SourceOptions* source) {
    const std::string key = source == nullptr ? info.key : "source." + source->name + info.key.substr(6);
    values.push_back({key, GetKey(settings_, source, info.key), IsQuoted(info.key), info.reloadable, OriginOf(key)});
  };
  for (const KeyInfo& info : AllKeys()) {
    if (!info.key.starts_with("source.")) add(info, nullptr);
  }
  for (const auto& source : settings_.sources) {
    for (const KeyInfo& info : AllKeys()) {
      if (info.key.starts_with("source.")) add(info, &source);
    }
  }
  return values;
}

Result<EffectiveValue> Config::Get(std::string_view key) const {
  for (EffectiveValue& value : Values()) {
    if (value.key == key) return std::move(value);
  }
  return UnknownKey(key);
}

Origin Config::OriginOf(std::string_view key) const {
  if (const auto found = origins_.find(key); found != origins_.end()) return found->second;
  std::string_view name;
  std::string table_key;
  if (SplitSourceKey(key, &name, &table_key)) {
    if (const auto found = origins_.find(table_key); found != origins_.end()) return found->second;
  }
  return Origin{};
}

std::string Config::Where(std::string_view key) const {
  const Origin origin = OriginOf(key);
  return origin.kind == Origin::Kind::kDefault ? "" : origin.Text() + ": ";
}

std::vector<Change> Diff(const Config& from, const Config& to) {
  std::vector<Change> changes;
  const auto has = [](const Config& config, const std::string& name) {
    return std::any_of(config.settings().sources.begin(), config.settings().sources.end(), [&](const auto& source) { return source.name == name; });
  };
  for (const auto& source : from.settings().sources) {
    if (!has(to, source.name)) changes.push_back({"source." + source.name, source.path, "", false});
  }
  for (const auto& source : to.settings().sources) {
    if (!has(from, source.name)) changes.push_back({"source." + source.name, "", source.path, false});
  }
  std::map<std::string, std::string> old_values;
  for (EffectiveValue& value : from.Values()) old_values[value.key] = std::move(value.value);
  for (const EffectiveValue& value : to.Values()) {
    const auto old = old_values.find(value.key);
    if (old != old_values.end() && old->second != value.value) changes.push_back({value.key, old->second, value.value, value.reloadable});
  }
  return changes;
}

}  // namespace tierd::config
