// Text that others chose (names of files, answers of a peer) as part of one line that people read: a log, a terminal. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tierd {

// Bytes of the well-formed UTF-8 sequence at the start of `text` (no overlong forms, no surrogates), 0 if there is none.
std::size_t Utf8Length(std::string_view text);

// Control characters and bytes that are no UTF-8 as \n, \t, \r, \x1b ...: such a text cannot move the
// cursor or fake a line. Backslashes stay as they are.
std::string Printable(std::string_view text);

}  // namespace tierd
