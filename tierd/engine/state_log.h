// Which changes of state the log is told of (C4 in README.md): each one, but of what comes and goes only one per state in 10 s, and then what it is by that time.
//
// A value of the engine; loop thread only. Time is passed in.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tierd::engine {

class StateLog {
 public:
  static constexpr std::int64_t kAgainNs = 10'000'000'000;

  // The line for the log, "" if there is nothing to tell. A subject is taken for `sound` before its first look. Both views are of literals.
  std::string Look(const std::string& subject, std::string_view state, std::string_view sound, std::int64_t now_ns) {
    Told& told = told_.try_emplace(subject, Told{sound, {}}).first->second;
    if (state == told.state) return "";
    const auto [at, first] = told.when.try_emplace(state, now_ns);
    if (!first && now_ns - at->second < kAgainNs) return "";
    at->second = now_ns;
    std::string line = subject + " state=" + std::string(state) + " was=" + std::string(told.state);
    told.state = state;
    return line;
  }

 private:
  struct Told {
    std::string_view state;
    std::map<std::string_view, std::int64_t> when;  // the log was told of that state last
  };
  std::map<std::string, Told> told_;
};

}  // namespace tierd::engine
