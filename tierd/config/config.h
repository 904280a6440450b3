// A configuration: settings, and for each value where it came from. Later origins win: default < file < environment < command line < control.
//
// Value type; copy it, change the copy, Diff, and adopt it when all is well: so a wrong reload changes nothing. No thread rule. Only Load() touches the disk.
// It does not look at the machine (host.h, resolve.h) and does not judge paths (check.h).
//
// Errors: a Status of kInvalid whose message holds one line per problem, '\n' between them, each complete by itself:
// "FILE:LINE: ram.capacity wants a size ..., not \"abc\"".
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tierd/base/status.h"
#include "tierd/config/keys.h"
#include "tierd/config/options.h"

namespace tierd::config {

struct Origin {
  enum class Kind : std::uint8_t { kDefault, kMounted, kFile, kEnvironment, kCommandLine, kControl };
  Kind kind = Kind::kDefault;
  std::string file;
  unsigned line = 0;
  // "default", "mounted", "FILE:LINE", "environment", "command line", "control".
  std::string Text() const;
};

// What the command line says.
struct Overrides {
  std::vector<std::string> sources;         // --source DIR: added to those of the file
  std::optional<std::string> ram;           // --ram SIZE                 ram.capacity
  std::optional<std::string> ssd;           // --ssd DIR|off              ssd.directory
  std::optional<std::string> ssd_capacity;  // --ssd-capacity SIZE        ssd.capacity
  std::optional<std::string> policy;        // --policy NAME              of all sources
  std::optional<std::string> socket;        // --socket PATH              daemon.socket
  std::optional<std::string> metrics;       // --metrics ADDRESS|off      daemon.metrics_address
  std::vector<std::string> sets;            // --set KEY=VALUE            anything; source.KEY: of all sources, source.NAME.KEY: of one
};

struct EffectiveValue {
  std::string key;    // "ram.capacity", "source.NAME.ttl"
  std::string value;  // as in a file, strings without quotes
  bool quoted = false;
  bool reloadable = false;
  Origin origin;
};

struct Change {
  std::string key;   // a whole source that comes or goes: "source.NAME"
  std::string from;  // "" if there was none
  std::string to;
  bool reloadable = false;
};

using GetEnvironment = std::function<std::optional<std::string>(const char* name)>;
GetEnvironment ProcessEnvironment();

// The name of a source that has none: the last component of its path, odd characters as "_"; "root" for "/".
std::string NameFromPath(std::string_view path);

class Config {
 public:
  static constexpr std::size_t kMaxFileBytes = 1 << 20;
  static constexpr std::size_t kMaxSources = 64;

  static Config Defaults() { return Config(); }
  // `file` is only a name here.
  static Result<Config> Parse(std::string_view text, const std::string& file);
  // Reads and parses. kNotFound, kPermission, kIo: cannot be read; kPermission also when it belongs to, or can be written by, somebody else than us and
  // root (a configuration planted in /tmp: FAULTS T14); kInvalid: see above.
  static Result<Config> Load(const std::string& file);
  // $XDG_CONFIG_HOME/tierd/tierd.toml, ~/.config/tierd/tierd.toml, /etc/tierd/tierd.toml: the first that exists, "" if none does.
  static std::string FindFile(const GetEnvironment& environment);

  // Environment: TIERD_SOCKET.
  Status ApplyEnvironment(const GetEnvironment& environment);
  // Relative paths are taken from `working_directory`. On error nothing is changed.
  Status Apply(const Overrides& overrides, const std::string& working_directory);
  // `config set`. kNotFound: no such key (with a suggestion); kUnsupported: needs a restart; kInvalid. On error nothing is changed.
  Status Set(std::string_view key, std::string_view value);
  // With `sources = "auto"`: adds a source per mount point that is neither listed nor inside or above a listed one. Returns how many were added.
  std::size_t AdoptMounts(const std::vector<std::string>& mount_points);
  // What of this is in effect in a daemon that was started with `started`: a key that needs a restart has the value it had then, a source that came since is
  // not there, nor one that has gone.
  Config InEffectSince(const Config& started) const;
  const Settings& settings() const { return settings_; }
  const std::string& file() const { return file_; }  // "" if none
  // Every value, in the order of AllKeys(), one set per source.
  std::vector<EffectiveValue> Values() const;
  // kNotFound with a suggestion.
  Result<EffectiveValue> Get(std::string_view key) const;
  Origin OriginOf(std::string_view key) const;
  // For messages about the value of a key: "FILE:LINE: ", "--source: "... what begins a line about it.
  std::string Where(std::string_view key) const;

 private:
  friend class FileInterpreter;
  Config() = default;

  // Names of sources, equal and nested ones, and what the sections say about each other. `problems` gets lines.
  void Finish(std::vector<std::string>& problems);
  Status SetText(std::string_view key, const Value& value, const Origin& origin);
  Status SetEverySource(std::string_view key, const Value& value, const Origin& origin);
  engine::SourceOptions* FindSource(std::string_view name);
  // NameFromPath, with "-2", "-3" ... when that is taken.
  std::string FreeName(std::string_view path);
  Status UnknownKey(std::string_view key) const;

  std::string file_;
  Settings settings_;
  std::map<std::string, Origin, std::less<>> origins_;  // by full key; those at their default are absent
};

std::vector<Change> Diff(const Config& from, const Config& to);

}  // namespace tierd::config
