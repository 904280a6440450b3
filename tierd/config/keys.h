// The keys of the configuration: one table that knows each one's name, type, text and place in Settings. Reading a file, `--set`, `config set`,
// `--print-config` and the manual all go through it. Immutable, any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tierd/base/status.h"
#include "tierd/config/options.h"

namespace tierd::config {

struct KeyInfo {
  std::string key;         // "ram.capacity"; those of a source are "source.ttl" here and "source.NAME.ttl" in values
  const char* type;        // "a size with a unit such as \"4 MiB\"": ends the sentence "KEY wants ..."
  bool reloadable;         // takes effect without a restart
  const char* summary;     // meaning, range, cost of raising it
};

// Every key, in the order of the sections of config/tierd.toml: sources, source, daemon, ram, ssd, policy, limits.
const std::vector<KeyInfo>& AllKeys();
const KeyInfo* FindKey(std::string_view key);
// "daemon", "ram", ...: the tables a file may have.
const std::vector<std::string>& Sections();

// A value as found in a file or on a command line.
struct Value {
  enum class Type : std::uint8_t { kString, kInteger, kBoolean, kFloat, kOther };
  Type type = Type::kString;
  std::string text;   // the string, or the number or boolean as written
  bool loose = false; // from a command line: a string may stand for a number or boolean
};

// Stores `value` for `key` ("source.KEY" goes to `source`, which must be given for those). The message names neither key nor place, only what is
// wanted: "wants a size with a unit such as \"4 MiB\", not \"4 MX\"". kInvalid: ill-typed or out of range. `key` must be in the table.
Status SetKey(Settings& settings, engine::SourceOptions* source, std::string_view key, const Value& value);
// What one would write in a file, strings without quotes.
std::string GetKey(const Settings& settings, const engine::SourceOptions* source, std::string_view key);
// True if the value is a string in TOML (to be quoted).
bool IsQuoted(std::string_view key);

// Why a key that people know from other systems is none here: one sentence, or "".
std::string_view ForeignKeyHint(std::string_view last_part);

}  // namespace tierd::config
