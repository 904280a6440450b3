// "Did you mean": the nearest of some words to a mistyped one. Pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tierd::config {

// Insertions, deletions, replacements and swaps of neighbours that turn a into b.
std::size_t EditDistance(std::string_view a, std::string_view b);

// The nearest word if it is near enough to be meant (a third of the letters wrong at most, or `word` is a part of it); "" otherwise.
std::string Nearest(std::string_view word, std::span<const std::string> words);

}  // namespace tierd::config
