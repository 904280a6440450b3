#include "tierctl/cli_checks.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "tierctl/simulate/study.h"
#include "tierd/config/units.h"

namespace tierctl {
namespace {

std::string Quoted(const std::string& text) { return "\"" + text + "\""; }

std::string Short(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", number);
  return text;
}

// All of `text` is one; strtod would pass over blanks and what follows.
std::optional<double> RealIn(const std::string& text) {
  double number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || end != text.data() + text.size() || !std::isfinite(number)) return std::nullopt;
  return number;
}

// "12" for 12 GB: what is only not a size for want of a unit.
bool LacksUnit(const std::string& text) { return !tierd::config::ParseSize(text) && tierd::config::ParseSize(text + "B").has_value() && !text.empty() && text.back() >= '0' && text.back() <= '9'; }

}  // namespace

std::string IsName(const std::string& text) { return text.empty() ? "the name is empty; is a variable not set?" : ""; }

std::string IsNotEmpty(const std::string& text) { return text.empty() ? "an empty value says nothing; leave the option out" : ""; }

std::string IsNoStdout(const std::string& text) { return text == "-" ? "stdout is the command's; give a file, or a descriptor of yours, such as /dev/fd/3" : ""; }

std::string IsLabel(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const bool letters = name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string::npos;
  const bool good = equals != std::string::npos && letters && !name.empty() && (name[0] < '0' || name[0] > '9') && !name.starts_with("__");
  return good ? "" : Quoted(text) + " is no NAME=VALUE";
}

Check IsNumberOf(const char* what) {
  return [what](const std::string& text) {
    const bool number = !text.empty() && text.size() <= 19 && text.find_first_not_of("0123456789") == std::string::npos;
    return number ? std::string() : Quoted(text) + " is no number of " + what;
  };
}

Check IsWhole(std::uint64_t least, std::uint64_t most) {
  return [=](const std::string& text) {
    std::uint64_t number = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool good = code == std::errc() && end == text.data() + text.size() && number >= least && number <= most;
    return good ? std::string() : Quoted(text) + " is no whole number from " + std::to_string(least) + " to " + std::to_string(most);
  };
}

std::string IsSeed(const std::string& text) {
  std::int64_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  return code == std::errc() && end == text.data() + text.size() ? "" : Quoted(text) + " is no whole number of 64 bits";
}

std::string IsFinite(const std::string& text) { return std::isfinite(std::strtod(text.c_str(), nullptr)) ? "" : Quoted(text) + " is no number"; }

std::string IsAbove0(const std::string& text) { return RealIn(text).value_or(0) > 0 ? "" : Quoted(text) + " is no number above 0"; }

Check IsReal(double least, double most) {
  return [=](const std::string& text) {
    const double number = RealIn(text).value_or(std::nan(""));
    if (number >= least && number <= most) return std::string();
    return Quoted(text) + " is no number " + (std::isfinite(most) ? "from " + Short(least) + " to " + Short(most) : "of " + Short(least) + " or more");
  };
}

std::string IsAmount(const std::string& text) {
  if (simulate::ParseAmount(text)) return "";
  return Quoted(text) + " is neither a size nor a share" + (LacksUnit(text) ? ": a unit is missing, e.g. " + text + "GB or " + text + "%" : ", such as 40GB or 25%");
}

std::string IsGoal(const std::string& text) {
  const std::optional<simulate::Amount> amount = simulate::ParseAmount(text.ends_with('%') ? text : text + '%');
  return amount && amount->bytes >= 0.01 && amount->bytes <= 1 ? "" : Quoted(text) + " is no share of the best speed from 1% to 100%, such as 95%";
}

Check IsSize(const char* example, std::uint64_t most) {
  return [=](const std::string& text) {
    const std::uint64_t bytes = tierd::config::ParseSize(text).value_or(0);
    if (bytes > 0 && bytes <= most) return std::string();
    const std::string limit = most < INT64_MAX ? " and at most " + tierd::config::FormatSize(most) : "";
    return Quoted(text) + " is no size above 0" + limit + (LacksUnit(text) ? ": a unit is missing, such as in " : ", such as ") + example;
  };
}

}  // namespace tierctl
