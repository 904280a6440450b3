// What `tierctl top` shows: text made of two looks at the daemon. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tierctl {

struct TopLook {
  const nlohmann::json& status;  // of /v1/status
  const nlohmann::json& jobs;    // the array of /v1/jobs
};

// Rates are those between `before` and `now`, which are `seconds` apart; 0: there is no `before` yet, and no rate. At most `columns` wide (at least 40) and `rows`
// high (0: as many as there are), each line with its end.
std::string TopScreen(const TopLook& before, const TopLook& now, double seconds, std::size_t columns, std::size_t rows);

}  // namespace tierctl
