#include "tierd/base/printable.h"

#include <cstdio>

namespace tierd {

std::size_t Utf8Length(std::string_view text) {
  const auto at = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto follows = [&](std::size_t i) { return (at(i) & 0xc0) == 0x80; };
  const unsigned c = at(0);
  if (text.empty()) return 0;
  if (c < 0x80) return 1;
  if (c >= 0xc2 && c <= 0xdf) return follows(1) ? 2 : 0;
  if (c >= 0xe0 && c <= 0xef) {
    const unsigned low = c == 0xe0 ? 0xa0 : 0x80;
    const unsigned high = c == 0xed ? 0x9f : 0xbf;
    return at(1) >= low && at(1) <= high && follows(2) ? 3 : 0;
  }
  if (c >= 0xf0 && c <= 0xf4) {
    const unsigned low = c == 0xf0 ? 0x90 : 0x80;
    const unsigned high = c == 0xf4 ? 0x8f : 0xbf;
    return at(1) >= low && at(1) <= high && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

std::string Printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = Utf8Length(text);
    const auto c = static_cast<unsigned char>(text[0]);
    const bool c1_control = length == 2 && c == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0;
    if (length == 0 || c < 0x20 || c == 0x7f || c1_control) {
      char escape[5];
      std::snprintf(escape, sizeof escape, "\\x%02x", c);
      out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : c == '\r' ? "\\r" : escape;
      text.remove_prefix(1);
    } else {
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return out;
}

}  // namespace tierd
