#include "tierd/config/config_view.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace tierd::config {
namespace {

std::string TomlString(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += std::string("\\") + c;
    } else if (byte < 0x20 || byte == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04X", byte);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// "source.NAME" or "ram"; "" for a key without section.
std::string SectionOf(const std::string& key) {
  const std::size_t dot = key.rfind('.');
  return dot == std::string::npos ? "" : key.substr(0, dot);
}

}  // namespace

std::string PrintToml(const Config& config, const std::map<std::string, std::string>& here) {
  std::string out;
  std::string section;
  for (const EffectiveValue& value : config.Values()) {
    if (const std::string of = SectionOf(value.key); of != section) {
      section = of;
      out += section.starts_with("source.") ? "\n[[source]]\n" : "\n[" + section + "]\n";
    }
    std::string line = value.key.substr(section.empty() ? 0 : section.size() + 1) + " = " + (value.quoted ? TomlString(value.value) : value.value);
    line.resize(std::max<std::size_t>(line.size() + 2, 44), ' ');
    out += line + "# " + value.origin.Text();
    if (const auto found = here.find(value.key); found != here.end()) out += "; here " + found->second;
    out += '\n';
  }
  return out;
}

nlohmann::json ValuesJson(const Config& config) {
  nlohmann::json values = nlohmann::json::array();
  for (const EffectiveValue& value : config.Values()) {
    values.push_back({{"key", value.key}, {"value", value.value}, {"origin", value.origin.Text()}, {"reloadable", value.reloadable}});
  }
  nlohmann::json answer;
  answer["file"] = config.file().empty() ? nlohmann::json() : nlohmann::json(config.file());
  answer["values"] = std::move(values);
  return answer;
}

nlohmann::json ChangesJson(const std::vector<Change>& changes) {
  nlohmann::json answer = {{"applied", nlohmann::json::array()}, {"restart", nlohmann::json::array()}};
  for (const Change& change : changes) {
    answer[change.reloadable ? "applied" : "restart"].push_back({{"key", change.key}, {"from", change.from}, {"to", change.to}});
  }
  return answer;
}

std::vector<std::string> Lines(const Status& status) {
  std::vector<std::string> lines;
  std::string_view text = status.message();
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace tierd::config
