// Takes a TOML text apart into places and values; knows no keys. The only file that includes toml++. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tierd/base/status.h"
#include "tierd/config/keys.h"

namespace tierd::config {

struct TomlTable {
  std::string name;  // "" for what stands before the first table; "source" for each [[source]]
  bool is_array_element = false;
  unsigned line = 0;
};

struct TomlItem {
  std::size_t table = 0;  // index into TomlFile::tables
  std::string key;
  Value value;
  unsigned line = 0;
};

struct TomlFile {
  std::vector<TomlTable> tables;  // tables[0] is the nameless one
  std::vector<TomlItem> items;    // in no particular order
};

// `file` names the text in errors: "FILE:LINE: what is wrong" (kInvalid). Tables within tables come as items of type kOther.
Result<TomlFile> ReadToml(std::string_view text, const std::string& file);

}  // namespace tierd::config
