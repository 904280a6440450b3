// "key=value,key=value" of a policy's configuration. Pure function.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tierd::policies {

struct Parameter {
  std::string_view key;
  std::uint64_t* value;
};

// Sets the values that `text` names. False, and a sentence in `error` with the keys that there are, for one that is not or a value that is no number.
inline bool ReadParameters(std::string_view text, std::span<const Parameter> known, char* error, std::size_t error_bytes) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t equal = std::min(item.find('='), item.size());
    bool good = false;
    for (const Parameter& parameter : known) {
      if (parameter.key != item.substr(0, equal) || equal == item.size()) continue;
      const auto [stop, code] = std::from_chars(item.data() + equal + 1, item.data() + item.size(), *parameter.value);
      good = code == std::errc() && stop == item.data() + item.size();
    }
    if (good) continue;
    std::string names;
    for (const Parameter& parameter : known) names.append(names.empty() ? "are: " : ", ").append(parameter.key);
    std::snprintf(error, error_bytes, "no parameter, or no number: %.*s; there %s", static_cast<int>(std::min<std::size_t>(item.size(), 80)), item.data(),
                  names.empty() ? "are none" : names.c_str());
    return false;
  }
  return true;
}

}  // namespace tierd::policies
