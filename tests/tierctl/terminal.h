// Runs tierctl with a terminal for stdout and stderr, and takes what it draws.
#pragma once

#include <string>
#include <vector>

namespace tierctl {

struct Drawn {
  int exit_code = -1;
  std::string text;            // as it came: with \r\n for line ends
  std::vector<double> times;   // seconds since the start at which a line began with \r, that is, was redrawn
};

// `environment` ("NAME=value") beside PATH and TERM=xterm; 80 columns and 24 rows.
Drawn RunOnTerminal(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {});

}  // namespace tierctl
