#include "tierd/config/units.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>

namespace tierd::config {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

constexpr std::uint64_t kKilo = 1000;
constexpr std::uint64_t kKibi = 1024;
constexpr std::array<Unit, 11> kSizeUnits = {{{"PB", kKilo * kKilo * kKilo * kKilo * kKilo},
                                              {"PiB", kKibi * kKibi * kKibi * kKibi * kKibi},
                                              {"TB", kKilo * kKilo * kKilo * kKilo},
                                              {"TiB", kKibi * kKibi * kKibi * kKibi},
                                              {"GB", kKilo * kKilo * kKilo},
                                              {"GiB", kKibi * kKibi * kKibi},
                                              {"MB", kKilo * kKilo},
                                              {"MiB", kKibi * kKibi},
                                              {"kB", kKilo},
                                              {"KiB", kKibi},
                                              {"B", 1}}};
// Without the B: as Slurm means them in --mem, and as it writes them. Read, never written.
constexpr std::array<Unit, 5> kBareUnits = {{{"P", kKibi * kKibi * kKibi * kKibi * kKibi}, {"T", kKibi * kKibi * kKibi * kKibi}, {"G", kKibi * kKibi * kKibi}, {"M", kKibi * kKibi}, {"K", kKibi}}};
constexpr std::array<Unit, 6> kTimeUnits = {{{"ms", 1}, {"s", 1000}, {"min", 60'000}, {"m", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}}};

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool EqualNoCase(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [&](char x, char y) { return lower(x) == lower(y); });
}

// Digits with at most one point, no sign, no exponent. Leaves what follows in *rest.
std::optional<double> LeadingNumber(std::string_view text, std::string_view* rest) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  if (end == 0 || text[0] == '.') return std::nullopt;
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + end, value, std::chars_format::fixed);
  if (error != std::errc() || stop != text.data() + end) return std::nullopt;
  *rest = Trim(text.substr(end));
  return value;
}

// `text` times the unit it names; exact for whole numbers.
template <std::size_t N>
std::optional<std::uint64_t> Scaled(std::string_view text, const std::array<Unit, N>& units) {
  text = Trim(text);
  if (text == "0") return 0;
  std::string_view rest;
  const std::optional<double> number = LeadingNumber(text, &rest);
  if (!number) return std::nullopt;
  const auto unit = std::find_if(units.begin(), units.end(), [&](const Unit& u) { return EqualNoCase(u.name, rest); });
  if (unit == units.end()) return std::nullopt;
  std::uint64_t whole = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  if (error == std::errc() && (stop == text.data() + text.size() || *stop != '.')) {
    return whole > kMax / unit->factor ? std::nullopt : std::optional(whole * unit->factor);
  }
  const double scaled = std::floor(*number * static_cast<double>(unit->factor));
  return scaled >= 9.2e18 ? std::nullopt : std::optional(static_cast<std::uint64_t>(scaled));
}

}  // namespace

std::optional<std::uint64_t> ParseSize(std::string_view text) {
  const std::optional<std::uint64_t> bytes = Scaled(text, kSizeUnits);
  return bytes ? bytes : Scaled(text, kBareUnits);
}

std::string FormatSize(std::uint64_t bytes) {
  if (bytes == 0) return "0";
  std::string best;
  for (const Unit& unit : kSizeUnits) {
    if (bytes % unit.factor != 0) continue;
    std::string text = std::to_string(bytes / unit.factor) + " " + std::string(unit.name);
    if (best.empty() || text.size() < best.size()) best = std::move(text);
  }
  return best;
}

std::string HumanSize(std::uint64_t bytes) {
  static constexpr std::array<const char*, 6> kNames = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= (unit == 0 ? 1024 : 999.5) && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  const int digits = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f %s", digits, value, kNames[unit]);
  return text;
}

std::optional<std::uint32_t> ParseDurationMs(std::string_view text) {
  const std::optional<std::uint64_t> ms = Scaled(text, kTimeUnits);
  if (!ms || *ms > std::numeric_limits<std::uint32_t>::max()) return std::nullopt;
  return static_cast<std::uint32_t>(*ms);
}

std::string FormatDurationMs(std::uint32_t ms) {
  if (ms == 0) return "0";
  if (ms % 3'600'000 == 0) return std::to_string(ms / 3'600'000) + "h";
  if (ms % 1000 == 0) return std::to_string(ms / 1000) + "s";
  return std::to_string(ms) + "ms";
}

std::optional<double> ParsePercent(std::string_view text) {
  std::string_view rest;
  const std::optional<double> value = LeadingNumber(Trim(text), &rest);
  if (!value || rest != "%" || *value <= 0 || *value > 100) return std::nullopt;
  return value;
}

std::string FormatPercent(double percent) {
  char text[384];  // the least double has 326 characters
  const auto [end, error] = std::to_chars(text, text + sizeof text, percent, std::chars_format::fixed);  // ParsePercent takes no exponent
  static_cast<void>(error);
  return std::string(text, end) + "%";
}

}  // namespace tierd::config
