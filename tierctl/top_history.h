// The last minute of `tierctl top`: which share of the reads hit, and what the source gave. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tierctl {

class TopHistory {
 public:
  // Between two looks at /v1/status, `seconds` apart. Counters that went back are those of a new daemon.
  void Add(const nlohmann::json& before, const nlohmann::json& now, double seconds);
  // Two lines with their ends, a cell for each second and a half, the latest on the right; "" before there
  // is anything. `unicode`: with blocks, else with ASCII.
  std::string Text(bool unicode) const;

 private:
  struct Step {
    double seconds = 0;
    double hits = -1;        // of 1; negative: nobody read
    double source_rate = 0;  // bytes a second, bypassed reads included
  };
  template <typename ValueOf>
  std::string Line(ValueOf value_of, double top, bool unicode) const;

  std::deque<Step> steps_;  // the oldest first
};

// Whether the user's terminal shows UTF-8, as LC_ALL, LC_CTYPE or LANG say.
bool IsUtf8(const std::string& lc_all, const std::string& lc_ctype, const std::string& lang);

}  // namespace tierctl
