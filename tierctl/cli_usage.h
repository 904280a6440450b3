// One line for a wrong command line. Only cli.cc and cli_usage.cc know CLI11.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <string>
#include <vector>

namespace tierctl {

// "; did you mean X?" or "".
std::string SuggestionText(const std::string& word, const std::vector<std::string>& words);

// What is wrong, a suggestion, and where help is. `arguments`: argv without the program.
std::string Complaint(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& arguments);

}  // namespace tierctl
