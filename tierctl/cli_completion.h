// Completion scripts for shells, made from the command line itself: verbs, their aliases and options. Only cli*.cc know CLI11.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <string>

namespace tierctl {

// The script for "bash", "zsh" or "fish"; "" for another shell.
std::string CompletionScript(const CLI::App& app, const std::string& shell);

}  // namespace tierctl
