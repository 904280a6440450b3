#include "tierd/config/toml_reader.h"

#include <cctype>

#define TOML_EXCEPTIONS 0
// Debug builds too answer a malformed key with an error, not with an abort.
#define TOML_ASSERT(expr) static_cast<void>(0)
#include <toml++/toml.h>

namespace tierd::config {
namespace {

Value ValueOf(const toml::node& node) {
  Value value;
  if (const auto* text = node.as_string()) {
    value.text = text->get();
  } else if (const auto* number = node.as_integer()) {
    value.type = Value::Type::kInteger;
    value.text = std::to_string(number->get());
  } else if (const auto* boolean = node.as_boolean()) {
    value.type = Value::Type::kBoolean;
    value.text = boolean->get() ? "true" : "false";
  } else if (const auto* real = node.as_floating_point()) {
    value.type = Value::Type::kFloat;
    value.text = std::to_string(real->get());
  } else {
    value.type = Value::Type::kOther;
    value.text = node.is_array() ? "an array" : node.is_table() ? "a table" : "a date or time";
  }
  return value;
}

// Of a key such as a.b.c: the parser goes as deep as that, and the stack ends somewhere.
constexpr unsigned kMostDots = 64;

// The line of a key with more; 0: there is none. What stands between dots is taken for part of a key wherever it stands: in a text or a comment too.
unsigned LineOfDeepKey(std::string_view text) {
  unsigned line = 1, dots = 0;
  bool named = false;  // something since the last dot
  for (const char c : text) {
    if (c == '\n') ++line;
    if (c == '.' && named) {
      if (++dots > kMostDots) return line;
      named = false;
    } else if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '"' || c == '\'') {
      named = true;
    } else if (c != ' ' && c != '\t') {
      dots = 0;
      named = false;
    }
  }
  return 0;
}

unsigned LineOf(const toml::node& node) { return node.source().begin.line; }

void ReadItems(const toml::table& table, std::size_t index, TomlFile& out) {
  for (const auto& [key, node] : table) out.items.push_back({index, std::string(key.str()), ValueOf(node), static_cast<unsigned>(key.source().begin.line)});
}

void ReadTable(const toml::table& table, std::string_view name, bool is_array_element, TomlFile& out) {
  out.tables.push_back({std::string(name), is_array_element, LineOf(table)});
  ReadItems(table, out.tables.size() - 1, out);
}

}  // namespace

Result<TomlFile> ReadToml(std::string_view text, const std::string& file) {
  if (const unsigned line = LineOfDeepKey(text); line != 0) {
    return Status(Code::kInvalid, file + ":" + std::to_string(line) + ": a key with more than " + std::to_string(kMostDots) + " dots: keys are section.name");
  }
  const toml::parse_result parsed = toml::parse(text, file);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return Status(Code::kInvalid, file + ":" + std::to_string(error.source().begin.line) + ": " + std::string(error.description()));
  }
  TomlFile out;
  out.tables.push_back({});
  for (const auto& [key, node] : parsed.table()) {
    if (const toml::table* table = node.as_table()) {
      ReadTable(*table, key.str(), false, out);
    } else if (const toml::array* array = node.as_array(); array != nullptr && array->is_array_of_tables()) {
      for (const toml::node& element : *array) ReadTable(*element.as_table(), key.str(), true, out);
    } else {
      out.items.push_back({0, std::string(key.str()), ValueOf(node), static_cast<unsigned>(key.source().begin.line)});
    }
  }
  return out;
}

}  // namespace tierd::config
