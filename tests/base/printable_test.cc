#include "tierd/base/printable.h"

#include <gtest/gtest.h>

namespace tierd {
namespace {

TEST(Printable, LeavesTextAsItIs) {
  for (const char* text : {"", "plain", "a b", "Grüße", "日本語", "back\\slash", "\U0001F600"}) EXPECT_EQ(Printable(text), text);
}

TEST(Printable, EscapesWhatMovesACursorOrFakesALine) {
  EXPECT_EQ(Printable("a\nb\rc\td"), "a\\nb\\rc\\td");
  EXPECT_EQ(Printable("\x1b[2J"), "\\x1b[2J");
  EXPECT_EQ(Printable(std::string_view("\0x", 2)), "\\x00x");
  EXPECT_EQ(Printable("\x7f"), "\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b" "31m"), "\\xc2\\x9b31m") << "CSI in one character";
}

TEST(Printable, EscapesBytesThatAreNoUtf8) {
  EXPECT_EQ(Printable("\xff"), "\\xff");
  EXPECT_EQ(Printable("\xc0\x8a"), "\\xc0\\x8a") << "an overlong newline";
  EXPECT_EQ(Printable("a\xe2\x82"), "a\\xe2\\x82") << "a cut character";
}

}  // namespace
}  // namespace tierd
