// What the values of options may be. Each check gives "" for a text that may stand there, else one sentence that repeats the text and says what is wanted (CLI11 puts the
// option's name before it). Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tierctl {

using Check = std::function<std::string(const std::string&)>;

// "$DIR" of a script where DIR is not set: made absolute, it would be the working directory.
std::string IsName(const std::string& text);
std::string IsNotEmpty(const std::string& text);
std::string IsNoStdout(const std::string& text);
// NAME=VALUE with a name that Prometheus takes.
std::string IsLabel(const std::string& text);

// A number of a job or plan. CLI11 would take "-3" for a large one.
Check IsNumberOf(const char* what);
Check IsWhole(std::uint64_t least, std::uint64_t most);
// Of the signed kind, any that 64 bits hold.
std::string IsSeed(const std::string& text);
// CLI11's ranges let pass what compares with nothing.
std::string IsFinite(const std::string& text);
std::string IsAbove0(const std::string& text);
Check IsReal(double least, double most);

// "40 GB" or "25%" of the dataset.
std::string IsAmount(const std::string& text);
// "95%" or "95": 1 to 100.
std::string IsGoal(const std::string& text);
// Above 0 and at most `most` bytes; `example` is what the sentence shows.
Check IsSize(const char* example, std::uint64_t most = INT64_MAX);

}  // namespace tierctl
