// Curves over capacity as a picture: hit rate and epoch time, one line per policy, as SVG; the same with its table as a page of HTML that needs nothing
// else. Pure functions.
#pragma once

#include <string>

#include "tierctl/simulate/study.h"

namespace tierctl::simulate {

// `title` is text, not markup.
std::string Svg(const Outcome& outcome, const std::string& title);
std::string Html(const Outcome& outcome, const std::string& title);

}  // namespace tierctl::simulate
