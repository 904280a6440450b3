// What tierctl writes: data on stdout, messages on stderr, JSON if asked for; names safe for the terminal. One per process, passed by reference.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tierctl/client/control_client.h"
#include "tierctl/terminal/palette.h"

namespace tierctl {

class Output {
 public:
  explicit Output(bool json, Color color = Color::kAuto);

  bool json() const { return json_; }
  // Whether progress may be drawn on stderr.
  bool progress() const { return progress_; }
  bool stdout_is_terminal() const { return stdout_is_terminal_; }
  // Colours of stdout and of stderr; none in JSON.
  const Palette& palette() const { return palette_; }
  const Palette& message_palette() const { return message_palette_; }

  // Data. Not for names: see Name.
  void Print(std::string_view text);
  void PrintJson(const nlohmann::json& document);
  // A file name as data: escaped on a terminal, its exact bytes otherwise.
  std::string Name(std::string_view path) const;

  // "tierctl: TEXT" on stderr, control characters escaped.
  void Message(std::string_view text);
  // Says what went wrong, line by line, and returns the exit code.
  int Fail(const Answer& answer);
  int Fail(ExitCode exit, std::string_view text);
  // Redraws the progress line; "" removes it.
  void Progress(std::string_view line);

 private:
  const bool json_;
  const bool stdout_is_terminal_;
  const bool progress_;
  const Palette palette_, message_palette_;
  std::size_t progress_width_ = 0;
};

// Columns aligned to the widest cell; the first `right` columns to the right, the last column as it is.
class Table {
 public:
  explicit Table(std::size_t right) : right_(right) {}
  void Row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  void Head(std::vector<std::string> cells, const Palette& palette) {
    for (std::string& cell : cells) cell = palette.Heading(cell);
    Row(std::move(cells));
  }
  std::string Text() const;

 private:
  const std::size_t right_;
  std::vector<std::vector<std::string>> rows_;
};

// "-" for a share of nothing; "100%" only if it is all, "0%" only if it is nothing.
std::string Percent(std::uint64_t part, std::uint64_t whole);
// "3.2 s", "2:05", "1:02:03".
std::string Span(double seconds);
std::string Plural(std::uint64_t n, const char* word);

}  // namespace tierctl
