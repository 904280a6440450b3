// Colours for a terminal, each with one meaning: red is wrong, yellow wants attention, green is well, bold
// is a heading. Values; pure but for the look at the environment.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tierd/config/config.h"

namespace tierctl {

enum class Color { kAuto, kAlways, kNever };

class Palette {
 public:
  explicit Palette(bool on = false) : on_(on) {}
  // By --color; kAuto: where the stream is a terminal that can do it (TERM is set and not "dumb"), and the
  // user has not set NO_COLOR to anything.
  static Palette For(Color color, bool is_terminal, const tierd::config::GetEnvironment& environment);

  bool on() const { return on_; }
  std::string Good(std::string_view text) const { return Painted("32", text); }
  std::string Attention(std::string_view text) const { return Painted("33", text); }
  std::string Wrong(std::string_view text) const { return Painted("31", text); }
  std::string Heading(std::string_view text) const { return Painted("1", text); }
  // The state of a daemon, tier, source or job, in the colour of what it means.
  std::string State(std::string_view state) const;

 private:
  std::string Painted(const char* code, std::string_view text) const;

  bool on_;
};

// How many columns a text takes without its colours; one for each character of UTF-8.
std::size_t Columns(std::string_view text);
// The first so many columns of it. What was painted is closed.
std::string FirstColumns(std::string_view text, std::size_t columns);

}  // namespace tierctl
