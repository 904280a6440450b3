// What `tierctl top` shows: text made of two looks at the daemon. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tierctl/terminal/palette.h"

namespace tierctl {

struct TopLook {
  const nlohmann::json& status;  // of /v1/status
  const nlohmann::json& jobs;    // the array of /v1/jobs
};

struct TopStyle {
  std::size_t columns = 80;  // at least 40
  std::size_t rows = 0;      // 0: as many as there are
  Palette palette = Palette();
  std::string history = "";  // lines of top_history.h
};

// Rates are those between `before` and `now`, which are `seconds` apart; 0: there is no `before` yet, and no
// rate. Each line has its end.
std::string TopScreen(const TopLook& before, const TopLook& now, double seconds, const TopStyle& style);

}  // namespace tierctl
