#include "tierctl/terminal/palette.h"

#include <algorithm>
#include <array>

namespace tierctl {
namespace {

constexpr char kEscape = '\033';
constexpr std::string_view kReset = "\033[0m";

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// The length of the colour that begins at `at`; 0: none does.
std::size_t ColorAt(std::string_view text, std::size_t at) {
  if (text[at] != kEscape) return 0;
  const std::size_t end = text.find('m', at);
  return end == std::string_view::npos ? 0 : end + 1 - at;
}

bool IsOneOf(std::string_view state, const auto& states) {
  return std::find(states.begin(), states.end(), state) != states.end();
}

}  // namespace

Palette Palette::For(Color color, bool is_terminal, const tierd::config::GetEnvironment& environment) {
  if (color != Color::kAuto) return Palette(color == Color::kAlways);
  const std::string term = environment("TERM").value_or("");
  const bool refused = !environment("NO_COLOR").value_or("").empty();
  return Palette(is_terminal && !refused && !term.empty() && term != "dumb");
}

std::string Palette::State(std::string_view state) const {
  constexpr std::array<std::string_view, 4> kGood{"ok", "up", "done", "running"};
  constexpr std::array<std::string_view, 4> kWrong{"degraded", "out", "hung", "failed"};
  constexpr std::array<std::string_view, 4> kAttention{"slow", "recovering", "partial", "verifying"};
  if (IsOneOf(state, kGood)) return Good(state);
  if (IsOneOf(state, kWrong)) return Wrong(state);
  return IsOneOf(state, kAttention) ? Attention(state) : std::string(state);
}

std::string Palette::Painted(const char* code, std::string_view text) const {
  if (!on_ || text.empty()) return std::string(text);
  return std::string(1, kEscape) + "[" + code + "m" + std::string(text) + std::string(kReset);
}

std::size_t Columns(std::string_view text) {
  std::size_t columns = 0;
  for (std::size_t i = 0; i < text.size();) {
    if (const std::size_t color = ColorAt(text, i)) {
      i += color;
      continue;
    }
    columns += IsContinuation(text[i]) ? 0 : 1;
    ++i;
  }
  return columns;
}

std::string FirstColumns(std::string_view text, std::size_t columns) {
  std::string out;
  std::size_t used = 0;
  bool painted = false;
  for (std::size_t i = 0; i < text.size();) {
    if (const std::size_t color = ColorAt(text, i)) {
      painted = text.substr(i, color) != kReset;
      out += text.substr(i, color);
      i += color;
      continue;
    }
    if (!IsContinuation(text[i]) && used++ == columns) break;
    out += text[i++];
  }
  return painted ? out + std::string(kReset) : out;
}

}  // namespace tierctl
