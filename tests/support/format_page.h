// The text of a format page (LAYOUT.md, PROTOCOL.md), in which a test looks for what it has computed, so that page and code cannot drift apart.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <span>
#include <string>

namespace tierd::testing {

class FormatPage {
 public:
  explicit FormatPage(const char* path) : path_(path) {
    std::ifstream file(path);
    text_.assign(std::istreambuf_iterator<char>(file), {});
  }
  const std::string& text() const { return text_; }
  void ExpectContains(const std::string& text) const { EXPECT_NE(text_.find(text), std::string::npos) << path_ << " lacks:\n" << text; }
  // Worked bytes as the pages show them, "    0000  04 00 00 ...", 16 a line.
  void ExpectBytes(std::span<const std::byte> bytes) const {
    std::string lines;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      char text[32];
      if (i % 16 == 0) {
        std::snprintf(text, sizeof text, "%s    %04zx ", i == 0 ? "" : "\n", i);
        lines += text;
      }
      std::snprintf(text, sizeof text, " %02x", static_cast<unsigned>(bytes[i]));
      lines += text;
    }
    ExpectContains(lines + "\n");
  }

 private:
  const std::string path_;
  std::string text_;
};

}  // namespace tierd::testing
