#include "tierctl/terminal/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tierctl/client/paths.h"

namespace tierctl {

Output::Output(bool json, Color color)
    : json_(json), stdout_is_terminal_(::isatty(STDOUT_FILENO) == 1), progress_(::isatty(STDERR_FILENO) == 1),
      palette_(Palette::For(json ? Color::kNever : color, stdout_is_terminal_, tierd::config::ProcessEnvironment())),
      message_palette_(Palette::For(color, progress_, tierd::config::ProcessEnvironment())) {}

void Output::Print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void Output::PrintJson(const nlohmann::json& document) {
  // Strings of the daemon are valid UTF-8; ours may hold names that are not.
  Print(document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

std::string Output::Name(std::string_view path) const { return stdout_is_terminal_ ? Escaped(path) : std::string(path); }

void Output::Message(std::string_view text) {
  Progress("");
  std::string line = "tierctl: " + Escaped(text) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

int Output::Fail(const Answer& answer) {
  Message(answer.message);
  for (const std::string& line : answer.details) {
    if (line != answer.message) Message(line);
  }
  return answer.exit;
}

int Output::Fail(ExitCode exit, std::string_view text) {
  Message(text);
  return exit;
}

void Output::Progress(std::string_view line) {
  if (!progress_ || (line.empty() && progress_width_ == 0)) return;
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  line = line.substr(0, known ? size.ws_col - 1u : 79u);  // a longer one could not be erased
  std::string text = "\r" + std::string(line);
  if (line.size() < progress_width_) text += std::string(progress_width_ - line.size(), ' ');
  if (line.empty()) text += "\r";
  progress_width_ = line.size();
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

std::string Table::Text() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Columns(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - Columns(row[i]), ' ');
      const bool last = i + 1 == row.size();
      text += i < right_ ? pad + row[i] : last ? row[i] : row[i] + pad;
      text += last ? "\n" : "  ";
    }
  }
  return text;
}

std::string Percent(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "-";
  if (part == 0) return "0%";
  if (part >= whole) return "100%";
  const double percent = 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  char text[16];
  std::snprintf(text, sizeof text, "%.1f%%", std::clamp(percent, 0.1, 99.9));
  return text;
}

std::string Span(double seconds) {
  char text[48];
  const auto whole = static_cast<long>(std::llround(std::clamp(seconds, 0.0, 1e9)));
  if (seconds < 99.95) {
    std::snprintf(text, sizeof text, "%.1f s", std::max(seconds, 0.0));
  } else if (whole < 3600) {
    std::snprintf(text, sizeof text, "%ld:%02ld min", whole / 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%ld:%02ld:%02ld h", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return text;
}

std::string Plural(std::uint64_t n, const char* word) { return std::to_string(n) + " " + word + (n == 1 ? "" : "s"); }

}  // namespace tierctl
