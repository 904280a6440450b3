// Runs the program and takes what it wrote.
#pragma once

#include <string>
#include <vector>

namespace tierctl {

struct Ran {
  int exit_code = -1;
  std::string out;
  std::string err;
};

// tierctl with these arguments; environment: PATH only, and `environment` ("NAME=value"). `input` is its stdin.
Ran RunTierctl(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {}, const std::string& input = "");
Ran RunProgram(const std::vector<std::string>& command, const std::vector<std::string>& environment, const std::string& input);

}  // namespace tierctl
